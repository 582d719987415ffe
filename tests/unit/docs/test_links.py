"""Links, anchors and paths in the Markdown pages lead somewhere."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in ("docs", "deploy") for page in (ROOT / folder).rglob("*.md"))])
FOLDERS = ("streamad", "connectors", "models", "tests", "benchmarks", "docs", "examples", "scripts", "deploy")
LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCED = re.compile(r"^( *)(```|~~~).*?^\1\2\s*?$", re.MULTILINE | re.DOTALL)
NAMED_PATH = re.compile(
    rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]+\.(?:py|md|yaml)\b(?!\.\w)"
    r"|(?<=`)(?:tests|benchmarks|examples|scripts)/[\w./-]+(?=`)"
)
NAMED_MODULE = re.compile(r"`(\w+\.py)`")


def prose(page: Path) -> str:
    """Return the page without its code blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the page's headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*?)\s*#*$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_relative_link_and_anchor_of_a_page_exists(page: Path) -> None:
    broken = []
    for link in LINK.findall(prose(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_of_the_repository_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    missing = [path for path in NAMED_PATH.findall(text) if not (ROOT / path).exists()]
    assert missing + [name for name in NAMED_MODULE.findall(text) if name not in modules] == []


def test_the_index_links_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text("utf-8"))}
    assert {page for page in PAGES if index.parent in page.parents} - {index} <= linked


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The `run` command: a--b\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n\n## [Linked](x.md), é_x\n"
    )
    assert anchors(page) == {"the-run-command-a--b", "twice", "twice-1", "linked-é_x"}
