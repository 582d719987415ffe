"""A child process that fills an inlier store, for tests that kill it."""

from __future__ import annotations

from multiprocessing.synchronize import Event
from pathlib import Path

from streamad.learn.store import compaction
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark
from streamad.messages import SHARES
from tests.support.learning.inlier_cases import sequence_of, store_of

BOUND = 20
MAX_FILES = 7
"""More small files than this are joined: few, so that few flushes come to it."""
N_PREPARED, N_MORE = 70, 14


def opened(folder: Path, policy: str = "newest") -> InlierStore:
    compaction.MAX_FILES = MAX_FILES
    return store_of(folder, policy=policy, max_accepted=BOUND, max_reserve=BOUND, max_aside=BOUND)


def prepare(folder: Path) -> None:
    """Fill a store such that the next flush writes every share, drops from all, and joins shards and lists of ids."""
    store = opened(folder)
    for i in range(N_PREPARED):
        store.offer(sequence_of(i), SHARES[i % 3])
        if i % 10 == 9:
            store.flush()


def one_flush(folder: Path) -> None:
    """Mark a sequence, offer some that are there and some that are new, and flush."""
    store = opened(folder)
    store.mark(Mark(id=f"id-{N_PREPARED - 1:06d}", judgement="confirmed", at_us=1))
    for i in range(N_PREPARED + N_MORE):
        store.offer(sequence_of(i), SHARES[i % 3])
    store.flush()


def fill(folder: Path, policy: str, n: int) -> None:
    """Offer the sequences 0 to n from the first on, whatever is there, and flush often."""
    store = opened(folder, policy)
    for i in range(n):
        store.offer(sequence_of(i), SHARES[i % 3])
        if i % 3 == 2:
            store.flush()
    store.flush()


def fill_announced(begins: Event, folder: Path, policy: str, n: int) -> None:
    """Say that it begins, then fill."""
    begins.set()
    fill(folder, policy, n)
