"""The claims of a group's partitions on streams, in one compacted topic of one partition (``streamad.ports.ClaimLog``).

No transaction touches the topic: a claim is there when it is acknowledged, whatever becomes of the partition's commit,
and a committed read of it never waits for one's own transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, errors

from streamad.errors import CheckpointError, SourceError, StreamadError
from streamad.partition_progress import Claim
from streamad.system.tasks import Backoff
from streamad.types import SourceNotice
from streamad_connectors.kafka.client.admin import Admin
from streamad_connectors.kafka.client.errors import explain, is_retriable, why_failed
from streamad_connectors.kafka.client.options import Client, KafkaSinkOptions, claims_topic_of
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import connected, discard
from streamad_connectors.kafka.topics import checks
from streamad_connectors.kafka.writing.messages import OutMessage
from streamad_connectors.kafka.writing.sender import Sender

_POLL_MS = 250
_FETCH_BYTES = 4_000_000
_MOST_KEY_BYTES = 100_000
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = 100_000, 5_000_000


class _Key(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The key of a claim; equal claims have equal bytes, by which the topic is compacted."""

    kind: str
    partition: str
    stream: str


class _Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a claim; a tombstone ends it."""

    schema_version: int
    time_us: int | None = None
    since: int | None = None
    n_judged: int | None = None
    told: bool = False


_KIND = "claim"
_VERSION = 1
_key, _value, _encoder = msgspec.json.Decoder(_Key), msgspec.json.Decoder(_Value), msgspec.json.Encoder()


def encoded(claim: Claim) -> tuple[bytes, bytes | None]:
    """Return key and value of a record."""
    key = _encoder.encode(_Key(_KIND, claim.partition, claim.stream))
    if claim.ended:
        return key, None
    return key, _encoder.encode(_Value(_VERSION, claim.time_us, claim.since, claim.n_judged, claim.told))


def decoded(key: bytes | None, value: bytes | None) -> Claim | None:
    """Return the claim of a record, None if streamad did not write it."""
    if key is None or len(key) > _MOST_KEY_BYTES:
        return None
    try:
        name = _key.decode(key)
        content = None if value is None else _value.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if name.kind != _KIND or (content is not None and content.schema_version != _VERSION):
        return None
    if content is None:
        return Claim(name.stream, name.partition, ended=True)
    return Claim(name.stream, name.partition, content.time_us, content.since, content.n_judged, content.told)


class ClaimsTopic:
    """Follows the topic from its beginning, and writes to it by an idempotent producer, all that waits in one batch.

    Absent brokers are waited for, for ``give_up_after``; what cannot be mended by waiting is raised by ``catch_up`` or
    ``take``. Claims of partitions that are not of the source's topics are left out: the group read others before.
    """

    outlives = True

    def __init__(self, state: SourceState, on_news: Callable[[], None]) -> None:
        self._state = state
        self._on_news = on_news
        self._client: Client = state.client.at(claims_topic_of(state.group))
        self._topic = TopicPartition(self._client.place.topic, 0)
        longest = KafkaSinkOptions().max_message_bytes
        self._sender = Sender(self._client, max_message_bytes=longest, give_up_s=state.options.give_up_after / 1e6)
        self._consumer: AIOKafkaConsumer | None = None
        self._read: list[tuple[int, Claim]] = []
        self._unwritten: list[Claim] = []
        self._has_unwritten = asyncio.Event()
        self._moved = asyncio.Event()
        self._position = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._opening = asyncio.Lock()
        self._failure: StreamadError | None = None
        self._has_told_foreign = False

    # --- what the pipeline calls ---

    async def catch_up(self) -> None:
        """Return once every claim acknowledged before the call can be taken. Raises SourceError, CheckpointError."""
        async with self._opening:
            if not self._tasks:
                await self._retried(self._open)
                self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._write())]
                for task in self._tasks:
                    task.add_done_callback(self._ended)
        await self._retried(self._reach_end)

    def write(self, claims: Sequence[Claim]) -> None:
        """Append ``claims`` soon, with all others that wait."""
        self._unwritten += claims
        self._has_unwritten.set()

    def take(self) -> Sequence[tuple[int, Claim]]:
        """Return the claims read since the last call, with their offsets. Raises SourceError, OutputError."""
        if self._failure is not None:
            raise self._failure
        read, self._read = self._read, []
        return read

    async def close(self) -> None:
        """End in bounded time; claims that are not written are made again by whoever reads the partition next."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await discard(consumer)
        self._unwritten.clear()
        await self._sender.abandon()

    # --- reading ---

    async def _open(self) -> None:
        """Check the topic and begin to read it."""
        name = self._topic.topic
        async with Admin(self._client) as admin:
            state = (await admin.describe([name]))[name]
            if isinstance(state, int):
                raise errors.for_code(state)(name)
            settings = (await admin.settings([name], checks.TOPIC_SETTINGS))[name]
        known = {} if isinstance(settings, int) else settings  # they cannot be read without DESCRIBE_CONFIGS
        if problems := checks.claims_problems(name, state.partitions, known, self._client):
            raise CheckpointError(f"topic {name} {problems[0]}")
        # Now, not with the first claims: once it is connected it waits for absent brokers, before it does not.
        await self._sender.n_partitions()
        consumer = AIOKafkaConsumer(
            **{**self._client.consumer_kwargs(), "isolation_level": "read_uncommitted"},
            group_id=None,
            fetch_max_wait_ms=_POLL_MS,
            max_partition_fetch_bytes=_FETCH_BYTES,
        )
        try:
            consumer.assign([self._topic])
            async with asyncio.timeout(self._client.connect_timeout_s):
                await connected(consumer.start())
                begin = (await consumer.beginning_offsets([self._topic]))[self._topic]
        except BaseException:
            await discard(consumer)
            raise
        consumer.seek(self._topic, begin)
        self._consumer, self._position = consumer, begin

    async def _reach_end(self) -> None:
        """Return once all that lies there now was read."""
        consumer = self._consumer
        assert consumer is not None
        async with asyncio.timeout(self._client.request_timeout_s):
            end = (await consumer.end_offsets([self._topic]))[self._topic]
            while self._position < end and self._failure is None:
                self._moved.clear()
                await self._moved.wait()
        if self._failure is not None:
            raise self._failure

    async def _follow(self) -> None:
        consumer = self._consumer
        assert consumer is not None
        while True:
            batches = await consumer.getmany(self._topic, timeout_ms=_POLL_MS)
            self._take_in(batches.get(self._topic, ()))
            position = await consumer.position(self._topic)
            if position > self._position:
                self._position = position
                self._moved.set()
            if self._read:
                self._on_news()

    def _take_in(self, records: Sequence[ConsumerRecord]) -> None:
        ours = self._state.client.place.topics
        for record in records:
            claim = decoded(record.key, record.value)
            if claim is None:
                self._tell_foreign(record.offset)
            elif claim.partition.rpartition("-")[0] in ours:
                self._read.append((record.offset, claim))

    def _tell_foreign(self, offset: int) -> None:
        if self._has_told_foreign:
            return
        self._has_told_foreign = True
        text = (
            f"topic {self._topic.topic} holds records that streamad did not write, such as offset {offset}: they are "
            "ignored; only workers need the right to write there"
        )
        self._state.notices.append(SourceNotice("foreign_claims", text))

    # --- writing ---

    async def _write(self) -> None:
        """Write what waits, in order, and then wait until it was read back."""
        while True:
            await self._has_unwritten.wait()
            self._has_unwritten.clear()
            claims, self._unwritten = self._unwritten, []
            messages = [OutMessage(self._topic.topic, *encoded(claim), partition=0) for claim in claims]
            await self._sender.send(messages)
            await self._sender.flush()
            await self._retried(self._reach_end)

    # --- failures ---

    async def _retried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do ``work``, repeatedly while no broker answers, for ``give_up_after``. Raises SourceError."""
        clock, backoff = self._state.clock, Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        give_up_us = clock.monotonic_us() + self._state.options.give_up_after
        while True:
            try:
                return await work()
            except StreamadError:
                raise
            except (errors.KafkaError, OSError) as error:  # TimeoutError is an OSError
                if not is_retriable(error) or clock.monotonic_us() >= give_up_us:
                    cause = errors.KafkaConnectionError() if isinstance(error, TimeoutError) else error
                    doing = f"read topic {self._topic.topic}"
                    raise SourceError(await why_failed(cause, self._client, doing)) from error
            await clock.sleep(backoff.pause_us / 1e6)
            backoff.failed()

    def _explained(self, error: BaseException) -> str:
        if isinstance(error, errors.OffsetOutOfRangeError):
            return f"topic {self._topic.topic} was emptied or made again while it was read: start streamad again"
        return explain(error, self._client, f"read topic {self._topic.topic}")

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Keep the error of a task for ``take``; it ends by nothing else than that, or a cancellation."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        failure = error if isinstance(error, StreamadError) else SourceError(self._explained(error))
        self._failure = self._failure or failure
        self._moved.set()
        self._on_news()
