"""Learners of all models of a plant: marks reach every store they belong to, and a learner that fails begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.keeper import Keeper
from streamad.learn.live.learners import Learners
from streamad.learn.store import marks
from streamad.learn.store.records import Mark
from streamad.plant import Plant
from streamad.testing import ManualClock
from streamad.types import Window
from tests.support.learning.followed import Followed, followed
from tests.support.learning.store import QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, L, steps, until

MARK = Mark(id="a1", judgement="confirmed", at_us=1, received_us=1)


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
    """The models whose stores keep a mark."""
    return {path.parent.parent.name for path in (plant.folder / "inliers").glob("*/marks/*.json")}


async def test_a_mark_that_names_no_model_is_kept_with_every_model_of_the_plant(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, values=["configured"])
    plant.train(name="default.trained")
    plant.train(name="other.plant")
    plant.store("default.stored").mark(Mark(id="b2", judgement="veto", at_us=1))
    plant.store("another").mark(Mark(id="b2", judgement="veto", at_us=1))
    async with learners_of(plant, "default.loaded") as learners:
        await learners.mark(MARK)
    names = ("default.loaded", "default.trained", "default.stored", "default.configured")
    assert all(plant.store(name).marks()["a1"] == MARK for name in names)
    assert marked(plant) == {*names, "another"}
    assert "a1" not in plant.store("another").marks()


async def test_a_mark_on_a_model_that_another_worker_judges_is_kept_with_it_alone(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    async with learners_of(plant, "default.A") as learners:
        await learners.mark(MARK, "default.B")
        await learners.mark(MARK, "default.A")
    assert marked(plant) == {"default.A", "default.B"}


async def test_before_any_model_a_mark_waits(tmp_path: Path) -> None:
    plant = plant_in(tmp_path)
    async with learners_of(plant) as learners:
        with pytest.raises(StoreError, match="no model yet"):
            await learners.mark(MARK)
    assert marked(plant) == set()


async def test_a_mark_waits_while_one_of_the_stores_cannot_keep_it(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, values=["A", "B"])
    (tmp_path / "inliers").mkdir()
    (tmp_path / "inliers" / "default.B").write_text("no folder")
    async with learners_of(plant, "default.A") as learners:
        with pytest.raises(StoreError, match=r"default\.B"):
            await learners.mark(MARK)
        (tmp_path / "inliers" / "default.B").unlink()
        await learners.mark(MARK)
    assert marked(plant) == {"default.A", "default.B"}


async def test_forged_names_make_no_more_stores_than_the_plant_may_have_models(tmp_path: Path) -> None:
    plant = plant_in(tmp_path, max_models=2)
    async with learners_of(plant, "default.A") as learners:
        for name in ("default.B", "default.C", "default.D", "no.such.model"):
            await learners.mark(MARK, name)
    assert marked(plant) == {"default.A", "default.B"}
    assert {path.name for path in (tmp_path / "inliers").iterdir()} == {"default.A", "default.B"}


async def test_a_flood_of_words_is_bounded_also_for_a_model_that_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MAX_FILES", 5)
    plant = plant_in(tmp_path)
    async with learners_of(plant, "default.A") as learners:
        for name in ("default.A", "default.B"):
            for n in range(40):
                await learners.mark(Mark(id="a1", judgement="veto", at_us=n + 1, received_us=1), name)
    for name in ("default.A", "default.B"):
        assert len(list((tmp_path / "inliers" / name / "marks").iterdir())) <= 6
        assert plant.store(name).marks()["a1"].at_us == 40


# --- a learner that fails --------------------------------------------------------------------------------------------


def failing(error: Exception | None = None) -> Callable[..., None]:
    def fail(*_: Any, **__: Any) -> None:
        raise error or ZeroDivisionError("a bug")

    return fail


async def failure(at: Followed, times: int = 1) -> str:
    """The message of the failure that comes when more is judged."""
    await at.turn()
    at.judge(5)
    await at.turn()
    await until(lambda: at.kinds().count("learning_failed") == times)
    return [message for kind, message, _ in at.told if kind == "learning_failed"][-1]


@pytest.mark.parametrize(
    ("error", "words"),
    [(ZeroDivisionError("a bug"), "ZeroDivisionError('a bug')"), (StoreError("the disk is gone"), "the disk is gone")],
)
async def test_an_unforeseen_error_is_an_event_and_scoring_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    async with followed(tmp_path) as at:
        monkeypatch.setattr(Keeper, "work", failing(error))
        message = await failure(at)
        assert words in message
        assert "scoring goes on" in message
        task = asyncio.create_task(at.batcher.submit(Window(np.zeros((len(CHANNELS), L), np.float32), L)))
        await steps()
        at.batcher.flush()
        assert await task is not None
        await at.learners.close(wait=True)  # does not raise either


async def test_it_starts_again_after_ten_seconds_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with followed(tmp_path, flush_interval="1s") as at:
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "work", failing())
            assert "for 10 s, then tries again: ZeroDivisionError('a bug'); scoring goes on" in await failure(at, 1)
        at.judge(20)
        await at.turn(9.0)
        assert at.plant.stored("accepted") == set()
        await at.turn(1.5)
        await at.turn()
        await until(lambda: at.counters["default"].accepted + at.counters["default"].reserved == 20)
        await at.turn(2.0)
        await at.turn(2.0)
        assert len(at.stored()) == 20
        assert at.kinds().count("learning_failed") == 1


async def test_each_failure_in_a_row_waits_twice_as_long_and_a_late_one_ten_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with followed(tmp_path) as at:
        with monkeypatch.context() as patch:
            patch.setattr(Keeper, "work", failing())
            assert "for 10 s" in await failure(at, 1)
            at.clock.advance(10)
            assert "for 20 s" in await failure(at, 2)
        at.clock.advance(20)
        await at.turn(601)
        monkeypatch.setattr(Keeper, "work", failing())
        assert "for 10 s" in await failure(at, 3)


async def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    async with followed(tmp_path) as at:
        at.judge(5)
        await at.learners.close(wait=True)
        await at.learners.close(wait=False)
        assert len(at.stored()) == 5
