"""When the learner starts a training, and what follows from the result; no process is started here."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from streamad.decisions.chain import entry_in
from streamad.drift.lasting_change import Changed
from streamad.learn.parts import store_for
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import StoredSequence, TrainingRequest
from streamad.learn.trainer.results import SecondOutcome, TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.trainings import Need, Trainings
from streamad.messages import Share
from streamad.plant import Plant
from streamad.telemetry.metrics import LearningCounters
from streamad.testing import ManualClock
from streamad.types import Window
from tests.support.learning.plant import C, L, settings_of

START_US = 1_772_352_930_250_000
HOUR_S = 3600
QUIET = {"schedule": None, "on_drift": False, "min_interval": "1h"}
CHANGED = Changed(START_US - 500_000_000, 0.9, ("scores",))
NEED = Need(n_stored=300, has_model=True)
REQUEST = TrainingRequest(reason="inliers", requested_us=START_US)


def done(request: TrainingRequest) -> TrainingResult:
    return TrainingOutcome(model="default", version="0002", promoted=True, reason="better", request=request)


def failed(request: TrainingRequest, kind: Any = "failed") -> TrainingResult:
    return TrainingFailed(model="default", error="no", request=request, kind=kind)


class Asking:
    """Trainings of a model with the requests that they make; the answers are the test's."""

    def __init__(
        self, folder: Path, thread: ThreadPoolExecutor, turns: asyncio.Semaphore | None = None, **learning: Any
    ) -> None:
        self.clock = ManualClock(START_US)
        self.registry = Registry(folder / "registry")
        self.emitted: list[tuple[str, str]] = []
        sinks = {"decisions": "decisions.jsonl"}
        settings = settings_of(learning={"store": "inliers", **QUIET, **learning}, sinks=sinks)
        plant = Plant(settings, folder, self.clock)
        self.store = store_for(plant)
        self.store.open()
        self.trainings = Trainings(
            "default",
            plant,
            self.registry,
            store=self.store,
            thread=thread,
            emit=lambda kind, message, **_: self.emitted.append((kind, message)),
            counters=LearningCounters(),
            turns=turns or asyncio.Semaphore(1),
        )

    def keep(self, n: int, share: Share = "aside") -> None:
        """Store ``n`` more sequences, which ended after the change."""
        first = sum(self.store.counts().values())
        for number in range(first, first + n):
            window = Window(np.zeros((C, L), np.float32), L)
            name, now_us = f"B-{number}", self.clock.now_us()
            end_us = CHANGED.since_us + 1_000 * number
            assert self.store.offer(StoredSequence(name, "s", name, end_us, now_us, window, "normal"), share)
        self.store.flush()

    def accept(self, n: int) -> None:
        """Store and count ``n`` more accepted sequences, as the learner does."""
        self.keep(n, "accepted")
        self.trainings.accepted(n)

    async def turn(self, need: Need = NEED, hours: float = 0.0) -> TrainingRequest | None:
        """Let time pass and return what is due then."""
        self.clock.advance(hours * HOUR_S)
        return await self.trainings.due(need)

    async def asked(self, need: Need = NEED, hours: float = 0.0) -> TrainingRequest:
        request = await self.turn(need, hours)
        assert request is not None
        return request

    async def start(self, hours: float = 0.0) -> None:
        self.clock.advance(hours * HOUR_S)
        await self.trainings.start_due(NEED)


AskingFor: TypeAlias = Callable[..., Asking]


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[AskingFor]:
    """Trainings with the keys of ``learning`` that are given."""
    with ThreadPoolExecutor(1) as thread:
        yield partial(Asking, tmp_path, thread)


# --- relearning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "n_kept", "relearn", "asks"),
    [(0.51, 100, "auto", True), (0.5, 100, "auto", False), (0.51, 99, "auto", False), (0.51, 100, "off", False)],
)
async def test_a_change_is_learned_if_it_lasts_and_enough_was_seen_of_it(
    asking: AskingFor, share: float, n_kept: int, relearn: str, asks: bool
) -> None:
    at = asking(first_training=100, min_training=20, relearn=relearn, drift={"changed_share": 0.5})
    at.keep(n_kept)
    request = await at.turn(Need(300, has_model=True, changed=CHANGED, alert_share=share))
    assert (request is not None) == asks
    if request is not None:
        assert (request.reason, request.since_us) == ("relearn", CHANGED.since_us)


async def test_a_change_is_learned_at_most_once_an_hour_and_is_a_decision(asking: AskingFor, tmp_path: Path) -> None:
    need = Need(300, has_model=True, changed=CHANGED, alert_share=0.9)
    at = asking(first_training=100, min_training=20, relearn="auto")
    at.keep(100)
    assert await at.turn(need) is not None
    assert await at.turn(need, hours=0.99) is None
    assert await at.turn(need, hours=0.01) is not None
    entries = [entry_in(line) for line in (tmp_path / "decisions-others.jsonl").read_bytes().splitlines()]
    assert [(each.kind, each.subject, each.who, each.number) for each in entries] == [
        ("relearn", "default", "streamad", n) for n in (1, 2)
    ]


# --- one training at a time ------------------------------------------------------------------------------------------


