"""Folds of an out-of-fold calibration of NeuTraL AD: one after the other and as one computation; and the early stop.

Made-up waves, 71 sequences of 10 channels x 208 steps, 5 folds. Prints wall and CPU seconds of both ways for some
``--epochs``, side by side; ``--to-the-end`` trains the final model with default options and prints where it stopped.
Run: ``OMP_NUM_THREADS=1 python -m benchmarks.speed.folds [--epochs 2] [--to-the-end]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.models.together import Member, fit_ensemble
from streamad.learn.training.calibrating import folds_of
from streamad.types import WindowSet
from streamad_models.neutral_ad import NeutralAD, NeutralADOptions

N, CHANNELS, LENGTH, FOLDS = 71, 10, 208, 5


def waves() -> WindowSet:
    """Return noisy sines, each channel of a phase of its own, each sequence a little faster or slower."""
    rng = np.random.default_rng(0)
    steps = np.linspace(0, 6 * np.pi, LENGTH)
    values = np.sin(steps * rng.uniform(0.9, 1.1, (N, 1, 1)) + rng.uniform(0, 6, (1, CHANNELS, 1)))
    noisy = (values + 0.1 * rng.standard_normal(values.shape)).astype(np.float32)
    return WindowSet(noisy, np.full(N, LENGTH, np.int64), tuple(f"s{i}" for i in range(N)))


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of ``work``."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--to-the-end", action="store_true")
    arguments = parser.parse_args()
    data = waves()
    if arguments.to_the_end:
        summary = NeutralAD().fit(data, seed=0, device="cpu").summary
        print(f"{summary.n_epochs} epochs in {summary.duration_s:.0f} s, stopped by {summary.settings['stopped_by']}")
        return
    options = NeutralADOptions(epochs=arguments.epochs, patience=None)
    folds = [data.take(np.setdiff1d(np.arange(N), held_out)) for held_out in folds_of(N, FOLDS)]
    one_by_one = seconds(lambda: [NeutralAD(options).fit(fold, seed=0, device="cpu") for fold in folds])
    together = seconds(lambda: fit_ensemble([Member(fold, 0) for fold in folds], options, device="cpu"))
    print(f"{torch.get_num_threads()} threads, {arguments.epochs} epochs of {FOLDS} folds: wall and CPU seconds")
    for name, (wall_s, cpu_s) in (("one by one", one_by_one), ("one computation", together)):
        print(f"  {name:16} {wall_s:6.1f} {cpu_s:6.1f}")
    print(f"  ratio of CPU time {one_by_one[1] / together[1]:.2f}")


if __name__ == "__main__":
    main()
