"""Apache Kafka: source, sinks, transactions that hold both together, feed and subscription."""

from __future__ import annotations

__all__ = ["KafkaFeed", "KafkaSink", "KafkaSource", "KafkaSubscription"]

from streamad_connectors.kafka.feed import KafkaFeed
from streamad_connectors.kafka.sink import KafkaSink
from streamad_connectors.kafka.source import KafkaSource
from streamad_connectors.kafka.subscription import KafkaSubscription
