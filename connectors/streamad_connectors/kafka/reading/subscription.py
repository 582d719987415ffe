"""The subscription: reads the committed messages of a topic that streamad writes, and remembers its position."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import cast

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition, errors
from pydantic import BaseModel

from streamad.errors import SourceError, TakenOverError
from streamad.plugins import ConnectorContext
from streamad.ports import StoredMessage
from streamad.telemetry.logs import get_logger
from streamad_connectors.kafka.client.admin import partition_counts
from streamad_connectors.kafka.client.errors import explain, is_retriable, why_failed
from streamad_connectors.kafka.client.options import Client, KafkaSubscriptionOptions, partition_name
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.client.unpacking import bound_unpacking
from streamad_connectors.kafka.reading.positions import Positions, Span
from streamad_connectors.kafka.reading.tenure import Tenure
from streamad_connectors.kafka.reading.window_parts import WindowParts

_WAIT_MS = 500
_COMMIT_S = 1.0
_RETRY_S = 0.5
_SILENCE_S = 5.0
_CLOSE_S = 5.0
_POSITION_S = 0.1
_MAX_PER_MESSAGE_MS = 3_600_000  # a message is fetched only after the one before it is done, which may take long
_REBALANCE_MS = 60_000
_PARTS_MISSING = (
    "a window in parts is lost: some were deleted before they were read, are missing, or take too much memory"
)


class KafkaSubscription:
    """Yields the committed messages of one topic, in order within a partition; at least once.

    With a group the brokers remember the position, and several programs with one group share the partitions. A message
    is done when the next one is requested; positions are committed once a second, before a rebalance, and by
    ``close``. After ``hold`` it is done by ``release`` alone. Without a group no position is kept. ``start`` says where
    to begin a partition that the group has not read yet; the default is the earliest message with a group, the next
    message without.

    If ``exclusive``, one program of the group reads all partitions and the others wait until it has left.

    With ``principal_header`` a message bears the sender that this header names.

    An absent broker is waited for, with one warning. Messages that were deleted before they were read are skipped,
    with a warning.
    """

    options_model: type[BaseModel] = KafkaSubscriptionOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        given = cast("KafkaSubscriptionOptions", options)
        # Above 15 attributes: five options; the others are one consumer's life (begun, holding, ending, closed) and
        # positions, which its rebalance callbacks and its reader change in turn.
        self._client = Client.of(rest, given, context, "subscription")
        self._group = given.group
        self._start = given.start or ("latest" if given.group is None else "earliest")
        self._principal_header = given.principal_header
        self._topic = self._client.place.topic
        self._consumer: AIOKafkaConsumer | None = None
        self._positions = Positions()
        self._parts = WindowParts()
        self._holds = False
        self._gaps: deque[tuple[TopicPartition, int]] = deque()
        self._committed_at = 0.0
        self._answered_ms: int | None = None
        self._heard_at = 0.0
        self._is_warned = False
        self._begun: set[TopicPartition] = set()
        self._is_closed = False
        self._is_ending = False
        self._n_last: int | None = None
        self._ends: dict[TopicPartition, int] | None = None  # the ends of our partitions when it was asked to end
        self._tenure = Tenure(self._topic) if given.exclusive else None
        self._is_waiting = False

    async def messages(self) -> AsyncIterator[StoredMessage]:
        """Yield messages as they are committed. Raises SourceError if the topic cannot be read, TakenOverError."""
        record = None
        try:
            consumer = await self._started()
            while not self._is_closed:
                self.done()
                await self._commit_if_due(consumer)
                while self._gaps and (self._tenure is None or self._tenure.is_held):
                    yield self._gap(*self._gaps.popleft())
                if self._is_ending and not self._is_amid(record) and await self._is_through(consumer):
                    return
                record = await self._fetch(consumer)
                if record is not None and (message := self._taken(record)) is not None:
                    yield message
        finally:
            if self._tenure is not None:
                self._tenure.settled.set()

    def _gap(self, partition: TopicPartition, begin: int) -> StoredMessage:
        """Return what stands for the messages before the offset ``begin``, which nobody can read any more."""
        self._positions.add_gap(partition, begin)
        place = f"{partition_name(partition.topic, partition.partition)}, before offset {begin}"
        why = "messages were deleted before they were read: read more often, or raise the topic's retention"
        return StoredMessage(b"", place, problem=why)

    def _taken(self, record: ConsumerRecord[bytes | None, bytes | None]) -> StoredMessage | None:
        """Return the message to yield with ``record``, None if there is none: not ours, a part, or a repetition."""
        if self._tenure is not None and not self._tenure.is_held:
            return None
        found = self._parts.take(record)
        partition = TopicPartition(record.topic, record.partition)
        if found is None or not self._positions.add(Span(partition, found.first, record.offset)):
            return None
        message = stored_message(record, self._principal_header)
        if found.value is None:
            return message._replace(value=b"", problem=_PARTS_MISSING)
        return message._replace(value=found.value)

    def done(self) -> None:
        """Mark the message yielded last as done, for the next commit."""
        if not self._holds:
            self._positions.done(self._positions.n_undone)

    def hold(self) -> None:
        """Hold every message from now on until ``release``."""
        self._holds = True

    def release(self, n: int) -> None:
        """Mark the ``n`` oldest of the messages held as done, for the next commit."""
        self._positions.done(n)

    async def taken(self) -> bool:
        """Return True once all partitions are ours, False if ``messages`` ends before that; see ``exclusive``."""
        if self._tenure is None:
            return True
        await self._tenure.settled.wait()
        return self._tenure.is_held

    async def is_ours(self) -> bool:
        """Return whether all partitions are still ours: whether the brokers take a commit of our membership."""
        while self._tenure is not None and (consumer := self._consumer) is not None and self._tenure.is_held:
            try:
                async with asyncio.timeout(self._client.request_timeout_s):
                    await consumer.commit(await self._resting(consumer))
                return self._tenure.is_held
            except (errors.CommitFailedError, errors.IllegalStateError, errors.RebalanceInProgressError):
                await asyncio.sleep(_POSITION_S)  # a rebalance is under way, and says whose they are
            except (errors.KafkaError, OSError) as error:
                await self._survive(error)
        return self._tenure is None

    async def _resting(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        """Return where the group stands in one of our partitions: before the first message that is held."""
        partition = min(consumer.assignment(), default=None)
        if partition is None:
            raise errors.IllegalStateError("a rebalance is under way")
        return {partition: self._begin_of(partition, await consumer.position(partition))}

    def _begin_of(self, partition: TopicPartition, reached: int) -> int:
        """Return where the next owner of ``partition`` is to begin, if all that is done lies below ``reached``."""
        return self._parts.begin(partition, self._positions.before(partition, reached))

    def end_with_present(self) -> None:
        """Let ``messages`` end after the committed messages that our partitions hold now."""
        self._is_ending = True

    def end_with_last(self, n: int) -> None:
        """Let ``messages`` end after the last ``n`` offsets of a topic with one partition, else after all."""
        self._is_ending, self._n_last = True, n

    async def n_present(self) -> int | None:
        """Return how many offsets of our partitions are not done before their ends, None if a broker does not say.

        Offsets that hold no message (transaction markers, aborted ones) count, too.
        """
        consumer = self._consumer
        if consumer is None or not await self._has_ends(consumer):
            return None
        left = await self._left(consumer)
        if left is None:
            return None
        return sum(left.values()) + self._positions.n_undone

    def _is_amid(self, record: ConsumerRecord[bytes | None, bytes | None] | None) -> bool:
        """Return whether the end of its partition is known to lie behind ``record``: to ask each time costs as much."""
        if record is None or self._ends is None:
            return False
        return bool(record.offset + 1 < self._ends.get(TopicPartition(record.topic, record.partition), 0))

    async def _is_through(self, consumer: AIOKafkaConsumer) -> bool:
        if not await self._has_ends(consumer):
            return False
        left = await self._left(consumer)
        return left is not None and not any(left.values())

    async def _has_ends(self, consumer: AIOKafkaConsumer) -> bool:
        """Return whether the ends of our partitions are known; ask the brokers if not."""
        if self._ends is None and (ours := consumer.assignment()):
            try:
                async with asyncio.timeout(self._client.request_timeout_s):
                    self._ends = dict(await consumer.end_offsets(list(ours)))
            except (errors.KafkaError, OSError) as error:
                await self._survive(error)
        return self._ends is not None

    async def _left(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int] | None:
        """Return how many offsets lie before the end of each of our partitions, None before the first fetch of one.

        A partition that came to us later, or went to another member of the group, is not ours to read to an end.
        """
        assert self._ends is not None
        left: dict[TopicPartition, int] = {}
        if not (ours := consumer.assignment()):  # a rebalance is under way
            return None
        for partition in ours & self._ends.keys():
            try:
                async with asyncio.timeout(_POSITION_S):
                    left[partition] = max(0, self._ends[partition] - await consumer.position(partition))
            except (TimeoutError, errors.KafkaError):
                return None
        return left

    async def close(self) -> None:
        """Commit the position and leave the group, in bounded time; safe to call twice. Never raises."""
        self._is_closed = True
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        try:
            await self._commit(consumer)
        finally:
            await stop_client(consumer, _CLOSE_S)

    async def before_rebalance(self, revoked: Collection[TopicPartition]) -> None:
        """Commit the position; the next owner reads the message yielded last, or we skip its repetition."""
        if self._tenure is not None:
            self._tenure.revoked()
        if self._consumer is not None:
            await self._commit(self._consumer)
        if not self._holds:
            self._positions.forget_undone()
        self._positions.forget_commits()
        for partition in revoked:
            self._parts.begin_anew(partition)

    def after_rebalance(self, assigned: set[TopicPartition]) -> None:
        """Note whether all partitions are ours; say once if they are another reader's."""
        if self._tenure is None or self._tenure.is_lost:
            return
        self._tenure.assigned(assigned)
        if self._tenure.is_held:
            if self._is_waiting:
                get_logger().warning("the other reader has left: reading", topic=self._topic, group=self._group)
            self._is_waiting = False
        elif not self._is_waiting:
            self._is_waiting = True
            holder = self._tenure.holder or "unknown"
            get_logger().warning(
                "another reader has the whole topic: waiting until it leaves",
                reader=holder,
                topic=self._topic,
                group=self._group,
            )

    async def _started(self) -> AIOKafkaConsumer:
        if self._consumer is not None:
            return self._consumer
        await partition_counts(self._client)  # raises if the topic does not exist
        bound_unpacking()
        hidden = {} if self._n_last is None else {"isolation_level": "read_uncommitted"}
        consumer = AIOKafkaConsumer(
            **{**self._client.consumer_kwargs(), **hidden},
            group_id=self._group,
            max_poll_interval_ms=_MAX_PER_MESSAGE_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            **({} if self._tenure is None else {"partition_assignment_strategy": (self._tenure,)}),
        )
        if self._tenure is not None:
            self._tenure.attach(consumer)
        consumer.subscribe([self._topic], listener=_CommitsBefore(self))
        try:
            async with asyncio.timeout(self._client.connect_timeout_s * 4):
                await connected(consumer.start())
        except BaseException as error:
            await stop_client(consumer, _CLOSE_S)
            if isinstance(error, errors.KafkaError | OSError):
                raise SourceError(await why_failed(error, self._client, f"read topic {self._topic}")) from error
            raise
        self._consumer = consumer
        self._heard_at = self._committed_at = time.monotonic()
        return consumer

    async def _fetch(self, consumer: AIOKafkaConsumer) -> ConsumerRecord[bytes | None, bytes | None] | None:
        """Return the next message, None after a time without one. Raises SourceError, TakenOverError."""
        if self._tenure is not None and self._tenure.is_lost:
            raise TakenOverError(f"another reader of group {self._group} has taken over topic {self._topic}")
        try:
            found = await consumer.getmany(timeout_ms=_WAIT_MS, max_records=1)
        except errors.NoOffsetForPartitionError as error:
            await self._begin(consumer, error.args[0])
        except errors.OffsetOutOfRangeError as error:
            for partition in error.args[0]:
                await self._skip_gap(consumer, partition)
        except (errors.KafkaError, OSError) as error:
            await self._survive(error)
        else:
            for records in found.values():
                self._hear()
                return records[0]
            self._listen()
        return None

    async def _begin(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
        """Begin a partition without a position; one that was added later is read from its beginning."""
        is_later = bool(self._begun) and partition not in self._begun and self._group is None
        await self._seek(consumer, partition, "earliest" if is_later else self._start)

    async def _skip_gap(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
        get_logger().warning(
            "messages were deleted before they were read",
            partition=partition_name(partition.topic, partition.partition),
            do="read more often, or raise the topic's retention",
        )
        if (begin := await self._seek(consumer, partition, "earliest")) is not None:
            self._gaps.append((partition, begin))

    async def _seek(self, consumer: AIOKafkaConsumer, partition: TopicPartition, where: str) -> int | None:
        """Move to the earliest or latest message; return its offset, None if that was not possible yet."""
        ask = consumer.beginning_offsets if where == "earliest" else consumer.end_offsets
        try:
            async with asyncio.timeout(self._client.request_timeout_s):
                offset = (await ask([partition]))[partition]
                if self._n_last is not None and consumer.assignment() == {partition}:
                    offset = max(offset, (await consumer.end_offsets([partition]))[partition] - self._n_last)
            consumer.seek(partition, offset)
        except errors.IllegalStateError:
            return None  # no longer assigned
        except (errors.KafkaError, OSError) as error:
            await self._survive(error)  # without a position, the next fetch leads here again
            return None
        self._begun |= consumer.assignment()
        self._positions.move(partition, offset)
        self._parts.begin_anew(partition, is_earliest=where == "earliest")
        return int(offset)

    async def _survive(self, error: BaseException) -> None:
        if not is_retriable(error):
            raise SourceError(self._explained(error)) from error
        self._warn(self._explained(error))
        await asyncio.sleep(_RETRY_S)

    def _hear(self) -> None:
        self._heard_at = time.monotonic()
        if self._is_warned:
            self._is_warned = False
            get_logger().warning("the brokers are back", topic=self._topic)

    def _listen(self) -> None:
        """Warn if no broker has answered for some time; aiokafka itself keeps retrying."""
        answered_ms = self._last_answer_ms()
        if answered_ms is None or answered_ms != self._answered_ms:
            self._answered_ms = answered_ms
            self._hear()
        elif time.monotonic() - self._heard_at > _SILENCE_S:
            self._warn(f"no broker has answered for {_SILENCE_S:g} s")

    def _last_answer_ms(self) -> int | None:
        """Return when a broker last answered a fetch, None if no partition is assigned."""
        consumer = self._consumer
        if consumer is None or not (ours := consumer.assignment()):
            return None
        return max(consumer.last_poll_timestamp(partition) or 0 for partition in ours)

    def _warn(self, text: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            self._answered_ms = self._last_answer_ms()
            get_logger().warning("waiting for the brokers", why=text, topic=self._topic)

    async def _commit_if_due(self, consumer: AIOKafkaConsumer) -> None:
        if self._positions.is_due and time.monotonic() - self._committed_at >= _COMMIT_S:
            await self._commit(consumer)

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        """Commit positions; those that fail are committed later, or their messages are read again by the next owner."""
        self._committed_at = time.monotonic()
        if self._group is None:
            return
        if self._tenure is not None and not self._tenure.is_held:
            # Brokers take a commit of no member if the group is empty: it would set the position back.
            self._positions.forget_commits()
            return
        reached = self._positions.to_commit(consumer.assignment())
        if not reached:
            return
        positions = {partition: self._parts.begin(partition, offset) for partition, offset in reached.items()}
        try:
            async with asyncio.timeout(self._client.request_timeout_s):
                await consumer.commit(positions)
        except (errors.CommitFailedError, errors.IllegalStateError, errors.RebalanceInProgressError):
            self._positions.forget_commits()
        except (errors.KafkaError, OSError) as error:
            if not is_retriable(error) and not self._is_closed:
                raise SourceError(self._explained(error, f"read group {self._group}")) from error
            self._warn(self._explained(error, f"read group {self._group}"))
        else:
            self._positions.committed(positions)

    def _explained(self, error: BaseException, doing: str | None = None) -> str:
        return explain(error, self._client, doing or f"read topic {self._topic}")


class _CommitsBefore(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka ships no types
    """Commits the position before a rebalance, so that little is read twice."""

    def __init__(self, subscription: KafkaSubscription) -> None:
        self._subscription = subscription

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._subscription.before_rebalance(revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._subscription.after_rebalance(assigned)


def stored_message(
    record: ConsumerRecord[bytes | None, bytes | None], principal_header: str | None = None
) -> StoredMessage:
    """Return the message of a record; its sender is what the only header ``principal_header`` says."""
    place = f"{partition_name(record.topic, record.partition)}, offset {record.offset}"
    stamped = [value for name, value in record.headers if name == principal_header]
    # Of two such headers one is the sender's own.
    sender = (stamped[0] or b"").decode("utf-8", "replace").strip() if len(stamped) == 1 else ""
    return StoredMessage(record.value or b"", place, sender or None, key=record.key)
