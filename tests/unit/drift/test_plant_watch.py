"""Drift and lasting changes in words: each drift once, a change loudly and every hour while it lasts."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.drift.monitor import Drift
from streamad.drift.plant_watch import Notice, PlantWatch
from streamad.settings.learning import DriftSettings
from streamad.types import ChannelSpec, Window

CHANNELS = (ChannelSpec("temp", "degC"), ChannelSpec("count"))
HOUR_US = 3_600_000_000
START_US = 1_767_225_600_000_000
SETTINGS = DriftSettings(min_sequences=30, changed_over=20, changed_share=0.5)


class Plant:
    """Sequences one minute apart, at a level of one's choice."""

    def __init__(self, settings: DriftSettings = SETTINGS, relearn: str = "streamad models relearn") -> None:
        self.watch = PlantWatch(CHANNELS, settings, relearn=relearn)
        self.rng = np.random.default_rng(0)
        self.time_us = START_US
        self.drifts: list[Drift] = []

    def run(
        self, n: int, *, level: float = 0.0, alerts: bool = False, scored: bool = True, p_value: float | None = None
    ) -> None:
        for _ in range(n):
            self.time_us += 60_000_000
            values = (self.rng.normal(level, 1.0, (2, 1)) + self.rng.normal(0, 0.1, (2, 8))).astype(np.float32)
            usual = 0.001 if alerts else float(self.rng.uniform(0.02, 1))
            given = (p_value or usual) if scored else None
            self.drifts += self.watch.add(self.time_us, Window(values, 8), given, is_alert=alerts)


def changed(relearn: str = "streamad models relearn") -> Plant:
    plant = Plant(relearn=relearn)
    plant.run(200)
    assert plant.drifts == []
    plant.run(60, level=9.0, alerts=True)
    assert plant.drifts
    return plant


def test_drift_is_reported_with_what_moved_since_when_and_how_strongly() -> None:
    notice = PlantWatch(CHANNELS, SETTINGS).drift_notice(Drift("mean of temp", START_US, 3.25, 81.2, 85.04))
    assert notice == Notice(
        "drift",
        "mean of temp moved from 81.2 to 85.04 degC since 2026-01-01T00:00:00Z (3.2 standard deviations)",
        {"strength": 3.25, "before": 81.2, "after": 85.04, "since_unix_s": START_US / 1e6},
    )


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("scores", "p-values moved from 0.5 to 0.1 since"),
        ("spread of count", "spread of count moved from 0.5 to 0.1 s"),
    ],
)
def test_scores_and_channels_without_a_unit_are_described_too(what: str, words: str) -> None:
    assert words in PlantWatch(CHANNELS, SETTINGS).drift_notice(Drift(what, START_US, 2.0, 0.5, 0.1)).message


@pytest.mark.parametrize("relearn", ["streamad models relearn", "streamad models relearn --model default.blue"])
def test_a_lasting_change_is_an_error_with_the_command_that_helps(relearn: str) -> None:
    plant = changed(relearn)
    notice = plant.watch.alarm(0)
    assert notice is not None
    assert (notice.kind, notice.level) == ("plant_changed", "error")
    assert notice.figures["alert_share"] == 1.0
    since_us = notice.figures["since_unix_s"] * 1e6
    assert abs(since_us - (START_US + 201 * 60_000_000)) < 15 * 60_000_000
    for words in ("mean of temp", "100\u00a0% of the latest", f"{relearn} --since 2026-01-01T03:"):
        assert words in notice.message


def test_it_is_reported_again_every_hour_while_it_lasts() -> None:
    plant = changed()
    assert plant.watch.alarm(0) is not None
    assert plant.watch.alarm(HOUR_US - 1) is None
    assert plant.watch.alarm(HOUR_US) is not None
    assert plant.watch.alarm(HOUR_US + 1) is None
    assert plant.watch.alarm(2 * HOUR_US) is not None


def test_a_change_ends_at_the_sequence_at_which_alerts_are_few_again() -> None:
    plant = changed()
    assert plant.watch.alarm(0) is not None
    plant.run(9)
    assert plant.watch.changed is not None
    assert plant.watch.alert_share == 0.55
    plant.run(1)
    assert plant.watch.changed is None


def test_the_plant_s_return_is_reported_once_and_no_reminder_follows() -> None:
    plant = changed()
    assert plant.watch.alarm(0) is not None
    plant.run(30)
    notice = plant.watch.alarm(1)
    assert notice is not None
    assert (notice.kind, notice.level) == ("plant_back", "info")
    assert "no more than 50\u00a0% of the latest" in notice.message
    assert plant.watch.alarm(2) is None
    assert plant.watch.alarm(2 * HOUR_US) is None


def test_a_change_that_was_over_before_it_was_reported_is_not_reported() -> None:
    plant = changed()
    plant.run(30)
    assert plant.watch.alarm(0) is None


def test_a_change_that_is_over_may_come_again() -> None:
    plant = changed()
    plant.run(200)
    plant.run(10, level=9.0, alerts=True)
    assert plant.watch.changed is None
    plant.run(10, level=9.0, alerts=True)
    assert plant.watch.changed is not None


def test_a_new_champion_ends_it_and_a_second_change_is_reported_again() -> None:
    plant = changed()
    assert plant.watch.alarm(0) is not None
    plant.watch.restart()
    assert plant.watch.changed is None
    assert plant.watch.alarm(0) is None
    assert plant.watch.alarm(5 * HOUR_US) is None
    plant.run(200, level=9.0)
    assert plant.watch.changed is None
    plant.run(60, level=0.0, alerts=True)
    assert plant.watch.alarm(5 * HOUR_US) is not None


@pytest.mark.parametrize(("restarts", "drifted"), [(False, {"scores"}), (True, set())])
def test_the_scores_of_two_champions_are_not_taken_together(restarts: bool, drifted: set[str]) -> None:
    plant = Plant()
    plant.run(200)
    plant.run(6, p_value=0.1)
    if restarts:
        plant.watch.restart()
    plant.run(6, p_value=0.1)
    assert {drift.what for drift in plant.drifts} == drifted


def test_a_channel_that_moves_is_noticed_whatever_champions_came_and_went() -> None:
    plant = Plant()
    plant.run(20)
    for _ in range(9):
        plant.watch.restart()
        plant.run(20)
    assert plant.drifts == []
    plant.run(40, level=9.0)
    assert "mean of temp" in {drift.what for drift in plant.drifts}


def test_without_a_model_channels_drift_all_the_same_but_nothing_is_a_lasting_change() -> None:
    plant = Plant()
    plant.run(200, scored=False)
    plant.run(60, level=9.0, alerts=True, scored=False)
    assert plant.drifts
    assert plant.watch.changed is None
