"""Several models: each value's own, loaded once when it is first seen, all in one thread; and what has no place."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from streamad.errors import ArtifactError, DetectorError, StreamadError
from streamad.ingest.windowing import Unscorable
from streamad.judge.bank import RETRY_US, Batchers, ModelBank
from streamad.judge.explainer import Ledger
from streamad.judge.judging import Judge
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef
from streamad.testing import ManualClock
from streamad.types import FinishedSequence, FloatArray, IntArray, Position, Window
from tests.support.runtime.pipeline import (
    CHANNELS,
    START_US,
    L,
    SquareScorer,
    model_of,
    settings_of,
    steps,
    until,
)
from tests.support.waiting import LIMIT_S


class ThreadScorer(SquareScorer):
    """Notes the threads it works in, and may be held there."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        self.threads.add(threading.get_ident())
        assert self.gate.wait(LIMIT_S)
        return super().score(windows, lengths)


class Models:
    """A registry of models in memory: loading may be held, may fail, may find nothing."""

    def __init__(self) -> None:
        self.scorers: dict[str, ThreadScorer] = {}
        self.loads: Counter[str] = Counter()
        self.threads: set[str] = set()
        self.missing: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()

    def load(self, name: str) -> ModelInService | None:
        self.loads[name] += 1
        self.threads.add(threading.current_thread().name)
        assert self.gate.wait(LIMIT_S)
        if name in self.errors:
            raise self.errors[name]
        if name in self.missing:
            return None
        scorer = self.scorers.setdefault(name, ThreadScorer())
        known = model_of(scorer)
        return ModelInService(ModelRef(name, "0001"), scorer, known.calibration, known.reference)


@asynccontextmanager
async def bank_of(
    models: Models,
    on_new: Callable[[str, MicroBatcher], None] | None = None,
    *,
    clock: ManualClock | None = None,
    existing: tuple[str, ...] = (),
    **routing: Any,
) -> AsyncIterator[ModelBank]:
    settings = settings_of(models={"field": "recipe", **routing}, model={"name": "press"})
    bank = ModelBank(settings, clock or ManualClock(START_US), models.load, on_new, existing=existing)
    try:
        yield bank
    finally:
        models.gate.set()
        for scorer in models.scorers.values():
            scorer.gate.set()
        await bank.close()


async def got(waiting: Awaitable[MicroBatcher | Unscorable]) -> MicroBatcher:
    batcher = await waiting
    assert isinstance(batcher, MicroBatcher)
    return batcher


async def refused(waiting: Awaitable[MicroBatcher | Unscorable]) -> str:
    why = await waiting
    assert isinstance(why, Unscorable)
    return why.detail


def window(value: float = 1.0) -> Window:
    return Window(np.full((len(CHANNELS), L), value, dtype=np.float32), L)


async def test_each_value_has_a_model_of_its_own_and_all_score_in_one_thread() -> None:
    models = Models()
    async with bank_of(models) as bank:
        everyone: Batchers = bank
        batchers = [await got(everyone.batcher_for(routes)) for routes in (("A",), ("B",), ())]
        assert [batcher.name for batcher in batchers] == ["press.A", "press.B", "press"]
        scored = await asyncio.gather(*(batcher.submit(window()) for batcher in batchers))
        assert [each and each.model.ref.name for each in scored] == ["press.A", "press.B", "press"]
        assert len(set.union(*(scorer.threads for scorer in models.scorers.values()))) == 1
        assert await got(bank.batcher_for(("A",))) is batchers[0]
        assert models.loads == {"press.A": 1, "press.B": 1, "press": 1}
        assert [model.ref.name for model in bank.models] == ["press.A", "press.B", "press"]
        assert bank.label == "press.A 0001, press.B 0001, press 0001"


async def test_the_event_loop_runs_on_while_a_model_is_loaded_once_for_all_who_wait() -> None:
    models, told = Models(), []
    models.gate.clear()
    async with bank_of(models, lambda name, batcher: told.append((name, batcher))) as bank:
        waiting = [asyncio.create_task(got(bank.batcher_for(("A",)))) for _ in range(5)]
        await until(lambda: bool(models.loads))
        assert not any(task.done() for task in waiting)
        waiting.pop().cancel()  # one that gives up takes nothing from the others
        await steps()
        models.gate.set()
        batchers = await asyncio.gather(*waiting)
        assert {id(batcher) for batcher in batchers} == {id(batchers[0])}
        assert models.loads == {"press.A": 1}
        assert told == [("press.A", batchers[0])]
        assert models.threads.isdisjoint({threading.current_thread().name})


