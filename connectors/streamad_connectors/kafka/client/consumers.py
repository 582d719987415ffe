"""Construction of the aiokafka consumers that read input topics."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer

from streamad_connectors.kafka.client.options import FETCH_WAIT_MS, Client, KafkaSourceOptions

_MAX_FETCH_BYTES = 50_000_000


def make_consumer(client: Client, options: KafkaSourceOptions, **membership: Any) -> AIOKafkaConsumer:
    """Return a consumer, not started, that never looks for an offset by itself."""
    return AIOKafkaConsumer(
        **client.consumer_kwargs(),
        fetch_max_wait_ms=FETCH_WAIT_MS,
        max_partition_fetch_bytes=options.fetch_bytes,
        fetch_max_bytes=max(_MAX_FETCH_BYTES, options.fetch_bytes),
        **membership,
    )
