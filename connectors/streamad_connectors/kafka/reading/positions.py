"""Which messages of a subscription's partitions are done, and so where its group begins the next time."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import NamedTuple

from aiokafka import TopicPartition


class Span(NamedTuple):
    """The offsets of a message, from that of its first record to that of its last."""

    partition: TopicPartition
    first: int
    last: int


class Positions:
    """The messages that were yielded, in that order, and how far each partition is done.

    Law: no position lies behind the first record of a message that is not done. Records of others may lie between
    those of one message, and others may be done before it.
    """

    def __init__(self) -> None:
        self._undone: deque[Span] = deque()
        self._seen: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}  # what is not committed yet

    @property
    def n_undone(self) -> int:
        """Return how many messages were yielded and are not done."""
        return len(self._undone)

    @property
    def is_due(self) -> bool:
        """Return whether there is something to commit."""
        return bool(self._reached)

    def add(self, span: Span) -> bool:
        """Note a message that comes to be yielded; return False if it is a repetition after a rebalance."""
        partition, _, last = span
        is_new = last > self._seen.get(partition, -1)
        if is_new:
            self._seen[partition] = last
            self._undone.append(span)
        elif all(each.partition != partition for each in self._undone):
            self._reached[partition] = last + 1  # done before: its commit came too late
        return is_new

    def add_gap(self, partition: TopicPartition, begin: int) -> None:
        """Note a message that stands for those before the offset ``begin``, which nobody can read any more."""
        self._undone.append(Span(partition, begin, begin - 1))

    def done(self, n: int) -> None:
        """Mark the ``n`` oldest messages as done."""
        for _ in range(n):
            span = self._undone.popleft()
            self._reached[span.partition] = span.last + 1

    def move(self, partition: TopicPartition, offset: int) -> None:
        """Note that ``partition`` is read from ``offset`` on; that is a position, also if no message ever comes."""
        self._seen.pop(partition, None)
        self._reached[partition] = offset

    def to_commit(self, ours: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the positions of ``ours`` to commit; those of other partitions are forgotten."""
        self._reached = {partition: offset for partition, offset in self._reached.items() if partition in ours}
        return {partition: self.before(partition, offset) for partition, offset in self._reached.items()}

    def before(self, partition: TopicPartition, offset: int) -> int:
        """Return ``offset``, or where the first message of ``partition`` that is not done begins, if that is lower."""
        return min([offset, *(span.first for span in self._undone if span.partition == partition)])

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note that ``positions`` are committed."""
        self._reached = {part: offset for part, offset in self._reached.items() if positions.get(part) != offset}

    def forget_commits(self) -> None:
        """Forget what is not committed: the partitions are read again from where the group stands."""
        self._reached.clear()

    def forget_undone(self) -> None:
        """Forget which messages are not done: they come again, and are done then."""
        self._undone.clear()
