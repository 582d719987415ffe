"""Which sequences stay in a share: a pure function of times and ids, so that the order of arrival changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.messages import SHARES, Share
from streamad.settings.learning import LearningSettings
from streamad.types import BoolArray, IntArray

KeyArray: TypeAlias = npt.NDArray[np.uint64]


def key_of(sequence_id: str) -> int:
    """Return the 64-bit hash of an id: of sequences that ended at the same time it says which one is newer.

    Two of a million ids share a key with probability 3e-8 (birthday bound).
    """
    encoded = sequence_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8, person=b"inlier").digest(), "big")


def keys_of(ids: Iterable[str]) -> KeyArray:
    """Return the keys of ``ids``, uint64 [n]."""
    return np.fromiter((key_of(one) for one in ids), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most ``limit`` sequences, the newest ones, none older than ``max_age_us`` before the newest."""

    limit: int
    max_age_us: int


def bounds_of(settings: LearningSettings) -> dict[Share, Bounds]:
    """Return each share's bounds."""
    return {share: Bounds(settings.limit(share), settings.max_age) for share in SHARES}


class Kept(NamedTuple):
    """Which of n sequences stay, bool [n] each: those within the bounds, and those that stay for their mark alone."""

    within: BoolArray
    marked: BoolArray


def kept(times: IntArray, keys: KeyArray, pinned: BoolArray, past: BoolArray, *, bounds: Bounds, now_us: int) -> Kept:
    """Return which of n sequences stay that ended at ``times`` [n]; ``keys`` are the hashes of their ids.

    Age counts from the newest of ``times``, or from ``now_us`` if that is earlier: a clock that jumps ahead, the
    machine's or a sensor's, makes nothing old. Those that were beyond the bounds before (``past``) never come back:
    without marks they would be gone. Beside them stay the newest ``limit`` of the ``pinned`` that are not within the
    bounds, whatever their age; they displace none.
    """
    order = np.lexsort((keys, times))
    young = order[~past[order]]
    if len(young):
        oldest_us = min(int(times[young[-1]]), now_us) - bounds.max_age_us
        young = young[times[young] >= oldest_us][-bounds.limit :]
    within = _mask(len(times), young)
    return Kept(within, _mask(len(times), order[(pinned & ~within)[order]][-bounds.limit :]))


def _mask(n: int, chosen: IntArray) -> BoolArray:
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return mask
