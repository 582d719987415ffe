"""What feedback can do to a plant's model: an attack by false marks, and honest marks on a new recipe.

The plant is the simulated fermenter, the detector the default one.

Attack: every alert on one kind of fault is called a false alarm (``--marks``), then the model is retrained 11 times:
from the second time on a tenth of the batches are faulty, and ten more such marks come each time. After each: the share
of 100 fresh faulty batches that alert.

Honest: a fifth of the batches follow a new recipe and alert, and operators say of each alert that it was false; then a
retraining, a promotion of the version that waits, more batches and one more retraining. After each: false alarms on
fresh batches of both recipes, and faults found.

``--trust auto`` shows both without a person. Takes about ten minutes on two cores.
Run: ``python benchmarks/quality/feedback.py [--seed 0] [--marks 102] [--trust person|auto] [--part PART] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from streamad.ingest.windowing import to_window
from streamad.judge.calibration import Calibration
from streamad.judge.gate import is_reserved
from streamad.learn.parts import detector_for, registry_of, store_for
from streamad.learn.store.records import Mark, StoredSequence, TrainingReason, TrainingRequest
from streamad.learn.trainer.challenge import Workshop
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.trainer.results import TrainingOutcome
from streamad.learn.trainer.retrain import Retraining
from streamad.learn.training.fits import score_windows
from streamad.learn.training.selection import to_windows
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.simulation.batch import STANDARD, Recipe
from streamad.simulation.faults import CHANNELS, FAULTS, Fault
from streamad.simulation.recordings import simulate_batch
from streamad.testing import ManualClock
from streamad.types import FinishedSequence, Position, Window

FAULT = next(fault for fault in FAULTS if fault.name == "cooling_fouling")
NEW_RECIPE = Recipe(glucose_g_l=10.0, feed_start_l_h=1.2, feed_growth_h=0.16)
RATE, HOUR_US, START_US, SAMPLE_US = 0.05, 3_600_000_000, 1_772_352_930_000_000, 600_000_000
N_COLD, N_RUN, N_TEST, TEN = 300, 300, 100, 10


class Line:
    """A plant that judges and keeps batches as the product does, and is retrained when asked."""

    def __init__(self, folder: Path, seed: int, trust: str) -> None:
        self.settings = Settings(
            channels=[{"name": name, "unit": unit} for name, unit in CHANNELS],  # type: ignore[arg-type]
            source={"url": "unused"},  # type: ignore[arg-type]
            window={"length": 64},  # type: ignore[arg-type]
            model={"effort": "quick", "references": []},  # type: ignore[arg-type]
            alerts={"false_alarm_rate": RATE},  # type: ignore[arg-type]
            learning={"store": "inliers", "feedback_trust": trust},  # type: ignore[arg-type]
        )
        self.seed = seed
        self.clock = ManualClock(START_US)
        self.plant = Plant(self.settings, folder, self.clock)
        self.registry = registry_of(self.plant)
        self.n = 0

    def batches(self, n: int, fault: Fault | None = None, recipe: Recipe = STANDARD) -> list[Window]:
        """Return ``n`` fresh batches."""
        specs, windows = self.settings.channel_specs, []
        for _ in range(n):
            values = simulate_batch(self.seed, self.n, fault, recipe=recipe)[0]
            self.n += 1
            times_us = np.arange(len(values), dtype=np.int64) * SAMPLE_US
            sequence = FinishedSequence("r1", "b", "marker", times_us, values, Position(0, 0))
            window = to_window(sequence, self.settings.window, specs)
            assert isinstance(window, Window), window
            windows.append(window)
        return windows

    def judged(self, windows: Sequence[Window]) -> list[StoredSequence]:
        """Return ``windows`` with the decisions of the version in service."""
        version, made = self.registry.current("default"), []
        for number, window in enumerate(windows):
            time_us = self.clock.now_us() + number * HOUR_US
            name = f"B-{time_us}"
            made.append(StoredSequence(name, "r1", name, time_us, time_us, window, "learning"))
        if version is None:
            return made
        model = self.registry.load("default", version, settings=self.settings, detector=detector_for(self.plant))
        calibration = Calibration.from_terms(model.calibration_terms, RATE)
        scores = score_windows(model.scorer, to_windows(made)).sum(axis=1, dtype=np.float64)
        found = []
        for each, score in zip(made, scores, strict=True):
            p, _ = calibration.p_value(float(score))
            found.append(
                StoredSequence(
                    each.id, each.stream, each.sequence, each.time_us, each.stored_us, each.window,
                    "anomalous" if p <= RATE else "normal", float(score), p, version,
                )
            )  # fmt: skip
        return found

    def run(self, windows: Sequence[Window]) -> list[StoredSequence]:
        """Judge and keep ``windows``; return those that alerted."""
        learning = self.settings.learning
        assert learning is not None
        store, found = self._store(), self.judged(windows)
        self.clock.advance(3600 * len(windows))
        for each in found:
            is_accepted = each.p_value is None or (each.decision == "normal" and each.p_value > learning.accept_above)
            reserved = is_reserved(each.stream, each.sequence, learning.reserve)
            store.offer(each, "reserve" if reserved else "accepted" if is_accepted else "aside")
        store.flush()
        return [each for each in found if each.decision == "anomalous"]

    def say_false(self, alerts: Sequence[StoredSequence]) -> None:
        """Call ``alerts`` false alarms."""
        store, now_us = self._store(), self.clock.now_us()
        for each in alerts:
            store.mark(Mark(id=each.id, judgement="false_alarm", at_us=now_us, received_us=now_us))

    def retrain(self, reason: TrainingReason = "command") -> TrainingOutcome:
        """Train as ``streamad models retrain`` does."""
        self.clock.advance(1)
        workshop = Workshop(
            detector=detector_for(self.plant),
            settings=self.settings,
            model="default",
            registry=self.registry,
            clock=self.clock,
            prove=proved_in_new_process,
        )
        request = TrainingRequest(reason=reason, requested_us=self.clock.now_us())
        return Retraining(store=self._store(), workshop=workshop, request=request).run()

    def alert_share(self, windows: Sequence[Window]) -> float:
        """Return the share of ``windows`` that the version in service alerts on."""
        return sum(each.decision == "anomalous" for each in self.judged(windows)) / len(windows)

    def _store(self) -> Any:
        store = store_for(self.plant)
        store.open()
        return store


def shown(row: dict[str, Any], outcome: TrainingOutcome | None = None) -> dict[str, Any]:
    """Print a row of the table to stderr and return it."""
    if outcome is not None:
        second = outcome.second
        row |= {"reason": outcome.reason, "second": None if second is None else second.reason}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def attack(folder: Path, seed: int, trust: str, n_marks: int) -> list[dict[str, Any]]:
    """Return the rows of the attack."""
    line = Line(folder, seed, trust)
    line.run(line.batches(N_COLD))
    line.retrain("first")
    line.run(line.batches(N_RUN))
    fresh, normal = line.batches(N_TEST, FAULT), line.batches(4 * N_TEST)
    alerts: list[StoredSequence] = []
    while len(alerts) < n_marks:
        alerts += line.run(line.batches(min(20, n_marks - len(alerts)), FAULT))

    def row(step: str, outcome: TrainingOutcome | None = None) -> dict[str, Any]:
        figures = {"found": line.alert_share(fresh), "false_alarms": line.alert_share(normal)}
        return shown({"step": step, "version": line.registry.current("default"), **figures}, outcome)

    rows = [row("before")]
    line.say_false(alerts[:n_marks])
    rows.append(row(f"{n_marks} marks", line.retrain()))
    for number in range(1, 11):
        faulty = line.run(line.batches(TEN, FAULT))
        line.run(line.batches(9 * TEN))
        line.say_false(faulty)
        rows.append(row(f"10 marks more ({number})", line.retrain("schedule")))
    return rows


def honest(folder: Path, seed: int, trust: str) -> list[dict[str, Any]]:
    """Return the rows of the new recipe."""
    line = Line(folder, seed, trust)
    line.run(line.batches(N_COLD))
    line.retrain("first")
    line.run(line.batches(2 * N_RUN))
    line.say_false(line.run(line.batches(N_RUN // 2, recipe=NEW_RECIPE)))
    fresh = {
        "false_alarms": line.batches(4 * N_TEST),
        "false_alarms_new_recipe": line.batches(4 * N_TEST, recipe=NEW_RECIPE),
        "found": line.batches(N_TEST, FAULT),
    }

    def row(step: str, outcome: TrainingOutcome | None = None) -> dict[str, Any]:
        figures = {name: line.alert_share(windows) for name, windows in fresh.items()}
        return shown({"step": step, "version": line.registry.current("default"), **figures}, outcome)

    rows = [row("before")]
    outcome = line.retrain("schedule")
    rows.append(row("retrained", outcome))
    second = outcome.second
    if second is not None and second.waits and second.version is not None:
        line.registry.promote("default", second.version, expected=line.registry.current("default"))
        rows.append(row("promoted by the reviewer"))
    line.run([*line.batches(N_RUN), *line.batches(N_RUN // 4, recipe=NEW_RECIPE)])
    rows.append(row("retrained again", line.retrain("schedule")))
    return rows


def main() -> None:
    """Run the parts and print their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--marks", type=int, default=102, help="false marks of the attack (default: 102)")
    parser.add_argument("--trust", choices=("person", "auto"), default="person")
    parser.add_argument("--part", choices=("attack", "honest"), help="default: both")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON last")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="feedback-") as folder:
        if asked.part in {None, "attack"}:
            found["attack"] = attack(Path(folder) / "attack", asked.seed, asked.trust, asked.marks)
        if asked.part in {None, "honest"}:
            found["honest"] = honest(Path(folder) / "honest", asked.seed, asked.trust)
    for part, rows in found.items():
        print(f"{part}, seed {asked.seed}, configured false-alarm rate {RATE:.0%}, trust {asked.trust}")
        for each in rows:
            figures = ", ".join(f"{name} {each[name]:.1%}" for name in each if name.startswith(("found", "false")))
            print(f"  {each['step']:26} {each['version']}  {figures}")
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
