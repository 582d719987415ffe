"""Workers on a registry in an object store: swaps within two polls, and a store that goes away and comes back."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import versions_of
from streamad.learn.registry.places.place import RegistryAwayError
from streamad.learn.registry.places.requests import BucketObjects
from streamad.learn.serving.models import models_at_work
from tests.support.learning.places import NAME, FailingObjects, HeldInStore
from tests.support.learning.plant import train, windows_of
from tests.support.learning.store import LearningPlant
from tests.support.objects import Bucket
from tests.unit.learn.registry.test_hot_swap import watched
from tests.unit.learn.trainer.test_people_decide import approve

NEVER = 10**6


async def test_a_promotion_is_in_service_within_two_polls(stored: HeldInStore) -> None:
    train(stored.registry("trainer"))
    async with watched(stored.registry("worker")) as plant:
        await plant.pass_seconds(1)
        assert train(stored.registry("trainer"), data=windows_of(30, seed=1)) == "0002"
        await plant.pass_seconds(2)
        assert (plant.version, plant.counters.swaps, plant.detector.loads) == ("0002", 1, ["0002"])


async def test_a_worker_whose_store_is_away_goes_on_and_takes_the_next_version_later(stored: HeldInStore) -> None:
    train(stored.registry("trainer"))
    store = FailingObjects(BucketObjects(stored.url), NEVER, after=False, times=NEVER)
    async with watched(stored.registry("worker", store)) as plant:
        await plant.pass_seconds(1)
        store.number = 0
        await plant.pass_seconds(5)
        assert plant.version == "0001"
        assert [version for version, _ in plant.refused] == [None]
        assert plant.refused[0][1].endswith("check the endpoint and the network; 0001 stays in service")
        train(stored.registry("trainer"), data=windows_of(30, seed=1))
        store.number = NEVER
        await plant.pass_seconds(2)
        assert (plant.version, len(plant.refused)) == ("0002", 1)


async def test_a_version_that_is_damaged_in_the_store_never_serves(stored: HeldInStore) -> None:
    train(stored.registry("trainer"))
    async with watched(stored.registry("worker")) as plant:
        train(stored.registry("trainer"), data=windows_of(30, seed=1))
        stored.damage("0002", "model.npz", lambda content: content[:100])
        await plant.pass_seconds(20)
        assert (plant.version, plant.detector.loads) == ("0001", [])
        assert "model.npz is damaged (100 bytes, the manifest says" in plant.refused[0][1]


async def test_a_locked_plant_judges_with_no_earlier_version_while_the_store_is_away(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"detector": "mean", "device": "cpu", "references": [], "registry": f"{bucket.url}/models"}
    plant = LearningPlant(tmp_path, learning=None, model={**model, "locked": True})
    plant.train()
    approve(plant.registry, "0001")
    batchers = await models_at_work(plant.plant)
    await batchers.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(RegistryAwayError):
        await models_at_work(plant.plant)


@pytest.mark.parametrize(("learning", "models"), [({}, None), (None, None), ({}, {"field": "recipe", "values": ["a"]})])
async def test_a_worker_starts_from_its_copy_while_the_store_is_away_and_says_so(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learning: Any, models: Any
) -> None:
    model = {"detector": "mean", "device": "cpu", "references": [], "registry": f"{bucket.url}/models"}
    plant = LearningPlant(tmp_path, learning=learning, model=model, models=models)
    name = NAME if models is None else f"{NAME}.a"
    plant.train(name=name)
    versions_of(plant.plant, name).load()
    said: list[tuple[str, str]] = []

    async def versions_at_work(plant: LearningPlant) -> list[str]:
        batchers = await models_at_work(
            plant.plant,
            may_learn=learning is not None,
            emit=lambda kind, text, **_: said.append((kind, text)),
        )
        found = [each.ref.version for each in batchers.models]
        await batchers.close()
        return found

    assert (await versions_at_work(plant), said) == (["0001"], [])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    assert await versions_at_work(plant) == ["0001"]
    ((kind, text),) = said
    assert kind == "registry_away"
    assert f"{name} 0001 judges, the version in service when this machine last read the registry" in text
    (tmp_path / "registry-copies").rename(tmp_path / "gone")
    with pytest.raises(RegistryAwayError) as caught:
        await versions_at_work(plant)
    assert "\n" not in str(caught.value)


async def test_a_cold_start_is_no_stale_model(bucket: Bucket, tmp_path: Path) -> None:
    model = {"detector": "mean", "device": "cpu", "references": [], "registry": f"{bucket.url}/models"}
    plant = LearningPlant(tmp_path, model=model)
    batchers = await models_at_work(plant.plant, may_learn=True)
    assert isinstance(batchers, MicroBatcher)
    assert batchers.model is None
    assert plant.registry.current(NAME) is None
    await batchers.close()