async def test_a_value_without_a_model_learns_and_its_batcher_is_known_before_its_first_window() -> None:
    models = Models()
    models.missing.add("press.B")

    def on_new(name: str, batcher: MicroBatcher) -> None:
        batcher.learning = lambda: f"{name}: 0 of 200"

    async with bank_of(models, on_new) as bank:
        settings = settings_of(models={"field": "recipe"}, model={"name": "press"})
        judge = Judge(settings, bank, ManualClock(START_US), None)
        known, new, mixed, none = [await judge.judge(sequence_of(*routes), Ledger()) for routes in ("A", "B", "AB", "")]
        assert (known.verdict.decision, known.model_name) == ("normal", "press.A")
        assert known.verdict.model == ModelRef("press.A", "0001")
        assert (new.verdict.decision, new.verdict.detail) == ("learning", "press.B: 0 of 200")
        assert new.model_name == "press.B"
        assert (mixed.verdict.decision, mixed.verdict.detail) == ("unscorable", "two values of recipe: 'A' and 'B'")
        assert none.model_name == "press"
        assert "press.B (learning)" in bank.label


def sequence_of(*routes: str, value: float = 1.0) -> FinishedSequence:
    times_us = START_US + np.arange(5, dtype=np.int64) * 1_000_000
    values = np.full((5, len(CHANNELS)), value, dtype=np.float32)
    return FinishedSequence("a", "1", "marker", times_us, values, Position(7, 0), routes=routes)


# --- how many ---------------------------------------------------------------------------------------------------------


async def test_values_beyond_max_models_have_none_and_those_that_came_first_keep_theirs() -> None:
    models = Models()
    async with bank_of(models, max_models=2) as bank:
        for value in "AB":
            await got(bank.batcher_for((value,)))
        assert await refused(bank.batcher_for(("C",))) == "model press.C would be one too many, see models.max_models"
        assert (await got(bank.batcher_for(("B",)))).name == "press.B"
        assert (await got(bank.batcher_for(()))).name == "press"  # that for all others is none of them
        assert models.loads["press.C"] == 0


async def test_values_seen_at_the_same_time_are_counted_as_well() -> None:
    models = Models()
    async with bank_of(models, max_models=2) as bank:
        found = await asyncio.gather(*(bank.batcher_for((value,)) for value in "ABCD"))
        assert [isinstance(each, MicroBatcher) for each in found] == [True, True, False, False]


async def test_values_of_the_config_and_models_that_exist_keep_their_places() -> None:
    models = Models()
    async with bank_of(models, max_models=3, values=("known",), existing=("press.trained",)) as bank:
        await got(bank.batcher_for(("junk",)))
        await refused(bank.batcher_for(("more",)))
        for value in ("known", "trained"):
            assert (await got(bank.batcher_for((value,)))).name == f"press.{value}"


async def test_open_loads_what_the_config_names_and_raises_what_is_wrong_with_it() -> None:
    models = Models()
    async with bank_of(models, values=("A", "B")) as bank:
        await bank.open()
        assert [model.ref.name for model in bank.models] == ["press.A", "press.B"]
    models.errors["press.B"] = ArtifactError("calibration.npy is damaged")
    async with bank_of(models, values=("A", "B")) as bank:
        with pytest.raises(ArtifactError, match="damaged"):
            await bank.open()


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ArtifactError("press.A 0003: model.ts is damaged"), "press.A 0003: model.ts is damaged"),
        (MemoryError("no"), "model press.A cannot be loaded: MemoryError('no')"),
    ],
)
async def test_a_model_that_cannot_be_loaded_leaves_the_others_alone_and_is_tried_again(
    error: Exception, text: str
) -> None:
    models, clock = Models(), ManualClock(START_US)
    models.errors["press.A"] = error
    async with bank_of(models, clock=clock) as bank:
        assert await refused(bank.batcher_for(("A",))) == text
        assert (await got(bank.batcher_for(("B",)))).name == "press.B"
        del models.errors["press.A"]
        clock.advance((RETRY_US - 1) / 1e6)
        assert await refused(bank.batcher_for(("A",))) == text
        assert models.loads["press.A"] == 1
        clock.advance(1e-6)
        assert (await got(bank.batcher_for(("A",)))).model is not None
        assert models.loads["press.A"] == 2


