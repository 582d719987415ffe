"""How often the event ``many_alerts`` is wrong, after how many sequences it comes, and which channels it names.

The figures of docs/internals/judging.md. *False*: plants like their training, each with a calibration of its own and
10,000 judged sequences, of which a share are real faults that all alert; a plant counts once. *After*: from a change
on a share of the sequences alerts; their number until the event. *Named*: the sequences of a class of real recordings,
half of them for training (its windows chosen by the kind pca) and half judged, as they are or with the level of one
channel moved by some standard deviations from sequence to sequence: whether this channel is named, and the share of
the others that are.
Data: as in quality.py. Run: ``python -m benchmarks.quality.many_alerts [--plants 1000] [--draws 100] [--json]``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from benchmarks.quality.quality import DATA, read
from streamad.judge.attribution import reference_windows
from streamad.judge.calibration import Calibration, scores_of
from streamad.judge.shift import FEWEST, LATEST, MANY_FAULTS, AllowedRate, TrainingLevels
from streamad.judge.verdicts import moments_of
from streamad.plugins import make_detector
from streamad.types import ChannelSpec, Window, WindowSet

N_JUDGED: Final = 10_000
CALIBRATIONS: Final = ((20, 0.02), (49, 0.02), (99, 0.02), (499, 0.02), (99, 0.1))
SHARES: Final = (0.5, 0.6, 0.7, 0.8, 0.95)
SETS: Final = ("natops", "epilepsy", "racket_sports", "character_trajectories", "spoken_arabic_digits")
SHIFTS: Final = (0.0, 2.0, 4.0, 8.0)
N_WINDOWS: Final = (14, 50)
"""Judged sequences whose medians are compared."""
_QUIET: Final = (0, 100)
_LEAST: Final = 26  # sequences of a class


class Rule:
    """The fewest alerts among each number of judged sequences that are far too many, by calibration."""

    def __init__(self) -> None:
        self._known: dict[tuple[float, float], npt.NDArray[np.int64]] = {}

    def first(self, allowed: AllowedRate, alerts: npt.NDArray[np.bool_]) -> int | None:
        """Return after how many of a run's sequences, which alert or not, the event comes; None if never."""
        limits = self._limits(allowed)
        totals = np.concatenate([[0], np.cumsum(alerts)])
        ends = np.arange(FEWEST, len(totals))
        begins = np.maximum(0, ends - LATEST)
        found = np.flatnonzero(totals[ends] - totals[begins] >= limits[ends - begins])
        return int(ends[found[0]]) if len(found) else None

    def _limits(self, allowed: AllowedRate) -> npt.NDArray[np.int64]:
        key = (allowed.highest, allowed.faults)
        if key not in self._known:
            self._known[key] = np.array([_fewest(allowed, n) for n in range(LATEST + 1)])
        return self._known[key]


def _fewest(allowed: AllowedRate, n_judged: int) -> int:
    enough = (k for k in range(n_judged + 1) if allowed.is_exceeded_by(k, n_judged))
    return next(enough, LATEST + 1)


@dataclass(frozen=True, slots=True)
class Plant:
    """A calibration of n scores, and the probability with which a normal sequence alerts."""

    allowed: AllowedRate
    p_alert: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, n: int, rate: float, faults: float) -> Plant:
        """Return one of gamma(2) scores: for ranks any continuous law is the same; extrapolated, a usual one."""
        calibration = Calibration.from_terms(rng.gamma(2.0, size=(n, 1)).astype(np.float32), rate)
        return cls(AllowedRate(rate, calibration, faults), float(gammaincc(2.0, calibration.alert_score(rate))))


