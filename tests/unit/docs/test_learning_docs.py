"""The page on learning names every event that a learning run tells, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "learning" / "learning.md").read_text(encoding="utf-8")
ROOMS = ("learner", "learners", "trainings", "noticing")


def test_every_event_is_documented_once_with_its_level() -> None:
    code = "\n".join((ROOT / "streamad" / "learn" / f"{room}.py").read_text(encoding="utf-8") for room in ROOMS)
    told = set(re.findall(r'(?:Notice|_tell)\(\s*"([a-z_]+)"', code))
    told |= {"model_promoted", "model_not_promoted"}  # one or the other
    assert '"model_promoted" if result.promoted else "model_not_promoted"' in code
    table = PAGE.partition("## Events")[2]
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (info|warning|error) \|", table, re.MULTILINE))
    assert rows.keys() == told


def test_files_that_the_page_names_exist() -> None:
    named = re.findall(r"`((?:tests|benchmarks|examples|scripts)/[\w./-]+)`", PAGE)
    linked = [f"docs/{name}" for name in re.findall(r"\]\(([\w./-]+\.(?:md|yaml))", PAGE)]
    assert [name for name in (*named, *linked) if not (ROOT / name).exists()] == []
