"""The figures of the pages are those of the stored results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.speed import tables


@pytest.mark.parametrize("name", tables.TABLES)
def test_the_tables_of_a_page_are_those_of_the_results(name: str) -> None:
    page = (tables.PAGES / name).read_text(encoding="utf-8")
    assert tables.updated(page, name) == page, "run: python -m benchmarks.speed.tables"


def test_a_page_without_a_mark_is_an_error() -> None:
    with pytest.raises(SystemExit, match="lacks <!-- growth: begin -->"):
        tables.updated("# Growth", "growth.md")


def test_a_result_is_kept_with_machine_and_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")
    printed = tmp_path / "printed"
    printed.write_text('a line for people\n{"not": "the last"}\n{"rounds": 3}\n')
    tables.store("one", printed)
    kept = json.loads((tmp_path / "results" / "one.json").read_text())
    assert kept["result"] == {"rounds": 3} == tables.read("one")
    assert "cores of" in kept["machine"]
    assert kept["measured"].startswith("20")
