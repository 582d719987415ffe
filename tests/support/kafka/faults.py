"""What tests of faults on a real broker share: their plants, and the law that they end with."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.kafka.broker import read_committed
from tests.support.kafka.plant import KafkaPlant
from tests.support.kafka.workers import Worker
from tests.support.waiting import LIMIT_S


class KafkaPlants:
    """Makes plants on brokers; ``close`` ends the workers that a failing test leaves behind, each by its id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[KafkaPlant] = []

    async def make(self, bootstrap: str, **options: Any) -> KafkaPlant:
        """Make a plant with its topics; ``options`` are those of ``KafkaPlant``."""
        plant = KafkaPlant(self._folder / f"plant{len(self._made)}", bootstrap, **options)
        self._made.append(plant)
        await plant.create()
        return plant

    def close(self) -> None:
        for plant in self._made:
            plant.close()


async def finish(
    plant: KafkaPlant, *workers: Worker, timeout_s: float = LIMIT_S
) -> Mapping[Any, Sequence[dict[str, Any]]]:
    """Let ``workers`` judge all there is, stop them, compare with an undisturbed run, and return what that writes."""
    expected = await plant.expected()
    assert expected["verdicts"], "the law says nothing of an input without sequences"
    await plant.until_judged(expected, timeout_s)
    for worker in workers:
        worker.send(signal.SIGTERM)
    for worker in workers:
        assert await worker.wait(LIMIT_S) == 0, worker.said()[-3000:]
    difference = await plant.difference(expected)
    if not difference.is_none:
        aborted = await plant.aborted_among(difference.lost)
        raise AssertionError(f"{difference}; {aborted} of the lost ones were written and aborted")
    return expected


def position_of(worker: Worker) -> dict[str, int]:
    """Return up to where ``worker`` has committed each partition."""
    return {entry["partition"]: entry["next_offset"] for entry in worker.logged("committed")}


async def until_read(worker: Worker, ends: Mapping[str, int]) -> None:
    """Return once ``worker`` has committed every partition up to its end."""
    await worker.until(lambda: all(position_of(worker).get(name) == end for name, end in ends.items()))


async def until_verdicts(plant: KafkaPlant, n: int) -> None:
    """Return once there are ``n`` verdicts."""

    async def are_there() -> bool:
        return len(await read_committed(plant.bootstrap, plant.output("verdicts"))) >= n

    await until_so(plant, are_there)


async def until_so(plant: KafkaPlant, is_so: Callable[[], Awaitable[bool]], timeout_s: float = LIMIT_S) -> None:
    """Return once ``is_so``, which asks the broker; raises AssertionError with what the last worker said."""
    deadline_s = time.monotonic() + timeout_s
    while not await is_so():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s:\n{plant.workers[-1].said()[-3000:]}"
        await asyncio.sleep(0.2)
