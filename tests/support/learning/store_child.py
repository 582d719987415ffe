"""What a child process does in tests that kill it: fill an inlier store, and perhaps die at a given step."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from streamad.errors import StoreError
from streamad.learn.store import compaction
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import SHARES, Mark
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


def fill_and_die(folder: Path, dies_at: int) -> None:
    """Run ``one_flush`` and die by SIGKILL before its ``dies_at``-th step; with fewer steps, end as usual.

    Steps are: every change under ``folder`` (open for writing, rename, remove, mkdir), and three at each sync: with
    half of the file written, with all of it, and with all of it synced.
    """
    steps = 0

    def step(prepare: Callable[[], object] | None = None) -> None:
        nonlocal steps
        steps += 1
        if steps == dies_at:
            if prepare is not None:
                prepare()
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, args: tuple[object, ...]) -> None:
        changes = event in ("os.rename", "os.remove", "os.mkdir") or (event == "open" and _writes(args[2]))
        if changes and str(folder) in str(args[0]):
            step()

    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.access(f"/proc/self/fd/{descriptor}", os.F_OK) and os.fstat(descriptor).st_size and _is_file(descriptor):
            step(lambda: os.truncate(f"/proc/self/fd/{descriptor}", os.fstat(descriptor).st_size // 2))
        step()
        real(descriptor)
        step()

    os.fsync = fsync
    sys.addaudithook(hook)
    one_flush(folder)


def _writes(flags: object) -> bool:
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _is_file(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_file()


def fill_on_a_small_disk(folder: Path, limit_bytes: int) -> None:
    """Run a flush with a limit on the size of files; exit with 2 where it was told in one line and nothing was lost."""
    store = opened(folder)
    for i in range(N_PREPARED, N_PREPARED + N_MORE):
        store.offer(sequence_of(i), SHARES[i % 3])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limits[1]))
    try:
        store.flush()
    except StoreError as error:
        if "raise the file size limit" not in str(error) or "\n" in str(error):
            sys.exit(3)
        n_waiting = store.pending()
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        store.flush()
        sys.exit(2 if store.pending() == 0 and n_waiting > 0 else 4)
