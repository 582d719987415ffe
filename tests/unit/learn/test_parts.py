"""The detector of the config, its effort, and the limit of its training time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.commands.shared.plants import load_plant
from streamad.errors import ConfigError
from streamad.learn.parts import detector_for, effort_of
from tests.support.learning.stored import plant_of


def detector_of(folder: Path, **model: Any) -> Any:
    return detector_for(load_plant(plant_of(folder, model=model)))


def problem_of(folder: Path, **model: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        detector_of(folder, **model)
    (problem,) = refused.value.problems
    return str(problem)


def test_the_limit_reaches_a_detector_that_has_one(tmp_path: Path) -> None:
    options = detector_of(tmp_path, detector="neutral_ad", time_limit="1.5m", options={"epochs": 7}).options
    assert (options.time_limit_s, options.epochs) == (90.0, 7)
    assert detector_of(tmp_path, detector="neutral_ad").options.time_limit_s is None


def test_effort_and_limit_reach_the_default_detector(tmp_path: Path) -> None:
    options = detector_of(tmp_path, effort="normal", time_limit="1m").options
    assert (options.effort, options.time_limit_s) == ("normal", 60.0)
    assert detector_of(tmp_path).options.effort == "quick"


@pytest.mark.parametrize(("key", "value"), [("effort", "normal"), ("time_limit", "1h")])
def test_a_detector_that_trains_in_seconds_refuses_effort_and_limit(tmp_path: Path, key: str, value: str) -> None:
    said = problem_of(tmp_path, detector="pca", **{key: value})
    assert said.startswith(f"model.{key}: the detector pca has none")


def test_a_first_training_is_quick_whatever_the_effort(tmp_path: Path) -> None:
    for detector, expected in (("ensemble", "quick"), ("neutral_ad", None)):
        settings = {"detector": detector} | ({"effort": "thorough"} if expected else {})
        plant = load_plant(plant_of(tmp_path, model=settings))
        assert getattr(detector_for(plant, effort="quick").options, "effort", None) == expected  # type: ignore[attr-defined]
        assert effort_of(plant.settings.model) == ("thorough" if expected else None)


def test_a_limit_is_given_once(tmp_path: Path) -> None:
    said = problem_of(tmp_path, detector="neutral_ad", time_limit="1h", options={"time_limit_s": 5})
    assert "model.options.time_limit_s says the same" in said


def test_a_limit_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be longer than 0"):
        detector_of(tmp_path, detector="neutral_ad", time_limit=0)
