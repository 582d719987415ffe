"""The watch over the alerts of a run: said once, over once, a function of the verdicts alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from streamad.judge.scoring import ModelInService
from streamad.judge.shift import LATEST, AlertWatch, lines_of
from streamad.messages import Decision, Event, ModelRef, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import EventLog
from streamad.testing import ManualClock
from tests.support.runtime.pipeline import START_US, SquareScorer, model_of, settings_of

MODEL = model_of()
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
NORMAL, SHIFTED = [1.0, 1.0, 1.0], [1.0, 11.0, 1.0]


class Watched:
    """A watch, the events that it emits, and verdicts for it."""

    def __init__(
        self,
        models: Sequence[ModelInService] = (MODEL,),
        settings: Settings | None = None,
        *,
        normal: Callable[[Verdict], bool] | None = None,
        learns: bool = False,
    ) -> None:
        self.events: list[Event] = []
        self.settings = settings or settings_of()
        self.models = list(models)
        log = EventLog("plant", ManualClock(START_US), self.events.append)
        self.watch = AlertWatch(self.settings, lambda: self.models, log.emit, normal=normal, learns=learns)
        self._numbers = count()

    def add(self, n: int, decision: Decision, means: list[float] | None = None, model: ModelRef = MODEL.ref) -> None:
        for _ in range(n):
            self.watch.judged(self.verdict(decision, means or NORMAL, model))

    def verdict(self, decision: Decision, means: list[float], model: ModelRef = MODEL.ref) -> Verdict:
        number = next(self._numbers)
        is_scored = decision in ("normal", "anomalous")
        return Verdict(
            verdict_id=f"{number:032x}",
            stream="r1",
            sequence=f"B-{number}",
            decision=decision,
            reason="marker",
            start_time=BEGIN + timedelta(hours=number),
            end_time=BEGIN + timedelta(hours=number + 1),
            n_samples=16,
            score=1.0 if is_scored else None,
            p_value=0.5 if is_scored else None,
            model=model,
            means=means if is_scored else [],
            spreads=[0.0] * len(means) if is_scored else [],
            created_at=BEGIN,
        )

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def test_a_shifted_plant_is_said_once_with_the_channel_and_what_to_do() -> None:
    run = Watched()
    run.add(40, "normal")
    run.add(100, "anomalous", SHIFTED)
    assert run.kinds == ["many_alerts"]
    (event,) = run.events
    assert event.model == MODEL.ref
    assert "sequences alert, since 2026-03-02T16:00:00Z, far too many: the configured rate is 0.02" in event.message
    assert "either many sequences are really anomalous, or the plant differs from its training" in event.message
    assert "pressure: level 11, in training 1" in event.message
    assert "temp: " not in event.message
    assert "streamad train 'FOLDER/*'" in event.message
    assert "relearn" not in event.message
    assert event.figures["since_unix_s"] == (BEGIN + timedelta(hours=40)).timestamp()
    assert event.figures["n_calibration"] == 200
    found = run.watch.found["test"]
    assert (found.n_alerts, found.n_judged, found.is_over) == (100, LATEST, False)
    assert found.since == BEGIN + timedelta(hours=40)


def test_it_is_said_at_the_same_sequence_however_long_the_plant_was_quiet() -> None:
    def said_after(n_normal: int) -> int:
        run = Watched()
        run.add(n_normal, "normal")
        for n in range(1, 101):
            run.add(1, "anomalous", SHIFTED)
            if run.events:
                return n
        raise AssertionError("nothing was said")

    assert said_after(0) == 13
    assert said_after(100) == said_after(5_000) == 59
    assert said_after(20) == said_after(20)


def test_it_is_said_again_only_after_it_was_over() -> None:
    run = Watched()
    run.add(60, "anomalous", SHIFTED)
    run.add(200, "normal")
    assert run.kinds == ["many_alerts", "many_alerts_over"]
    assert run.watch.found["test"].is_over
    lines = [*lines_of(run.watch.found, run.settings, learns=False)]
    assert "alerted from 2026-03-01T00:00:00Z on" in lines[0]
    assert lines[0].endswith("; fewer alert by now")
    assert not any("streamad train" in line for line in lines)
    run.add(100, "anomalous", SHIFTED)
    assert run.kinds == ["many_alerts", "many_alerts_over", "many_alerts"]
    assert not run.watch.found["test"].is_over


def test_shares_around_the_limit_are_said_once() -> None:
    run = Watched()
    for _ in range(400):  # 55 % alerts: the window goes from too many to some fewer and back
        run.add(11, "anomalous")
        run.add(9, "normal")
    assert run.kinds == ["many_alerts"]


def test_a_plant_with_every_fourth_sequence_faulty_is_not_called_shifted() -> None:
    run = Watched()
    for _ in range(500):
        run.add(1, "anomalous", SHIFTED)
        run.add(3, "normal")
    assert run.kinds == []
    assert run.watch.found == {}


def test_if_no_channel_moved_that_is_said() -> None:
    run = Watched()
    run.add(100, "anomalous")
    assert "no channel differs from training in level or spread" in run.events[0].message


def test_a_version_without_training_windows_names_no_channel() -> None:
    model = replace(MODEL, reference=None)
    run = Watched([model])
    run.add(100, "anomalous", SHIFTED)
    assert run.watch.found["test"].moved is None
    assert "level" not in run.events[0].message
    assert run.watch.found["test"].as_dict()["channels"] is None


@pytest.mark.parametrize("decision", ["unscorable", "learning"])
def test_sequences_without_a_score_do_not_count(decision: Decision) -> None:
    run = Watched()
    run.add(12, "anomalous", SHIFTED)
    run.add(500, decision)
    assert run.kinds == []
    run.add(1, "anomalous", SHIFTED)
    assert run.kinds == ["many_alerts"]


def test_one_sequence_says_nothing() -> None:
    run = Watched()
    run.add(1, "anomalous", SHIFTED)
    assert run.watch.found == {}


def test_another_version_begins_anew() -> None:
    run = Watched()
    run.add(60, "anomalous", SHIFTED)
    new = replace(MODEL, ref=ModelRef("test", "0002"))
    run.models = [new]
    run.add(12, "anomalous", SHIFTED, model=new.ref)
    assert run.kinds == ["many_alerts"]
    assert run.watch.found == {}
    run.add(1, "anomalous", SHIFTED, model=new.ref)
    assert [event.model for event in run.events] == [MODEL.ref, new.ref]


def test_verdicts_of_a_version_that_is_no_longer_in_service_do_not_count() -> None:
    run = Watched()
    run.add(500, "anomalous", SHIFTED, model=ModelRef("test", "0000"))
    assert run.kinds == []


def test_each_of_several_models_is_watched_and_named() -> None:
    sections: dict[str, Any] = {"models": {"field": "recipe", "values": ["a", "b"]}}
    settings = settings_of(**sections)
    models = [replace(MODEL, ref=ModelRef(f"default.{value}", "0001")) for value in "ab"]
    run = Watched(models, settings, learns=True)
    for _ in range(100):
        run.add(1, "anomalous", SHIFTED, model=models[0].ref)
        run.add(1, "normal", model=models[1].ref)
    assert [event.model for event in run.events] == [models[0].ref]
    lines = [*lines_of(run.watch.found, settings, learns=True)]
    assert all(line.startswith("default.a: ") for line in lines)
    assert "streamad models relearn --since 2026-03-01T00:00:00Z --model default.a" in lines[-1]


def test_of_many_models_five_are_shown() -> None:
    settings = settings_of(models={"field": "recipe"})
    models = [replace(MODEL, ref=ModelRef(f"default.{number}", "0001")) for number in range(7)]
    run = Watched(models, settings)
    for model in models:
        run.add(20, "anomalous", SHIFTED, model=model.ref)
    lines = [*lines_of(run.watch.found, settings, learns=False)]
    assert lines[-1] == "far too many sequences of 2 more models alert: see the events many_alerts"
    assert len(lines) == 5 * 3 + 1


def test_with_labels_the_normal_sequences_alone_tell() -> None:
    run = Watched(normal=lambda verdict: verdict.means == SHIFTED)
    run.add(300, "anomalous")  # labelled faults
    assert run.kinds == []
    run.add(10, "anomalous", SHIFTED)
    assert run.kinds == ["many_alerts"]
    assert "10 of the latest 10 sequences labelled normal alert" in run.events[0].message
    assert "the plant differs from its training, or the labels are wrong" in run.events[0].message


def test_more_than_five_channels_are_counted() -> None:
    names = [f"c{number}" for number in range(8)]
    settings = settings_of(channels=[{"name": name} for name in names])
    run = Watched([model_of(SquareScorer((8, 16)))], settings)
    run.add(20, "anomalous", [2.0 + number for number in range(8)])
    channels = [*run.watch.found["test"].channel_lines]
    assert [line.partition(":")[0] for line in channels[:5]] == ["c7", "c6", "c5", "c4", "c3"]
    assert channels[5:] == ["further channels that differ from training in level or spread: 3"]
