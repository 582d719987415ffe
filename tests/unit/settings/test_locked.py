"""``model.locked``: a config in which anything would change a model by itself is refused, and says what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.errors import ConfigError
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings, load_settings

ACTS = {
    "schedule": ("0 3 * * *", "schedule: '0 3 * * *'"),
    "after_inliers": (500, "after_inliers: 500"),
    "on_drift": (True, "on_drift: true"),
    "relearn": ("auto", "relearn: auto"),
    "promote": ("auto", "promote: auto"),
    "feedback_trust": ("auto", "feedback_trust: auto"),
}
QUIET = {"schedule": None, "on_drift": False, "promote": "person"}


def problems(folder: Path, **sections: Any) -> str:
    path = folder / "plant.yaml"
    model = {"locked": True, "device": "cpu", **sections.pop("model", {})}
    content = {"channels": [{"name": "a"}], "source": {"url": "in.jsonl"}, "model": model, **sections}
    path.write_text(yaml.safe_dump(content))
    try:
        load_settings(path)
    except ConfigError as error:
        return "; ".join(f"{each.path}: {each.message}" for each in error.problems)
    return ""


def test_a_config_without_learning_may_be_locked(tmp_path: Path) -> None:
    assert problems(tmp_path) == ""
    settings = load_settings(tmp_path / "plant.yaml")
    assert (settings.needs_approvals, settings.learning) == (True, None)


@pytest.mark.parametrize("key", ACTS)
def test_each_option_that_acts_is_named(tmp_path: Path, key: str) -> None:
    value, named = ACTS[key]
    text = problems(tmp_path, learning={**QUIET, key: value})
    assert text.startswith("learning: model.locked: true, and this section would train, calibrate and change models")
    assert text.count(named) == 1
    assert not [other for name, (_, other) in ACTS.items() if name != key and f", {other}" in text]
    assert "first_training: 200" in text


@pytest.mark.parametrize("key", sorted(LearningSettings.model_fields))
def test_no_value_of_the_section_is_allowed(tmp_path: Path, key: str) -> None:
    default = LearningSettings().model_dump(mode="json")[key]
    assert "learning: model.locked: true" in problems(tmp_path, learning={**QUIET, key: default})


def test_the_environment_is_refused_likewise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMAD_LEARNING__RELEARN", "auto")
    assert "relearn: auto" in problems(tmp_path)


@pytest.mark.parametrize("model", [{"backend": "auto"}, {"device": "auto"}, {"backend": "auto", "device": "auto"}])
def test_what_scores_does_not_hang_on_the_machine(tmp_path: Path, model: dict[str, str]) -> None:
    text = problems(tmp_path, model=model)
    assert "model: model.locked: true, and" in text
    assert all(f"{key}: auto" in text for key in model)


def test_approvals_are_needed_if_the_config_says_so() -> None:
    content: dict[str, Any] = {"channels": [{"name": "a"}], "source": {"url": "in.jsonl"}}
    asks = [None, {}, {"promote": "auto"}, {"promote": "person"}]
    assert [Settings(**content, learning=each).needs_approvals for each in asks] == [False, False, False, True]
