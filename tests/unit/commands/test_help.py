"""Every command's help ends with an example that its own parser takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest
import typer
from typer.testing import CliRunner

from streamad.cli import app
from streamad.messages import message_schemas

ROOT = typer.main.get_command(app)


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    children = getattr(group, "commands", None)
    if children is None:
        yield path, group
        return
    for name, child in children.items():
        yield from commands(child, (*path, name))


COMMANDS = dict(commands(ROOT))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_has_an_example_that_is_understood(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    match = re.search(r"Examples?: (.+)$", command.help or "", re.DOTALL)
    assert match is not None, command.help
    for example in " ".join(match[1].split()).split("; "):
        words = shlex.split(example)
        assert tuple(words[: 1 + len(path)]) == ("streamad", *path)
        context = command.make_context("streamad", words[1 + len(path) :], resilient_parsing=False)
        context.close()


@pytest.mark.parametrize("path", [("inliers",), ("inliers", "veto")], ids=" ".join)
def test_a_veto_is_said_to_keep_out_of_training_alone(path: tuple[str, ...]) -> None:
    """docs/learning/feedback.md: calibration, comparison and promotion are the same as without marks."""
    said = " ".join(CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "Keep sequences out of training." in said
    assert "all learning" not in said
    judgement = message_schemas()["feedback"]["properties"]["judgement"]["description"]
    assert "veto: neither, or unknown; out of training." in judgement
