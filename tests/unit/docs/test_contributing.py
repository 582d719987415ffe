"""CONTRIBUTING's map: every question leads to a file that holds what is asked for."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| (Where .*?\?) \| `([^`]+)`: `([^`]+)`.* \|$", re.MULTILINE)


def test_each_question_has_one_file_that_answers_it() -> None:
    found = ROW.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(found) == 12
    missing = [question for question, path, word in found if word not in (ROOT / path).read_text("utf-8")]
    assert missing == []


def test_no_other_module_of_the_file_source_lists_the_formats() -> None:
    """A new format is its module and its entry in ``known.py``."""
    folder = ROOT / "connectors/streamad_connectors/files"
    others = [path for path in folder.rglob("*.py") if path.name not in ("known.py", "options.py")]
    lists = [
        path.name for path in others if {'"parquet"', '"npz"'} <= set(re.findall(r'"\w+"', path.read_text("utf-8")))
    ]
    assert lists == []
