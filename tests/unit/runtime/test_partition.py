"""Which verdicts a commit takes from a partition."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streamad.errors import DetectorError
from streamad.runtime.partition import InFlight, Partition, Stage
from streamad.types import PartitionAssigned


def partition_of(*results: object) -> Partition:
    """A partition with a judged sequence for each result, an exception for one that could not be judged."""
    nothing: Any = None
    partition = Partition(PartitionAssigned("p"), nothing, nothing, nothing, expected=0, begin=0)
    for result in results:
        task: Any = asyncio.get_running_loop().create_future()
        if isinstance(result, Exception):
            task.set_exception(result)
        elif result is not None:
            task.set_result(result)
        partition.add(InFlight(nothing, task, 0, 0))
    return partition


def taken(partition: Partition) -> list[Any]:
    return [waiting.task.result() for waiting in partition._take_judged()]  # noqa: SLF001


async def test_what_was_judged_before_a_failure_is_taken_first_and_the_failure_raised_next() -> None:
    partition = partition_of("0", "1", DetectorError("cannot"), "3")
    assert taken(partition) == ["0", "1"]
    with pytest.raises(DetectorError, match="cannot"):
        taken(partition)
    assert len(partition.in_flight) == 2


async def test_a_verdict_waits_for_the_one_before_it() -> None:
    partition = partition_of("0", None, "2")
    assert taken(partition) == ["0"]
    assert taken(partition) == []


async def test_the_end_of_a_partition_counts_only_as_a_whole() -> None:
    partition = partition_of("0", DetectorError("cannot"))
    partition.stage = Stage.ENDED
    with pytest.raises(DetectorError, match="cannot"):
        taken(partition)
