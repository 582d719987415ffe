"""Plants for tests of faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.kafka.faults import KafkaPlants


@pytest.fixture
async def plants(tmp_path: Path) -> AsyncIterator[KafkaPlants]:
    """Makes plants; ends the processes and tasks that a failing test leaves behind."""
    plants = KafkaPlants(tmp_path)
    try:
        yield plants
    finally:
        plants.close()
        flows = [task for task in asyncio.all_tasks() if task.get_name() == "flow"]
        await asyncio.gather(*flows, return_exceptions=True)
