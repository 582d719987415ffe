"""Alerts and drift together mean a changed plant, told once; either alone does not, nor do scattered faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamad.drift.lasting_change import Changed, ChangeGuard
from streamad.drift.monitor import SCORES, Drift, DriftMonitor
from streamad.settings.learning import DriftSettings
from streamad.types import ChannelSpec, Window


def drift(what: str = SCORES, since_us: int = 0) -> Drift:
    return Drift(what, since_us, 2.0, 0.5, 0.01)


class Guarded:
    """A guard of 10 sequences at a share of a half; the number of a sequence stands for its time."""

    def __init__(self) -> None:
        self.guard = ChangeGuard(DriftSettings(changed_share=0.5, changed_over=10))
        self.number = 0
        self.told: list[tuple[int, Changed]] = []

    def run(self, alerts: str, *drifts: Drift) -> None:
        """Take one sequence per letter, x for an alert; ``drifts`` come with the first."""
        for letter in alerts:
            before = self.guard.changed
            self.guard.add(self.number, letter == "x", drifts)
            if self.guard.changed not in (None, before):
                self.told.append((self.number, self.guard.changed))
            drifts, self.number = (), self.number + 1


def test_it_reports_if_more_than_the_share_alert_and_something_has_drifted() -> None:
    guarded = Guarded()
    guarded.run("." * 30)
    guarded.run("xxx")
    guarded.run("xx", drift(since_us=31))
    assert guarded.told == []  # exactly half of the latest ten
    guarded.run("x")
    assert guarded.told == [(35, Changed(30, 0.6, (SCORES,)))]


TEMP = "mean of temp_c"
CASES: dict[str, tuple[list[tuple[Any, ...]], list[tuple[int, Changed]]]] = {
    "alerts without drift are faults": ([("." * 20 + "x" * 100,)], []),
    "drift without alerts is a plant that the model still knows": ([("." * 10, drift())] * 10, []),
    "drift that is noticed late counts while alerts last": (
        [("." * 20 + "x" * 40,), ("x", drift(TEMP, since_us=25))],
        [(60, Changed(20, 1.0, (TEMP,)))],
    ),
    "drift noticed when alerts began counts when their share rises slowly": (
        [("." * 20,), ("x", drift(since_us=3)), (".x.x.x.x" * 3 + "xxx",)],
        [(45, Changed(3, 0.6, (SCORES,)))],
    ),
    "drift noticed just before the alerts counts": (
        [("." * 20,), ("...", drift(since_us=15)), ("x" * 6,)],
        [(28, Changed(15, 0.6, (SCORES,)))],
    ),
    "drift of long ago has nothing to do with faults today": ([("." * 20, drift()), ("x" * 10,)], []),
    "fewer sequences than asked for are not enough": ([("x" * 9, drift())], []),
    "as many as asked for are": ([("x" * 9, drift()), ("x",)], [(9, Changed(0, 1.0, (SCORES,)))]),
    "all that drifted is named once, with the earliest beginning": (
        [("." * 20,), ("x", drift(SCORES, 20), drift(TEMP, 12)), ("xx", drift(SCORES, 21)), ("x" * 7,)],
        [(25, Changed(12, 0.6, (SCORES, TEMP)))],
    ),
}


@pytest.mark.parametrize(("runs", "told"), CASES.values(), ids=CASES.keys())
def test_a_change_is_reported_if_drift_and_alerts_come_together(
    runs: list[tuple[Any, ...]], told: list[tuple[int, Changed]]
) -> None:
    guarded = Guarded()
    for letters, *drifts in runs:
        guarded.run(letters, *drifts)
    assert guarded.told == told


def test_it_reports_once_until_it_is_restarted() -> None:
    guarded = Guarded()
    guarded.run("x" * 200, drift())
    guarded.run("x" * 50, drift())
    assert len(guarded.told) == 1
    guarded.guard.restart()
    guarded.run("x" * 50)  # the drift of before belongs to the model of before
    assert len(guarded.told) == 1
    guarded.run("x", drift(since_us=260))
    assert [number for number, _ in guarded.told] == [9, 300]
    assert guarded.told[1][1].since_us == 250


# --- together with the monitor ---------------------------------------------------------------------------------------


def watched(shares: list[tuple[int, float, float]], seed: int) -> list[tuple[int, Changed]]:
    """Run stretches of (sequences, share of faulty ones, shift of the level); return what the guard told, and when."""
    settings = DriftSettings()
    monitor, guard = DriftMonitor((ChannelSpec("temp_c"),), settings), ChangeGuard(settings)
    rng = np.random.default_rng(seed)
    told: list[tuple[int, Changed]] = []
    number = 0
    for n, faulty, shift in shares:
        for _ in range(n):
            is_faulty = rng.random() < faulty
            values = rng.normal(size=(1, 8)) + rng.normal() + shift + 30 * is_faulty * rng.choice([-1, 1])
            p_value = 0.005 if is_faulty else float(rng.random())
            drifts = monitor.add(number, Window(values.astype(np.float32), 8), p_value)
            before = guard.changed
            guard.add(number, p_value <= 0.02, drifts)
            told += [(number, guard.changed)] if guard.changed not in (None, before) else []
            number += 1
    return told


@pytest.mark.parametrize("seed", range(3))
def test_a_plant_with_many_scattered_faults_has_not_changed(seed: int) -> None:
    assert watched([(300, 0.0, 0.0), (3_000, 0.3, 0.0)], seed) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_lasting_change_is_reported_within_the_sequences_that_it_takes(seed: int) -> None:
    told = watched([(400, 0.02, 0.0), (300, 0.9, 0.0)], seed)
    assert len(told) == 1
    assert 426 <= told[0][0] <= 470
    assert 395 <= told[0][1].since_us <= 403
