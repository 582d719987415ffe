"""The page on batches and rates has the tables that its script prints, and its sentences agree with the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality.batches_needed import (
    RATES,
    achieved,
    by_rate,
    by_recordings,
    calibration_needed,
    recordings_needed,
    within_twice,
)
from streamad.judge.calibration import OUT_OF_FOLD_BELOW, certifiable_rate
from streamad.settings.learning import ModelSettings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "batches.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_script() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and line[2].isdigit()]
    assert rows == [*by_rate(), *by_recordings()]


@pytest.mark.parametrize("rate", RATES)
def test_the_fewest_certify_the_rate_and_one_less_does_not(rate: float) -> None:
    least = calibration_needed(rate)
    assert least == round(1 / rate) - 1
    assert certifiable_rate(least) == pytest.approx(rate)
    assert certifiable_rate(least - 1) > rate
    assert achieved(least, rate)[0] == pytest.approx(rate)
    assert within_twice(rate) == round(4 / rate) - 1


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    model = ModelSettings()
    assert (model.calibration, 2 * model.folds, OUT_OF_FOLD_BELOW) == (0.5, 10, 150)
    assert recordings_needed(49, 0.02) == 150
    assert calibration_needed(0.05) == 19
