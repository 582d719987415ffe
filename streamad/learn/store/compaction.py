"""Keep a store within its bounds: drop what is not needed and join small files, in an order that survives a crash.

The ids of dropped sequences, and of those that stay for their marks alone, are remembered first, then joined files are
written, then the old files are deleted. A process killed in between leaves copies, of which only the last counts (see
``survey``); the next flush deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from streamad.learn.store.contents import Contents, Survey
from streamad.learn.store.remembered import REMEMBERED, Remembered
from streamad.learn.store.sampling import KeyArray
from streamad.learn.store.shards import FileName
from streamad.messages import SHARES

MAX_FILES = 64
"""More small files of a share than this, or more lists of ids, are joined."""
_SLACK = 1.25


class Extent(NamedTuple):
    """A shard, the number of its rows, and how many of them are needed."""

    name: FileName
    n_rows: int
    n_needed: int


def groups_to_join(
    extents: Sequence[Extent], *, max_rows: int, rewrite: Collection[FileName] = ()
) -> list[list[Extent]]:
    """Return which shards of one share become one new file each, none of more than ``max_rows`` rows.

    A shard is rewritten if it is in ``rewrite`` or less than half of it is needed, and a small one (at most half of
    ``max_rows``) if there are more than ``MAX_FILES`` of those. A shard of which nothing is needed is in no group.
    """
    needed = sorted(one for one in extents if one.n_needed)
    forced = {one for one in needed if one.n_needed < one.n_rows / 2 or one.name in rewrite}
    small = {one for one in needed if one.n_needed <= max_rows // 2}
    chosen = forced | small if len(small) > MAX_FILES else forced
    groups: list[list[Extent]] = []
    n_free = 0
    for extent in (one for one in needed if one in chosen):
        if extent.n_needed > n_free:
            groups.append([])
            n_free = max_rows
        groups[-1].append(extent)
        n_free -= extent.n_needed
    return [group for group in groups if len(group) > 1 or group[0] in forced]


def compact(
    contents: Contents, judged: Survey, lost: KeyArray, *, max_rows: int, rewrite: Collection[FileName] = ()
) -> None:
    """Drop from storage what ``judged`` does not need, remember those ids and ``lost``, and join files.

    ``judged`` is a survey of ``contents`` as they are; ``rewrite`` names files to rewrite in any case. Raises
    StoreError; the next call does the rest.
    """
    n_rows = np.bincount(judged.files, minlength=len(judged.names)).tolist()
    n_needed = np.bincount(judged.files[judged.needed], minlength=len(judged.names)).tolist()
    extents = [Extent(*values) for values in zip(judged.names, n_rows, n_needed, strict=True)]
    useless = [extent.name for extent in extents if not extent.n_needed]
    groups = [
        [extent.name for extent in group]
        for share in SHARES
        for group in groups_to_join(
            [extent for extent in extents if extent.name.folder == share], max_rows=max_rows, rewrite=rewrite
        )
    ]
    replaced = {*useless, *(name for group in groups for name in group)}
    in_replaced = np.array([name in replaced for name in judged.names], dtype=bool)[judged.files]
    dropped = np.concatenate([judged.keys[in_replaced & judged.alive & ~judged.needed], lost])
    if len(dropped):
        contents.write_ids(dropped)
    for_marks = judged.keys[judged.marked & ~judged.natural]
    if len(new := for_marks[~contents.beyond.holds(for_marks)]):
        contents.write_beyond(new)
    for names in groups:
        _join(contents, judged, names)
    for name in useless:
        contents.delete(name)
    _join_ids(contents, contents.remembered, contents.write_ids)
    _join_ids(contents, contents.beyond, contents.write_beyond)


def _join(contents: Contents, judged: Survey, names: Sequence[FileName]) -> None:
    sequences = []
    read = []
    for name in names:
        try:
            content = contents.load(name)
        except FileNotFoundError:  # another process has joined it: the next listing shows the new file
            continue
        if content is not None:
            read.append(name)
            needed = judged.needed[judged.rows_of(name)].tolist()
            sequences += [one for one, is_needed in zip(content, needed, strict=True) if is_needed]
    if sequences:
        contents.write_shard(sequences, names[0].folder)
    for name in read:
        contents.delete(name)


def _join_ids(contents: Contents, remembered: Remembered, write: Callable[[KeyArray], None]) -> None:
    if len(remembered.lists) > MAX_FILES or len(remembered) > _SLACK * REMEMBERED:
        write(np.concatenate([one.keys for one in remembered.lists])[-REMEMBERED:])
        for one in remembered.lists:
            contents.delete(one.name)
