"""Times of the inlier store: ``python benchmarks/speed/inliers.py [--url memory://bench]``.

Windows are 9 x 128 float32. With the bounds of the defaults, 100,000 sequences are offered under each policy. Marks are
on ids that the store does not hold, and joined as a worker does it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, StoredSequence
from streamad.messages import SHARES
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, Window

C, L = 9, 128
N, N_FLUSH, N_MARKS = 100_000, 500, 12_000
START_US = 1_767_225_600_000_000


def sequence_of(i: int, values: Window) -> StoredSequence:
    at_us = START_US + i * 1_000_000
    return StoredSequence(f"{i:032x}", "press-1", f"B-{i}", at_us, at_us, values, "normal", 1.0, 0.5, "0001")


@contextmanager
def timed(what: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    print(f"{what:<58} {time.perf_counter() - begin:8.3f} s")


def opener(url: str, folder: Path) -> Callable[[str], InlierStore]:
    channels = tuple(ChannelSpec(f"c{i}") for i in range(C))

    def opened(policy: str) -> InlierStore:
        store = InlierStore(
            url,
            policy,
            channels=channels,
            window=WindowSettings(length=L),
            settings=LearningSettings(policy=policy),  # type: ignore[arg-type]
            clock=ManualClock(START_US + 2 * N * 1_000_000),
            base_dir=folder,
        )
        store.open()
        return store

    return opened


def marking(store: InlierStore, folder: Path) -> None:
    """Print the times of ``N_MARKS`` marks, one after the other."""
    longest = 0.0
    with timed(f"{N_MARKS:,} marks, each durable"):
        for i in range(N_MARKS):
            begin = time.perf_counter()
            store.mark(Mark(id=f"{N + 2000 + i:032x}", judgement="veto", at_us=START_US + i, received_us=START_US + i))
            store.tidy_marks()
            longest = max(longest, time.perf_counter() - begin)
    files = [path for path in folder.rglob("marks/*") if path.is_file()]
    print(f"longest mark {longest:.3f} s; {len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="inliers")
    url = parser.parse_args().url
    window = Window(np.random.default_rng(0).normal(size=(C, L)).astype(np.float32), L)
    with tempfile.TemporaryDirectory() as folder:
        opened = opener(url, Path(folder))
        store = opened("newest")
        for i in range(2000):
            store.offer(sequence_of(i, window), "accepted")
        with timed("flush of 2,000 windows into an empty store"):
            store.flush()
        with timed("read of 2,000 windows"):
            store.read("accepted")
        marking(store, Path(folder))
        with timed("open with the marks"):
            opened("newest")
        for policy in ("newest", "reservoir"):
            store, longest = opened(policy), 0.0
            with timed(f"{policy}: offer {N:,} and flush every {N_FLUSH}"):
                for i in range(2000, 2000 + N):
                    store.offer(sequence_of(i, window), SHARES[i % 3])
                    if i % N_FLUSH == 0:
                        begin = time.perf_counter()
                        store.flush()
                        longest = max(longest, time.perf_counter() - begin)
                store.flush()
            print(f"{policy + ': longest flush':<58} {longest:8.3f} s")
            with timed(f"{policy}: open"):
                store = opened(policy)
            files = [path for path in (Path(folder) / "inliers" / policy).rglob("*.np*") if path.is_file()]
            print(
                f"{policy}: {store.counts()}, {len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:.0f} MB"
            )


if __name__ == "__main__":
    main()
