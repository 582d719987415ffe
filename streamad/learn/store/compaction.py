"""Keeping a store within its bounds: dropping what is not needed and joining files, in an order that survives a crash.

First the ids of what is dropped are remembered, then joined files are written, last of all the old ones are deleted.
A process killed in between leaves copies, of which only the last counts (see ``_survey``); the next flush clears them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from streamad.learn.store.contents import Contents, Survey
from streamad.learn.store.records import SHARES
from streamad.learn.store.remembered import REMEMBERED
from streamad.learn.store.sampling import KeyArray
from streamad.learn.store.shards import FileName

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


_SLACK = 1.25


def compact(
    contents: Contents, judged: Survey, lost: KeyArray, *, max_rows: int, rewrite: Collection[FileName] = ()
) -> None:
    """Drop from storage what ``judged`` does not need, remember those ids and ``lost``, and join files.

    ``judged`` is a survey of ``contents`` as they are; ``rewrite`` are files to write anew whatever they hold. Raises
    StoreError; then the rest is done next time.
    """
    extents = _extents(judged)
    groups = [
        group
        for share in SHARES
        for group in groups_to_join(
            [extent for extent in extents if extent.name.folder == share], max_rows=max_rows, rewrite=rewrite
        )
    ]
    useless = [extent.name for extent in extents if not extent.n_needed]
    _remember_dropped(contents, judged, lost, [*useless, *(extent.name for group in groups for extent in group)])
    for group in groups:
        _join(contents, judged, [extent.name for extent in group])
    for name in useless:
        contents.delete(name)
    _join_ids(contents)


def _extents(judged: Survey) -> list[Extent]:
    n_rows = np.bincount(judged.files, minlength=len(judged.names)).tolist()
    n_needed = np.bincount(judged.files[judged.needed], minlength=len(judged.names)).tolist()
    return [Extent(*values) for values in zip(judged.names, n_rows, n_needed, strict=True)]


def _remember_dropped(contents: Contents, judged: Survey, lost: KeyArray, replaced: Collection[FileName]) -> None:
    in_replaced = np.array([name in replaced for name in judged.names], dtype=bool)[judged.files]
    dropped = np.concatenate([judged.keys[in_replaced & judged.alive & ~judged.needed], lost])
    if len(dropped):
        contents.write_ids(dropped)


def _join(contents: Contents, judged: Survey, names: Sequence[FileName]) -> None:
    sequences = []
    read = []
    for name in names:
        try:
            content = contents.load(name)
        except FileNotFoundError:  # another process has joined it: the next listing shows where it went
            continue
        if content is not None:
            read.append(name)
            needed = judged.needed[judged.rows_of(name)].tolist()
            sequences += [one for one, is_needed in zip(content, needed, strict=True) if is_needed]
    if sequences:
        contents.write_shard(sequences, names[0].folder)
    for name in read:
        contents.delete(name)


def _join_ids(contents: Contents) -> None:
    lists = {one.name: one.keys for one in contents.remembered.lists}
    if len(contents.remembered) > _SLACK * REMEMBERED:
        groups = [list(lists)]
    else:
        extents = [Extent(name, len(keys), len(keys)) for name, keys in lists.items()]
        groups = [[extent.name for extent in group] for group in groups_to_join(extents, max_rows=2 * REMEMBERED)]
    for names in groups:
        contents.write_ids(np.concatenate([lists[name] for name in sorted(names)])[-REMEMBERED:])
        for name in names:
            contents.delete(name)
