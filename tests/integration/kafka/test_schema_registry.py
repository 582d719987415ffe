"""A worker killed on a real broker, and a Schema Registry that changes or is away meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamad.messages import Role
from tests.support.kafka.broker import Broker, Message
from tests.support.kafka.plant import KafkaPlant
from tests.support.runtime.pipeline import START_US, line
from tests.support.schemas.registry import stub_registry
from tests.support.waiting import LIMIT_S


def message(partition: int, sequence: str, second: float, schema: int | None = None, *, end: bool = False) -> Message:
    stream = f"r{partition}"
    value = line(stream, sequence, [second, second + 0.5], end=end)
    framed = value if schema is None else b"\0" + schema.to_bytes(4, "big") + value
    return Message(framed, stream.encode(), partition, int(START_US / 1000 + second * 1000))


async def there(plant: KafkaPlant, role: Role, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Return the committed messages of ``role`` once there are ``enough``."""
    deadline = time.monotonic() + LIMIT_S
    while not enough(found := await plant.committed(role)):
        assert time.monotonic() < deadline, plant.workers[-1].said()[-3000:]
        await asyncio.sleep(0.2)
    return found


async def test_a_killed_worker_reads_again_by_the_schemas_of_before(kafka: Broker, tmp_path: Path) -> None:
    """Two workers, one after the other; each takes some seconds to start.

    Of the open sequence A, the second message had no schema when it was read. It has one after the kill, but the
    registry is away then: partition 0 waits, partition 1 goes on.
    """
    with stub_registry() as stub:
        stub.add(7)
        plant = KafkaPlant(
            tmp_path,
            kafka.bootstrap,
            partitions=2,
            with_events=True,
            decode={"registry": {"url": stub.url}},
            sequences={"allowed_lateness": 0},
        )
        await plant.create()
        try:
            await plant.feed([message(0, "A", 0, 7), message(0, "A", 1, 8), message(1, "B", 0, end=True)])
            first = plant.start("w1")
            await there(plant, "verdicts", lambda found: len(found) == 1)
            await there(plant, "dead_letters", lambda found: len(found) == 1)
            first.kill()
            stub.add(8)
            stub.fault = "500"
            await plant.feed([message(0, "A", 2, 8, end=True), message(1, "C", 60, end=True)])
            plant.start("w1")
            await there(plant, "verdicts", lambda found: len(found) == 2)
            await there(plant, "events", lambda found: bool(kinds(found)))
            stub.fault = None
            verdicts = await there(plant, "verdicts", lambda found: len(found) == 3)
            await there(plant, "events", lambda found: len(kinds(found)) == 2)
        finally:
            plant.close()
        assert sorted((each["sequence"], each["n_samples"]) for each in verdicts) == [("A", 4), ("B", 2), ("C", 2)]
        assert kinds(await plant.committed("events")) == ["schema_registry_silent", "schema_registry_back"]
        (letter,) = await plant.committed("dead_letters")
        assert (letter["kind"], letter["origin"]["offset"]) == ("unknown_schema", 1)


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["kind"] for event in events if event["kind"].startswith("schema_registry")]
