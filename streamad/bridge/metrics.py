"""What a bridge tells Prometheus about itself."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from streamad.bridge.bridging import BridgeCounts
from streamad.bridge.inlet import Inlet


class BridgeCollector(Collector):
    """Yields the metrics of a bridge from what it counts anyway."""

    def __init__(self, inlet: Inlet, counts: BridgeCounts) -> None:
        self._inlet, self._counts = inlet, counts
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        seen, counts = self._inlet.counts, self._counts
        for name, said, value in (
            ("received", "Messages received.", seen.received),
            ("safe", "Messages written and acknowledged.", counts.safe),
            ("again", "Messages that came again while in flight.", seen.again),
            ("too_large", "Messages left out: above 900 kB.", counts.too_large),
        ):
            yield CounterMetricFamily(f"streamad_bridge_{name}_messages", said, value=value)
        said = "Connections to the broker."
        yield CounterMetricFamily("streamad_bridge_connections", said, value=seen.connections)
        said = "Reconnections at which the broker had no session."
        yield CounterMetricFamily("streamad_bridge_sessions_lost", said, value=seen.sessions_lost)
        said = "Messages received and not acknowledged."
        yield GaugeMetricFamily("streamad_bridge_in_flight_messages", said, value=seen.in_flight)
        said = "Whether there is a connection to the broker."
        yield GaugeMetricFamily("streamad_bridge_connected", said, value=self._inlet.is_connected)
        if seen.broker_dropped is not None:
            said = "What the broker says it dropped since its start, of all its clients."
            yield GaugeMetricFamily("streamad_bridge_broker_dropped_messages", said, value=seen.broker_dropped)
        yield from self._process.collect()
