"""The detector of the config, and the limit of its training time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streamad.commands.shared.plants import load_plant
from streamad.errors import ConfigError
from streamad.learn.parts import detector_for
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


def test_a_detector_without_a_limit_refuses_one(tmp_path: Path) -> None:
    said = problem_of(tmp_path, detector="ensemble", time_limit="1h")
    assert said.startswith("model.time_limit: detector ensemble has no limit of training time")
    assert problem_of(tmp_path, time_limit="1h") == said  # also the kind that is the default


def test_a_limit_is_given_once(tmp_path: Path) -> None:
    said = problem_of(tmp_path, detector="neutral_ad", time_limit="1h", options={"time_limit_s": 5})
    assert "model.options.time_limit_s says the same" in said


def test_a_limit_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be longer than 0"):
        detector_of(tmp_path, detector="neutral_ad", time_limit=0)