def false_events(n_plants: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield for each calibration in how many plants the event came though nothing changed."""
    rule = Rule()
    for n, rate in CALIBRATIONS:
        for real, faults in ((0.0, MANY_FAULTS), (MANY_FAULTS, MANY_FAULTS), (0.0, 0.0)):
            rng = np.random.default_rng(seed)
            wrong = 0
            for _ in range(n_plants):
                plant = Plant.drawn(rng, n, rate, faults)
                alerts = rng.uniform(size=N_JUDGED) < real + (1 - real) * plant.p_alert
                wrong += rule.first(plant.allowed, alerts) is not None
            yield {"n": n, "rate": rate, "faults": real, "labelled": faults == 0.0, "wrong": wrong, "plants": n_plants}


def delays(n_plants: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield for each calibration and share of alerts the median and 95th percentile of the sequences to the event."""
    rule = Rule()
    for n, rate in CALIBRATIONS:
        for n_quiet in _QUIET:
            for share in SHARES:
                rng = np.random.default_rng(seed)
                found = []
                for _ in range(n_plants):
                    plant = Plant.drawn(rng, n, rate, MANY_FAULTS)
                    quiet, changed = rng.uniform(size=n_quiet) < plant.p_alert, rng.uniform(size=1_000) < share
                    first = rule.first(plant.allowed, np.concatenate([quiet, changed]))
                    found.append(np.inf if first is None else max(0, first - n_quiet))
                middle, late = np.quantile(found, [0.5, 0.95], method="higher").tolist()
                yield {"n": n, "rate": rate, "quiet": n_quiet, "share": share, "median": middle, "late": late}


def named(draws: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Yield for each set, number of judged sequences and shift how often the moved channel is named, and others are."""
    for name in SETS:
        windows, classes = read(DATA / f"{name}.npz")["train"]
        rng = np.random.default_rng(seed)
        found = np.mean([_named(windows, classes, rng) for _ in range(draws)], axis=0)  # [N_WINDOWS, SHIFTS, 2]
        for n_judged, of_shifts in zip(N_WINDOWS, found.tolist(), strict=True):
            for shift, (right, others) in zip(SHIFTS, of_shifts, strict=True):
                yield {"set": name, "judged": n_judged, "shift": shift, "named": right, "others": others}


def _named(windows: WindowSet, classes: npt.NDArray[Any], rng: np.random.Generator) -> list[list[tuple[bool, float]]]:
    """Return whether the channel that was moved is named, and the share of the others that are, by window and shift."""
    large = [one for one in np.unique(classes) if (classes == one).sum() >= _LEAST]
    own = rng.permutation(np.flatnonzero(classes == rng.choice(large)))
    training, judged = windows.take(own[: len(own) // 2]), windows.take(own[len(own) // 2 :])
    specs = [ChannelSpec(f"c{number}") for number in range(training.values.shape[1])]
    fitted = make_detector("pca", {}).fit(training, seed=0, device="cpu")
    reference = reference_windows(training.values, training.lengths, scores_of(fitted.training_scores()))
    levels, usual = TrainingLevels.of(reference, specs), _moments(training)[:, 0].std(axis=0)
    channel = int(rng.integers(len(specs)))
    rows = []
    for n_judged in N_WINDOWS:
        row = []
        for shift in SHIFTS:
            moments = _moments(judged)[:n_judged]
            moments[:, 0, channel] += shift * usual[channel]
            found = {one.channel for one in levels.moved(moments)}
            others = len(found - {specs[channel].name}) / (len(specs) - 1)
            row.append((specs[channel].name in found, others))
        rows.append(row)
    return rows


def _moments(windows: WindowSet) -> npt.NDArray[np.float64]:
    """Return levels and spreads [N, 2, C]."""
    pairs = zip(windows.values, windows.lengths, strict=True)
    return np.array(moments_of([Window(values, int(length)) for values, length in pairs]))


def main() -> None:
    """Print the tables, or all of it as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plants", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tables = {
        "false": list(false_events(arguments.plants)),
        "after": list(delays(arguments.plants)),
        "named": list(named(arguments.draws)),
    }
    if arguments.json:
        print(json.dumps(tables))
        return
    for title, rows in tables.items():
        print(f"\n{title}")
        print("| " + " | ".join(rows[0]) + " |")
        for row in rows:
            cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
            print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
