"""One-vs-rest AUC of the detector on the test split of real recordings.

For each class, a model is trained on the training split's sequences of that class, exported, loaded as for service,
and scores the whole test split, all on one thread. ``--options`` are the detector's, as KEY=VALUE (none: the defaults).
Data: NAME.npz in the folder that STREAMAD_DATA names, else in ``../shared/data`` beside the checkout. About 13 seconds
a class and seed of NATOPS.
Run:
``python benchmarks/quality/quality.py [--dataset natops] [--options preset=natops] [--classes 0,1] [--seeds 3]``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from streamad.errors import SourceError, StreamadError
from streamad.judge.evaluation import auc
from streamad.plugins import make_detector
from streamad.types import WindowSet

DATA = Path(os.environ.get("STREAMAD_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")


def read(path: Path) -> dict[str, tuple[WindowSet, np.ndarray]]:
    """Return windows and class numbers of both splits, zero after a sequence's end."""
    splits = {}
    with np.load(path, allow_pickle=False) as archive:
        for split in ("train", "test"):
            lengths = archive[f"{split}_len"].astype(np.int64)
            values = archive[f"{split}_x"].astype(np.float32)
            values[np.broadcast_to((np.arange(values.shape[2]) >= lengths[:, None])[:, None], values.shape)] = 0.0
            ids = tuple(f"{split}-{index:04d}" for index in range(len(lengths)))
            splits[split] = (WindowSet(values, lengths, ids), archive[f"{split}_y"])
    return splits


def one_against_the_rest(
    splits: dict[str, tuple[WindowSet, np.ndarray]], normal: int, seed: int, options: dict[str, Any]
) -> float:
    """Train on one class and return the AUC of the test split, the other classes anomalous."""
    (train, train_classes), (test, test_classes) = splits["train"], splits["test"]
    detector = make_detector("neutral_ad", options, where="--options")
    fitted = detector.fit(train.take(np.flatnonzero(train_classes == normal)), seed=seed, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        fitted.export(Path(folder))
        scorer = detector.load(Path(folder), device="cpu")
        return auc(scorer.score(test.values, test.lengths).sum(axis=1), test_classes != normal)


def measure(path: Path, classes: list[int], n_seeds: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return the AUC of each class (all if none is named) and seed, and their means over the classes."""
    began = time.perf_counter()
    splits = read(path)
    known = np.unique(splits["train"][1]).tolist()
    if unknown := sorted(set(classes) - set(known)):
        raise SourceError(f"{path}: no class {unknown[0]} (there are: {', '.join(map(str, known))})")
    found: dict[int, list[float]] = {}
    for normal in classes or known:
        found[normal] = [round(one_against_the_rest(splits, normal, seed, options), 4) for seed in range(n_seeds)]
        print(f"class {normal}: AUC {_listed(found[normal])}", file=sys.stderr, flush=True)
    means = [round(statistics.fmean(by_seed), 4) for by_seed in zip(*found.values(), strict=True)]
    return {
        "dataset": path.stem,
        "options": options,
        "auc": found,
        "mean_auc": means,
        "wall_s": round(time.perf_counter() - began, 1),
    }


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="natops", help="name of the archive without .npz (default: natops)")
    parser.add_argument("--classes", default="", help="classes to take for normal in turn, such as 0,1 (default: all)")
    parser.add_argument("--options", nargs="*", default=[], metavar="KEY=VALUE", help="options of the detector")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, from 0 on (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = DATA / f"{arguments.dataset}.npz"
    if not path.is_file():
        parser.error(f"no {path}: set STREAMAD_DATA to the folder of recordings")
    classes = [int(number) for number in arguments.classes.split(",") if number]
    options = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in arguments.options)}
    try:
        result = measure(path, classes, arguments.seeds, options)
    except StreamadError as error:
        parser.error(str(error))
    print(f"mean of {len(result['auc'])} classes, seed by seed: AUC {_listed(result['mean_auc'])}")
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
