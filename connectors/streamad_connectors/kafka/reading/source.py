"""The Kafka source: a member of a consumer group whose partitions begin where we say, never where the group was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, KafkaError
from pydantic import BaseModel

from streamad.errors import SourceError
from streamad.messages import Role
from streamad.plugins import ConnectorContext
from streamad.ports import Committer, Sink, Topics
from streamad.telemetry.logs import get_logger
from streamad.types import (
    PartitionAssigned,
    PartitionRevoked,
    Rebalanced,
    SourceEvent,
    SourceNotice,
)
from streamad_connectors.kafka.client.consumers import find_topics, make_consumer
from streamad_connectors.kafka.client.errors import explain, why_unreachable
from streamad_connectors.kafka.client.offsets import LogEnds, log_ends
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, group_of
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.reading.membership import Membership, sticky_assignor
from streamad_connectors.kafka.reading.reader import Reader, Reading
from streamad_connectors.kafka.reading.retention_guard import RetentionGuard
from streamad_connectors.kafka.reading.time_range import KafkaRange
from streamad_connectors.kafka.reading.waiting import TICK_S, Waiting
from streamad_connectors.kafka.topics.topics import KafkaTopics
from streamad_connectors.kafka.writing.committer import KafkaCommitter

# A slow pipeline is the pipeline's to notice: aiokafka must not leave the group for it (24 days, the most it takes).
_MAX_POLL_INTERVAL_MS = 2**31 - 1
# A broker that was silent for so long will not answer our leaving the group either.
_AWAY_S = 5.0
# This process was stopped where it has not run for so long: nobody could have answered it.
_FROZEN_S = 2.0


class KafkaSource:
    """Reads topics as a member of a consumer group; a partition is called ``{topic}-{number}``, an offset is Kafka's.

    Partitions that a rebalance takes and gives back at once go on without an event. Empty batches with ``caught_up``
    come about four times a second, each confirmed by a broker's answer. An outage is waited for, up to
    ``give_up_after``.
    """

    options_model: type[BaseModel] = KafkaSourceOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._options = cast("KafkaSourceOptions", options)
        self._client = Client.of(rest, self._options, context, "source.url")
        group = group_of(self._options, context)
        self._state = SourceState(self._client.place, self._client, self._options, group, context.clock)
        self._context = context
        self._consumer: AIOKafkaConsumer | None = None
        self._reader: Reader | None = None
        self._membership = Membership(group, self._options.instance, self._options.session_timeout / 1e6, self._take)
        self._n_partitions: Mapping[str, int] = {}
        self._unoffered: list[Reading] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._failure: Exception | None = None
        self._missing_s: float | None = None
        self._awake_s = 0.0
        self._waiting: Waiting | None = None
        self._closed = False

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        """Return the committer that keeps progress and what goes to ``sinks`` in one transaction."""
        return KafkaCommitter(self._state, sinks)

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        """Return the keeper of the topics that this source and ``sinks`` need."""
        return KafkaTopics(self._client, self._state.place, self._state.group, sinks, self._context, self._options)

    def between(self, since_us: int | None, until_us: int | None) -> KafkaRange:
        """Return a finite source of what the topics hold between two times; it joins no group."""
        return KafkaRange(self._client, self._options, since_us, until_us)

    # --- reading ---

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield partitions and their records until closed.

        Raises SourceError where a topic does not exist, a right is missing, a log has lost what is to be read, an
        instance id is used twice, or no broker has answered for ``give_up_after``.
        """
        if self._closed:
            return
        reader = await self._open()
        while not self._closed:
            if self._state.notices:
                yield self._state.notices.popleft()
                continue
            self._raise_failure()
            if reader.events:
                event = reader.events.popleft()
                if isinstance(event, PartitionAssigned) and (reading := reader.get(event.partition)) is not None:
                    reading.is_offered = True
                yield event
            else:
                await self._wait(reader)
                self._check(reader)

    async def seek(self, partition: str, offset: int | None) -> int:
        """Begin ``partition`` at ``offset`` (None: at the option ``start``) and return where that is.

        Raises SourceError where records from ``offset`` on are gone, unless ``accept_gap`` is set.
        """
        reader = self._reader
        reading = reader.get(partition) if reader is not None else None
        if reader is None or reading is None:  # taken away in the meantime: its PartitionRevoked is on its way
            if offset is None:
                # A place made up here would be committed as the partition's first one, and bind its new owner.
                await asyncio.get_running_loop().create_future()
            return cast("int", offset)
        version = reader.hold(reading)
        ends = await self._ends(reading)
        begin = await self._begin(reading, ends, offset)
        if reader.get(partition) is reading and reading.version == version:
            reader.begin(reading, begin)
        return begin

    async def close(self) -> None:
        """Leave the group and end the iterator; safe to call twice. Takes one request time-out at most."""
        self._closed = True
        self._wake.set()
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            is_away = time.monotonic() - self._heard_s > min(_AWAY_S, self._client.request_timeout_s)
            await stop_client(consumer, 1.0 if is_away else self._client.request_timeout_s)

    async def _open(self) -> Reader:
        self._n_partitions = await find_topics(self._client)
        assignor = sticky_assignor()
        consumer = self._consumer = make_consumer(
            self._client,
            self._options,
            group_id=self._state.group,
            group_instance_id=self._options.instance,
            session_timeout_ms=self._options.session_timeout // 1000,
            heartbeat_interval_ms=self._options.heartbeat_interval // 1000,
            rebalance_timeout_ms=self._options.rebalance_timeout // 1000,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
            partition_assignment_strategy=[assignor],
        )
        try:
            await connected(consumer.start())
        except KafkaConnectionError as error:
            raise SourceError(await why_unreachable(self._client)) from error
        except KafkaError as error:
            raise SourceError(self._explain(error)) from error
        self._reader = Reader(consumer)
        self._membership.attach(consumer, assignor)
        consumer.subscribe(self._client.place.topics, listener=self._membership)
        guard = RetentionGuard(self._state, consumer, lambda: [reading.tp for reading in self._readings])
        self._start("guard", guard.run())
        self._waiting = Waiting(self._reader, self._client, self._give_up_s)
        self._start("listen", self._listen(self._reader))
        return self._reader

    async def _wait(self, reader: Reader) -> None:
        """Return once there may be something to yield, after a tick at the latest."""
        if "poll" not in self._tasks:
            self._start("poll", reader.poll())
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({woken, self._tasks["poll"]}, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._wake.clear()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` beside the reading; what it raises ends the source."""
        if (before := self._tasks.get(name)) is not None:
            before.cancel()
        task = self._tasks[name] = asyncio.create_task(work, name=f"kafka source: {name}")
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(name) is task:
            del self._tasks[name]
        error = None if task.cancelled() else task.exception()
        survives = isinstance(error, KafkaError) and self._membership.survives(error)
        if error is not None and not survives and self._failure is None:
            self._failure = cast("Exception", error)
        self._wake.set()

    def _raise_failure(self) -> None:
        error = self._membership.failure or self._failure
        if isinstance(error, KafkaError):
            raise self._membership.explains(error) or SourceError(self._explain(error)) from error
        if error is not None:
            raise error

    def _explain(self, error: KafkaError) -> str:
        is_group = isinstance(error, GroupAuthorizationFailedError)
        what = f"group {self._state.group}" if is_group else f"topic {', '.join(self._client.place.topics)}"
        return explain(error, self._client, f"read {what}")

    # --- partitions come and go ---

    @property
    def _readings(self) -> Collection[Reading]:
        return list(self._reader.readings) if self._reader is not None else []

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        """Take over what a rebalance has given; called from inside aiokafka, so nothing is awaited."""
        reader = cast("Reader", self._reader)
        if (grown := next((tp for tp in assigned if tp.partition >= self._n_partitions[tp.topic]), None)) is not None:
            self._repartitioned(grown.topic)
        new, lost = reader.share(assigned)
        for reading in lost:
            self._state.progress_of.pop(reading.name, None)
            if reading.is_offered:
                reader.events.append(PartitionRevoked(reading.name))
        self._unoffered = [reading for reading in self._unoffered if reading not in lost] + new
        self._start("offer", self._offer(reader))

    async def _offer(self, reader: Reader) -> None:
        """Offer the new partitions, once it is known whether their logs are whole."""
        unoffered = self._unoffered
        consumer = cast("AIOKafkaConsumer", self._consumer)
        tps = [reading.tp for reading in unoffered]
        ends = await log_ends(consumer, tps, self._client, self._give_up_s) if tps else {}
        for reading in unoffered:
            is_whole = self._options.start == "earliest" and ends[reading.tp].begin == 0
            reader.events.append(PartitionAssigned(reading.name, seen_from_start=is_whole))
        self._unoffered = []
        reader.events.append(Rebalanced(tuple(reading.name for reading in reader.readings)))

    # --- where a partition begins ---

    async def _ends(self, reading: Reading) -> LogEnds:
        consumer = cast("AIOKafkaConsumer", self._consumer)
        return (await log_ends(consumer, [reading.tp], self._client, self._give_up_s))[reading.tp]

    async def _begin(self, reading: Reading, ends: LogEnds, offset: int | None) -> int:
        if offset is None:
            begin = ends.begin if self._options.start == "earliest" else ends.end
            get_logger().info(
                "partition has no progress yet", partition=reading.name, start=self._options.start, begin=begin
            )
            return begin
        if offset > ends.end:  # a leader elected a moment ago may not know all yet (KIP-207)
            await asyncio.sleep(min(1.0, self._client.request_timeout_s))
            ends = await self._ends(reading)
        if offset > ends.end:
            raise SourceError(
                f"partition {reading.name} ends at offset {ends.end}, but was judged up to {offset}: the topic was "
                "made anew or has lost records; to begin anew choose another group"
            )
        if offset < ends.begin:
            gap = f"offsets {offset} to {ends.begin - 1} were deleted before they were judged"
            if not self._options.accept_gap:
                raise SourceError(
                    f"partition {reading.name}: {gap}; go on without them with --accept-gap (source option accept_gap),"
                    " and raise retention.ms of the topic"
                )
            self._state.notices.append(SourceNotice("gap_accepted", gap, reading.name))
            self._wake.set()
            return ends.begin
        return offset

    # --- what must not go unnoticed ---

    @property
    def _give_up_s(self) -> float:
        return self._options.give_up_after / 1e6

    @property
    def _heard_s(self) -> float:
        reader_s = self._reader.heard_s if self._reader is not None else 0.0
        return max(reader_s, self._membership.heard_s)

    async def _listen(self, reader: Reader) -> None:
        """Notice outages also while nobody asks for batches, and when this process itself was stopped for a while."""
        listened_s = time.monotonic()
        while True:
            reader.listen()
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            if now_s - listened_s > _FROZEN_S:
                self._awake_s = now_s
            listened_s = now_s

    def _check(self, reader: Reader) -> None:
        """Say what silence means. Raises SourceError where nothing can be expected any more."""
        waiting = cast("Waiting", self._waiting)
        if not waiting.is_due():
            return
        self._state.notices.extend(waiting.check())
        silent_s = time.monotonic() - max(self._membership.heard_s, self._awake_s)
        if silent_s > self._give_up_s:
            brokers = ", ".join(self._client.place.brokers)
            raise SourceError(f"broker {brokers} has not answered for {silent_s:.0f} s: is it running?")
        self._check_topics()
        reader.events.extend(reader.beats())

    def _check_topics(self) -> None:
        consumer = cast("AIOKafkaConsumer", self._consumer)
        counts = {topic: len(consumer.partitions_for_topic(topic) or ()) for topic in self._n_partitions}
        for topic, count in counts.items():
            if count > self._n_partitions[topic]:
                self._repartitioned(topic)
        gone = next((topic for topic, count in counts.items() if count == 0), None)
        now_s = time.monotonic()
        if gone is None:
            self._missing_s = None
            return
        self._missing_s = self._missing_s or now_s
        if now_s - self._missing_s > self._client.request_timeout_s:
            raise SourceError(f"topic {gone} was deleted while it was read: run `streamad topics create --config FILE`")

    def _repartitioned(self, topic: str) -> None:
        message = (
            f"topic {topic} has more partitions than the {self._n_partitions[topic]} it had at the start: messages of "
            "a stream now go to another one than before, and its sequences would be torn apart; send to a new topic "
            "with as many partitions and name it in source.url (docs/guide/kafka.md, More partitions)"
        )
        if self._failure is None:
            self._state.notices.append(SourceNotice("partitions_added", message))
            self._failure = SourceError(message)
