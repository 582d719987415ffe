"""How near the achieved rate of false alarms is to the configured one if few sequences calibrate.

Scores of normal test windows, by the default fitted to other windows, are drawn again and again: n of them calibrate,
the others show the rate; anomalies show the share that is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.detector.sets import cases
from streamad.judge.calibration import Calibration
from streamad.system.files import write_atomically
from streamad_models.ensemble import Ensemble

PATH: Final = Path(__file__).resolve().parent / "calibration.jsonl"
SETS: Final = ("racket_sports", "natops", "JapaneseVowels", "OSULeaf", "ItalyPowerDemand")
SIZES: Final = (8, 16, 32, 64)
RATE: Final = 0.02
N_DRAWS: Final = 200
_FEWEST_NORMAL: Final = 100

Scores = npt.NDArray[np.float64]


class Resampled(msgspec.Struct, frozen=True):
    """Means over the draws: the achieved rate over the configured one, the share found, and its interquartile range."""

    dataset: str
    protocol: str
    label: int
    n: int
    rate_ratio: float
    found: float
    found_range: float


def resampled() -> Iterator[Resampled]:
    """Yield the figures of each task with enough normal test windows, for each number of calibration scores."""
    for dataset in SETS:
        for case in cases(dataset):
            normal_windows = np.flatnonzero(~case.task.is_anomaly)
            if len(normal_windows) < _FEWEST_NORMAL:
                continue
            fitted = Ensemble().fit(case.task.train, seed=0, device="cpu")
            scores = fitted.score(case.task.test.values, case.task.test.lengths).sum(axis=1, dtype=np.float64)
            normal, anomalous = scores[~case.task.is_anomaly], scores[case.task.is_anomaly]
            rng = np.random.default_rng(0)
            for n in SIZES:
                draws = [_draw(rng.permutation(normal), anomalous, n) for _ in range(N_DRAWS)]
                rates, found = np.array(draws).T
                low, high = np.quantile(found, [0.25, 0.75])
                figures = (float(rates.mean()) / RATE, float(found.mean()), float(high - low))
                yield Resampled(*case.row, case.label, n, *(round(figure, 4) for figure in figures))


def store(figures: Sequence[Resampled]) -> None:
    """Write the figures, one JSON line each."""
    write_atomically(PATH, b"".join(msgspec.json.encode(each) + b"\n" for each in figures))


def stored() -> list[Resampled]:
    """Return the figures that are stored."""
    return [msgspec.json.decode(line, type=Resampled) for line in PATH.read_bytes().splitlines()]


def _draw(normal: Scores, anomalous: Scores, n: int) -> tuple[float, float]:
    calibration = Calibration.from_terms(normal[:n, None].astype(np.float32), RATE)
    low, high = float(np.median(normal[:n])), float(normal.max()) * 1e3
    for _ in range(60):  # the first score that alerts
        middle = (low + high) / 2
        low, high = (low, middle) if calibration.p_value(middle)[0] <= RATE else (middle, high)
    return float((normal[n:] >= high).mean()), float((anomalous >= high).mean())


def table(figures: Sequence[Resampled]) -> str:
    """Return the table of the means over the tasks, and the range of the rates."""
    lines = [
        "| calibration scores | achieved / configured rate | lowest, highest task | found | interquartile range |",
        "|---|---|---|---|---|",
    ]
    for n in SIZES:
        part = [each for each in figures if each.n == n]
        ratios = [each.rate_ratio for each in part]
        found, spread = (np.mean([getattr(each, name) for each in part]) for name in ("found", "found_range"))
        extremes = f"{min(ratios):.2f}, {max(ratios):.2f}"
        lines.append(
            f"| {n} | {np.mean(ratios):.2f} | {extremes} | {100 * found:.0f}\u00a0% | {100 * spread:.0f}\u00a0% |"
        )
    return "\n".join(lines) + "\n"
