"""Apache Kafka: source, sinks, transactions that hold both together, feed and subscription."""

from __future__ import annotations

__all__ = ["KafkaFeed", "KafkaSink", "KafkaSource", "KafkaSubscription"]

from streamad_connectors.kafka.reading.source import KafkaSource
from streamad_connectors.kafka.reading.subscription import KafkaSubscription
from streamad_connectors.kafka.writing.feed import KafkaFeed
from streamad_connectors.kafka.writing.sink import KafkaSink
