"""The false-alarm rate that models in Python achieve over random splits of a simulated plant's normal batches.

Each split draws the training batches out of one pool by its own seed and judges all others. Given the pool, splits are
independent, and every batch is as likely as any other to lie on either side: the mean share that alerts is at most the
configured rate, whatever the detector (Vovk 2012). The splits' shares are in split_rates.json.
Run: ``python -m benchmarks.quality.split_rates [--splits 200]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.notebook.config import settings_of
from streamad.notebook.fitting import fitted
from streamad.notebook.sequences import FrameColumns, sequences_of
from streamad.simulation.recordings import simulate_batch
from streamad.system.files import write_atomically

PATH: Final = Path(__file__).with_suffix(".json")
CASES: Final = (("nearest", 0.05, 160), ("pca", 0.02, 200))
"""Detector, configured rate, training batches: half of them set the threshold, whose ranks give the rate exactly."""
_N_POOL: Final = 500


class Case(msgspec.Struct, frozen=True):
    """Share of the judged batches that alert, of each split."""

    detector: str
    rate: float
    n_training: int
    n_judged: int
    shares: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the achieved rate."""
        return float(np.mean(self.shares))

    @property
    def error(self) -> float:
        """Return its standard error over splits."""
        return float(np.std(self.shares, ddof=1) / np.sqrt(len(self.shares)))


def read_cases() -> list[Case]:
    """Return the stored cases."""
    return msgspec.json.decode(PATH.read_bytes(), type=list[Case])


def pool(n: int, seed: int = 0) -> list[npt.NDArray[np.float32]]:
    """Return ``n`` normal batches [C, T], of different length."""
    return [simulate_batch(seed, index)[0].T for index in range(n)]


def shares_of(
    X: Sequence[npt.NDArray[Any]], detector: str, rate: float, n_training: int, n_splits: int
) -> Iterator[float]:
    """Yield of each split the share of the batches that did not train which alert."""
    channels = [f"channel_{number}" for number in range(len(X[0]))]
    settings = settings_of(
        channels,
        [""] * len(channels),
        model={"detector": detector, "references": []},
        window={},
        alerts={"false_alarm_rate": rate},
    )
    for split in range(n_splits):
        # Places in the split are the ids, whose hashes say which batches set the threshold.
        drawn = [X[place] for place in np.random.default_rng(split).permutation(len(X))]
        training = sequences_of(drawn[:n_training], FrameColumns())
        model = fitted(training, settings, FrameColumns(channels=tuple(channels)), says=False, is_proved=False)
        yield round(float(model.predict(drawn[n_training:]).mean()), 6)


def line_of(case: Case) -> str:
    """Return the case's figures."""
    return (
        f"{case.detector}: configured {case.rate:.3f}, achieved {case.mean:.4f}, standard error {case.error:.4f}, over "
        f"{len(case.shares)} splits of {case.n_training} training and {case.n_judged} judged batches"
    )


def main() -> None:
    """Measure, store and print the cases."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--splits", type=int, default=200)
    n_splits: int = parser.parse_args().splits
    X, cases = pool(_N_POOL), []
    for detector, rate, n_training in CASES:
        shares = tuple(shares_of(X, detector, rate, n_training, n_splits))
        cases.append(Case(detector, rate, n_training, len(X) - n_training, shares))
        print(line_of(cases[-1]), flush=True)
    write_atomically(PATH, msgspec.json.encode(cases) + b"\n")


if __name__ == "__main__":
    main()
