"""When training is due: pure, by times that the tests pass in."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed, TrainingOutcome
from streamad.learn.trainer.triggers import Triggers, failed_on_request
from streamad.settings.learning import LearningSettings

MINUTE_US, HOUR_US, DAY_US = 60_000_000, 3_600_000_000, 86_400_000_000
REQUEST = TrainingRequest(reason="drift", requested_us=0)
DONE = TrainingOutcome(model="m", version="0002", promoted=False, reason="", request=REQUEST)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)


NOON = at("2026-03-01 12:00")


def failed(kind: Any = "failed") -> TrainingFailed:
    return TrainingFailed(model="m", error="no", request=REQUEST, kind=kind)


def triggers_of(last_training_us: int | None = None, **changes: Any) -> Triggers:
    """Triggers of a process that starts at noon."""
    return Triggers(LearningSettings(**{"schedule": None, "on_drift": True, **changes}), NOON, last_training_us)


def due(
    triggers: Triggers,
    now_us: int,
    *,
    new: int = 0,
    stored: int = 1000,
    has_model: bool = True,
    drifted: str | None = None,
) -> str | None:
    request = triggers.due(now_us, n_accepted_new=new, n_stored=stored, has_model=has_model, drifted=drifted)
    assert request is None or request.requested_us == now_us
    return None if request is None else request.reason


@pytest.mark.parametrize(
    ("settings", "last_us", "state", "expected"),
    [
        ({}, None, {"stored": 199, "has_model": False}, None),
        ({}, None, {"stored": 200, "has_model": False}, "first"),
        ({}, None, {"stored": 10_000}, None),  # there is a model
        ({"after_inliers": 50}, None, {"new": 49}, None),
        ({"after_inliers": 50}, None, {"new": 50}, "inliers"),
        ({}, None, {"drifted": "scores"}, "drift"),
        ({"on_drift": False}, None, {"drifted": "scores"}, None),
        ({"schedule": "0 3 * * *"}, None, {}, None),  # no time of it was missed before the first start
        ({"schedule": "0 3 * * *"}, NOON - 5 * DAY_US, {}, "schedule"),
        ({"schedule": "0 3 * * *"}, at("2026-03-01 03:00:01"), {}, None),  # trained since its last time
        (
            {"schedule": "* * * * *", "after_inliers": 10},  # without a model only the first training is due
            NOON - 9 * DAY_US,
            {"new": 100, "stored": 100, "has_model": False, "drifted": "scores"},
            None,
        ),
    ],
)
def test_what_is_due_at_a_start(
    settings: dict[str, Any], last_us: int | None, state: dict[str, Any], expected: str | None
) -> None:
    assert due(triggers_of(last_us, **settings), NOON, **state) == expected


def test_schedule_at_the_boundary() -> None:
    triggers = triggers_of(schedule="0 3 * * *")
    assert due(triggers, at("2026-03-02 02:59:59.999999")) is None
    request = triggers.due(at("2026-03-02 03:00"), n_accepted_new=0, n_stored=0, has_model=True, drifted=None)
    assert request is not None
    assert (request.reason, request.detail) == ("schedule", "due at 2026-03-02T03:00+00:00")


def test_the_schedule_is_in_utc_whatever_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        triggers = triggers_of(schedule="0 3 * * *")
        assert due(triggers, at("2026-03-02 03:00")) == "schedule"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_times_of_the_schedule_missed_while_the_process_was_down_make_one_training_at_the_next_start() -> None:
    triggers = triggers_of(NOON - 5 * DAY_US, schedule="0 3 * * *")
    assert due(triggers, NOON) == "schedule"
    triggers.ended(DONE, NOON + HOUR_US)
    assert due(triggers, NOON + 3 * HOUR_US) is None
    assert due(triggers, at("2026-03-02 03:00")) == "schedule"


def test_min_interval_at_the_boundary() -> None:
    triggers = triggers_of(NOON, after_inliers=10, min_interval="1h")
    assert due(triggers, NOON + HOUR_US - 1, new=10) is None
    assert due(triggers, NOON + HOUR_US, new=10) == "inliers"
    triggers.ended(DONE, NOON + 2 * HOUR_US)  # it counts from the end
    assert due(triggers, NOON + 3 * HOUR_US - 1, new=10) is None
    assert due(triggers, NOON + 3 * HOUR_US, new=10) == "inliers"


def test_a_requested_training_counts_for_the_interval_and_the_schedule() -> None:
    triggers = triggers_of(schedule="0 13 * * *", min_interval="10m")
    triggers.ended(DONE, at("2026-03-01 13:00:30"))
    assert due(triggers, at("2026-03-01 13:30")) is None


def test_drift_within_the_interval_waits_for_its_end() -> None:
    triggers = triggers_of(NOON, min_interval="1h")
    assert due(triggers, NOON + MINUTE_US, drifted="mean of temp") is None
    request = triggers.due(NOON + HOUR_US, n_accepted_new=0, n_stored=0, has_model=True, drifted=None)
    assert request is not None
    assert (request.reason, request.detail) == ("drift", "mean of temp")
    triggers.ended(DONE, NOON + HOUR_US)
    assert due(triggers, NOON + 9 * HOUR_US) is None


def test_drift_that_came_during_a_training_is_not_forgotten_by_its_end() -> None:
    triggers = triggers_of(min_interval="1h")
    assert due(triggers, NOON, drifted="scores") == "drift"
    assert due(triggers, NOON + MINUTE_US, drifted="mean of temp") is None
    triggers.ended(DONE, NOON + 2 * MINUTE_US)
    assert due(triggers, NOON + 2 * MINUTE_US + HOUR_US) == "drift"


def test_a_drift_that_was_trained_on_does_not_come_back_with_a_later_failure() -> None:
    triggers = triggers_of(min_interval=0)
    assert due(triggers, NOON, drifted="scores") == "drift"
    triggers.ended(DONE, NOON + MINUTE_US)
    triggers.ended(failed(), NOON + 2 * MINUTE_US)
    assert due(triggers, NOON + DAY_US) is None


def test_a_failed_training_is_tried_again_after_pauses_that_double_up_to_a_day() -> None:
    triggers = triggers_of(min_interval="1h")
    now_us = NOON
    assert due(triggers, now_us, drifted="scores") == "drift"
    for hours in (2, 4, 8, 16, 24, 24):
        triggers.ended(failed(), now_us)
        assert due(triggers, now_us + hours * HOUR_US - 1) is None
        now_us += hours * HOUR_US
        assert due(triggers, now_us) == "drift", "and what made it due is remembered"
    triggers.ended(DONE, now_us)
    assert due(triggers, now_us + HOUR_US, drifted="scores") == "drift", "a success ends the backing off"


@pytest.mark.parametrize(("min_interval", "pause_us"), [(0, MINUTE_US), ("7d", 7 * DAY_US)])
def test_the_pause_after_a_failure_is_a_minute_at_least_and_never_shortens_the_interval(
    min_interval: Any, pause_us: int
) -> None:
    triggers = triggers_of(min_interval=min_interval, after_inliers=10)
    triggers.ended(failed(), NOON)
    assert due(triggers, NOON + pause_us - 1, new=10) is None
    assert due(triggers, NOON + pause_us, new=10) == "inliers"


@pytest.mark.parametrize(("kind", "hours", "expected"), [("failed", 2, "schedule"), ("refused", 9, None)])
def test_a_scheduled_training_is_due_again_after_a_failure_but_not_after_another_worker_s(
    kind: str, hours: int, expected: str | None
) -> None:
    triggers = triggers_of(schedule="0 13 * * *", min_interval="1h")
    one = at("2026-03-01 13:00")
    assert due(triggers, one) == "schedule"
    triggers.ended(failed(kind), one + MINUTE_US)
    assert due(triggers, one + MINUTE_US + hours * HOUR_US) == expected


def test_an_interrupted_training_does_not_back_off() -> None:
    triggers = triggers_of(min_interval="1h")
    assert due(triggers, NOON, drifted="scores") == "drift"
    triggers.ended(failed("interrupted"), NOON + MINUTE_US)
    assert due(triggers, NOON + MINUTE_US + HOUR_US) == "drift"


def test_a_clock_set_back_delays_by_no_more_than_the_interval() -> None:
    triggers = triggers_of(NOON, after_inliers=10, schedule="0 * * * *", min_interval="1h")
    assert due(triggers, NOON - 30 * DAY_US, new=10) is None
    assert due(triggers, NOON - 30 * DAY_US + HOUR_US, new=10) == "schedule"


def test_a_clock_set_forward_by_days_makes_one_training() -> None:
    triggers = triggers_of(NOON, schedule="0 3 * * *")
    ahead = NOON + 40 * DAY_US
    assert due(triggers, ahead) == "schedule"
    triggers.ended(DONE, ahead)
    assert due(triggers, ahead + 2 * HOUR_US) is None
    assert due(triggers, NOON + HOUR_US) is None, "set right again"
    assert due(triggers, NOON + DAY_US) == "schedule"


@pytest.mark.parametrize("reason", ["command", "relearn"])
def test_a_failure_on_request_delays_no_first_training(reason: Any) -> None:
    """An operator tried before there was anything to train on: that held the first model up for an hour."""
    asked = TrainingRequest(reason=reason, requested_us=NOON)
    triggers = triggers_of(min_interval="1h")
    triggers.ended(TrainingFailed(model="m", error="0 sequences", request=asked), NOON)
    assert due(triggers, NOON + MINUTE_US, stored=200, has_model=False) == "first"
    assert failed_on_request(TrainingFailed(model="m", error="no", request=asked))
    assert not failed_on_request(failed())
    assert not failed_on_request(DONE)
    assert not failed_on_request(None)