async def test_nothing_grows_with_the_values_that_have_no_model() -> None:
    class Nothing(Models):
        def load(self, name: str) -> ModelInService | None:
            loads.append(name)
            raise ArtifactError(f"no model {name}")

    loads: list[str] = []

    async with bank_of(Nothing()) as bank:
        for number in range(1200):
            assert await refused(bank.batcher_for((str(number),))) == f"no model press.{number}"
        n_loads = len(loads)
        assert await refused(bank.batcher_for(("1199",))) == "no model press.1199"
        assert len(loads) == n_loads, "the newest thousand failures are remembered"
        await refused(bank.batcher_for(("199",)))
        assert len(loads) == n_loads + 1, "older ones are forgotten"


async def test_flush_reaches_every_model_and_idle_means_all_of_them() -> None:
    models = Models()
    settings = settings_of(models={"field": "recipe"}, run={"batch_wait": "1h"})
    bank = ModelBank(settings, ManualClock(START_US), models.load)
    batchers = [await got(bank.batcher_for((value,))) for value in "AB"]
    waiting = [asyncio.create_task(batcher.submit(window())) for batcher in batchers]
    await steps()
    assert not any(task.done() for task in waiting)
    assert bank.is_idle
    held = models.scorers["default.B"]
    held.gate.clear()
    bank.flush()
    await until(lambda: bool(held.threads))
    assert not bank.is_idle
    held.gate.set()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*waiting)
    await bank.close()


async def test_close_scores_what_was_submitted_to_any_model_and_refuses_more() -> None:
    models = Models()
    settings = settings_of(models={"field": "recipe"}, run={"batch_wait": "1h"})
    bank = ModelBank(settings, ManualClock(START_US), models.load)
    waiting = [asyncio.create_task((await got(bank.batcher_for((value,)))).submit(window())) for value in "ABC"]
    await steps()
    await bank.close()
    assert all(task.result() is not None for task in waiting)
    assert "closed" in await refused(bank.batcher_for(("D",)))
    with pytest.raises(DetectorError, match="closed"):
        await (await got(bank.batcher_for(("A",)))).submit(window())
    await bank.close()


async def test_close_waits_for_a_model_that_is_being_loaded() -> None:
    models = Models()
    models.gate.clear()
    async with bank_of(models) as bank:
        waiting = asyncio.create_task(got(bank.batcher_for(("A",))))
        await until(lambda: bool(models.loads))
        closing = asyncio.create_task(bank.close())
        await steps()
        assert not closing.done()
        models.gate.set()
        await closing
        assert (await waiting).name == "press.A"


async def test_models_that_hang_are_abandoned_and_nothing_waits_for_them() -> None:
    models = Models()
    async with bank_of(models) as bank:
        hanging = await got(bank.batcher_for(("A",)))
        models.scorers["press.A"].gate.clear()
        scoring = asyncio.create_task(hanging.submit(window()))
        await until(lambda: bool(models.scorers["press.A"].threads))
        models.gate.clear()
        loading = asyncio.create_task(got(bank.batcher_for(("B",))))
        await until(lambda: bool(models.loads["press.B"]))
        bank.abandon()
        async with asyncio.timeout(LIMIT_S):
            await bank.close()
        assert not scoring.done()
        scoring.cancel()
        found = await asyncio.gather(scoring, loading, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in found)


async def test_a_model_that_its_listener_cannot_take_is_not_in_service() -> None:
    def on_new(name: str, batcher: MicroBatcher) -> None:
        raise StreamadError(f"no room for {name}: free some disk")

    models = Models()
    async with bank_of(models, on_new) as bank:
        for _ in range(2):
            assert await refused(bank.batcher_for(("A",))) == "no room for press.A: free some disk"
        assert models.loads["press.A"] == 1
        assert bank.models == ()
