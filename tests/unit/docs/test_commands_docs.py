"""Each command that a page shows in a console block is one that streamad's own parser takes; each script exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from streamad.cli import app

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    + [page for folder in ("docs", "deploy") for page in (ROOT / folder).rglob("*.md")]
)
BLOCK = re.compile(r"^ *```(?:console|sh|bash)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^ *(?:\$ )?(?:STREAMAD_\w+=\S+ )*(streamad .*?)(?: +#.*)?$", re.MULTILINE)
SCRIPT = re.compile(r"(?<![\w/])(?:scripts|benchmarks|examples)/[\w/.]*\w")
WRONG = (KeyError, typer.BadParameter.__bases__[0])  # typer carries its own click


def shown(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command of streamad in the page's blocks."""
    for block in BLOCK.findall(page.read_text("utf-8").replace("\\\n", " ")):
        for line in SHOWN.findall(block):
            for part in re.split(r" (?:&&|\||;|&) ?", line):
                if part.startswith("streamad ") and "..." not in part:
                    yield shlex.split(part.partition(" > ")[0])[1:]


def check(words: list[str]) -> None:
    """Parse ``words`` as streamad does, without running anything. Raises click's errors."""
    command: click.Command = typer.main.get_command(app)
    context = click.Context(command)
    while words and (children := getattr(command, "commands", None)) is not None:
        while words and words[0].startswith("-"):
            words = words[1:]
        command, words = children[words[0]], words[1:]
        context = click.Context(command, parent=context)
    command.make_context("streamad", words, parent=context).close()


def test_a_wrong_command_is_found() -> None:
    for wrong in (["trains"], ["train", "--promot"], ["models", "show", "--nothing"]):
        with pytest.raises(WRONG):
            check(wrong)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_each_command_of_a_page_is_understood(page: Path) -> None:
    wrong = {}
    for words in shown(page):
        try:
            check(words)
        except WRONG as error:
            wrong[" ".join(words)] = str(error)
        except (SystemExit, typer.Exit):  # --help
            continue
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_each_script_that_a_page_shows_exists(page: Path) -> None:
    named = {name for block in BLOCK.findall(page.read_text("utf-8")) for name in SCRIPT.findall(block)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_shows_commands() -> None:
    assert len(list(shown(ROOT / "README.md"))) >= 12
