"""The committer against a real broker: one transaction for everything, fences, refusals, and an end to every wait."""

from __future__ import annotations

import pytest

from tests.support.kafka import Broker
from tests.support.kafka_commits import CommitPlant, make_plant, merged, steps_of


@pytest.fixture
async def plant(kafka: Broker) -> CommitPlant:
    return await make_plant(kafka.bootstrap)


async def test_a_commit_is_all_there_and_the_next_owner_goes_on_from_it(plant: CommitPlant) -> None:
    partition = plant.partition()
    steps = steps_of(partition, 7)
    committer = plant.committer()
    assert await committer.restore(partition) is None
    for step in steps[:4]:
        await committer.commit(*step)
    await committer.close()
    assert await plant.committed_offset() == steps[3].update.low_watermark

    committer = plant.committer()
    assert await committer.restore(partition) == merged(steps[:4])
    for step in steps[4:]:
        await committer.commit(*step)
    await committer.close()
    await committer.close()

    assert await plant.progress() == merged(steps)
    texts = [f"{step}.{number}" for stream in range(3) for step in range(stream, 7, 3) for number in range(2)]
    assert await plant.written() == {"events": texts, "late": texts}
