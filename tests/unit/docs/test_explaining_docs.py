"""docs/guide/explaining.md names the bounds that the code has."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from streamad.commands import replay
from streamad.commands.explain.finding import checked_id
from streamad.commands.report.command import MOST_PICTURES, report
from streamad.commands.report.gathering import MOST_ALERTS, MOST_EVENTS
from streamad.commands.report.sections import DRIFT
from streamad.errors import UsageError
from streamad.judge.evaluation import alerts_by_chance
from streamad.pictures.content import MOST_PANELS
from streamad.pictures.drawing import FORMATS
from streamad.pictures.facts import MARKS

PAGE = " ".join((Path(__file__).resolve().parents[3] / "docs/guide/explaining.md").read_text("utf-8").split())


def test_the_bounds_of_the_page_are_those_of_the_code() -> None:
    default = inspect.signature(report).parameters["pictures"].default
    assert MOST_PANELS == 6
    assert "at least three and at most six" in PAGE
    assert f"draws the first {replay.MOST_PICTURES} alerts" in PAGE
    assert f"the {default} farthest above their threshold (`--pictures N`, at most {MOST_PICTURES})" in PAGE
    assert f"then a table of the newest {MOST_ALERTS}" in PAGE
    assert f"the newest of {MOST_EVENTS}" in PAGE
    assert " and ".join(f"`{kind}`" for kind in DRIFT) in PAGE


def test_formats_signs_and_ids_are_those_of_the_code() -> None:
    assert FORMATS == ("png", "svg", "pdf")
    assert "`--plot FILE.png`, `.svg` or `.pdf`" in PAGE
    assert f"{' '.join(MARKS.values())} | the segments: above the band, below it, of unusual shape" in PAGE
    assert "its first six digits suffice" in PAGE
    assert checked_id("e9e8fd") == "e9e8fd"
    with pytest.raises(UsageError):
        checked_id("e9e8f")


def test_the_range_of_chance_in_the_text_is_what_the_report_computes() -> None:
    low, high = alerts_by_chance(200, 99, 0.02) or (None, None)
    assert f"of 200 normal sequences at 2 %, with 99 calibration sequences, {low} to {high} alert" in PAGE
