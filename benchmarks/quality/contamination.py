"""The loss by unnoticed faults in the training set, and the effect of dropping the worst of a first fit.

Batches of the simulated fermenter, a share of them faulty, train NeuTraL AD: all of them, or without the worst of a
first fit, by ``trim`` (streamad/learn/training/challenger.py). The threshold comes from normal held-out batches. The
output is the share of faults found and of false alarms, the AUC, and the share of the faults in training that was
dropped. Takes minutes per seed.
Run: ``python benchmarks/quality/contamination.py [--seeds 3] [--batches 300] [--epochs 40] [--kind FAULT] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.ingest.windowing import to_window
from streamad.judge.calibration import Calibration
from streamad.judge.evaluation import auc
from streamad.learn.training.fits import joined, score_windows
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import WindowSettings
from streamad.simulation.faults import CHANNELS, FAULTS
from streamad.simulation.recordings import simulate_batch
from streamad.types import ChannelSpec, FinishedSequence, Position, Window, WindowSet

SHARE, RATE = 0.1, 0.02
SAMPLE_US = 600_000_000
TRIMS = (0.0, 0.05, 0.1)
WINDOW = WindowSettings(length=64)
OPTIONS: dict[str, Any] = {"base_width": 16, "embedding_dim": 32}


def windows_of(batches: list[npt.NDArray[np.float32]], prefix: str) -> WindowSet:
    specs = tuple(ChannelSpec(name, unit) for name, unit in CHANNELS)
    windows = []
    for values in batches:
        times_us = np.arange(len(values), dtype=np.int64) * SAMPLE_US
        window = to_window(FinishedSequence("r", "b", "marker", times_us, values, Position(0, 0)), WINDOW, specs)
        assert isinstance(window, Window), window
        windows.append(window)
    values = np.stack([window.values for window in windows])
    lengths = np.array([window.length for window in windows], dtype=np.int64)
    return WindowSet(values, lengths, tuple(f"{prefix}-{i}" for i in range(len(windows))))


class Batches:
    """Normal and faulty batches of one plant, taken in turn; the faults of every kind, or of one."""

    def __init__(self, seed: int, n_normal: int, n_faulty: int, kind: str | None) -> None:
        faults = [fault for fault in FAULTS if kind in {None, fault.name}]
        normal = [simulate_batch(seed, index)[0] for index in range(n_normal)]
        faulty = [simulate_batch(seed, n_normal + i, faults[i % len(faults)])[0] for i in range(n_faulty)]
        self._all = {"normal": windows_of(normal, "normal"), "faulty": windows_of(faulty, "faulty")}
        self._dealt = {"normal": 0, "faulty": 0}

    def deal(self, what: str, n: int) -> WindowSet:
        """Return the next ``n``, normal or faulty."""
        begin = self._dealt[what]
        self._dealt[what] += n
        return self._all[what].take(np.arange(begin, begin + n))


def scores_of(model: Any, windows: WindowSet) -> npt.NDArray[np.float64]:
    scores: npt.NDArray[np.float64] = score_windows(model, windows).sum(axis=1, dtype=np.float64)
    return scores


def measure(seed: int, n: int, epochs: int, kind: str | None) -> dict[str, dict[str, float]]:
    """Return the figures of training on ``n`` batches: clean ones, and contaminated ones by trim."""
    n_faulty, n_held_out, n_faults = int(SHARE * n), 2 * n // 3, 16 * n // 25
    batches = Batches(seed, n + 2 * n_held_out, n_faulty + n_faults, kind)
    clean = batches.deal("normal", n)
    contaminated = joined(clean.take(np.arange(n - n_faulty)), batches.deal("faulty", n_faulty))
    held_out, normal = batches.deal("normal", n_held_out - 1), batches.deal("normal", n_held_out)
    faults = batches.deal("faulty", n_faults)
    detector = make_detector("neutral_ad", {**OPTIONS, "epochs": epochs})

    def figures(training: WindowSet) -> tuple[dict[str, float], npt.NDArray[np.float64]]:
        print(f"seed {seed}: training on {len(training)}", file=sys.stderr)
        model = detector.fit(training, seed=seed, device="cpu")
        calibration = Calibration.from_terms(score_windows(model, held_out), RATE)
        found, alarms = scores_of(model, faults), scores_of(model, normal)
        rates = [np.mean([calibration.p_value(score)[0] <= RATE for score in part]) for part in (found, alarms)]
        labels = np.repeat([True, False], [len(found), len(alarms)])
        return {
            "detection_rate": float(rates[0]),
            "false_alarm_rate": float(rates[1]),
            "auc": auc(np.concatenate([found, alarms]), labels),
        }, scores_of(model, training)

    results = {"clean": figures(clean)[0]}
    results["trim 0"], first = figures(contaminated)
    for trim in TRIMS[1:]:
        kept = np.argsort(first, kind="stable")[: n - int(trim * n)]
        results[f"trim {trim:g}"] = figures(contaminated.take(kept))[0]
        results[f"trim {trim:g}"]["faults_dropped"] = 1.0 - float((kept >= n - n_faulty).sum()) / n_faulty
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=300, help="that train")
    parser.add_argument("--kind", choices=[fault.name for fault in FAULTS], help="of all faults; default: each in turn")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    by_seed = [measure(seed, options.batches, options.epochs, options.kind) for seed in range(options.seeds)]
    if options.json:
        print(json.dumps({"epochs": options.epochs, "share": SHARE, "kind": options.kind, "seeds": by_seed}))
        return
    for name in by_seed[0]:
        means = {figure: np.mean([found[name][figure] for found in by_seed]) for figure in by_seed[0][name]}
        print(f"{name:10s}" + "".join(f"  {figure} {mean:.3f}" for figure, mean in means.items()))


if __name__ == "__main__":
    main()
