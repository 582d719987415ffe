"""What a person reads of a run: alerts with their id, events with their model, counts in the right number."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from streamad.commands.shared.monitor import Monitor, alert_line
from streamad.commands.shared.report import RunReport, print_summary
from streamad.messages import Alert, Event, ModelRef
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import LearningCounters

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = ModelRef("default.A", "0003")


def test_an_alert_ends_with_as_much_of_its_id_as_feedback_needs() -> None:
    alert = Alert(
        alert_id="5f0c2a91b7d04ce2a90f1c3377be1f10",
        stream="r1",
        sequence="B-2",
        reason="marker",
        start_time=NOW,
        end_time=NOW,
        n_samples=3,
        score=2.5,
        p_value=0.01,
        false_alarm_rate=0.02,
        tail="empirical",
        model=MODEL,
        created_at=NOW,
    )
    assert Text.from_markup(alert_line(alert)).plain == "ALERT r1 B-2  score 2.500  p 0.0100  id 5f0c2a91"


@pytest.mark.parametrize(
    ("models", "message", "said"),
    [
        ({"field": "recipe"}, "the mean has moved", "EVENT drift: default.A: the mean has moved"),
        ({"field": "recipe"}, "default.A 0003 is in service", "EVENT drift: default.A 0003 is in service"),
        (None, "the mean has moved", "EVENT drift: the mean has moved"),
    ],
)
def test_an_event_names_its_model_where_there_are_several(
    models: dict[str, str] | None, message: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content: dict[str, Any] = {"channels": [{"name": "a"}], "source": {"url": "in.jsonl"}, "models": models}
    monitor = Monitor(Plant(Settings(**content), Path(), SystemClock()))
    monitor._on_event(Event(kind="drift", message=message, model=MODEL, created_at=NOW))
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize(
    ("n", "said"),
    [(1, "1 drift, 1 training, 1 promotion, 1 swap"), (2, "2 drifts, 2 trainings, 2 promotions, 2 swaps")],
)
def test_the_summary_counts_one_as_one(n: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    learned = LearningCounters(drifts=n, trainings=n, promotions=n, swaps=n)
    counters = {"verdicts": {}, "dead_letters": 0, "late_samples": 0, "learning": {"default": asdict(learned)}}
    print_summary(RunReport(counters, 1.0, "default", [], []), 0.02)
    assert f"0 aside; {said}" in " ".join(capsys.readouterr().out.split())
