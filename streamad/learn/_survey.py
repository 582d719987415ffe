"""Which of all copies of all sequences count: one of each id, none that was dropped, none beyond the bounds."""

from __future__ import annotations

__all__ = ["Survey", "survey"]

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from streamad.learn._remembered import Remembered
from streamad.learn._sampling import Bounds, KeyArray, kept
from streamad.learn._shards import FileName, ShardIndex
from streamad.learn.records import SHARES, Share
from streamad.types import BoolArray, IntArray


class Survey(NamedTuple):
    """The N rows of all shards: their files (an index into ``names``), keys, times, and what they are worth.

    ``alive``: the one copy of its id that counts, not dropped. ``visible``: within the bounds, what ``read`` returns.
    ``needed``: what storage must keep (in a reservoir more than what is visible).
    """

    names: tuple[FileName, ...]
    files: IntArray
    keys: KeyArray
    times: IntArray
    alive: BoolArray
    visible: BoolArray
    needed: BoolArray

    def rows_of(self, name: FileName) -> slice:
        """Return where the rows of a file lie."""
        file = self.names.index(name)
        return slice(*np.searchsorted(self.files, [file, file + 1]).tolist())

    def in_share(self, share: Share) -> BoolArray:
        """Return which rows lie in a share's files."""
        return np.array([name.folder == share for name in self.names], dtype=bool)[self.files]


def survey(
    shards: Sequence[ShardIndex],
    remembered: Remembered,
    pinned: KeyArray,
    bounds: Mapping[Share, Bounds],
    now_us: int,
) -> Survey:
    """Return what counts of ``shards``: of several copies of an id that in the file whose name sorts last.

    Joining writes a file that sorts behind those that it replaces. So whatever several writers join at the same time,
    nobody deletes the last copy: a copy gives way only to one in a later file.
    """
    ordered = sorted(shards, key=lambda shard: shard.name)
    keys = np.concatenate([np.zeros(0, np.uint64), *(shard.keys for shard in ordered)])
    times = np.concatenate([np.zeros(0, np.int64), *(shard.times for shard in ordered)])
    files = np.repeat(np.arange(len(ordered)), [len(shard) for shard in ordered])
    alive = _last_copies(keys) & ~remembered.holds(keys)
    result = Survey(
        tuple(shard.name for shard in ordered), files, keys, times, alive, np.zeros_like(alive), np.zeros_like(alive)
    )
    is_pinned = np.isin(keys, pinned)
    for share in SHARES:
        rows = np.flatnonzero(alive & result.in_share(share))
        stays = kept(times[rows], keys[rows], is_pinned[rows], bounds=bounds[share], now_us=now_us)
        result.visible[rows], result.needed[rows] = stays
    return result


def _last_copies(keys: KeyArray) -> BoolArray:
    last = np.zeros(len(keys), bool)
    last[len(keys) - 1 - np.unique(keys[::-1], return_index=True)[1]] = True
    return last
