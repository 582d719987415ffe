"""Mean and spread of each channel with a verdict, against the default detector's score of the same window.

Windows of 9 channels x 128 points, 24 x 51 and 24 x 1024, batch 1, one thread; both in turn, the lowest of seven
rounds.
Run: ``python benchmarks/speed/moments.py [--json]``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from streamad.judge.verdicts import moments
from streamad.plugins import make_detector
from streamad.types import Window, WindowSet

SHAPES = ((9, 128), (24, 51), (24, 1024))
N_TRAINING = 120
ROUNDS = 7


def seconds(work: Callable[[], object], n: int) -> float:
    """Return the seconds of one call of ``work``, of ``n`` in a row."""
    begun = time.perf_counter()
    for _ in range(n):
        work()
    return (time.perf_counter() - begun) / n


def measure(n_channels: int, length: int) -> dict[str, float]:
    """Return microseconds of the moments and of the score of one window."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(N_TRAINING, n_channels, length)).cumsum(axis=2).astype(np.float32)
    lengths = np.full(N_TRAINING, length, np.int64)
    detector = make_detector("ensemble", {})
    with tempfile.TemporaryDirectory() as folder:
        fitted = detector.fit(WindowSet(values, lengths, tuple(map(str, range(N_TRAINING)))), seed=0, device="cpu")
        fitted.export(Path(folder))
        scorer = detector.load(Path(folder), device="cpu")
    window = Window(values[0], length)
    scorer.score(values[:1], lengths[:1])
    pairs = [
        (seconds(lambda: moments(window), 500), seconds(lambda: scorer.score(values[:1], lengths[:1]), 20))
        for _ in range(ROUNDS)
    ]
    moments_s, score_s = (min(each) for each in zip(*pairs, strict=True))
    return {"moments_us": round(1e6 * moments_s, 1), "score_us": round(1e6 * score_s), "ratio": score_s / moments_s}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {f"{channels} x {length}": measure(channels, length) for channels, length in SHAPES}
    if options.json:
        print(json.dumps(found))
        return
    for shape, each in found.items():
        moments_us, score_us, ratio = each.values()
        print(f"{shape:>10}: mean and spread {moments_us:.0f} us, score {score_us:.0f} us, {ratio:.0f} times")


if __name__ == "__main__":
    main()
