"""Which sequences stay in a share: pure functions of times and hashes, so that every process agrees."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.messages import Share
from streamad.settings.learning import LearningSettings
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


def bounds_of(settings: LearningSettings) -> dict[Share, Bounds]:
    """Return each share's bounds; aside always keeps the newest: relearning needs the latest sequences."""
    return {
        "accepted": Bounds(settings.max_accepted, settings.policy, settings.max_age),
        "reserve": Bounds(settings.max_reserve, settings.policy, settings.max_age),
        "aside": Bounds(settings.max_aside, "newest", settings.max_age),
    }


class Kept(NamedTuple):
    """Which of n sequences stay: bool [n] each, ``visible`` and ``natural`` whatever is ``pinned``.

    ``visible``: within the bounds of the share. ``natural``: in storage, because it is or may become visible.
    ``marked``: in storage too, for its mark alone.
    """

    visible: BoolArray
    natural: BoolArray
    marked: BoolArray


def kept(times: IntArray, keys: KeyArray, pinned: BoolArray, past: BoolArray, *, bounds: Bounds, now_us: int) -> Kept:
    """Return which of n sequences stay that ended at ``times`` [n]; ``keys`` are the hashes of their ids.

    Age counts from the newest of ``times``, or from ``now_us`` if that is earlier: a clock that jumps ahead, the
    machine's or a sensor's, makes nothing old. ``newest``: the last ``limit`` by time. ``reservoir``: a uniform sample
    of ``limit`` out of all that are not too old, those with the highest keys. Others enter the sample over time,
    so storage needs every sequence that fewer than ``limit`` later ones precede by key: about
    limit * (1 + ln(n / limit)) of n (priority sampling over a sliding window: Babcock, Datar, Motwani, SODA 2002).
    Those that were beyond the bounds before (``past``) never come back: without marks they would be gone. Beside them
    stay the newest ``limit`` of the ``pinned`` that are not visible, whatever their age; they displace none.
    """
    order = np.lexsort((keys, times))
    visible, natural = _natural(order[~past[order]], times, keys, bounds, now_us)
    is_visible = _mask(len(times), visible)
    pins = order[(pinned & ~is_visible)[order]][-bounds.limit :]
    return Kept(is_visible, _mask(len(times), natural), _mask(len(times), pins))


def _natural(
    by_time: IntArray, times: IntArray, keys: KeyArray, bounds: Bounds, now_us: int
) -> tuple[IntArray, IntArray]:
    """Return which of ``by_time`` (oldest first) are visible, and which storage needs."""
    if not len(by_time):
        return by_time, by_time
    oldest = min(int(times[by_time[-1]]), now_us) - bounds.max_age_us
    young = by_time[times[by_time] >= oldest]
    if bounds.policy == "newest":
        return young[-bounds.limit :], young[-bounds.limit :]
    return young[np.argsort(keys[young])[-bounds.limit :]], _successors(young, keys, bounds.limit)


def _mask(n: int, chosen: IntArray) -> BoolArray:
    mask = np.zeros(n, bool)
    mask[chosen] = True
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
