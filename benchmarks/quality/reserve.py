"""The false-alarm rate over ten retrainings in a row, calibrated in different ways, in a plant whose truth is known.

A simulated plant sends sequences of four features; the detector scores them by their squared standardised distance to
the mean. It learns its first model from 200 sequences, and a new one after every 1,000. Steady or drifting (one feature
by half a standard deviation per 1,000 sequences), with and without 10 % of unlabelled faults, a fifth of which cannot
be seen at all. The ways to calibrate:

- naive: on half of all that was not an alert
- accepted: on half of what may train (p above 0.05)
- whole reserve: on the calibration half of the reserve, nothing left out
- whole excess: the same without its excess of alerts over the configured rate
- what stands apart: the same, bounded by that (streamad/learn/training/presumed.py)
- ours: the same, and a new model goes into service only by the promotion rule (all others always do)

After every training the true rates are taken from 4,000 fresh normal and 2,000 faulty sequences.
Run: ``python benchmarks/quality/reserve.py [--repetitions 40] [--retrainings 10] [--noise normal] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import calibration_count
from streamad.judge.gate import is_reserved
from streamad.learn.promotion.comparison import Comparison, ModelFigures
from streamad.learn.promotion.operating import OperatingPoint
from streamad.learn.promotion.rule import rule
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.store.records import StoredSequence
from streamad.learn.training.calibrating import hash_order
from streamad.learn.training.presumed import excess_alerts
from streamad.learn.training.selection import HeldOut, Stored, plan_calibration, select, to_windows
from streamad.messages import ModelRef
from streamad.settings.learning import LearningSettings
from streamad.types import FloatArray, IntArray, Window

Array = npt.NDArray[np.float64]
RATE = 0.02
FEATURES = 4
FIRST, EVERY = 200, 1000
N_NORMAL, N_FAULTY = 4000, 2000
SETTINGS = LearningSettings(first_training=FIRST)
WAYS = ("naive", "accepted", "whole reserve", "whole excess", "what stands apart", "ours")
SCENARIOS = {
    "steady": (0.0, 0.0),
    "steady, 10 % faults": (0.0, 0.1),
    "drift": (0.5, 0.0),
    "drift, 10 % faults": (0.5, 0.1),
}


@cache
def reserved(name: str) -> bool:
    return is_reserved("plant", name, SETTINGS.reserve)


@dataclass(slots=True)
class Plant:
    """A source of sequences; ``age`` counts thousands of sequences since the first training."""

    rng: np.random.Generator
    noise: str
    drift: float
    faults: float

    def normal(self, age: npt.ArrayLike, n: int) -> Array:
        """Return ``n`` normal sequences [n, features] of mean 0 and standard deviation 1, moved by the drift."""
        draw: dict[str, Callable[[], Array]] = {
            "normal": lambda: self.rng.normal(size=(n, FEATURES)),
            "student": lambda: self.rng.standard_t(5, size=(n, FEATURES)) / np.sqrt(5 / 3),
            "lognormal": lambda: (np.exp(self.rng.normal(0, 0.5, (n, FEATURES))) - 1.133) / 0.604,
        }
        values = draw[self.noise]()
        values[:, 0] += self.drift * np.asarray(age)
        return values

    def faulty(self, age: npt.ArrayLike, n: int) -> Array:
        """Return faults: a fifth invisible, half of the others off by 6 to 10 standard deviations, half by 3 to 5."""
        size = np.where(self.rng.random(n) < 0.5, self.rng.uniform(6, 10, n), self.rng.uniform(3, 5, n))
        size[self.rng.random(n) < 0.2] = 0.0
        values = self.normal(age, n)
        values[np.arange(n), self.rng.integers(0, FEATURES, n)] += size * self.rng.choice([-1.0, 1.0], n)
        return values

    def flow(self, begin: float, n: int, faults: float | None = None) -> Array:
        """Return the next ``n`` sequences from age ``begin`` on, faulty ones among them."""
        age = begin + np.arange(n) / EVERY
        is_faulty = self.rng.random(n) < (self.faults if faults is None else faults)
        return np.where(is_faulty[:, None], self.faulty(age, n), self.normal(age, n))


@dataclass(frozen=True, slots=True)
class Model:
    """The detector: mean and scale of normal sequences, and the scores of held-out ones (ascending)."""

    mean: Array
    scale: Array
    calibration: Array = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def fit(cls, values: Array) -> Model:
        """Fit, drop the worst ``trim`` share, fit again: as a retraining does."""
        first = cls(values.mean(axis=0), values.std(axis=0))
        kept = values[np.argsort(first.scores(values))[: len(values) - int(SETTINGS.trim * len(values))]]
        return cls(kept.mean(axis=0), kept.std(axis=0))

    def scores(self, values: Array) -> Array:
        """Return the squared standardised distance of each of ``values`` to the mean."""
        scores: Array = (((values - self.mean) / self.scale) ** 2).sum(axis=1)
        return scores

    def calibrated(self, scores: Array) -> Model:
        """Return the model with ``scores`` as its calibration."""
        return replace(self, calibration=np.sort(scores))

    def loaded(self) -> LoadedModel:
        """Return the model as the comparison takes it."""
        terms = self.calibration[:, None].astype(np.float32)
        nothing = np.zeros((0, FEATURES, 1), np.float32), np.zeros(0, np.int64)
        return LoadedModel(Scorer(self), ModelRef("plant", "0001"), None, terms, *nothing, None)  # type: ignore[arg-type]

    def p_values(self, values: Array) -> Array:
        """Return the conformal p-value of each of ``values``."""
        n = len(self.calibration)
        at_least = n - np.searchsorted(self.calibration, self.scores(values), side="left")
        p_values: Array = (1 + at_least) / (n + 1)
        return p_values


@dataclass(frozen=True, slots=True)
class Scorer:
    """A model as a scorer of windows [n, features, 1]: one term."""

    model: Model
    window_shape: tuple[int, int] = (FEATURES, 1)
    n_terms: int = 1

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the scores as terms [n, 1]."""
        return self.model.scores(windows[:, :, 0].astype(np.float64))[:, None].astype(np.float32)


