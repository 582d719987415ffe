"""Which sequences stay in a share: pure functions of times and hashes, so that every process agrees."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.types import BoolArray, IntArray

KeyArray: TypeAlias = npt.NDArray[np.uint64]


def key_of(sequence_id: str) -> int:
    """Return the 64-bit hash of an id, its key in the index and in the lists of ids, and its priority in a reservoir.

    Two of a million ids share a key with probability 3e-8 (birthday bound); then the second one is not kept.
    """
    encoded = sequence_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8, person=b"inlier").digest(), "big")


def keys_of(ids: Iterable[str]) -> KeyArray:
    """Return the keys of ``ids``, uint64 [n]."""
    return np.fromiter((key_of(one) for one in ids), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most ``limit`` sequences, none older than ``max_age_us`` before the newest."""

    limit: int
    policy: Literal["newest", "reservoir"]
    max_age_us: int


class Kept(NamedTuple):
    """``visible`` bool [n]: in the share. ``needed`` bool [n]: in storage, because it is or may become visible."""

    visible: BoolArray
    needed: BoolArray


def kept(times: IntArray, keys: KeyArray, pinned: BoolArray, *, bounds: Bounds, now_us: int) -> Kept:
    """Return which of n sequences stay that ended at ``times`` [n]; ``keys`` are the hashes of their ids.

    Age counts from the newest of ``times``, or from ``now_us`` if that is earlier: a clock that jumps ahead, the
    machine's or a sensor's, makes nothing old. ``newest``: the last ``limit`` by time. ``reservoir``: a uniform sample
    of ``limit`` out of all that are not too old, those with the highest keys. Others enter the sample over time,
    so storage needs every sequence that fewer than ``limit`` later ones precede by key: about
    limit * (1 + ln(n / limit)) of n (priority sampling over a sliding window: Babcock, Datar, Motwani, SODA 2002).
    The newest ``limit`` of the ``pinned`` stay beside the others, whatever their age.
    """
    if not len(times):
        return Kept(np.zeros(0, bool), np.zeros(0, bool))
    oldest = min(int(times.max()), now_us) - bounds.max_age_us
    order = np.lexsort((keys, times))
    pins = order[pinned[order]][-bounds.limit :]
    young = order[~pinned[order] & (times[order] >= oldest)]
    if bounds.policy == "newest":
        visible = _mask(len(times), pins, young[-bounds.limit :])
        return Kept(visible, visible)
    sample = young[np.argsort(keys[young])[-bounds.limit :]]
    return Kept(_mask(len(times), pins, sample), _mask(len(times), pins, _successors(young, keys, bounds.limit)))


def _mask(n: int, *chosen: IntArray) -> BoolArray:
    mask = np.zeros(n, bool)
    for index in chosen:
        mask[index] = True
    return mask


def _successors(by_time: IntArray, keys: KeyArray, limit: int) -> IntArray:
    """Return those of ``by_time`` (oldest first) to which fewer than ``limit`` later ones are superior by key."""
    if len(by_time) <= limit:
        return by_time
    highest: list[int] = []
    needed = []
    for index, key in zip(by_time[::-1].tolist(), keys[by_time[::-1]].tolist(), strict=True):
        if len(highest) < limit:
            heapq.heappush(highest, key)
        elif key > highest[0]:
            heapq.heapreplace(highest, key)
        else:
            continue
        needed.append(index)
    return np.array(needed, dtype=np.int64)
