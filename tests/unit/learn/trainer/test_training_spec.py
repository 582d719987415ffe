"""Settings reach the training process as they are in the worker: exactly, and whatever the environment says."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import ConfigError
from streamad.learn.trainer.child import settings_from_json, settings_to_json
from streamad.settings.plant_yaml import Settings, load_settings
from tests.support.runtime.pipeline import settings_of

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
EVERYTHING: dict[str, Any] = {
    "name": "press",
    "channels": [{"name": "temp", "unit": "°C", "field": "a.b"}, {"name": "flow"}, {"name": "force"}],
    "source": {"url": "kafka://host:9092/in", "options": {"sasl": {"password": {"env": "KAFKA_PASSWORD"}}, "n": 3}},
    "decode": {"timezone": "Europe/Berlin", "max_clock_skew": "90m", "max_message_bytes": "3MiB", "time_unit": "ms"},
    "sequences": {"end": ["gap", "length"], "gap": "250ms", "length": 99, "closed_memory": "8d", "late": "drop"},
    "window": {"length": 77, "resample": {"period": "1.5s"}, "longer": "truncate", "max_missing": 0.1},
    "model": {"registry": Path("/var/lib/registry"), "options": {"epochs": 7, "rate": 1e-3, "deep": [1, [2.5, None]]}},
    "models": {"field": "recipe", "values": ["a", "b"], "unknown": "default"},
    "alerts": {"false_alarm_rate": 0.1},
    "learning": {
        "store": "s3://bucket/inliers?endpoint=x",
        "max_age": "30d",
        "flush_interval": 0.000001,
        "schedule": None,
        "after_inliers": 50,
        "min_interval": "1.5h",
        "drift": {"false_events": 0.5},
        "promotion": {"detection": 0.01},
    },
    "sinks": {"alerts": "out/alerts.jsonl", "options": {"kafka": {"acks": "all"}}},
    "run": {"checkpoint": None, "batch_wait": "1us", "stall_timeout": 0},
}


@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_settings_survive_the_way_to_another_process(changes: dict[str, Any]) -> None:
    settings = settings_of(**changes)
    told = settings_from_json(settings_to_json(settings))
    assert type(told) is Settings
    assert told == settings
    assert told.channel_specs == settings.channel_specs
    assert isinstance(told.model.registry, Path)
    assert isinstance(told.sequences.end, tuple)


@pytest.mark.parametrize("name", ["plant.yaml", "plant.kafka.yaml"])
def test_the_examples_survive(name: str) -> None:
    settings = load_settings(EXAMPLES / name)
    assert settings_from_json(settings_to_json(settings)) == settings


def test_the_environment_has_no_second_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "plant.yaml"
    path.write_text("channels: [{name: a}]\nsource: {url: x}\nlearning: {min_interval: 2h}\n")
    monkeypatch.setenv("STREAMAD_LEARNING__MIN_INTERVAL", "30m")
    settings = load_settings(path)
    text = settings_to_json(settings)
    monkeypatch.setenv("STREAMAD_LEARNING__MIN_INTERVAL", "5m")
    monkeypatch.setenv("STREAMAD_NAME", "another")
    monkeypatch.setenv("STREAMAD_CHANNELS", "[]")
    told = settings_from_json(text)
    assert told == settings
    assert told.learning is not None
    assert told.learning.min_interval == 1_800_000_000


def test_secrets_are_not_passed_on_but_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    text = settings_to_json(settings_of(**EVERYTHING))
    assert "KAFKA_PASSWORD" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("odd", [math.inf, math.nan, date(2026, 3, 1), object()])
def test_options_that_json_would_change_are_told(odd: object) -> None:
    with pytest.raises(ConfigError, match="holds values that JSON has no form for"):
        settings_to_json(settings_of(model={"options": {"odd": odd}}))
