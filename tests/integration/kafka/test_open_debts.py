"""The versions that open debts name, read from the progress topics beside the workers."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamad.errors import CheckpointError, SourceError
from streamad.judge.explainer import debt_of
from streamad.messages import ModelRef
from streamad.partition_progress import Debt, ProgressUpdate
from streamad.ports import OwingSource
from streamad.types import Window
from streamad_connectors.kafka.client.options import KafkaSourceOptions
from streamad_connectors.kafka.reading.source import KafkaSource
from streamad_connectors.kafka.writing.progress_topic import owed_models
from tests.support.kafka.broker import Broker, create_topics
from tests.support.kafka.commits import CommitPlant, make_plant
from tests.support.runtime.debts import alert_of


def debt(number: int, version: str) -> Debt:
    return debt_of(alert_of(number, version), np.ones(2, np.float32), Window(np.ones((2, 3), np.float32), 3))


def update_of(partition: str, offset: int, debts: dict[str, Debt | None]) -> ProgressUpdate:
    return ProgressUpdate(partition=partition, next_offset=offset, low_watermark=offset, debts=debts)


def names(*versions: str) -> set[ModelRef]:
    return {ModelRef("test", version) for version in versions}


async def test_the_debts_of_all_partitions_are_read_while_their_workers_go_on(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap, 3)
    assert await owed_models(plant.state()) == set()
    committer = plant.committer()
    owed = [debt(number, version) for number, version in enumerate(("0001", "0002", "0002"))]
    for number, each in enumerate(owed):
        partition = plant.partition(number)
        await committer.restore(partition)
        await committer.commit(update_of(partition, 1, {each.alert.alert_id: each}), [])
    assert await owed_models(plant.state()) == names("0001", "0002")
    await committer.commit(update_of(plant.partition(0), 2, {owed[0].alert.alert_id: None}), [])
    assert await owed_models(plant.state()) == names("0002")
    for number in (1, 2):  # the reader has fenced nobody
        await committer.commit(update_of(plant.partition(number), 2, {owed[number].alert.alert_id: None}), [])
    assert await owed_models(plant.state()) == set()
    await committer.close()


async def test_a_plant_that_never_ran_owes_nothing(kafka: Broker) -> None:
    plant = CommitPlant(kafka.bootstrap, 1)
    await create_topics(kafka.bootstrap, {plant.topic: 1})
    source = KafkaSource(f"{plant.bootstrap}/{plant.topic}", KafkaSourceOptions(), plant.context)
    assert isinstance(source, OwingSource)
    assert await source.owed_models() == set()
    await source.close()


async def test_a_debt_that_cannot_be_decoded_is_an_error(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    await plant.damage(b"x:0", msgspec.msgpack.encode({"alert": 1}))
    with pytest.raises(CheckpointError, match="cannot be decoded"):
        await owed_models(plant.state())


async def test_without_a_broker_it_is_an_error_of_one_line() -> None:
    plant = CommitPlant("127.0.0.1:1", 1)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1") as failed:
        await owed_models(plant.state(request_timeout="1s"))
    assert "\n" not in str(failed.value)
