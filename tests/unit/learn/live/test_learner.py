"""One model that follows the plant, with time moved by hand: when it keeps, tells, and stops; what it outlives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.judge.verdicts import alert_id
from streamad.learn.live.keeper import Keeper
from streamad.learn.live.learner import Learner
from streamad.learn.live.learners import Learners
from streamad.learn.trainer.requests import TrainingFailed, TrainingOutcome, TrainingRequest
from streamad.messages import Decision, ModelRef, Verdict
from streamad.plant import Plant
from streamad.telemetry.metrics import LearningCounters
from streamad.testing import ManualClock
from streamad.types import Position, Window, from_us
from tests.support.learning.store import NAME, QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, START_US, L, steps, until

HOUR_S = 3600
SMALL: dict[str, Any] = {"first_training": 50, "min_training": 20}
DRIFT = {"enabled": True, "min_sequences": 30, "changed_over": 20}


class Followed:
    """A learner on a clock that the test moves, and what it has told."""

    def __init__(self, plant: LearningPlant, *, cold: bool = False) -> None:
        if not cold:
            plant.train()
        self.plant = plant
        self.clock = ManualClock(START_US)
        self.told: list[tuple[str, str, dict[str, Any]]] = []
        model = None if cold else plant.versions.load()
        self.batcher = MicroBatcher(model, self.clock, plant.settings.run, name=NAME)
        self.counters: dict[str, LearningCounters] = {}
        self.learners = Learners(Plant(plant.settings, plant.folder, self.clock), self.emit, self.counters)
        self.learners.add(NAME, self.batcher)
        self._next = 0

    @property
    def learner(self) -> Learner:
        return self.learners._learners[NAME]

    def emit(self, kind: str, message: str, **more: Any) -> None:
        self.told.append((kind, message, more))

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.told]

    def judge(self, n: int, *, decision: Decision = "normal", level: float = 0.0, version: str | None = None) -> None:
        """Hand over ``n`` judged sequences, of the champion or of ``version``."""
        for _ in range(n):
            self._next += 1
            self.learners.judged(judged_sequence(self._next, decision, level, version or self.counters[NAME].version))

    async def turn(self, seconds: float = 1.0) -> None:
        """Let time pass, and the learner do what is due by then."""
        await self.rest()
        self.clock.advance(seconds)
        await self.rest()

    async def rest(self) -> None:
        """Return once the learner has nothing more to do before its clock moves."""
        await until(self.learner._begun.is_set)
        await steps()
        await until(lambda: self.learner._turn is None or self.learner._turn.done())
        await steps()


def judged_sequence(number: int, decision: Decision, level: float, version: str | None) -> JudgedSequence:
    rng = np.random.default_rng(number)
    values = (level + rng.normal(0, 1, (len(CHANNELS), 1)) + rng.normal(0, 0.1, (len(CHANNELS), L))).astype(np.float32)
    end_us = START_US + number * 1_000_000
    p_value = {"normal": float(rng.uniform(0.06, 1)), "anomalous": 0.001}.get(decision)
    verdict = Verdict(
        verdict_id=alert_id("s", f"B-{number}", Position(number, 0)),
        stream="s",
        sequence=f"B-{number}",
        decision=decision,
        reason="marker",
        start_time=from_us(end_us - 500_000),
        end_time=from_us(end_us),
        n_samples=L,
        score=None if p_value is None else 1.0,
        p_value=p_value,
        model=None if version is None else ModelRef(NAME, version),
        created_at=from_us(end_us),
    )
    return JudgedSequence(verdict, window=Window(values, L), model_name=NAME)


@asynccontextmanager
async def followed(folder: Path, *, cold: bool = False, **learning: Any) -> AsyncIterator[Followed]:
    following = Followed(LearningPlant(folder, learning={**QUIET, **learning}), cold=cold)
    await until(following.learner._begun.is_set)
    try:
        yield following
    finally:
        await following.learners.close(wait=False)
        await following.batcher.close()


# --- keeping ---------------------------------------------------------------------------------------------------------


async def test_what_was_judged_is_durable_after_flush_interval_and_not_before(tmp_path: Path) -> None:
    async with followed(tmp_path, flush_interval="10s") as at:
        at.judge(20)
        await at.turn(9.9)
        assert at.counters[NAME].accepted > 0
        assert at.plant.stored("accepted") == set()
        await at.turn(0.2)
        await at.turn()
        assert len(at.plant.stored("accepted")) == at.counters[NAME].accepted
        assert len(at.plant.stored("reserve")) == at.counters[NAME].reserved > 0


async def test_five_hundred_are_written_without_any_time_passing(tmp_path: Path) -> None:
    async with followed(tmp_path, flush_interval="1h") as at:
        at.judge(500)
        await until(lambda: at.counters[NAME].accepted + at.counters[NAME].reserved == 500)
        assert at.clock.monotonic_us() == 0
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 500


async def test_the_end_writes_what_is_left(tmp_path: Path) -> None:
    async with followed(tmp_path, flush_interval="1h") as at:
        at.judge(30)
        await at.learners.close(wait=False)
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 30


async def test_handing_over_never_waits_and_what_a_stuck_store_cannot_take_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    work = Keeper.work

    def stuck(keeper: Keeper, *args: Any, **more: Any) -> Any:
        assert gate.wait(30)
        return work(keeper, *args, **more)

    async with followed(tmp_path, max_accepted=20, max_reserve=60, max_aside=20, **SMALL) as at:
        await at.rest()
        monkeypatch.setattr(Keeper, "work", stuck)
        at.judge(10)
        at.clock.advance(1.0)
        await until(lambda: not at.learner._inbox)
        at.judge(250)
        assert len(at.learner._inbox) == 100
        gate.set()
        await at.turn()
        await at.turn()
        assert at.counters[NAME].unkept == 150
        assert at.counters[NAME].accepted + at.counters[NAME].reserved == 110


async def test_an_unscorable_sequence_is_nothing_to_learn_from(tmp_path: Path) -> None:
    async with followed(tmp_path) as at:
        at.learners.judged(JudgedSequence(judged_sequence(1, "unscorable", 0.0, "0001").verdict, model_name=NAME))
        await at.turn(20)
        assert at.counters[NAME].accepted + at.counters[NAME].reserved + at.counters[NAME].aside == 0


# --- telling ---------------------------------------------------------------------------------------------------------


async def test_a_lasting_change_is_told_at_once_and_then_every_hour(tmp_path: Path) -> None:
    async with followed(tmp_path, drift=DRIFT) as at:
        at.judge(100)
        await at.turn()
        at.judge(60, decision="anomalous", level=9.0)
        await at.turn()
        assert at.kinds().count("plant_changed") == 1
        assert "drift" in at.kinds()
        level = next(more["level"] for kind, _, more in at.told if kind == "plant_changed")
        assert level == "error"
        await at.turn(HOUR_S - 60)
        assert at.kinds().count("plant_changed") == 1
        await at.turn(120)
        assert at.kinds().count("plant_changed") == 2
        assert at.counters[NAME].drifts == at.kinds().count("drift")


async def test_verdicts_of_the_version_before_are_neither_accepted_nor_alerts_of_the_champion(tmp_path: Path) -> None:
    async with followed(tmp_path, drift=DRIFT, reserve=0.000001) as at:
        at.judge(60)
        await at.turn()
        at.plant.train(1)
        at.learners.wake()
        await until(lambda: at.counters[NAME].version == "0002")
        at.judge(40, decision="anomalous", level=9.0, version="0001")
        at.judge(20, version="0001")
        at.judge(10)
        await at.turn(20)
        assert (at.counters[NAME].accepted, at.counters[NAME].aside) == (70, 60)
        assert "plant_changed" not in at.kinds()
        (swapped,) = [more for kind, _, more in at.told if kind == "model_swapped"]
        assert swapped["model"] == ModelRef(NAME, "0002")


def outcome(*, promoted: bool, version: str | None = "0002") -> TrainingOutcome:
    request = TrainingRequest(reason="drift", requested_us=START_US)
    return TrainingOutcome(
        model=NAME, version=version, promoted=promoted, reason="because", request=request, figures={"rate": 0.5}
    )


@pytest.mark.parametrize(
    ("result", "kind", "level", "counted"),
    [
        (outcome(promoted=True), "model_promoted", "info", (1, 1)),
        (outcome(promoted=False), "model_not_promoted", "warning", (1, 0)),
        (outcome(promoted=False, version=None), "model_not_promoted", "warning", (1, 0)),
    ],
)
async def test_the_outcome_of_a_training_is_told_with_its_figures(
    tmp_path: Path, result: TrainingOutcome, kind: str, level: str, counted: tuple[int, int]
) -> None:
    async with followed(tmp_path) as at:
        at.learner._trainings.ended(result)
        ((told, message, more),) = at.told
        assert (told, more["level"], more["figures"]) == (kind, level, {"rate": 0.5})
        assert more["model"] == (None if result.version is None else ModelRef(NAME, "0002"))
        assert "training after drift" in message
        assert "because" in message
        assert (at.counters[NAME].trainings, at.counters[NAME].promotions) == counted


@pytest.mark.parametrize(("kind", "told"), [("failed", ["training_failed"]), ("refused", []), ("interrupted", [])])
async def test_only_a_training_that_failed_is_an_event(tmp_path: Path, kind: Any, told: list[str]) -> None:
    async with followed(tmp_path) as at:
        request = TrainingRequest(reason="schedule", requested_us=START_US)
        at.learner._trainings.ended(TrainingFailed(model=NAME, error="too few", request=request, kind=kind))
        assert at.kinds() == told
        assert at.counters[NAME].trainings == len(told)


# --- before the first model ------------------------------------------------------------------------------------------


async def test_it_counts_from_the_first_verdict_on(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        said = [at.batcher.learning() for _ in range(3)]
        assert said == ["1 of 50", "2 of 50", "3 of 50"]
        at.judge(3, decision="learning")
        assert at.learner.progress == "learning 3 of 50"
        await at.turn()
        assert at.batcher.learning() == "4 of 50"


async def test_the_count_never_runs_backwards_while_the_store_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    work = Keeper.work

    def stuck(keeper: Keeper, *args: Any, **more: Any) -> Any:
        assert gate.wait(30)
        return work(keeper, *args, **more)

    async with followed(tmp_path, cold=True, **SMALL) as at:
        await at.rest()
        monkeypatch.setattr(Keeper, "work", stuck)
        for _ in range(10):
            at.batcher.learning()
        at.judge(10, decision="learning")
        at.clock.advance(1.0)
        await until(lambda: not at.learner._inbox)
        assert at.batcher.learning() == "11 of 50"
        assert at.learner.progress == "learning 11 of 50"
        gate.set()
        await at.turn()
        await at.turn()
        assert at.batcher.learning() == "11 of 50"  # the one without a verdict was of a commit that failed


async def test_what_is_judged_again_after_a_failed_commit_counts_once(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        for _ in range(6):  # three sequences, each judged twice
            at.batcher.learning()
        at.judge(3, decision="learning")
        await at.turn()
        await at.turn()
        assert at.batcher.learning() == "4 of 50"


# --- what it outlives ------------------------------------------------------------------------------------------------


async def broken(at: Followed, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    await at.rest()
    monkeypatch.setattr(Keeper, "work", fail)
    at.judge(5)
    at.clock.advance(1.0)
    await until(lambda: "learning_failed" in at.kinds())


@pytest.mark.parametrize(
    ("error", "words"),
    [(ZeroDivisionError("a bug"), "ZeroDivisionError('a bug')"), (StoreError("the disk is gone"), "the disk is gone")],
)
async def test_an_error_that_nobody_foresaw_is_told_and_scoring_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    async with followed(tmp_path) as at:
        await broken(at, monkeypatch, error)
        message = next(message for kind, message, _ in at.told if kind == "learning_failed")
        assert words in message
        assert "scoring goes on" in message
        window = Window(np.zeros((len(CHANNELS), L), np.float32), L)
        task = asyncio.create_task(at.batcher.submit(window))
        await steps()
        at.batcher.flush()
        result = await task
        assert result is not None
        await at.learners.close(wait=True)  # does not raise either


async def test_closing_twice_is_closing_once(tmp_path: Path) -> None:
    async with followed(tmp_path) as at:
        at.judge(5)
        await at.learners.close(wait=True)
        await at.learners.close(wait=False)
        assert len(at.plant.stored("accepted") | at.plant.stored("reserve")) == 5
