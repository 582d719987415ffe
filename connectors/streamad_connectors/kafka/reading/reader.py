"""Reads the partitions of one aiokafka consumer: records to batches, and what is known of the end of each log.

aiokafka delivers nothing of a partition that is paused, and this room nothing of one that was not sought.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, OffsetOutOfRangeError

from streamad.types import PartitionAssigned, Record, RecordBatch, SourceEvent
from streamad_connectors.kafka.client.options import partition_name

# Without a fetch answered for so long nobody knows whether a partition is silent or its broker away; fetches are
# answered at least every FETCH_WAIT_MS.
MAX_SILENCE_S = 1.5
# An answer older than this says nothing of the silence until now.
_FRESH_S = 0.5
_POLL_MS = 200
# Taken from aiokafka at once: a few milliseconds of work, during which nothing else of the event loop runs.
_POLL_RECORDS = 500


def to_records(messages: Sequence[ConsumerRecord]) -> tuple[Record, ...]:
    """Return aiokafka's records as ours: times in microseconds, a tombstone as an empty value."""
    return tuple(
        [
            Record(
                message.offset,
                b"" if message.value is None else message.value,
                message.timestamp * 1000 if message.timestamp >= 0 else None,
                message.key,
            )
            for message in messages
        ]
    )


@dataclass(slots=True, eq=False)
class Reading:
    """One partition that is ours.

    ``next_offset`` is where the batches made of it so far end; ``is_ready`` says that it was sought. ``version``
    changes with every seek. ``polled_ms`` is when the broker last answered a fetch, by aiokafka's reckoning, and
    ``heard_s`` when we saw that; ``is_confirmed`` that no batch has told of it yet. ``silent_s``, ``stuck_s`` and
    ``held_s`` count how long we have waited with no fetch answered, with committed records waiting that do not come,
    with records waiting for the end of a transaction.
    """

    tp: TopicPartition
    name: str = field(init=False)
    next_offset: int = 0
    is_ready: bool = False
    is_offered: bool = False
    version: int = 0
    polled_ms: int | None = None
    heard_s: float = 0.0
    is_confirmed: bool = False
    was_caught_up: bool = False
    had_outage: bool = False
    silent_s: float = 0.0
    stuck_s: float = 0.0
    held_s: float = 0.0

    def __post_init__(self) -> None:
        self.name = partition_name(self.tp.topic, self.tp.partition)

    def begin(self, offset: int, now_s: float) -> None:
        """Note that the next batch begins at ``offset``."""
        self.next_offset = offset
        self.is_ready = True
        self.heard_s = now_s
        self.is_confirmed = self.was_caught_up = self.had_outage = False
        self.silent_s = self.stuck_s = self.held_s = 0.0


