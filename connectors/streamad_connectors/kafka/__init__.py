"""Apache Kafka: source, sinks, transactions that hold both together, feed and subscription."""

from __future__ import annotations

__all__: list[str] = []
