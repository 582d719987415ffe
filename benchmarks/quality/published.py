"""How many models that ``train`` would publish are refused by the process that proves them, over made-up plants.

Plants have 10 to 200 sequences of 2 to 10 channels and 12 to 150 samples: random walks about a course, with sensors of
0.1 steps, coarse steps, held stretches, channels that stand still for most of a sequence, and copies. Trainings compute
on two threads, the proof on one. Run: ``python benchmarks/quality/published.py [--plants 0 1 2]``; ten seconds each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from streamad.errors import StreamadError, TrainingDataError
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble


def plant(seed: int) -> tuple[WindowSet, str]:
    """Return the sequences of a plant and what is odd about it."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([10, 14, 20, 30, 50, 80, 120, 200]))
    n_channels, length = int(rng.integers(2, 11)), int(rng.choice([12, 20, 40, 80, 150]))
    course = rng.normal(size=(n_channels, length)).cumsum(axis=1)
    values = (
        course + rng.normal(size=(n, n_channels, length)).cumsum(axis=2) * 0.3 + rng.normal(size=(n, n_channels, 1))
    )
    odd = [name for name in ("steps", "coarse", "held", "still", "copies") if rng.random() < 0.5]
    if "held" in odd:
        for row in values.reshape(-1, length):
            start = int(rng.integers(0, length - 2))
            row[start : int(rng.integers(start + 1, length))] = row[start]
    if "still" in odd:
        values[:, 0, length // 4 :] = values[:, 0, length // 4 : length // 4 + 1]
    if "steps" in odd:
        values = np.round(values, 1)
    if "coarse" in odd:
        values = np.round(values)
    if "copies" in odd:
        near = values[rng.integers(0, n, n)]
        near[:, 0, :2] += np.round(rng.normal(size=(n, 2)), 1)  # equal sequences would be left out
        values = near
    lengths = rng.integers(max(2, length * 3 // 4), length + 1, n)
    values = np.where(np.arange(length) < lengths[:, None, None], values, 0.0)
    return WindowSet(values.astype(np.float32), lengths.astype(np.int64), tuple(map(str, range(n)))), " ".join(odd)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", type=int, nargs="*", default=range(60), help="their seeds (default: 0 to 59)")
    parser.add_argument("--folds", type=int, default=2, help="from 20 sequences on; the default has 5")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    refused = untrainable = 0
    for seed in arguments.plants:
        data, odd = plant(seed)
        settings = Settings.model_validate(
            {
                "name": "made-up",
                "channels": [{"name": f"c{i}"} for i in range(data.values.shape[1])],
                "source": {"url": "none.jsonl"},
                "window": {"length": data.values.shape[2]},
                "sequences": {"end": ["marker"]},
                "model": {"references": [], "folds": arguments.folds if len(data) >= 20 else 5},
            }
        )
        began_s, said = time.perf_counter(), "published"
        with tempfile.TemporaryDirectory() as folder:
            try:
                train_model(
                    data, Ensemble(), settings=settings, registry=Registry(Path(folder)), clock=SystemClock(),
                    prove=proved_in_new_process,
                )  # fmt: skip
            except TrainingDataError as error:
                untrainable, said = untrainable + 1, f"no training: {error}"
            except StreamadError as error:
                refused, said = refused + 1, f"REFUSED: {error}"
        shape = f"{len(data)} of {data.values.shape[1]} x {data.values.shape[2]}"
        print(f"{seed:>3}  {shape:<16} {odd:<32} {time.perf_counter() - began_s:5.0f} s  {said}", flush=True)
    print(f"refused {refused} of {len(arguments.plants)}; {untrainable} cannot be trained on")


if __name__ == "__main__":
    sys.exit(main())