async def test_what_an_operator_posted_comes_before_what_is_due(asking: AskingFor) -> None:
    at = asking(after_inliers=100)
    at.accept(100)
    posted = TrainingRequest(id="a", reason="command", requested_us=START_US, detail="by Ada")
    at.store.ask(posted)
    assert await at.turn() == posted
    at.store.answered("a")
    at.trainings.ended(done(posted))
    assert await at.turn() is None, "that training made up for it"


async def test_a_drift_that_came_within_the_interval_is_trained_on_after_it(asking: AskingFor) -> None:
    at = asking(on_drift=True)
    assert await at.turn() is None
    at.trainings.ended(done(REQUEST))
    at.trainings.drifted("mean of flow moved")
    assert await at.turn(hours=0.99) is None
    request = await at.asked(hours=0.01)
    assert (request.reason, request.detail) == ("drift", "mean of flow moved")


async def test_while_a_training_runs_none_is_started(asking: AskingFor) -> None:
    """It waits for its turn until it is closed, so no process is started."""
    turns = asyncio.Semaphore(0)
    at = asking(turns, after_inliers=100)
    at.accept(100)
    await at.start()
    assert (at.trainings.is_running, at.trainings.progress) == (True, "training, starting")
    assert not at.trainings.start(REQUEST)
    turns.release()
    await at.trainings.close()
    assert (at.trainings.is_running, at.trainings.progress) == (False, "")
    assert at.emitted == []


# --- after so many new inliers ---------------------------------------------------------------------------------------


async def test_enough_new_inliers_request_one_training_and_a_training_restarts_the_count(asking: AskingFor) -> None:
    at = asking(after_inliers=100)
    at.accept(99)
    assert await at.turn() is None
    at.accept(1)
    request = await at.asked()
    assert (request.reason, request.detail) == ("inliers", "100 new inliers")
    at.trainings.ended(done(request))
    assert await at.turn(hours=2) is None
    at.accept(100)
    assert await at.turn() is not None


async def test_inliers_of_before_a_restart_count(asking: AskingFor) -> None:
    at = asking(after_inliers=100)
    at.keep(100, "accepted")
    assert await at.turn() is not None


async def test_what_failed_keeps_its_count(asking: AskingFor) -> None:
    at = asking(after_inliers=100)
    at.accept(100)
    at.trainings.ended(failed(await at.asked()))
    assert await at.turn(hours=1.9) is None
    assert await at.turn(hours=0.1) is not None


# --- outages ---------------------------------------------------------------------------------------------------------


async def test_an_unreadable_registry_is_logged_once_for_an_outage(asking: AskingFor) -> None:
    at = asking()
    folder = at.registry.training_folder("default")
    for _ in range(2):
        (folder / "status.json").mkdir(parents=True)
        with capture_logs() as logs:
            assert [await at.turn() for _ in range(3)] == [None] * 3
        assert [entry["event"] for entry in logs] == ["cannot see what is to be trained"]
        shutil.rmtree(folder)
        assert await at.turn() is None


# --- what operators' marks did ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (SecondOutcome(version="0003", promoted=False, waits=True, reason="waits"), "waits_for_review"),
        (SecondOutcome(version="0003", promoted=True, waits=False, reason="trusted"), "model_promoted"),
        (SecondOutcome(version="0003", promoted=False, waits=False, reason="worse"), "model_not_promoted"),
        (SecondOutcome(version=None, promoted=False, waits=False, reason="failed"), "model_not_promoted"),
    ],
)
async def test_a_second_challenger_is_an_event_after_the_first(
    second: SecondOutcome, kind: str, asking: AskingFor
) -> None:
    at, outcome = asking(), done(REQUEST)
    assert isinstance(outcome, TrainingOutcome)
    at.trainings.ended(replace(outcome, second=second))
    made = second.version or "(no version)"
    assert at.emitted[1] == (kind, f"default {made} (with operators' marks): {second.reason}")
    assert at.emitted[0][0] == "model_promoted"


async def test_marks_beyond_the_bound_are_an_event(asking: AskingFor) -> None:
    at, outcome = asking(), done(REQUEST)
    assert isinstance(outcome, TrainingOutcome)
    at.trainings.ended(replace(outcome, n_excluded=8, n_capped=3))
    assert [kind for kind, _ in at.emitted] == ["model_promoted", "feedback_capped"]
    assert "default: 3 more sequences called confirmed or veto train all the same" in at.emitted[1][1]


async def test_versions_without_the_looks_that_are_wanted_are_events_that_say_why(asking: AskingFor) -> None:
    at, outcome = asking(), done(REQUEST)
    assert isinstance(outcome, TrainingOutcome)
    second = SecondOutcome(version="0003", promoted=False, waits=True, reason="waits", without_looks="too few")
    at.trainings.ended(replace(outcome, without_looks="none fits", second=second))
    assert [kind for kind, _ in at.emitted] == ["model_promoted", "no_looks", "waits_for_review", "no_looks"]
    assert at.emitted[1][1].endswith("warns of no running sequence: none fits")
    assert at.emitted[3][1] == "default 0003 warns of no running sequence: too few"
