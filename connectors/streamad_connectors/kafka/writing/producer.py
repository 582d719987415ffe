"""A transactional producer of one partition, each of whose calls ends in time, and that can be thrown away at once.

Written against aiokafka 0.14: its ``commit_transaction`` and ``stop`` wait for ever while a coordinator is away, and
its sender waits for its own tasks, which try again for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaConnectionError,
    KafkaError,
    ProducerFenced,
    TopicAuthorizationFailedError,
)
from aiokafka.producer.transaction_manager import TransactionState
from aiokafka.structs import OffsetAndMetadata

from streamad_connectors.kafka.client.stopping import connected, discard, look_at

_ABORT_S = 2.0
_GRACE_S = 2.0
# Records are joined into batches of up to so much: one request carries several small messages, and a topic's
# max.message.bytes (1 MB by default), which bounds batches, is far away.
_BATCH_BYTES = 128 * 1024
# The broker judges what is too large; aiokafka's own limit would refuse what a topic was raised to.
_REQUEST_BYTES = 256 * 1024 * 1024

_FENCED = (ProducerFenced, InvalidProducerEpoch, InvalidProducerIdMapping, InvalidTxnState)


class Outgoing(NamedTuple):
    """One record to send; without a ``partition`` its key decides, a ``value`` of None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None


class TopicMissingError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """Raised where the cluster has answered, more than once, that it has no such topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"there is no topic {topic}")


class PartitionProducer:
    """Commits for one partition; the newest one with its ``transactional_id`` is the only one that can (KIP-98).

    Once a call has failed, been cancelled or timed out, only ``discard`` is left. ``refused_by`` is then the topic that
    did not take a record, where it was that. Times are seconds. No batch of several records is longer than
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
        self._timeout_s = timeout_s
        self._producer = AIOKafkaProducer(
            **kwargs,
            transactional_id=transactional_id,
            transaction_timeout_ms=int(transaction_timeout_s * 1000),
            acks="all",
            linger_ms=0,
            max_batch_size=min(max_message_bytes, _BATCH_BYTES),
            max_request_size=_REQUEST_BYTES,
        )

    async def start(self) -> None:
        """Fence every older producer of this id: their open transactions are over (InitProducerId) on return.

        Raises KafkaError, TimeoutError.
        """
        async with asyncio.timeout(self._timeout_s):
            await connected(self._producer.start())  # returns once the sender has its producer id: read in its source

    async def partitions_of(self, topic: str) -> int:
        """Return how many partitions ``topic`` has.

        Raises TopicMissingError where the cluster has none, TopicAuthorizationFailedError, KafkaConnectionError where
        nobody answered.
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
                raise TopicAuthorizationFailedError(topic)
            if waited_s > _GRACE_S and cluster.partitions_for_topic(topic) is None:
                raise TopicMissingError(topic) if answered else KafkaConnectionError("no broker answers")
            await asyncio.sleep(0.02)
        return len(partitions)

    async def transact(
        self, records: Sequence[Outgoing], offset: OffsetAndMetadata, of: TopicPartition, group: str
    ) -> None:
        """Commit ``records`` and the group's ``offset`` ``of`` a partition in one transaction.

        Raises anything that aiokafka raises (see ``cause_of``), and TimeoutError: then the outcome is not known, and
        the next producer's ``start`` settles it.
        """
        producer = self._producer
        async with asyncio.timeout(self._timeout_s):
            await producer.begin_transaction()
            sent = [await self._send(record) for record in records]
            # Every one is waited for: a transaction commits even where one of its records was refused.
            await asyncio.gather(*sent, producer.send_offsets_to_transaction({of: offset}, group))
            await producer.commit_transaction()

    async def _send(self, record: Outgoing) -> asyncio.Future[Any]:
        def on_done(future: asyncio.Future[Any]) -> None:
            if not future.cancelled() and future.exception() is not None:
                self.refused_by = self.refused_by or record.topic

        try:
            sent: asyncio.Future[Any] = await self._producer.send(
                record.topic, record.value, record.key, record.partition, headers=list(record.headers)
            )
        except KafkaError:
            self.refused_by = record.topic
            raise
        sent.add_done_callback(on_done)
        return sent

    async def abort(self) -> None:
        """Abort what was begun and not committed, where that can still be done soon, so that readers need not wait."""
        state = self._producer._txn_manager.state
        if state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR):
            # Whatever happens here, the next owner's fence or the transaction's own time-out ends it.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_ABORT_S):
                    await self._producer.abort_transaction()

    def cause_of(self, error: BaseException) -> BaseException:
        """Return why ``error`` was raised: what the transaction failed of first, or what the sender has died of."""
        manager, sender = self._producer._txn_manager, self._producer._sender.sender_task
        if manager.state is TransactionState.ABORTABLE_ERROR:
            error = manager.wait_for_transaction_end().exception() or error
        elif sender is not None and sender.done() and not sender.cancelled():
            error = sender.exception() or error
        while isinstance(error, KafkaError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        return error

    async def discard(self) -> None:
        """Let go of everything at once, as a crash would; takes about a second at most and never raises."""
        await discard(self._producer)
        # What the sender failed when it died, for nobody else will look at these.
        batches = self._producer._message_accumulator._batches.values()
        futures = [batch._drain_waiter for waiting in batches for batch in waiting]
        for future in (*futures, self._producer._txn_manager.wait_for_transaction_end()):
            if future is not None and future.done():
                look_at(future)


def is_fenced(error: BaseException) -> bool:
    """Return whether ``error`` says that a newer producer has our id, or that the broker gave our transaction up."""
    return isinstance(error, _FENCED)
