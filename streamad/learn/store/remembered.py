"""Lists of ids beside the shards, so that no dropped sequence is taken again or comes back by a mark."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from streamad.learn.store.sampling import KeyArray
from streamad.learn.store.shards import FileName
from streamad.learn.store.storage import UnreadableError
from streamad.types import BoolArray

REMEMBERED = 1_000_000
"""The number of ids remembered, the last ones (8 bytes each)."""


@dataclass(frozen=True, slots=True, eq=False)
class IdList:
    """One file's keys uint64 [n], oldest first."""

    name: FileName
    keys: KeyArray
    _sorted: KeyArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sorted", np.sort(self.keys))

    def holds(self, keys: KeyArray) -> BoolArray:
        """Return which of ``keys`` are in the list."""
        if not len(self._sorted):
            return np.zeros(len(keys), bool)
        place = np.searchsorted(self._sorted, keys)
        found: BoolArray = np.equal(self._sorted[np.minimum(place, len(self._sorted) - 1)], keys)
        return found


class Remembered:
    """All lists together."""

    def __init__(self, lists: Iterable[IdList] = ()) -> None:
        self.lists = sorted(lists, key=lambda one: one.name)

    def __len__(self) -> int:
        return sum(len(one.keys) for one in self.lists)

    def without(self, name: FileName) -> Remembered:
        """Return all lists but the one in the file ``name``."""
        return Remembered(one for one in self.lists if one.name != name)

    def holds(self, keys: KeyArray) -> BoolArray:
        """Return which of ``keys`` are in a list."""
        found = np.zeros(len(keys), bool)
        for one in self.lists:
            found |= one.holds(keys)
        return found


def encode_ids(keys: KeyArray) -> bytes:
    """Return the content of a list."""
    buffer = io.BytesIO()
    np.save(buffer, keys, allow_pickle=False)
    return buffer.getvalue()


def decode_ids(name: FileName, content: bytes) -> IdList:
    """Return a list; raises UnreadableError."""
    name.check(content)
    try:
        keys = np.load(io.BytesIO(content), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise UnreadableError(str(error).split("\n")[0]) from error
    if not isinstance(keys, np.ndarray) or keys.dtype != np.uint64 or keys.ndim != 1:
        raise UnreadableError("it holds no ids")
    return IdList(name, keys)
