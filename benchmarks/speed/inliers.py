"""Times of the inlier store: ``python benchmarks/speed/inliers.py [--sequences 100000] [--marks 12000]``.

Windows are 9 x 128 float32, the bounds those of the defaults. Marks are on ids that the store does not hold, each
durable by itself, as the learner stores them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streamad.learn.store.bounds import bounds_of
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, StoredSequence
from streamad.messages import SHARES
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, Window

C, L = 9, 128
N_FIRST, N_FLUSH = 2000, 500
START_US = 1_767_225_600_000_000


def sequence_of(i: int, values: Window) -> StoredSequence:
    at_us = START_US + i * 1_000_000
    return StoredSequence(f"{i:032x}", "press-1", f"B-{i}", at_us, at_us, values, "normal", 1.0, 0.5, "0001")


@contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    print(f"{what:<58} {time.perf_counter() - begin:8.3f} s")


def opened(path: Path, n: int) -> InlierStore:
    """Return the opened store, at a time after all ``n`` sequences."""
    store = InlierStore(
        path,
        "default",
        channels=tuple(ChannelSpec(f"c{i}") for i in range(C)),
        window=WindowSettings(length=L),
        bounds=bounds_of(LearningSettings()),
        clock=ManualClock(START_US + 2 * n * 1_000_000),
    )
    store.open()
    return store


def marking(store: InlierStore, n: int) -> None:
    """Print the times of ``n`` marks, one after the other."""
    longest = 0.0
    with timed(f"{n:,} marks, each durable"):
        for i in range(n):
            begin = time.perf_counter()
            store.mark(Mark(id=f"{10**9 + i:032x}", judgement="veto", at_us=START_US + i, received_us=START_US + i))
            store.tidy_marks()
            longest = max(longest, time.perf_counter() - begin)
    print(f"{'longest mark':<58} {longest:8.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=100_000)
    parser.add_argument("--marks", type=int, default=12_000)
    asked = parser.parse_args()
    window = Window(np.random.default_rng(0).normal(size=(C, L)).astype(np.float32), L)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "inliers.sqlite3"
        store = opened(path, asked.sequences)
        for i in range(N_FIRST):
            store.offer(sequence_of(i, window), "accepted")
        with timed(f"flush of {N_FIRST:,} windows into an empty store"):
            store.flush()
        with timed(f"read of {N_FIRST:,} windows"):
            store.read("accepted")
        longest = 0.0
        with timed(f"offer {asked.sequences:,} and flush every {N_FLUSH}"):
            for i in range(N_FIRST, N_FIRST + asked.sequences):
                store.offer(sequence_of(i, window), SHARES[i % 3])
                if i % N_FLUSH == 0:
                    begin = time.perf_counter()
                    store.flush()
                    longest = max(longest, time.perf_counter() - begin)
            store.flush()
        print(f"{'longest flush':<58} {longest:8.3f} s")
        marking(store, asked.marks)
        store.close()
        with timed("open"):
            store = opened(path, asked.sequences)
        print(f"{store.counts()}, {path.stat().st_size / 1e6:.0f} MB")
        store.close()


if __name__ == "__main__":
    main()
