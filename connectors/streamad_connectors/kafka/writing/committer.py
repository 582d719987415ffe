"""The committer: a partition's outputs, progress and group offset in one transaction (KIP-98), fenced by id."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn

from aiokafka import TopicPartition, errors
from aiokafka.structs import OffsetAndMetadata

from streamad.errors import CheckpointError, OutputError, PartitionLost, SourceError, StreamadError
from streamad.messages import OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate
from streamad.ports import Sink
from streamad.system.tasks import Backoff
from streamad.telemetry.logs import get_logger
from streamad_connectors.kafka.client.errors import PARTITIONS_ADDED, explain, why_failed
from streamad_connectors.kafka.client.options import KafkaSinkOptions, progress_topic_of, transactional_id_of
from streamad_connectors.kafka.client.source_state import LowWatermark, SourceState
from streamad_connectors.kafka.writing.last_transaction import Ending
from streamad_connectors.kafka.writing.messages import OutMessage, encode
from streamad_connectors.kafka.writing.producer import PartitionProducer, TopicMissingError, is_fenced
from streamad_connectors.kafka.writing.progress_topic import ProgressLog, read_items
from streamad_connectors.kafka.writing.sink import KafkaSink

# Errors that a retry cannot mend.
_HOPELESS = (
    errors.ClusterAuthorizationFailedError,
    errors.GroupAuthorizationFailedError,
    errors.InvalidTopicError,
    errors.InvalidTransactionTimeout,
    errors.MessageSizeTooLargeError,
    errors.PolicyViolationError,
    errors.RecordListTooLargeError,
    errors.RecordTooLargeError,
    errors.TopicAuthorizationFailedError,
    TopicMissingError,
    errors.TransactionalIdAuthorizationFailed,
    errors.UnsupportedVersionError,
)
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = 100_000, 5_000_000
_MOST_FENCES = 3
_FENCES_WITHIN_US = 120_000_000
_HEARTBEATS_TO_WAIT = 2
_MARGIN_S = 3.0
# A partition whose commit failed is restored, read again and commits within so many request time-outs.
_TRIES_APART = 6


@dataclass(frozen=True, slots=True)
class _InputPartition:
    """One partition of the input, its progress topic and transactional id."""

    name: str
    topic: str
    number: int
    progress_topic: str
    transactional_id: str


@dataclass(slots=True, eq=False)
class _Held:
    """A restored partition; ``is_over`` once it was fenced, failed or released."""

    place: _InputPartition
    producer: PartitionProducer
    log: ProgressLog
    n_partitions: int
    is_over: bool = False
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(slots=True)
class _FormerTransaction:
    """How the last transaction before a restore ended; a try that does not know keeps what an earlier one found."""

    ending: Ending = Ending.UNKNOWN

    def found(self, ending: Ending) -> None:
        if ending is not Ending.UNKNOWN:
            self.ending = ending


class KafkaCommitter:
    """Exactly once on a Kafka cluster: see ``streamad.ports.Committer``.

    Every partition has its own transactional producer, whose id names the partition. Its start fences all former
    owners; only then is the progress read. A commit is one transaction of progress, messages for the sinks of the same
    cluster, and the group's offset (the low watermark). Other sinks are written and flushed before: at least once.
    """

    def __init__(self, state: SourceState, sinks: Mapping[Role, Sink]) -> None:
        self._state = state
        self._sinks = sinks
        self._ours: dict[Role, KafkaSink] = {}
        self._others: dict[Role, Sink] = {}
        for role, sink in sinks.items():
            if isinstance(sink, KafkaSink) and sink.client.same_cluster(state.client):
                self._ours[role] = sink
            else:
                self._others[role] = sink
        sizes = [sink.max_message_bytes for sink in self._ours.values()]
        self._max_message_bytes = min(sizes, default=KafkaSinkOptions().max_message_bytes)
        self._held: dict[str, _Held] = {}
        self._claims: dict[str, object] = {}
        self._fences_us: dict[str, list[int]] = {}
        self._failing_us: dict[str, tuple[int, int]] = {}
        self._others_lock = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._log = get_logger()

    @property
    def max_item_bytes(self) -> int:
        """Return how large an item may be: the progress topic need not take more than Kafka's default."""
        return min(self._max_message_bytes, KafkaSinkOptions().max_message_bytes)

    # --- restore ---

    async def owing(self) -> Mapping[str, Progress]:
        """Return nothing: every partition is assigned to a worker, which pays its debts."""
        return {}

    async def restore(self, partition: str) -> Progress | None:
        """Fence every former owner of ``partition`` and return its last committed progress, None the first time.

        While no broker answers it retries, for ``give_up_after``. After a fence it waits two heartbeats first, so that
        a worker that lost the partition learns of that before it would fence the new owner. Raises CheckpointError,
        SourceError; PartitionLost if the partition was released meanwhile.
        """
        claim = self._claims[partition] = object()
        await self._drop(partition)
        await self._wait_after_fence(partition)
        give_up_us = self._state.clock.monotonic_us() + self._state.options.give_up_after
        backoff = Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        former = _FormerTransaction()
        while True:
            self._check_claim(partition, claim)
            try:
                return await self._try_restore(partition, claim, former)
            except StreamadError:
                raise
            except Exception as error:  # noqa: BLE001 - also aiokafka's assertions: retried for a limited time
                if isinstance(error, _HOPELESS) or self._state.clock.monotonic_us() >= give_up_us:
                    await self._fail_restoring(partition, error)
                self._log.info("partition not restored yet", partition=partition, reason=explain(error))
            await self._state.clock.sleep(backoff.pause_us / 1e6)
            backoff.failed()

    async def _try_restore(self, partition: str, claim: object, former: _FormerTransaction) -> Progress | None:
        place = self._place_of(partition)
        client = self._state.client
        producer = PartitionProducer(
            client.kwargs(),
            place.transactional_id,
            timeout_s=client.request_timeout_s,
            transaction_timeout_s=self._state.options.transaction_timeout / 1_000_000,
            max_message_bytes=self._max_message_bytes,
        )
        try:
            try:
                await producer.start()  # the fence, before anything is read
            finally:
                former.found(producer.former_ending)  # a try that fails here may have made the coordinator forget it
            n_partitions = await producer.partitions_of(place.topic)
            n_progress = await producer.partitions_of(place.progress_topic)
            written = {TopicPartition(place.progress_topic, place.number)}
            for sink in self._ours.values():  # a missing topic fails here, not at the first alert
                topic = sink.place.topic
                written |= {TopicPartition(topic, number) for number in range(await producer.partitions_of(topic))}
            if place.number >= n_progress:  # reading it would time out
                raise CheckpointError(_mismatched(place, n_progress, n_partitions))
            await producer.end_left_open(written, commit=former.ending is Ending.COMMIT)
            items = await read_items(
                client.consumer_kwargs(), place.progress_topic, place.number, client.request_timeout_s
            )
            log, saved = ProgressLog.read(partition, items)
            if saved is not None and saved.n_partitions != n_partitions:
                raise CheckpointError(_repartitioned(place.topic, saved.n_partitions, n_partitions))
            if n_progress != n_partitions:
                raise CheckpointError(_mismatched(place, n_progress, n_partitions))
            self._check_claim(partition, claim)
        except BaseException:
            await self._end(producer.discard())
            raise
        self._held[partition] = _Held(place, producer, log, n_partitions)
        if saved is None:
            self._state.low_watermarks.pop(partition, None)
            return None
        low_watermark = LowWatermark(saved.progress.low_watermark, saved.progress.low_watermark_us)
        self._state.low_watermarks[partition] = low_watermark
        return saved.progress

    def _place_of(self, partition: str) -> _InputPartition:
        topic, _, number = partition.rpartition("-")
        group = self._state.group
        transactional_id = transactional_id_of(topic, int(number), group)
        return _InputPartition(partition, topic, int(number), progress_topic_of(group, topic), transactional_id)

    def _check_claim(self, partition: str, claim: object) -> None:
        if self._claims.get(partition) is not claim or self._is_closed:
            raise PartitionLost(partition, f"{partition}: released while it was being restored")

    async def _wait_after_fence(self, partition: str) -> None:
        wait_us = _HEARTBEATS_TO_WAIT * self._state.options.heartbeat_interval
        since_us = self._state.clock.monotonic_us() - max(_FENCES_WITHIN_US, 4 * _MOST_FENCES * wait_us)
        fences = [at_us for at_us in self._fences_us.get(partition, ()) if at_us >= since_us]
        self._fences_us[partition] = fences
        if len(fences) > _MOST_FENCES:
            raise CheckpointError(
                f"another process commits for {partition} of group {self._state.group}: is the same instance id, or "
                "the same group with another deployment, running twice? Stop one of them, or give it another group"
            )
        if fences:
            self._log.info("waiting after a fence", partition=partition, seconds=wait_us / 1e6)
            await self._state.clock.sleep(wait_us / 1e6)

    async def _fail_restoring(self, partition: str, error: Exception) -> NoReturn:
        if isinstance(error, _HOPELESS):
            raise CheckpointError(self._explain(error, self._place_of(partition))) from error
        cause = errors.KafkaConnectionError() if isinstance(error, TimeoutError) else error
        why = await why_failed(cause, self._state.client, f"restore {partition}")
        raise SourceError(f"{why} (tried for {self._state.options.give_up_after / 1e6:g} s)") from error

    # --- commit ---

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Commit ``outputs`` and ``update`` in one transaction. Raises PartitionLost, OutputError.

        Both are raised after the producer was discarded; the next ``restore`` finds out whether the transaction
        happened.
        """
        held = self._held.get(update.partition)
        if held is None:
            raise _not_held(update.partition)
        async with held.one_at_a_time:
            # Encoded first, so that a message too large for its topic fails before anything is written.
            messages = [
                message
                for record in outputs
                if (sink := self._ours.get(record.role)) is not None
                for message in encode(record, sink.place.topic, sink.max_message_bytes, sink.schema_ids)
            ]
            await self._write_others([record for record in outputs if record.role in self._others])
            await self._transact(held, update, messages)
        self._fences_us.pop(update.partition, None)
        self._failing_us.pop(update.partition, None)
        self._state.low_watermarks[update.partition] = LowWatermark(update.low_watermark, update.low_watermark_us)

    async def _write_others(self, outputs: Sequence[OutputRecord]) -> None:
        if not outputs:
            return
        by_role: dict[Role, list[OutputRecord]] = {}
        for record in outputs:
            by_role.setdefault(record.role, []).append(record)
        async with self._others_lock:  # commits of several partitions share a sink
            for role, records in by_role.items():
                await self._others[role].write(records)
                await self._others[role].flush()

    async def _transact(self, held: _Held, update: ProgressUpdate, messages: list[OutMessage]) -> None:
        place, producer = held.place, held.producer
        if held.is_over:
            raise _not_held(place.name)
        try:
            for topic in {message.topic for message in messages}:
                await producer.partitions_of(topic)
            progress = [
                OutMessage(place.progress_topic, item.key, item.value, partition=place.number)
                for item in held.log.write(update, held.n_partitions)
            ]
            await producer.transact(
                progress + messages,
                OffsetAndMetadata(update.low_watermark, f"next_offset={update.next_offset}"),
                TopicPartition(place.topic, place.number),
                self._state.group,
            )
        except BaseException as error:
            self._forget(held)
            if not isinstance(error, Exception):  # cancelled: the next restore finds out what happened
                await self._end(producer.discard())
                raise
            cause = producer.cause_of(error)
            if not isinstance(cause, TimeoutError) and not is_fenced(cause):
                await self._end(producer.abort())
            await self._end(producer.discard())
            raise self._failure(held, cause) from error

    def _failure(self, held: _Held, cause: BaseException) -> StreamadError:
        partition = held.place.name
        now_us = self._state.clock.monotonic_us()
        if is_fenced(cause):
            self._fences_us.setdefault(partition, []).append(now_us)
            return PartitionLost(
                partition,
                f"{partition}: another worker has taken it over, or the broker has aborted its transaction "
                f"({type(cause).__name__})",
                fenced=True,
            )
        why = self._explain(cause, held.place, held.producer.refused_by)
        if isinstance(cause, _HOPELESS) or self._fails_for_us(partition, now_us) >= self._state.options.give_up_after:
            return OutputError(why)
        if isinstance(cause, TimeoutError):
            why = f"no commit within {self._state.client.request_timeout_s:g} s, whether it happened is in doubt"
        return PartitionLost(partition, f"{partition}: {why}")

    def _fails_for_us(self, partition: str, now_us: int) -> int:
        """Return how long commits have been failing one after the other."""
        since_us, last_us = self._failing_us.get(partition, (now_us, now_us))
        patience_us = self._state.options.give_up_after + _TRIES_APART * self._state.options.request_timeout
        if now_us - last_us > patience_us:  # the last one may have succeeded, followed by silence
            since_us = now_us
        self._failing_us[partition] = (since_us, now_us)
        return now_us - since_us

    def _explain(self, cause: BaseException, place: _InputPartition, topic: str | None = None) -> str:
        client = self._state.client
        if isinstance(cause, TopicMissingError):
            make = "run `streamad topics create --config FILE`"
            return f"topic {cause.topic} does not exist: {make}, or is its name mistyped?"
        if isinstance(cause, errors.GroupAuthorizationFailedError):
            return explain(cause, client, f"read group {self._state.group}")
        if isinstance(cause, errors.TransactionalIdAuthorizationFailed):
            return explain(cause, client, f"write transactional id {place.transactional_id}")
        if isinstance(cause, errors.TopicAuthorizationFailedError) and topic is None:
            topic = ", ".join(sorted(_names_in(cause)))
        return explain(cause, client, f"write topic {topic}" if topic else f"commit for {place.name}")

    # --- release ---

    async def release(self, partition: str) -> None:
        """Release ``partition`` after a commit under way, in bounded time. Never raises."""
        self._claims.pop(partition, None)
        await self._drop(partition)
        self._state.low_watermarks.pop(partition, None)
        self._fences_us.pop(partition, None)
        self._failing_us.pop(partition, None)

    async def _drop(self, partition: str) -> None:
        held = self._held.get(partition)
        if held is None:
            return
        try:
            async with asyncio.timeout(self._state.client.request_timeout_s + _MARGIN_S), held.one_at_a_time:
                self._forget(held)
        except TimeoutError:
            self._forget(held)
        await self._end(held.producer.discard())

    def _forget(self, held: _Held) -> None:
        held.is_over = True
        if self._held.get(held.place.name) is held:
            del self._held[held.place.name]

    async def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """Run ``ending`` to its end even if the caller is cancelled; ``close`` waits for it."""
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Release all partitions, at once and in bounded time, then close the sinks. Raises OutputError."""
        if self._is_closed:
            return
        self._is_closed = True
        self._claims.clear()
        await asyncio.gather(*(self.release(partition) for partition in list(self._held)))
        await asyncio.gather(*self._ending)
        async with AsyncExitStack() as stack:  # closes every sink, even if others fail
            for sink in self._sinks.values():
                stack.push_async_callback(sink.close)


def _not_held(partition: str) -> PartitionLost:
    return PartitionLost(partition, f"{partition}: not ours (any more), restore it first")


def _repartitioned(topic: str, before: int, now: int) -> str:
    return (
        f"{topic} has {now} partitions, but {before} when its progress was committed: keys have moved, which "
        f"splits sequences: {PARTITIONS_ADDED}"
    )


def _mismatched(place: _InputPartition, n_progress: int, n_partitions: int) -> str:
    return (
        f"{place.progress_topic} has {n_progress} partitions, but {place.topic} has {n_partitions}: keys may "
        f"have moved, which splits sequences: {PARTITIONS_ADDED}"
    )


def _names_in(error: BaseException) -> set[str]:
    """Return the topics in the arguments of ``error``: one, or a set."""
    names: set[str] = set()
    for argument in error.args:
        names |= {argument} if isinstance(argument, str) else set(argument)
    return names
