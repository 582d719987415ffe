"""A transactional producer of one partition, whose calls all end in bounded time.

In aiokafka 0.14 ``commit_transaction`` and ``stop`` wait without limit while a coordinator is away, and the sender
waits for its own tasks, which retry without limit.
"""

# ruff: noqa: SLF001 - aiokafka does not publish the state of its transaction and sender

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.structs import OffsetAndMetadata

from streamad.system.tasks import look_at
from streamad_connectors.kafka.client.stopping import connected, discard
from streamad_connectors.kafka.writing.batches import batch_bytes, batched
from streamad_connectors.kafka.writing.last_transaction import Ending, last_ending
from streamad_connectors.kafka.writing.messages import OutMessage

_ABORT_S = 2.0
_GRACE_S = 2.0
# The broker decides what is too large: aiokafka's own limit could be below that of the topic.
_REQUEST_BYTES = 256 * 1024 * 1024

_FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch, errors.InvalidProducerIdMapping, errors.InvalidTxnState)


class TopicMissingError(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """Raised when the cluster has answered more than once that it has no such topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"there is no topic {topic}")


class PartitionProducer:
    """Commits for one partition; only the newest producer of a ``transactional_id`` can (KIP-98).

    After a call that failed, timed out or was cancelled, only ``discard`` may be called. ``refused_by`` is then the
    topic that refused a record, if one did. Times are seconds. No batch of several records is longer than
    ``max_message_bytes``.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        transactional_id: str,
        *,
        timeout_s: float,
        transaction_timeout_s: float,
        max_message_bytes: int,
    ) -> None:
        self.refused_by: str | None = None
        self.former_ending = Ending.UNKNOWN
        self._transactional_id = transactional_id
        self._timeout_s = timeout_s
        self._producer = AIOKafkaProducer(
            **kwargs,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(transaction_timeout_s * 1000),
            acks="all",
            linger_ms=0,
            max_batch_size=batch_bytes(max_message_bytes),
            max_request_size=_REQUEST_BYTES,
        )

    async def start(self) -> None:
        """Fence every older producer of this id; on return (InitProducerId) their open transactions are over.

        ``former_ending`` is then how the last one ended, if that is known. Raises KafkaError, TimeoutError.
        """
        producer = self._producer
        async with asyncio.timeout(self._timeout_s):
            # The two steps of the producer's own start; the second one makes the coordinator forget the ending.
            await connected(producer.client.bootstrap())
            self.former_ending = await last_ending(producer.client, self._transactional_id)
            await connected(producer._sender.start())  # aiokafka 0.14 returns once the sender has its producer id

    async def end_left_open(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """End in ``partitions`` what the last transaction of this id left open, as it ended elsewhere.

        Kafka 4 ends a transaction without markers in the partitions that have no leader at that moment, for example
        because their only broker was fenced or is just starting (KAFKA-20734); the next commit would commit them.
        Raises KafkaError, TimeoutError.
        """
        producer = self._producer
        async with asyncio.timeout(self._timeout_s):
            await producer.begin_transaction()
            for partition in partitions:  # an empty transaction leaves a marker in each of its partitions
                producer._txn_manager.maybe_add_partition_to_txn(partition)
            await (producer.commit_transaction() if commit else producer.abort_transaction())

    async def partitions_of(self, topic: str) -> int:
        """Return how many partitions ``topic`` has.

        Raises TopicMissingError, TopicAuthorizationFailedError; KafkaConnectionError if no broker answers.
        """
        client = self._producer.client
        cluster = client.cluster
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        while (partitions := cluster.partitions_for_topic(topic)) is None:
            client.add_topic(topic)
            answered = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    answered = await client.force_metadata_update()
            waited_s = loop.time() - started_s
            if answered and topic in cluster.unauthorized_topics:
                raise errors.TopicAuthorizationFailedError(topic)
            if waited_s > _GRACE_S and cluster.partitions_for_topic(topic) is None:
                raise TopicMissingError(topic) if answered else errors.KafkaConnectionError("no broker answers")
            await asyncio.sleep(0.02)
        return len(partitions)

    async def transact(
        self, messages: Sequence[OutMessage], offset: OffsetAndMetadata, of: TopicPartition, group: str
    ) -> None:
        """Commit ``messages`` and the group's ``offset`` ``of`` a partition in one transaction.

        Raises any error of aiokafka (see ``cause_of``), and TimeoutError: then the outcome is unknown until the next
        producer's ``start`` decides it.
        """
        producer = self._producer
        async with asyncio.timeout(self._timeout_s):
            await producer.begin_transaction()
            sent = [await self._send(place, batch) for place, batch in batched(messages, producer)]
            # Every batch is awaited, because a transaction commits even if one of them was refused.
            offsets = asyncio.ensure_future(producer.send_offsets_to_transaction({of: offset}, group))
            try:
                await asyncio.gather(*sent, offsets)
            except BaseException:
                offsets.cancel()  # a producer whose batch was refused is closed: nobody would answer
                await asyncio.wait([offsets])
                raise
            await producer.commit_transaction()

    async def _send(self, place: TopicPartition, batch: BatchBuilder) -> asyncio.Future[Any]:
        def on_done(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is not None:
                self.refused_by = self.refused_by or place.topic

        try:
            sent: asyncio.Future[Any] = await self._producer.send_batch(batch, place.topic, partition=place.partition)
        except errors.KafkaError:
            self.refused_by = place.topic
            raise
        sent.add_done_callback(on_done)
        return sent

    async def abort(self) -> None:
        """Abort an open transaction if that is possible soon, so that readers need not wait for its time-out."""
        state = self._producer._txn_manager.state
        if state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            # If this fails, the next owner's fence or the transaction's own time-out ends it.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_ABORT_S):
                    await self._producer.abort_transaction()

    def cause_of(self, error: BaseException) -> BaseException:
        """Return the cause of ``error``: the transaction's first failure, or the error that ended the sender."""
        manager, sender = self._producer._txn_manager, self._producer._sender.sender_task
        if manager.state is TransactionState.ABORTABLE_ERROR:
            error = manager.wait_for_transaction_end().exception() or error
        elif sender is not None and sender.done() and not sender.cancelled():
            error = sender.exception() or error
        while isinstance(error, errors.KafkaError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        return error

    async def discard(self) -> None:
        """Drop connections and tasks at once, as a crash would; takes about a second at most and never raises."""
        self._retrieve_failures()
        await discard(self._producer)
        self._retrieve_failures()  # those of futures that came into being meanwhile

    def _retrieve_failures(self) -> None:
        """Retrieve what the sender fails its futures with when it ends, for nobody else does.

        A call that timed out has cancelled the shields around them, not the futures; asyncio would log their failures.
        """
        accumulator, manager = self._producer._message_accumulator, self._producer._txn_manager
        batches = [*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches]
        futures = [future for batch in batches for future in (batch.future, batch._drain_waiter)]
        futures += [future for _, _, future in manager._pending_txn_offsets]
        for future in (*futures, manager.wait_for_transaction_end()):
            if future is not None:
                future.add_done_callback(look_at)


def is_fenced(error: BaseException) -> bool:
    """Return whether ``error`` means a newer producer with our id, or a transaction that the broker aborted."""
    return isinstance(error, _FENCED)
