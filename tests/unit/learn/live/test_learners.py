"""Operators' words reach the stores of all models of a plant, also of those that this worker has never met."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import StoreError
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.learners import Learners
from streamad.learn.store.records import Mark
from streamad.plant import Plant
from streamad.testing import ManualClock
from tests.support.learning.store import QUIET, LearningPlant

WORD = Mark(id="a1", judgement="confirmed", at_us=1)


def plant_in(folder: Path, **models: Any) -> LearningPlant:
    return LearningPlant(folder, learning=QUIET, models={"field": "recipe", **models})


@asynccontextmanager
async def learners_of(plant: LearningPlant, *loaded: str) -> AsyncIterator[Learners]:
    """The learners of a worker that has met the models ``loaded``."""
    clock = ManualClock()
    learners = Learners(Plant(plant.settings, plant.folder, clock), lambda *_, **__: None, {})
    batchers = [MicroBatcher(None, clock, plant.settings.run, name=name) for name in loaded]
    for batcher in batchers:
        learners.add(batcher.name, batcher)
    try:
        yield learners
    finally:
        await learners.close(wait=False)
        for batcher in batchers:
            await batcher.close()


def marked(plant: LearningPlant) -> set[str]:
    """The models whose stores keep a word."""
    return {path.parent.parent.name for path in (plant.folder / "inliers").glob("*/marks/*.json")}


async def test_a_word_that_names_no_model_is_kept_with_every_model_of_the_plant(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, values=["configured"])
    plant.train(name="default.trained")
    plant.train(name="other.plant")
    plant.store("default.stored").mark(Mark(id="b2", judgement="veto", at_us=1))
    plant.store("another").mark(Mark(id="b2", judgement="veto", at_us=1))
    async with learners_of(plant, "default.loaded") as learners:
        await learners.mark(WORD)
    names = ("default.loaded", "default.trained", "default.stored", "default.configured")
    assert all(plant.store(name).marks()["a1"] == WORD for name in names)
    assert marked(plant) == {*names, "another"}
    assert "a1" not in plant.store("another").marks()


async def test_a_word_on_a_model_that_another_worker_judges_is_kept_with_it_alone(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    async with learners_of(plant, "default.A") as learners:
        await learners.mark(WORD, "default.B")
        await learners.mark(WORD, "default.A")
    assert marked(plant) == {"default.A", "default.B"}


async def test_before_any_model_a_word_waits(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    async with learners_of(plant) as learners:
        with pytest.raises(StoreError, match="no model yet"):
            await learners.mark(WORD)
    assert marked(plant) == set()


async def test_a_word_waits_while_one_of_the_stores_cannot_keep_it(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, values=["A", "B"])
    (tmp_path / "inliers").mkdir()
    (tmp_path / "inliers" / "default.B").write_text("no folder")
    async with learners_of(plant, "default.A") as learners:
        with pytest.raises(StoreError, match=r"default\.B"):
            await learners.mark(WORD)
        (tmp_path / "inliers" / "default.B").unlink()
        await learners.mark(WORD)
    assert marked(plant) == {"default.A", "default.B"}


async def test_forged_names_make_no_more_stores_than_the_plant_may_have_models(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, max_models=2)
    async with learners_of(plant, "default.A") as learners:
        for name in ("default.B", "default.C", "default.D", "no.such.model"):
            await learners.mark(WORD, name)
    assert marked(plant) == {"default.A", "default.B"}
    assert {path.name for path in (tmp_path / "inliers").iterdir()} == {"default.A", "default.B"}