class Reader:
    """The partitions of ``consumer`` and the events that were made of them but not yielded yet."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.events: deque[SourceEvent] = deque()
        self.heard_s = time.monotonic()
        self._consumer = consumer
        self._readings: dict[TopicPartition, Reading] = {}
        self._names: dict[str, Reading] = {}

    @property
    def readings(self) -> Iterable[Reading]:
        """Return the partitions that are ours."""
        return self._readings.values()

    def get(self, name: str) -> Reading | None:
        """Return the partition called ``name``, None where it is not ours."""
        return self._names.get(name)

    def share(self, ours: Iterable[TopicPartition]) -> tuple[list[Reading], list[Reading]]:
        """Take over a new assignment of the consumer, before it fetches anything; return (new, lost) partitions.

        All are paused and put to a position, so that aiokafka neither looks for a committed offset nor complains that
        there is none; those that were being read go on where their batches end. Nothing is awaited here.
        """
        assigned = set(ours)
        lost = [reading for tp, reading in self._readings.items() if tp not in assigned]
        for reading in lost:
            del self._readings[reading.tp], self._names[reading.name]
            self._drop(reading, RecordBatch, PartitionAssigned)
        new = [Reading(tp) for tp in sorted(assigned - self._readings.keys())]
        for reading in new:
            self._readings[reading.tp] = self._names[reading.name] = reading
        for reading in self._readings.values():
            reading.polled_ms = None
            self._consumer.pause(reading.tp)
            self._consumer.seek(reading.tp, reading.next_offset)
            if reading.is_ready:
                self._consumer.resume(reading.tp)
        return new, lost

    def hold(self, reading: Reading) -> int:
        """Deliver nothing more of ``reading`` until it ``begin``s, and forget what waits; return its new version."""
        reading.version += 1
        reading.is_ready = False
        if reading.tp in self._consumer.assignment():
            self._consumer.pause(reading.tp)
        self._drop(reading, RecordBatch)
        return reading.version

    def begin(self, reading: Reading, offset: int) -> None:
        """Read ``reading`` from ``offset`` on."""
        if reading.tp in self._consumer.assignment():
            self._consumer.seek(reading.tp, offset)
            self._consumer.resume(reading.tp)
            reading.polled_ms = self._consumer.last_poll_timestamp(reading.tp)
        reading.begin(offset, time.monotonic())

    def _drop(self, reading: Reading, *kinds: type[RecordBatch | PartitionAssigned]) -> None:
        """Forget the events of ``reading`` of these ``kinds`` that were not yielded."""
        events = [event for event in self.events if not (isinstance(event, kinds) and event.partition == reading.name)]
        self.events.clear()
        self.events.extend(events)

    async def poll(self) -> None:
        """Wait shortly for records and append batches of them to ``events``. Raises KafkaError."""
        try:
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
        except OffsetOutOfRangeError as error:
            if not any(self._is_at(tp, offset) for tp, offset in error.args[0].items()):
                return  # of a place that was read before the last seek
            raise
        # Nothing may come between taking records and noting them, or a seek in between would be undone. The position
        # is known without waiting, except right after a new assignment, which sets all positions and takes none back.
        for reading in list(self._readings.values()):
            if reading.is_ready:
                await self._note(reading, fetched.get(reading.tp, ()))

    def _is_at(self, tp: TopicPartition, offset: int) -> bool:
        reading = self._readings.get(tp)
        return reading is not None and reading.is_ready and reading.next_offset == offset

    async def _note(self, reading: Reading, messages: Sequence[ConsumerRecord]) -> None:
        version = reading.version
        try:
            position: int = await self._consumer.position(reading.tp)
            end: int | None = self._consumer.highwater(reading.tp)
        except (IllegalStateError, AssertionError):  # no longer ours: the new assignment is about to tell
            return
        is_current = reading.version == version and self._readings.get(reading.tp) is reading and reading.is_ready
        if position <= reading.next_offset or not is_current:
            return
        begins_at, reading.next_offset = reading.next_offset, position
        reading.was_caught_up = end is not None and position >= end
        reading.is_confirmed = False
        reading.stuck_s = reading.held_s = 0.0
        self.events.append(
            RecordBatch(reading.name, to_records(messages), position, reading.was_caught_up, begins_at, end)
        )

    # --- silence ---

    def listen(self) -> None:
        """Note which partitions' brokers have answered a fetch since the last call; call at least twice a second."""
        now_s = time.monotonic()
        for reading in self._fetched():
            polled_ms = self._consumer.last_poll_timestamp(reading.tp)
            if now_s - reading.heard_s > MAX_SILENCE_S:
                reading.had_outage = True
            if polled_ms is not None and polled_ms != reading.polled_ms:
                reading.polled_ms, reading.heard_s, reading.is_confirmed = polled_ms, now_s, True
                reading.silent_s = 0.0
                self.heard_s = now_s

    def beats(self) -> Iterator[RecordBatch]:
        """Yield empty batches: that a partition is silent, as its broker has just said, or that nobody knows."""
        self.listen()
        now_s = time.monotonic()
        for reading in self._fetched():
            silent_s = now_s - reading.heard_s
            end = self._consumer.highwater(reading.tp)
            if reading.had_outage:
                reading.had_outage = silent_s > MAX_SILENCE_S
                if reading.was_caught_up:
                    reading.was_caught_up = False
                    yield self._beat(reading, end)
            elif reading.is_confirmed:
                reading.is_confirmed = False
                if silent_s <= _FRESH_S and end is not None and reading.next_offset >= end:
                    reading.was_caught_up = True
                    yield self._beat(reading, end)

    def wait(self, seconds: float) -> None:
        """Count ``seconds`` that were spent waiting for records with none delivered."""
        for reading in self._fetched():
            end, stable = self._consumer.highwater(reading.tp), self._consumer.last_stable_offset(reading.tp)
            reading.silent_s += seconds
            if stable is not None and stable > reading.next_offset:
                reading.stuck_s += seconds
            elif end is not None and end > reading.next_offset:
                reading.held_s += seconds

    def failure(self) -> BaseException | None:
        """Return what ended aiokafka's fetching, which nobody else is told of; None while it goes on."""
        fetching = self._consumer._fetcher.error_future
        if not fetching.done() or fetching.cancelled():
            return None
        error: BaseException | None = fetching.exception()
        return error

    def _fetched(self) -> list[Reading]:
        ours = self._consumer.assignment()
        return [reading for reading in self._readings.values() if reading.is_ready and reading.tp in ours]

    def _beat(self, reading: Reading, end: int | None) -> RecordBatch:
        at = reading.next_offset
        return RecordBatch(reading.name, (), at, reading.was_caught_up, at, end)
