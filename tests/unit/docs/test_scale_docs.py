"""The page on scale has the measured figures of other pages, and its plan follows from the costs that it states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamad.settings.plant_yaml import SequenceSettings, WindowSettings

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = " ".join((DOCS / "guide" / "scale.md").read_text("utf-8").split())
CORES = 64


def number(pattern: str) -> float:
    (found,) = re.findall(pattern, PAGE)
    return float(found.replace(",", ""))


def row(title: str) -> list[float]:
    (cells,) = re.findall(rf"\| {title} \| ([^|]+) \| ([^|]+) \|", PAGE)
    words = {"million": 1e6, "GB": 1e9, "MB/s": 1e6, "hours": 1.0}
    return [float(first) * words.get(unit, 1.0) for first, _, unit in (cell.partition(" ") for cell in cells)]


def test_the_throughputs_are_those_of_the_page_on_speed() -> None:
    table = (DOCS / "internals" / "speed.md").read_text("utf-8").partition("<!-- throughput: begin -->")[2]
    for figure in re.findall(r"\d+,\d+(?= samples| in chunks)", PAGE):
        assert f"| {figure} |" in table.partition("<!-- throughput: end -->")[0], figure


def test_the_bounds_are_the_defaults() -> None:
    assert f"{SequenceSettings().max_streams:,} in each partition" in PAGE
    assert f"a window of {WindowSettings().length} points" in PAGE


def test_the_plan_follows_from_the_costs() -> None:
    n_bytes, verdict_bytes = number(r"in Parquet takes (\d+) bytes"), number(r"a verdict takes (\d+) bytes")
    reading_s, judging_s = (
        number(r"([\d.]+) µs if ten streams") / 1e6,
        number(r"judging a sequence takes ([\d.]+) ms") / 1e3,
    )
    rows = 1e12 / n_bytes
    assert number(r"([\d.]+) billion rows of 9 channels") * 1e9 == pytest.approx(rows, rel=0.05)
    lengths = [float(each.replace(",", "")) for each in re.findall(r"\| ([\d,]+) rows a sequence", PAGE)]
    for at, length in enumerate(lengths):
        sequences = rows / length
        reading_h, judging_h = rows * reading_s / 3600, sequences * judging_s / 3600
        hours = (reading_h + judging_h) / CORES
        for title, wanted in (
            ("sequences", sequences),
            ("reading, core hours", reading_h),
            ("judging, core hours", judging_h),
            (f"on {CORES} cores", hours),
            ("read by each core", 1e12 / (reading_h + judging_h) / 3600),
            ("verdicts", sequences * verdict_bytes),
        ):
            assert row(title)[at] == pytest.approx(wanted, rel=0.08), (title, wanted)
