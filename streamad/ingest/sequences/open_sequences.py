"""The open sequences of one stream, and which of them a limit ends next; nothing here looks at all of them.

Samples come in event-time order: the sequences are therefore in the order of their starts, and the one that a sample
has joined last has the latest one. ``Earliest`` finds the smallest of values that come, change and go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, ValuesView
from heapq import heapify, heappop, heappush

import numpy as np

from streamad.ingest.sequences.clocks import NEVER_US, Clocks
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import IntArray

_MOST_VOID = 64


class Earliest:
    """Values by key; the smallest is found without a look at the others.

    Of equal values that of the smaller key comes first. ``put`` takes O(log n), and so does ``first`` on average.
    """

    __slots__ = ("_heap", "_values")

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> int | None:
        """Return the value of ``key``."""
        return self._values.get(key)

    def put(self, key: str, value: int) -> None:
        """Set the value of ``key``."""
        if self._values.get(key) == value:
            return
        self._values[key] = value
        heappush(self._heap, (value, key))
        if len(self._heap) > 2 * len(self._values) + _MOST_VOID:
            self._heap = [(each, name) for name, each in self._values.items()]
            heapify(self._heap)

    def discard(self, key: str) -> None:
        """Remove ``key`` and its value, if it is there."""
        self._values.pop(key, None)

    def first(self) -> tuple[int, str] | None:
        """Return the smallest value and its key; None if there is none."""
        heap, values = self._heap, self._values
        while heap:
            value, key = heap[0]
            if values.get(key) == value:
                return heap[0]
            heappop(heap)
        return None

    def take_through(self, limit: int) -> list[str]:
        """Remove the values up to ``limit``, and return their keys."""
        taken = []
        while (first := self.first()) is not None and first[0] <= limit:
            taken.append(first[1])
            del self._values[first[1]]
        return taken


class _Indexes:
    """Of several sequences: their starts, clocks and lowest offsets, and their order by the last sample."""

    __slots__ = ("by_last", "numbers", "offsets", "since", "starts")

    def __init__(self, sequences: Iterable[OpenSequence]) -> None:
        self.starts, self.since, self.offsets = Earliest(), Earliest(), Earliest()
        self.by_last: OrderedDict[str, OpenSequence] = OrderedDict()
        self.numbers = 0
        for sequence in sequences:
            self.add(sequence)

    def add(self, sequence: OpenSequence) -> None:
        key = sequence.key or ""
        self.numbers += 1
        sequence.number = self.numbers
        self.by_last[key] = sequence
        self.starts.put(key, sequence.start_us)
        self.since.put(key, sequence.since_us)
        self.offsets.put(key, sequence.undone_from[0])

    def remove(self, sequence: OpenSequence) -> None:
        key = sequence.key or ""
        del self.by_last[key]
        for values in (self.starts, self.since, self.offsets):
            values.discard(key)

    def in_order(self, keys: Iterable[str]) -> list[OpenSequence]:
        """Return the sequences with these keys, in the order in which they began."""
        return sorted((self.by_last[key] for key in keys), key=lambda sequence: sequence.number)


class OpenSequences:
    """A mapping of the open sequences by their id (None: without one), in the order in which they began."""

    __slots__ = ("_gap", "_indexes", "_max_duration", "by_key", "nbytes")

    def __init__(self, settings: SequenceSettings) -> None:
        self.by_key: dict[str | None, OpenSequence] = {}
        self.nbytes = 0
        self._gap, self._max_duration = settings.gap, settings.max_duration
        self._indexes: _Indexes | None = None

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[str | None]:
        return iter(self.by_key)

    def __contains__(self, key: str | None) -> bool:
        return key in self.by_key

    def get(self, key: str | None) -> OpenSequence | None:
        """Return the sequence ``key`` if it is open."""
        return self.by_key.get(key)

    def keys(self) -> KeysView[str | None]:
        """Return the ids."""
        return self.by_key.keys()

    def values(self) -> ValuesView[OpenSequence]:
        """Return the sequences."""
        return self.by_key.values()

    def add(self, sequence: OpenSequence) -> None:
        """Note that ``sequence`` has begun."""
        self.by_key[sequence.key] = sequence
        self.nbytes += sequence.nbytes
        if self._indexes is not None:
            self._indexes.add(sequence)
        elif len(self.by_key) > 1:
            self._indexes = _Indexes(self.by_key.values())

    def remove(self, sequence: OpenSequence) -> None:
        """Note that ``sequence`` has ended."""
        del self.by_key[sequence.key]
        self.nbytes -= sequence.nbytes
        if not self.by_key:
            self._indexes = None
        elif self._indexes is not None:
            self._indexes.remove(sequence)

    def grew(self, sequence: OpenSequence, nbytes: int) -> None:
        """Note that the latest samples have joined ``sequence``, which took ``nbytes`` before."""
        self.nbytes += sequence.nbytes - nbytes
        if self._indexes is not None:
            self._indexes.by_last.move_to_end(sequence.key or "")
            self._indexes.offsets.put(sequence.key or "", sequence.undone_from[0])

    # --- what ends next ---

    @property
    def first_since_us(self) -> int:
        """Return the clock at which the first sample of any of them came, the lowest; never if none is open."""
        if self._indexes is None:
            return next((sequence.since_us for sequence in self.by_key.values()), NEVER_US)
        first = self._indexes.since.first()
        return NEVER_US if first is None else first[0]

    def limit_us(self, apart: OpenSequence | None = None) -> int:
        """Return the last event time at which all of them are still open; the gap of ``apart`` does not count."""
        if self._indexes is None:
            only = next(iter(self.by_key.values()), None)
            if only is None:
                return NEVER_US
            limit_us = only.start_us + self._max_duration
            return limit_us if self._gap is None or only is apart else min(limit_us, only.last_us + self._gap)
        first = self._indexes.starts.first()
        limit_us = NEVER_US if first is None else first[0] + self._max_duration
        if self._gap is not None:
            for sequence in self._indexes.by_last.values():
                if sequence is not apart:
                    return min(limit_us, sequence.last_us + self._gap)
        return limit_us

    def tear(self, times_us: IntArray) -> int:
        """Note that something at these times [n] would have ended what is open; return how many lie within."""
        torn = [sequence for sequence in self.by_key.values() if sequence.start_us <= times_us[-1]]
        for sequence in torn:
            sequence.is_torn = True
        return int(np.count_nonzero(times_us >= min(sequence.start_us for sequence in torn))) if torn else 0

    def take_overdue(self, time_us: int) -> list[OpenSequence]:
        """Return those that are no longer open at the event time ``time_us``; all of them must be closed."""
        if self.limit_us() >= time_us:
            return []
        if self._indexes is None:
            return list(self.by_key.values())
        overdue = set(self._indexes.starts.take_through(time_us - self._max_duration - 1))
        if self._gap is not None:
            for key, sequence in self._indexes.by_last.items():
                if sequence.last_us + self._gap >= time_us:
                    break
                overdue.add(key)
        return self._indexes.in_order(overdue)

    def take_silent(self, since_us: int) -> list[OpenSequence]:
        """Return those whose first sample came at a clock of ``since_us`` at most; all of them must be closed."""
        if self._indexes is None:
            return [sequence for sequence in self.by_key.values() if sequence.since_us <= since_us]
        return self._indexes.in_order(self._indexes.since.take_through(since_us))

    @property
    def undone_from(self) -> tuple[int, Clocks] | None:
        """Return the lowest offset that rereading needs, and the clocks before that record."""
        if self._indexes is None:
            return next((sequence.undone_from for sequence in self.by_key.values()), None)
        first = self._indexes.offsets.first()
        return None if first is None else self._indexes.by_last[first[1]].undone_from
