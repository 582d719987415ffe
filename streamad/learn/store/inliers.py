"""The inlier store: judged sequences in shards, for training, calibration, comparison and feedback.

docs/learning/inliers.md describes its guarantees, layout and policies.
"""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streamad.errors import StoreError
from streamad.learn.store.compaction import compact
from streamad.learn.store.contents import Contents, Survey, survey
from streamad.learn.store.history import marks_to_keep
from streamad.learn.store.records import Mark, StoredSequence, WindowForm
from streamad.learn.store.sampling import bounds_of, key_of, keys_of
from streamad.learn.store.shards import FileName, Form, ShardIndex
from streamad.learn.store.storage import open_storage
from streamad.messages import SHARES, Share
from streamad.ports import Clock
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import BoolArray, ChannelSpec, Window

_SHARD_BYTES = 1 << 26
_PENDING_BYTES = 1 << 28
_MAX_PENDING = 10_000
_ATTEMPTS = 20
_UNWRITTEN = 1 << 62
_TIDY_EVERY_US = 86_400_000_000


class InlierStore:
    """The sequences kept for one model, in a folder or an object store that any number of processes share.

    Synchronous: the caller runs it in a thread. Calls must not overlap, except ``offer``, ``counts``, ``pending``.
    ``writer`` becomes part of file names. Raises StoreError for an invalid URL or name.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        channels: tuple[ChannelSpec, ...],
        window: WindowSettings,
        settings: LearningSettings,
        clock: Clock,
        base_dir: Path,
        writer: str | None = None,
    ) -> None:
        if not re.fullmatch(NAME_PATTERN, model):
            raise StoreError(f"{model[:80]!r} is no model name: use letters, digits, '.', '_' and '-' only")
        self._form = Form(channels=channels, window=WindowForm.of(window))
        self._clock = clock
        self._storage = open_storage(f"{url}{model}" if url.endswith("/") else f"{url}/{model}", base_dir)
        self._contents = Contents(self._storage, self._form, clock, _plain_writer(writer))
        self._bounds = bounds_of(settings)
        self.window_bytes = 4 * len(channels) * window.length
        """Memory that the values of one window take."""
        self._max_rows = max(1, _SHARD_BYTES // self.window_bytes)
        self._max_pending = max(1, min(_MAX_PENDING, _PENDING_BYTES // self.window_bytes))
        self._lock = threading.Lock()
        self._pending: dict[int, tuple[StoredSequence, Share]] = {}
        self._known: frozenset[int] = frozenset()
        self._counts: dict[Share, int] = dict.fromkeys(SHARES, 0)
        self._tidied_us: int | None = None
        self.n_dropped = 0
        """Sequences dropped from memory before they were written, to make room for later ones."""

    @property
    def problems(self) -> list[str]:
        """Return one line for each file that cannot be used (damaged, other channels or windows); files stay."""
        return self._contents.problems

    def open(self) -> None:
        """Read the indexes of all shards, without windows. Raises StoreError if storage cannot be used."""
        self._storage.prepare()
        self._contents.refresh(anew=SHARES)
        self._take_stock()

    def close(self) -> None:
        """Do nothing: no shard stays open."""

    # --- writing ----------------------------------------------------------------------------------------------------

    def offer(self, sequence: StoredSequence, share: Share) -> bool:
        """Take a sequence into memory; return False if its id is known in any share, stored or dropped.

        At most 10,000 sequences or 256 MiB wait; beyond that the oldest is dropped and counted in ``n_dropped``.
        Raises StoreError for a window of another shape.
        """
        values = sequence.window.values
        if values.shape != self._form.shape:
            raise StoreError(f"a window of shape {values.shape} does not fit a store of {self._form.shape}")
        # A copy: the batch that it is part of may change, and must not stay in memory.
        window = Window(np.array(values, dtype=np.float32, order="C"), sequence.window.length)
        key = key_of(sequence.id)
        with self._lock:
            is_remembered = self._contents.remembered.holds(np.array([key], np.uint64))[0]
            if key in self._pending or key in self._known or is_remembered:
                return False
            self._pending[key] = replace(sequence, window=window), share
            while len(self._pending) > self._max_pending:
                del self._pending[next(iter(self._pending))]
                self.n_dropped += 1
        return True

    def flush(self) -> None:
        """Write pending sequences, one shard for each share, then enforce the bounds; do nothing if none is pending.

        Raises StoreError; unwritten sequences stay pending.
        """
        if not self._pending:
            return
        self._contents.refresh()
        self._take_stock()
        self._compact(self._write_pending())
        self._take_stock()
        self.tidy_marks()

    def mark(self, mark: Mark) -> None:
        """Store an operator's mark, durable once this returns; the latest one of an id counts. Raises StoreError."""
        self._contents.marks.write(mark)

    def tidy_marks(self) -> None:
        """Join the files of marks if they are many, and drop those that ``marks_to_keep`` does not keep.

        It looks once a day, and when there are many files. Ages count up to the newest sequence or to the machine's
        clock, whichever is earlier; they count for nothing while a shard cannot be used. Raises StoreError.
        """
        now_us = self._clock.monotonic_us()
        is_due = self._tidied_us is None or now_us - self._tidied_us >= _TIDY_EVERY_US
        if not is_due and not self._contents.marks.many_files:
            return
        self._contents.refresh()
        marks, stock = self._contents.marks, self._survey()
        with self._lock:
            held = np.concatenate([stock.keys[stock.alive], np.fromiter(self._pending, np.uint64, len(self._pending))])
        is_dated = stock.alive.any() and not self._contents.lacks_ids
        newest_us = min(int(stock.times[stock.alive].max()), self._clock.now_us()) if is_dated else None
        stay = marks_to_keep(marks.named(), held, newest_us)
        if marks.many_files or len(stay) < len(marks.named()):
            self._contents.join_marks(stay)
        self._tidied_us = now_us

    def purge(
        self, *, before_us: int | None = None, ids: Collection[str] | None = None, share: Share | None = None
    ) -> int:
        """Delete the sequences that meet every given condition; return how many of them were readable or pending.

        Marked and pending sequences are included. Ids are remembered; marks and unusable files stay. Raises StoreError.
        """
        self._contents.refresh(anew=SHARES)
        before = self._survey()
        chosen = before.in_share(share) if share else np.ones(len(before.keys), bool)
        if before_us is not None:
            chosen &= before.times < before_us
        if ids is not None:
            chosen &= np.isin(before.keys, keys_of(ids))
        waiting = self._waiting(before_us, ids, share)
        if len(keys := np.concatenate([before.keys[chosen], np.array(waiting, np.uint64)])):
            self._contents.write_ids(keys)
        touched = np.unique(before.files[np.isin(before.keys, keys)]).tolist()
        self._compact((), rewrite={before.names[file] for file in touched})
        self._take_stock()
        return int((before.readable & chosen).sum()) + len(waiting)

    # --- reading ----------------------------------------------------------------------------------------------------

    def counts(self) -> dict[Share, int]:
        """Return how many sequences each share had within its bounds at the last ``open``, ``flush`` or ``read``."""
        return dict(self._counts)

    def count_since(self, since_us: int) -> int:
        """Return how many sequences within the bounds ended at ``since_us`` or later. Raises StoreError."""
        self._contents.refresh()
        stock = self._survey()
        return int((stock.visible & (stock.times >= since_us)).sum())

    def pending(self) -> int:
        """Return how many sequences in memory are not written yet."""
        return len(self._pending)

    def read(
        self,
        share: Share,
        *,
        since_us: int | None = None,
        stored_after_us: int | None = None,
        stored_before_us: int | None = None,
    ) -> list[StoredSequence]:
        """Return a share's sequences, fresh from storage, by time.

        Those without ``only_marked`` do not depend on marks: a store without any has the same. ``since_us``: those that
        ended then or later. ``stored_after_us``, ``stored_before_us``: those offered after, before then; shards written
        before the former are not read. Raises StoreError.
        """
        for _ in range(_ATTEMPTS):
            try:
                self._contents.refresh(anew=(share,))
                found = self._load(share, since_us, stored_after_us)
            except FileNotFoundError:  # another process joined shards meanwhile
                continue
            self._take_stock()
            if stored_after_us is not None:
                found = [one for one in found if one.stored_us > stored_after_us]
            if stored_before_us is not None:
                found = [one for one in found if one.stored_us < stored_before_us]
            return sorted(found, key=lambda one: (one.time_us, one.id))
        raise StoreError(f"the inlier store {self._storage.label} changes faster than it can be read: try again")

    def marks(self) -> dict[str, Mark]:
        """Return the latest mark of each id, fresh from storage; see ``Marks.latest``. Raises StoreError."""
        self._contents.refresh_marks()
        return self._contents.marks.latest()

    def all_marks(self) -> list[Mark]:
        """Return every mark that is kept, also those that no longer count, fresh from storage."""
        self._contents.refresh_marks()
        return list(self._contents.marks.named().values())

    # --- inside -----------------------------------------------------------------------------------------------------

    def _survey(self, waiting: Iterable[ShardIndex] = ()) -> Survey:
        contents = self._contents
        shards = [*contents.shards.values(), *waiting]
        pinned = contents.marks.pinned()
        return survey(shards, contents.remembered, contents.beyond, pinned, self._bounds, self._clock.now_us())

    def _take_stock(self) -> None:
        """Update counts and known ids, and release pending sequences that others have stored or dropped meanwhile."""
        stock = self._survey()
        self._counts = {share: int((stock.visible & stock.in_share(share)).sum()) for share in SHARES}
        with self._lock:
            self._known = frozenset(stock.keys.tolist())
            waiting = np.fromiter(self._pending, np.uint64, len(self._pending))
            gone = waiting[self._contents.remembered.holds(waiting)].tolist()
            for key in [*gone, *(self._known & self._pending.keys())]:
                self._pending.pop(key, None)

    def _forget(self, keys: Iterable[int]) -> None:
        with self._lock:
            for key in keys:
                self._pending.pop(key, None)

    def _waiting(self, before_us: int | None, ids: Collection[str] | None, share: Share | None) -> list[int]:
        with self._lock:
            return [
                key
                for key, (one, its_share) in self._pending.items()
                if (before_us is None or one.time_us < before_us)
                and (ids is None or one.id in ids)
                and share in (None, its_share)
            ]

    def _write_pending(self) -> list[int]:
        """Write the pending sequences that the bounds admit; return the keys of the others."""
        with self._lock:
            waiting = dict(self._pending)
        judged = self._survey(_as_shards(waiting))
        needed = set(judged.keys[judged.needed].tolist())
        for share in SHARES:
            keys = [key for key, (_, its_share) in waiting.items() if its_share == share and key in needed]
            if keys:
                self._contents.write_shard([waiting[key][0] for key in keys], share)
                with self._lock:
                    self._known |= frozenset(keys)
                self._forget(keys)
        return [key for key in waiting if key not in needed]

    def _compact(self, lost: Collection[int], rewrite: Collection[FileName] = ()) -> None:
        keys = np.fromiter(lost, np.uint64, len(lost))
        compact(self._contents, self._survey(), keys, max_rows=self._max_rows, rewrite=rewrite)
        self._forget(lost)

    def _load(self, share: Share, since_us: int | None, after_us: int | None) -> list[StoredSequence]:
        loaded: dict[FileName, list[StoredSequence]] = {}
        while True:
            stock = self._survey()
            chosen = stock.readable & stock.in_share(share)
            if since_us is not None:
                chosen &= stock.times >= since_us
            names = [stock.names[file] for file in np.unique(stock.files[chosen]).tolist()]
            if after_us is not None:  # a shard is written after all that it holds
                names = [name for name in names if name.stamp > after_us]
            unread = next((name for name in names if name not in loaded), None)
            if unread is None:
                return [one for name in names for one in _chosen(loaded[name], stock, chosen, name)]
            if (content := self._contents.load(unread)) is not None:  # else the next survey is without it
                loaded[unread] = content


def _chosen(
    content: Sequence[StoredSequence], stock: Survey, chosen: BoolArray, name: FileName
) -> Iterator[StoredSequence]:
    """Yield the chosen ones of the ``content`` of the file ``name``."""
    rows = stock.rows_of(name)
    flags = zip(content, chosen[rows].tolist(), stock.marked[rows].tolist(), strict=True)
    return (replace(one, only_marked=True) if is_marked else one for one, is_chosen, is_marked in flags if is_chosen)


def _plain_writer(writer: str | None) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", writer)[:48] if writer else secrets.token_hex(4)


def _as_shards(waiting: dict[int, tuple[StoredSequence, Share]]) -> list[ShardIndex]:
    """Return the pending sequences as if they were stored, one shard for each share."""
    shards = []
    for share in SHARES:
        rows = [(key, one.time_us) for key, (one, its_share) in waiting.items() if its_share == share]
        keys, times = zip(*rows, strict=True) if rows else ((), ())
        name = FileName(_UNWRITTEN, "", "", share, "")
        shards.append(ShardIndex(name, np.array(keys, np.uint64), np.array(times, np.int64)))
    return shards
