"""Joins messages into batches: the client would find a partition and a future for each, several times the work."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from aiokafka import AIOKafkaProducer, TopicPartition, errors
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.message_accumulator import BatchBuilder

from streamad_connectors.kafka.writing.messages import OutMessage

# Several small messages share a request and stay far below a topic's max.message.bytes (1 MB by default).
_BATCH_BYTES = 128 * 1024
_KNOWN_KEYS = 100_000


def batch_bytes(max_message_bytes: int) -> int:
    """Return the size of a producer's batches of several messages, if a topic takes ``max_message_bytes``."""
    return min(max_message_bytes, _BATCH_BYTES)


def batched(messages: Iterable[OutMessage], producer: AIOKafkaProducer) -> list[tuple[TopicPartition, BatchBuilder]]:
    """Return ``messages`` in closed batches of ``producer``, those of a partition in order.

    The producer must know the topics. Raises UnknownTopicOrPartitionError.
    """
    batches: list[tuple[TopicPartition, BatchBuilder]] = []
    last: dict[TopicPartition, BatchBuilder] = {}
    for message in messages:
        place = TopicPartition(message.topic, _partition_of(message, producer))
        batch = last.get(place)
        if batch is None or not _added(batch, message):
            batch = last[place] = producer.create_batch()
            _added(batch, message)  # an empty batch takes any message
            batches.append((place, batch))
    for _, batch in batches:
        batch.close()
    return batches


def _partition_of(message: OutMessage, producer: AIOKafkaProducer) -> int:
    """Return the partition that ``message`` names, or that the hash of its key gives, as the client's."""
    if message.partition is not None:
        return message.partition
    partitions = producer.client.cluster.partitions_for_topic(message.topic)
    if not partitions:
        raise errors.UnknownTopicOrPartitionError(message.topic)
    return _partition_of_key(message.key, len(partitions))


@lru_cache(maxsize=_KNOWN_KEYS)
def _partition_of_key(key: bytes | None, n_partitions: int) -> int:
    return int(DefaultPartitioner()(key, list(range(n_partitions)), []))


def _added(batch: BatchBuilder, message: OutMessage) -> bool:
    _, key, value, headers, _, time_ms = message
    return batch.append(timestamp=time_ms, key=key, value=value, headers=list(headers)) is not None
