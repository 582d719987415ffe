"""Which files of a store to join, so that few are there and little of them is waste; every sequence is copied rarely.

Files of about the same size are joined eight at a time (a size-tiered log-structured merge: O'Neil et al. 1996), and a
file of which less than half is needed is written anew. So a sequence is copied O(log n) times in its life, storage
holds at most about twice what is needed, and the number of files grows with the logarithm of that (beyond ``max_rows``,
with its size).
"""

from __future__ import annotations

__all__ = ["FAN", "Extent", "groups_to_join"]

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from streamad.learn._shards import FileName

FAN = 8
"""So many files of one size are joined."""


class Extent(NamedTuple):
    """A file, the rows in it, and how many of them are needed."""

    name: FileName
    n_rows: int
    n_needed: int


def groups_to_join(
    extents: Sequence[Extent], *, max_rows: int, rewrite: Collection[FileName] = ()
) -> list[list[Extent]]:
    """Return which files each become one new file, none of more than ``max_rows`` rows; a file may be alone.

    Those in ``rewrite`` are written anew in any case. Files of which nothing is needed are in no group: they are only
    deleted.
    """
    tiers: dict[int, list[Extent]] = defaultdict(list)
    wasteful = []
    for extent in sorted(extents):
        if extent.n_needed and _must_be_written(extent, rewrite):
            wasteful.append(extent)
        elif extent.n_needed and extent.n_needed <= max_rows // 2:
            tiers[_tier(extent.n_needed)].append(extent)
    chosen = wasteful + [extent for tier in tiers.values() if len(tier) >= FAN for extent in tier]
    groups = _packed(chosen, max_rows)
    return [group for group in groups if len(group) > 1 or _must_be_written(group[0], rewrite)]


def _must_be_written(extent: Extent, rewrite: Collection[FileName]) -> bool:
    return extent.n_needed < extent.n_rows / 2 or extent.name in rewrite


def _tier(n: int) -> int:
    tier = 0
    while n >= FAN:
        n //= FAN
        tier += 1
    return tier


def _packed(extents: Sequence[Extent], max_rows: int) -> list[list[Extent]]:
    groups: list[list[Extent]] = []
    room = 0
    for extent in extents:
        if not groups or extent.n_needed > room:
            groups.append([])
            room = max_rows
        groups[-1].append(extent)
        room -= extent.n_needed
    return groups
