"""How many messages ``streamad bridge`` brings from a mosquitto into a file or a topic, and what they take.

The broker first gets all messages while the bridge is away, so that nothing else computes meanwhile; then the bridge
takes them. CPU time and memory are those of the bridge alone. Run: ``python benchmarks/speed/bridge.py [--messages
200000] [--rounds 3] [--kafka] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from streamad.bridge.bridging import Bridge, BridgeCounts
from streamad.plugins import ConnectorContext, connect_feed
from streamad.ports import Feed
from streamad.system.clock import SystemClock
from streamad_connectors.files.lines_feed import LinesFeed, LinesFeedOptions
from streamad_connectors.mqtt import MqttInlet
from streamad_connectors.mqtt.options import MqttInletOptions
from tests.support.kafka.broker import new_broker, new_topic
from tests.support.mosquitto import Mosquitto, mosquitto
from tests.support.runtime.pipeline import until

STREAMS = 20
_MEASURED_FROM = 0.1


def _inlet(broker: Mosquitto) -> MqttInlet:
    context = ConnectorContext((), SystemClock(), Path())
    return MqttInlet(f"{broker.address}/plant/{{stream}}/{{channel}}", MqttInletOptions(), context)


async def _begin_session(broker: Mosquitto) -> None:
    inlet = _inlet(broker)
    reading = asyncio.create_task(anext(aiter(inlet.messages()), None))
    await until(lambda: inlet.counts.connections == 1)
    inlet.stop()
    await reading
    await inlet.close()


async def _take(broker: Mosquitto, feed: Feed, n: int, *, as_lines: bool) -> dict[str, float]:
    began: dict[str, float] = {}

    def on_progress(counts: BridgeCounts) -> None:
        if not began and counts.safe >= _MEASURED_FROM * n:
            began.update(n=counts.safe, wall_s=time.perf_counter(), cpu_s=time.process_time(), mb=_memory_mb())
        if counts.safe >= n:
            bridge.stop()

    bridge = Bridge(_inlet(broker), feed, as_lines=as_lines, on_progress=on_progress)
    await bridge.run()
    taken = bridge.counts.safe - began["n"]
    return {
        "messages_per_s": taken / (time.perf_counter() - began["wall_s"]),
        "cpu_us": 1e6 * (time.process_time() - began["cpu_s"]) / taken,
        "mb_at_a_tenth": began["mb"],
        "mb_at_the_end": _memory_mb(),
    }


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def measure(options: argparse.Namespace, folder: Path, place: str | None) -> dict[str, float]:
    """Return the figures of one round."""
    with mosquitto(folder / "broker", "max_inflight_messages 1000") as broker:
        await _begin_session(broker)
        for stream in range(STREAMS):
            values = [f"{at / 7:.3f}" for at in range(options.messages // STREAMS)]
            await asyncio.to_thread(broker.publish, f"plant/r{stream}/temp_c", values)
        context = ConnectorContext((), SystemClock(), folder)
        feed: Feed = LinesFeed(str(folder / "samples.jsonl"), LinesFeedOptions(), context)
        if place is not None:
            feed = connect_feed(place, {"label_header": "mqtt_topic"}, context)
        return await _take(broker, feed, options.messages // STREAMS * STREAMS, as_lines=place is None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", action="store_true", help="into a topic of a Kafka on this machine")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds: list[dict[str, float]] = []
    for _ in range(options.rounds):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            place = None
            if options.kafka:
                kafka = stack.enter_context(new_broker())
                place = f"kafka://{kafka.bootstrap}/{asyncio.run(new_topic(kafka, 4))}"
            rounds.append(asyncio.run(measure(options, folder, place)))
    figures: dict[str, Any] = {name: round(median(each[name] for each in rounds), 1) for name in rounds[0]}
    print(json.dumps(figures) if options.json else "\n".join(f"{name:<20}{of}" for name, of in figures.items()))


if __name__ == "__main__":
    main()
