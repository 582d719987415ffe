"""Training in bfloat16 against float32: time and AUC.

For each class and seed a method with its settings of the study is trained twice from the same weights over the same
batches, in float32 and in bfloat16, and scores the test split (float32 both). Time is this process's CPU time on one
thread, so that other load does not count. A single class moves by points between seeds: the effect of bfloat16 is the
mean of the paired differences, with its standard error. Needs the study's data (STREAMAD_DATA, docs/model/datasets.md).
Run: ``python -m benchmarks.quality.precision [--method M] [--datasets epilepsy] [--classes 4] [--seeds 3] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any, get_args

import numpy as np
import torch

from benchmarks.paper.data.datasets import Task, class_task, read_sequences
from benchmarks.paper.methods import make
from benchmarks.paper.protocols import CLASSES
from streamad.judge.evaluation import auc
from streamad_models.neutral_ad.options import PresetName

METHODS = ("neutral_ad", "fixed_transformations")
PRECISIONS = ("float32", "bfloat16")


def train(task: Task, method: str, name: PresetName, changes: dict[str, Any], seed: int) -> tuple[float, float]:
    """Return the AUC in percent and the seconds of CPU time that the training took."""
    detector = make(method, name, changes)
    began_s = time.process_time()
    fitted = detector.fit(task.train, seed=seed, device="cpu")
    taken_s = time.process_time() - began_s
    scores = fitted.score(task.test.values, task.test.lengths).sum(axis=1, dtype=np.float64)
    return 100 * auc(scores, task.is_anomaly), taken_s


def measure(method: str, name: PresetName, *, n_classes: int, n_seeds: int, changes: dict[str, Any]) -> dict[str, Any]:
    """Return both precisions' mean AUC, the mean paired difference with its standard error, and the ratio of times."""
    recordings, pairs = read_sequences(name), []
    for seed in range(n_seeds):
        for normal in CLASSES[name][:n_classes]:
            task = class_task(recordings, (normal,))
            found = [train(task, method, name, changes | {"precision": precision}, seed) for precision in PRECISIONS]
            pairs.append(found)
            text = ", ".join(f"{p} {a:.1f} in {s:.0f} s" for p, (a, s) in zip(PRECISIONS, found, strict=True))
            print(f"{method} {name} class {normal} seed {seed}: {text}", flush=True)
    differences = [half[0] - full[0] for full, half in pairs]
    error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return {
        "n_pairs": len(pairs),
        **{f"auc_{p}": round(statistics.fmean(pair[i][0] for pair in pairs), 2) for i, p in enumerate(PRECISIONS)},
        "difference": round(statistics.fmean(differences), 2),
        "standard_error": None if error is None else round(error, 2),
        "gain": round(sum(full[1] for full, _ in pairs) / sum(half[1] for _, half in pairs), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="neutral_ad", help="(default: neutral_ad)")
    parser.add_argument("--datasets", nargs="+", choices=get_args(PresetName), default=["epilepsy"])
    parser.add_argument("--classes", type=int, default=4, help="the first so many classes, each normal in turn (4)")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 to N - 1 (default: 1)")
    parser.add_argument("--epochs", type=int, help="epochs of a training (default: those of the study)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found, changes = {}, {"epochs": arguments.epochs} if arguments.epochs else {}
    for name in arguments.datasets:
        found[name] = measure(
            arguments.method, name, n_classes=arguments.classes, n_seeds=arguments.seeds, changes=changes
        )
        print(f"{name}: {found[name]}", flush=True)
    if arguments.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