@dataclass(slots=True)
class Life:
    """One plant under one way to calibrate."""

    plant: Plant
    way: str
    n: int = 0
    model: Model | None = None
    stored: dict[str, list[StoredSequence]] = field(
        default_factory=lambda: {"accepted": [], "reserve": [], "aside": []}
    )
    unalerted: list[Array] = field(default_factory=list)

    def run(self, retrainings: int) -> list[tuple[float, float]]:
        """Return the true false-alarm and detection rate after the first training and after each retraining."""
        self._flow(0.0, FIRST, faults=0.0)
        self._train()
        found = [self._rates(0.0)]
        for age in range(retrainings):
            self._flow(float(age), EVERY)
            self._train()
            found.append(self._rates(age + 1.0))
        return found

    def _rates(self, age: float) -> tuple[float, float]:
        assert self.model is not None
        false_alarms = self.model.p_values(self.plant.normal(age, N_NORMAL)) <= RATE
        detected = self.model.p_values(self.plant.faulty(age, N_FAULTY)) <= RATE
        return float(false_alarms.mean()), float(detected.mean())

    def _flow(self, age: float, n: int, faults: float | None = None) -> None:
        values = self.plant.flow(age, n, faults)
        p_values = None if self.model is None else self.model.p_values(values)
        for i, features in enumerate(values):
            self.n += 1
            name = f"B-{self.n}"
            p = None if p_values is None else float(p_values[i])
            share = "reserve" if reserved(name) else "accepted" if p is None or p > SETTINGS.accept_above else "aside"
            if share != "aside":
                decision = "learning" if p is None else "anomalous" if p <= RATE else "normal"
                window = Window(features[:, None], 1)
                version = None if p is None else "0001"
                self.stored[share].append(
                    StoredSequence(name, "plant", name, self.n, self.n, window, decision, None, p, version)  # type: ignore[arg-type]
                )
        self.unalerted.append(values if p_values is None else values[p_values > RATE])
        self.stored["accepted"] = self.stored["accepted"][-SETTINGS.max_training :]
        self.stored["reserve"] = self.stored["reserve"][-SETTINGS.limit("reserve") :]

    def _train(self) -> None:
        if self.way == "naive" and self.model is not None:
            values = np.concatenate(self.unalerted)[-SETTINGS.limit("accepted") - SETTINGS.limit("reserve") :]
            self.model = self._split(values)
            return
        stored = Stored(self.stored["accepted"], self.stored["reserve"], self.stored["aside"], {})
        selection = select(stored, settings=SETTINGS, rate=RATE, judges=frozenset({"0001"}))
        plan = plan_calibration(
            selection, settings=SETTINGS, share=0.5, rate=RATE, seed=0, has_champion=self.model is not None
        )
        if self.way == "accepted" and self.model is not None:
            self.model = self._split(_features(plan.training))
            return
        model = Model.fit(_features(plan.training))
        scores = model.scores(_features(plan.calibration.sequences))
        kept = np.flatnonzero(~self._left_out(plan.calibration, scores))
        names = tuple(plan.calibration.sequences[i].id for i in kept)
        chosen = kept[hash_order(names, 0)[: calibration_count(len(kept), 1.0, RATE)]]
        challenger = model.calibrated(scores[chosen])
        if self.model is None or self.way != "ours" or self._is_promoted(challenger, self.model, plan.comparison):
            self.model = challenger

    def _is_promoted(self, challenger: Model, champion: Model, half: HeldOut) -> bool:
        """Apply the promotion rule; the injected faults are shifts of one feature by 2 to 8 standard deviations."""
        windows = to_windows(half.sequences)
        ours, theirs = (OperatingPoint.of(each.loaded(), half, windows, RATE) for each in (challenger, champion))
        matched = theirs.at_most(max(math.ceil(RATE * theirs.n_kept), ours.n_false))
        faulty = np.repeat(windows.values[:, :, 0].astype(np.float64), -(-720 // len(half)), axis=0)
        shift = self.plant.rng.uniform(2, 8, len(faulty)) * self.plant.rng.choice([-1.0, 1.0], len(faulty))
        faulty[np.arange(len(faulty)), self.plant.rng.integers(0, FEATURES, len(faulty))] += shift
        found = [float(side.alerts(side.model.scorer.model.scores(faulty)).mean()) for side in (ours, matched)]  # type: ignore[attr-defined]
        figures = [_figures(side, share) for side, share in zip((ours, theirs), found, strict=True)]
        comparison = Comparison(
            false_alarm_rate=RATE,
            n_sequences=len(half),
            n_injected=len(faulty),
            n_confirmed=0,
            n_false_alarms=0,
            challenger=figures[0],
            champion=figures[1],
        )
        return rule(comparison, SETTINGS.promotion).promoted

    def _split(self, values: Array) -> Model:
        order = self.plant.rng.permutation(len(values))
        n = calibration_count(len(values), 0.5, RATE)
        model = Model.fit(values[order[n:]])
        return model.calibrated(model.scores(values[order[:n]]))

    def _left_out(self, held_out: HeldOut, scores: Array) -> npt.NDArray[np.bool_]:
        if self.way in {"what stands apart", "ours"}:
            return held_out.presumed(scores, RATE, 0.0)
        left_out = np.zeros(len(scores), dtype=np.bool_)
        if self.way == "whole excess":
            k = excess_alerts(int(held_out.is_alert.sum()), int(held_out.is_judged.sum()), RATE)
            left_out[np.argsort(scores)[len(scores) - k :]] = True
        return left_out


def _figures(side: OperatingPoint, detection: float) -> ModelFigures:
    return ModelFigures(
        version="",
        n_presumed=int(side.left_out.sum()),
        n_alerts=side.n_false,
        false_alarm_rate=side.n_false / side.n_kept,
        interval=(0.0, 1.0),
        detection=detection,
        by_fault={},
        n_confirmed=0,
        n_raised=0,
    )


def _features(sequences: tuple[StoredSequence, ...]) -> Array:
    return np.array([each.window.values[:, 0] for each in sequences], dtype=np.float64)


def measure(
    repetitions: int, retrainings: int, *, noise: str, scenarios: list[str], ways: list[str], seed: int = 0
) -> dict[str, dict[str, Any]]:
    """Return per scenario and way, as lists over the trainings, mean rates and a 90 % quantile."""
    found: dict[str, dict[str, Any]] = {}
    for scenario in scenarios:
        drift, faults = SCENARIOS[scenario]
        for way in ways:
            print(f"{scenario}: {way}", file=sys.stderr)
            lives = [
                Life(Plant(np.random.default_rng((seed, number)), noise, drift, faults), way).run(retrainings)
                for number in range(repetitions)
            ]
            rates = np.array(lives)
            found.setdefault(scenario, {})[way] = {
                "false_alarm_rate": rates[:, :, 0].mean(axis=0).round(4).tolist(),
                "false_alarm_rate_90": np.quantile(rates[:, :, 0], 0.9, axis=0).round(4).tolist(),
                "detection_rate": rates[:, :, 1].mean(axis=0).round(4).tolist(),
            }
    return found


def show(found: dict[str, dict[str, Any]]) -> None:
    for scenario, by_way in found.items():
        print(f"\n{scenario}: false-alarm rate after the first training and each retraining; detection first and last")
        for way, figures in by_way.items():
            rates = " ".join(f"{rate:.3f}" for rate in figures["false_alarm_rate"])
            detection = figures["detection_rate"]
            print(f"  {way:17s} {rates}   {detection[0]:.2f} {detection[-1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--retrainings", type=int, default=10)
    parser.add_argument("--noise", choices=("normal", "student", "lognormal"), default="normal")
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(
        options.repetitions,
        options.retrainings,
        noise=options.noise,
        scenarios=options.scenario or list(SCENARIOS),
        ways=options.way or list(WAYS),
    )
    if options.json:
        head = {"configured": RATE, "noise": options.noise, "repetitions": options.repetitions}
        print(json.dumps({**head, "scenarios": found}))
    else:
        show(found)


if __name__ == "__main__":
    main()
