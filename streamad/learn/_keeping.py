"""Keeping a store within its bounds: dropping what is not needed and joining files, in an order that survives a crash.

First the ids of what is dropped are remembered, then joined files are written, last of all the old ones are deleted.
A process killed in between leaves copies, of which only the last counts (see ``_survey``); the next flush clears them.
"""

from __future__ import annotations

__all__ = ["compact"]

from collections.abc import Collection, Sequence

import numpy as np

from streamad.learn._compaction import Extent, groups_to_join
from streamad.learn._contents import Contents
from streamad.learn._remembered import REMEMBERED
from streamad.learn._sampling import KeyArray
from streamad.learn._shards import FileName
from streamad.learn._survey import Survey
from streamad.learn.records import SHARES

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
