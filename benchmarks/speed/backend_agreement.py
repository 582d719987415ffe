"""Do all backends score and decide alike on the development sets, alone and in company?

On one task of each set a detector is fitted to half of the training windows and calibrated by TorchScript's scores of
the other half at a false-alarm rate of 0.05; then each backend scores the test windows, all together and each alone.
Counted are decisions that differ from TorchScript's, and windows with a term off by more than 1e-4, apart for windows
with a tie: those whose terms move by half of that if every reading is off by 1e-6 of itself (a comparison that rounding
decides).
Run: ``python benchmarks/speed/backend_agreement.py [--sets natops ...] [--json]``; about 30 CPU seconds a set.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.detector.sets import SETS, cases
from streamad.judge.calibration import Calibration
from streamad.learn.registry.arrays import PROBE_TOLERANCE, probe_deviation
from streamad.types import FloatArray, WindowSet
from streamad_models.ensemble import Ensemble
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions

RATE = 0.05
MOST_TEST = 400
ROUNDINGS, ROUNDING = 4, 1e-6
BACKENDS = ("onnxruntime", "openvino")


def makers() -> dict[str, Any]:
    return {"ensemble": Ensemble(), "neutral_ad": NeutralAD(NeutralADOptions(epochs=5))}


def scored(scorer: Any, data: WindowSet) -> dict[str, FloatArray]:
    """Return the terms of ``data`` scored in company and alone."""
    alone = [scorer.score(data.values[i : i + 1], data.lengths[i : i + 1]) for i in range(len(data))]
    return {"company": scorer.score(data.values, data.lengths), "alone": np.concatenate(alone)}


def deviations(found: FloatArray, expected: FloatArray) -> FloatArray:
    """Return the largest deviation of each window's terms."""
    return np.array([probe_deviation(*pair) for pair in zip(found, expected, strict=True)])


def ties(scorer: Any, data: WindowSet, terms: FloatArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which windows' terms move if readings are rounded."""
    rng, moved = np.random.default_rng(0), np.zeros(len(data))
    for _ in range(ROUNDINGS):
        rounded = data.values * (1.0 + ROUNDING * rng.standard_normal(data.values.shape)).astype(np.float32)
        moved = np.maximum(moved, deviations(scorer.score(rounded.astype(np.float32), data.lengths), terms))
    return moved > PROBE_TOLERANCE / 2


def alerts(calibration: Calibration, terms: FloatArray) -> list[bool]:
    scores = terms.sum(axis=1, dtype=np.float64)
    return [calibration.p_value(float(score))[0] <= RATE for score in scores]


def compared(dataset: str) -> dict[str, Any]:
    """Return the figures of each detector and backend on the last task of ``dataset``."""
    task = list(cases(dataset))[-1].task
    half = np.arange(len(task.train)) % 2 == 0
    training, held = task.train.take(np.flatnonzero(half)), task.train.take(np.flatnonzero(~half))
    drawn = np.random.default_rng(0).permutation(len(task.test))[:MOST_TEST]
    test, result = task.test.take(np.sort(drawn)), {}
    for name, maker in makers().items():
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = Path(place)
            fitted = maker.fit(training, seed=0, device="cpu")
            fitted.export(folder)
            torchscript = maker.load(folder, device="cpu")
            calibration = Calibration.from_terms(torchscript.score(held.values, held.lengths), RATE)
            terms = torchscript.score(test.values, test.lengths)
            expected, tied = alerts(calibration, terms), ties(torchscript, test, terms)
            for backend in BACKENDS:
                fitted.export_for(backend, folder)
                both = scored(maker.load_by(backend, folder, device="cpu"), test)
                off = np.maximum(*(deviations(found, terms) for found in both.values()))
                wrong = sum(
                    one != other
                    for found in both.values()
                    for one, other in zip(alerts(calibration, found), expected, strict=True)
                )
                result[f"{name}, {backend}"] = {
                    "windows": len(test),
                    "alerts": sum(expected),
                    "decisions_that_differ": wrong,
                    "with_a_tie": int(tied.sum()),
                    "largest_without_a_tie": float(off[~tied].max(initial=0.0)),
                    "beyond_without_a_tie": int((off[~tied] > PROBE_TOLERANCE).sum()),
                    "largest_with_a_tie": float(off[tied].max(initial=0.0)),
                }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = {}
    for dataset in options.sets:
        result[dataset] = compared(dataset)
        for name, row in result[dataset].items():
            print(
                f"{dataset:<22} {name:<23} {row['windows']:>4} windows, {row['alerts']:>4} alerts, "
                f"{row['decisions_that_differ']} decisions differ; without a tie at most "
                f"{row['largest_without_a_tie']:.1g} ({row['beyond_without_a_tie']} beyond), "
                f"{row['with_a_tie']} with one at most {row['largest_with_a_tie']:.1g}",
                flush=True,
            )
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
