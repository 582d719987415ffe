"""The Kafka source: a member of a consumer group that begins its partitions at ``seek``, not at the group's offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from pydantic import BaseModel

from streamad.errors import SourceError
from streamad.messages import ModelRef, Role
from streamad.plugins import ConnectorContext
from streamad.ports import ClaimLog, Committer, Sink, Topics
from streamad.telemetry.logs import get_logger
from streamad.types import PartitionAssigned, PartitionRevoked, Rebalanced, SourceEvent, SourceNotice
from streamad_connectors.kafka.client.admin import partition_counts
from streamad_connectors.kafka.client.errors import PARTITIONS_ADDED, explain, why_failed
from streamad_connectors.kafka.client.offsets import LogEnds, log_ends
from streamad_connectors.kafka.client.options import Client, KafkaSourceOptions, group_of
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.reading.membership import Membership, sticky_assignor
from streamad_connectors.kafka.reading.reader import Reader, Reading, make_consumer
from streamad_connectors.kafka.reading.retention_guard import RetentionGuard
from streamad_connectors.kafka.reading.time_range import KafkaRange
from streamad_connectors.kafka.reading.waiting import TICK_S, Waiting, wait_for_either
from streamad_connectors.kafka.topics.topics import KafkaTopics
from streamad_connectors.kafka.writing.claims_topic import ClaimsTopic
from streamad_connectors.kafka.writing.committer import KafkaCommitter
from streamad_connectors.kafka.writing.progress_topic import owed_models

# The pipeline watches its own progress: aiokafka must not leave the group for a slow one (24 days, the most it takes).
_MAX_POLL_INTERVAL_MS = 2**31 - 1
# After so long a silence no broker will answer our request to leave the group.
_AWAY_S = 5.0
# After so long a pause this process itself was stopped, so missing answers mean nothing.
_FROZEN_S = 2.0


class KafkaSource:
    """Reads topics as a member of a consumer group; a partition is called ``{topic}-{number}``, an offset is Kafka's.

    Partitions that a rebalance takes and gives back at once continue without an event. Empty batches with ``caught_up``
    come about four times a second, each confirmed by a broker's answer. The source waits out an outage for up to
    ``give_up_after``.
    """

    options_model: type[BaseModel] = KafkaSourceOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        # Above 15 attributes: the root of the source, which makes its parts when the consumer's callbacks ask for them.
        self._options = cast("KafkaSourceOptions", options)
        self._client = Client.of(rest, self._options, context, "source.url")
        group = group_of(self._options, context)
        self._state = SourceState(self._client, self._options, group, context.clock)
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
        self._claims: ClaimsTopic | None = None
        self._closed = False

    def committer(self, sinks: Mapping[Role, Sink]) -> Committer:
        """Return the committer that writes progress and messages for ``sinks`` in one transaction."""
        return KafkaCommitter(self._state, sinks)

    def claims(self, on_news: Callable[[], None]) -> ClaimLog:
        """Return the claims of the group's partitions on streams."""
        self._claims = ClaimsTopic(self._state, on_news)
        return self._claims

    def topics(self, sinks: Mapping[Role, Sink]) -> Topics:
        """Return the topics that this source and ``sinks`` need, to be created and checked."""
        return KafkaTopics(self._client, self._options, self._state.group, sinks, self._context)

    async def owed_models(self) -> Collection[ModelRef]:
        """Return the versions of models that debts and looks in the progress topics name.

        Raises SourceError, CheckpointError.
        """
        return await owed_models(self._state)

    def between(self, since_us: int | None, until_us: int | None) -> KafkaRange:
        """Return a finite source of the records between two times; it joins no group."""
        return KafkaRange(self._client, self._options, since_us, until_us)

    # --- reading ---

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield partitions and their records until closed.

        Raises SourceError if a topic does not exist, a right is missing, unread records were deleted, an instance id
        is used twice, or no broker has answered for ``give_up_after``.
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
        """Begin ``partition`` at ``offset`` (None: at the option ``start``) and return the offset.

        Raises SourceError if records from ``offset`` on are gone, unless ``accept_gap`` is set.
        """
        reader = self._reader
        reading = reader.get(partition) if reader is not None else None
        if reader is None or reading is None:  # taken away in the meantime: its PartitionRevoked will follow
            if offset is None:
                # An invented offset would be committed as the partition's first one and bind its new owner.
                await asyncio.get_running_loop().create_future()
            return cast("int", offset)
        version = reader.hold(reading)
        ends = await self._ends(reading)
        begin = await self._begin(reading, ends, offset)
        if reader.get(partition) is reading and reading.version == version:
            reader.begin(reading, begin)
        return begin

    def pause(self, partition: str) -> None:
        """Deliver no more of ``partition`` until its next ``seek``."""
        if self._reader is not None and (reading := self._reader.get(partition)) is not None:
            self._reader.hold(reading)

    async def close(self) -> None:
        """Leave the group and end the iterator; safe to call twice. Takes one request time-out at most."""
        self._closed = True
        self._wake.set()
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._claims is not None:
            await self._claims.close()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            is_away = time.monotonic() - self._heard_s > min(_AWAY_S, self._client.request_timeout_s)
            await stop_client(consumer, 1.0 if is_away else self._client.request_timeout_s)

    async def _open(self) -> Reader:
        self._n_partitions = await partition_counts(self._client)
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
        except KafkaError as error:
            raise SourceError(await why_failed(error, self._client, self._doing(error))) from error
        self._reader = Reader(consumer, self._client.label)
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
        await wait_for_either(self._wake, self._tasks["poll"])

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` beside the reading; its errors end the source."""
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
            text = explain(error, self._client, self._doing(error))
            raise self._membership.explains(error) or SourceError(text) from error
        if error is not None:
            raise error

    def _doing(self, error: KafkaError) -> str:
        is_group = isinstance(error, GroupAuthorizationFailedError)
        return f"read group {self._state.group}" if is_group else f"read topic {', '.join(self._client.place.topics)}"

    # --- partitions come and go ---

    @property
    def _readings(self) -> Collection[Reading]:
        return list(self._reader.readings) if self._reader is not None else []

    def _take(self, assigned: Collection[TopicPartition]) -> None:
        """Apply an assignment; called from inside aiokafka, so nothing is awaited."""
        reader = cast("Reader", self._reader)
        if (grown := next((tp for tp in assigned if tp.partition >= self._n_partitions[tp.topic]), None)) is not None:
            self._repartitioned(grown.topic)
        new, lost = reader.share(assigned)
        for reading in lost:
            self._state.low_watermarks.pop(reading.name, None)
            if reading.is_offered:
                reader.events.append(PartitionRevoked(reading.name))
        self._unoffered = [reading for reading in self._unoffered if reading not in lost] + new
        self._start("offer", self._offer(reader))

    async def _offer(self, reader: Reader) -> None:
        """Offer the new partitions once it is known whether their logs are complete."""
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
                "created again or has lost records; to start over choose another group"
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

    # --- silence and changes of topics ---

    @property
    def _give_up_s(self) -> float:
        return self._options.give_up_after / 1e6

    @property
    def _heard_s(self) -> float:
        reader_s = self._reader.heard_s if self._reader is not None else 0.0
        return max(reader_s, self._membership.heard_s)

    async def _listen(self, reader: Reader) -> None:
        """Watch for outages also while nobody asks for batches, and for pauses of this process."""
        listened_s = time.monotonic()
        while True:
            reader.listen()
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            if now_s - listened_s > _FROZEN_S:
                self._awake_s = now_s
            listened_s = now_s

    def _check(self, reader: Reader) -> None:
        """Append notices and empty batches. Raises SourceError if nothing can be expected any more."""
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
            f"topic {topic} has more partitions than the {self._n_partitions[topic]} it had at the start: keys have "
            f"moved, which splits sequences: {PARTITIONS_ADDED}"
        )
        if self._failure is None:
            self._state.notices.append(SourceNotice("partitions_added", message))
            self._failure = SourceError(message)
