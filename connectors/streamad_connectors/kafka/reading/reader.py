"""Reads the partitions of one aiokafka consumer: batches of records, and the state of each log's end.

A partition delivers nothing before ``Reader.begin``; aiokafka delivers nothing of a paused partition.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, OffsetOutOfRangeError

from streamad.types import PartitionAssigned, Record, RecordBatch, SourceEvent
from streamad_connectors.kafka.client.options import FETCH_WAIT_MS, Client, KafkaSourceOptions, partition_name
from streamad_connectors.kafka.client.unpacking import bound_unpacking

# After so long without an answered fetch a silent partition cannot be told from an absent broker; brokers answer a
# fetch at least every FETCH_WAIT_MS.
MAX_SILENCE_S = 1.5
_FRESH_S = 0.5  # an older answer does not confirm silence until now
_POLL_MS = 200
_POLL_RECORDS = 500  # a few milliseconds of work, during which the event loop is blocked
_SCHEMA_HEADER = "__value_schema_id"  # of Confluent's serializers
_SCHEMA_HEADERS = frozenset({_SCHEMA_HEADER, "apicurio.value.globalId", "apicurio.value.contentId"})
_MAX_FETCH_BYTES = 50_000_000


def make_consumer(client: Client, options: KafkaSourceOptions, **membership: Any) -> AIOKafkaConsumer:
    """Return a consumer, not started, that never looks for an offset by itself."""
    bound_unpacking()
    return AIOKafkaConsumer(
        **client.consumer_kwargs(),
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=options.fetch_bytes,
        fetch_max_bytes=max(_MAX_FETCH_BYTES, options.fetch_bytes),
        **membership,
    )


def to_records(messages: Sequence[ConsumerRecord], label: str | None = None) -> tuple[Record, ...]:
    """Return aiokafka's records as our type: times in microseconds, a tombstone as an empty value, its schema's id.

    ``label`` is that of the context: what each record has as its own.
    """
    return tuple(
        [
            Record(
                message.offset,
                b"" if message.value is None else message.value,
                message.timestamp * 1000 if message.timestamp >= 0 else None,
                message.key,
                schema=_schema_of(message.headers) if message.headers else None,
                label=None if label is None else _label_of(message, label),
            )
            for message in messages
        ]
    )


def _label_of(message: ConsumerRecord, label: str) -> str | None:
    """Return the topic's name, or the text of the last header of a name; None if there is none."""
    if label == "topic":
        return str(message.topic)
    found = [content for name, content in message.headers if name == label.removeprefix("header:") and content]
    return found[-1].decode(errors="replace") if found else None


def _schema_of(headers: Sequence[tuple[str, bytes | None]]) -> str | None:
    """Return what the first header of Confluent's holds in hexadecimal digits; of others with the header's name."""
    found = [(name, content.hex()) for name, content in headers if name in _SCHEMA_HEADERS and content]
    ours = next((content for name, content in found if name == _SCHEMA_HEADER), None)
    return f"{found[0][0]}={found[0][1]}" if ours is None and found else ours


@dataclass(slots=True, eq=False)
class Reading:
    """One assigned partition.

    ``next_offset``: end of its batches so far; ``is_ready``: it was sought; ``is_offered``: its PartitionAssigned was
    yielded; ``version`` changes with every seek. ``polled_ms``: time of the broker's last answer to a fetch by
    aiokafka's clock; ``heard_s``: when we saw that answer; ``is_confirmed``: no batch has reported it yet.
    ``silent_s``, ``stuck_s`` and ``held_s``: seconds of waiting with no fetch answered, with committed records that
    are not delivered, with records behind an open transaction.
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
        """Set the beginning of the next batch to ``offset``."""
        self.next_offset = offset
        self.is_ready = True
        self.heard_s = now_s
        self.is_confirmed = self.was_caught_up = self.had_outage = False
        self.silent_s = self.stuck_s = self.held_s = 0.0


class Reader:
    """The partitions of ``consumer``, and their events that were not yielded yet."""

    def __init__(self, consumer: AIOKafkaConsumer, label: str | None = None) -> None:
        self.events: deque[SourceEvent] = deque()
        self.heard_s = time.monotonic()
        self._consumer = consumer
        self._label = label
        self._readings: dict[TopicPartition, Reading] = {}
        self._names: dict[str, Reading] = {}

    @property
    def readings(self) -> Iterable[Reading]:
        """Return the assigned partitions."""
        return self._readings.values()

    def get(self, name: str) -> Reading | None:
        """Return the partition called ``name``, None if it is not assigned."""
        return self._names.get(name)

    def share(self, ours: Iterable[TopicPartition]) -> tuple[list[Reading], list[Reading]]:
        """Apply a new assignment of the consumer before it fetches anything; return (new, lost) partitions.

        All are paused and sought, so that aiokafka does not look for a committed offset; those that were being read
        go on at the end of their batches. Nothing is awaited.
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
        """Pause ``reading`` until ``begin`` and drop its waiting batches; return its new version."""
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
        """Drop the events of ``reading`` of these ``kinds``."""
        events = [event for event in self.events if not (isinstance(event, kinds) and event.partition == reading.name)]
        self.events.clear()
        self.events.extend(events)

    async def poll(self) -> None:
        """Wait a short time for records and append batches of them to ``events``. Raises KafkaError."""
        try:
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_POLL_RECORDS)
        except OffsetOutOfRangeError as error:
            if not any(self._is_at(tp, offset) for tp, offset in error.args[0].items()):
                return  # an offset from before the last seek
            raise
        # No await between fetching and noting may let a seek in, or that seek would be undone. ``position`` waits only
        # right after a new assignment, which sets all positions and seeks none back.
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
        except (IllegalStateError, AssertionError):  # no longer assigned; the new assignment follows
            return
        is_current = reading.version == version and self._readings.get(reading.tp) is reading and reading.is_ready
        if position <= reading.next_offset or not is_current:
            return
        begins_at, reading.next_offset = reading.next_offset, position
        reading.was_caught_up = end is not None and position >= end
        reading.is_confirmed = False
        reading.stuck_s = reading.held_s = 0.0
        records = to_records(messages, self._label)
        self.events.append(RecordBatch(reading.name, records, position, reading.was_caught_up, begins_at, end))

    # --- silence ---

    def listen(self) -> None:
        """Record which partitions had a fetch answered since the last call; call at least twice a second."""
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
        """Yield empty batches for partitions that are newly confirmed as silent, or newly unknown."""
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
        """Add ``seconds`` of waiting with no record delivered."""
        for reading in self._fetched():
            end, stable = self._consumer.highwater(reading.tp), self._consumer.last_stable_offset(reading.tp)
            reading.silent_s += seconds
            if stable is not None and stable > reading.next_offset:
                reading.stuck_s += seconds
            elif end is not None and end > reading.next_offset:
                reading.held_s += seconds

    def failure(self) -> BaseException | None:
        """Return the error that ended aiokafka's fetching, None while it runs; aiokafka does not raise it."""
        fetching = self._consumer._fetcher.error_future  # noqa: SLF001 - kept nowhere else
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
