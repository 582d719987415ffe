"""One model that learns, with time moved by hand: when it stores, reports, trains and stops."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamad.judge.judging import JudgedSequence
from streamad.learn.live.keeper import Keeper
from streamad.learn.live.learner import cold_start_text
from streamad.learn.registry.hot_swap import ModelWatch
from streamad.learn.store.storage import open_storage
from streamad.learn.trainer.requests import TrainingFailed, TrainingOutcome, TrainingRequest, TrainingResult
from streamad.learn.trainer.trainings import Trainings
from streamad.messages import ModelRef
from tests.support.kafka.child import PLUGINS
from tests.support.learning.followed import SMALL, Followed, Gate, followed, judged_sequence
from tests.support.learning.store import NAME
from tests.support.runtime.pipeline import START_US, steps, until

HOUR_S = 3600
DRIFT = {"enabled": True, "min_sequences": 30, "changed_over": 20}


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
        assert len(at.stored()) == 500


async def test_handing_over_never_waits_and_what_a_stuck_store_cannot_take_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    async with followed(tmp_path, max_accepted=20, max_reserve=60, max_aside=20, **SMALL) as at:
        await at.rest()
        monkeypatch.setattr(Keeper, "work", gate.before(Keeper.work))
        gate.close()
        at.judge(10)
        at.clock.advance(1.0)
        await until(gate.is_waited_at)
        at.judge(250)
        gate.open()
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


async def test_a_lasting_change_is_reported_at_once_and_then_every_hour(tmp_path: Path) -> None:
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
        at.judge(60)
        await at.turn()
        assert at.kinds()[-1] == "plant_back"


async def test_a_lost_store_is_reported_once_and_so_is_its_return(tmp_path: Path) -> None:
    async with followed(tmp_path, flush_interval="1s") as at:
        at.judge(20)
        await at.turn(2.0)
        home = tmp_path / "inliers" / NAME
        away = home.rename(tmp_path / "away")
        home.write_text("a file where the store was")
        for _ in range(3):
            at.judge(20)
            await at.turn(2.0)
        assert at.kinds() == ["store_failed"]
        home.unlink()
        away.rename(home)
        at.judge(20)
        await at.turn(2.0)
        await at.turn(2.0)
        assert at.kinds() == ["store_failed", "store_back"]
        assert len(at.stored()) == 100


async def test_verdicts_of_the_version_before_are_neither_accepted_nor_alerts_of_the_champion(tmp_path: Path) -> None:
    async with followed(tmp_path, drift=DRIFT, reserve=0.000001) as at:
        at.judge(60)
        await at.turn()
        at.plant.train(1)
        await at.turn()
        await until(lambda: at.counters[NAME].version == "0002")
        at.judge(40, decision="anomalous", level=9.0, version="0001")
        at.judge(20, version="0001")
        at.judge(10)
        await at.turn(20)
        assert (at.counters[NAME].accepted, at.counters[NAME].aside) == (70, 60)
        assert "plant_changed" not in at.kinds()
        (swapped,) = [more for kind, _, more in at.told if kind == "model_swapped"]
        assert swapped["model"] == ModelRef(NAME, "0002")


async def test_a_broken_version_is_an_event_and_the_champion_stays(tmp_path: Path) -> None:
    async with followed(tmp_path) as at:
        await at.turn()
        at.plant.train(1)
        at.plant.damage("0002")
        await at.turn()
        await until(lambda: "model_refused" in at.kinds())
        ((_, message, more),) = at.told
        assert message.endswith("; 0001 stays in service")
        assert (more["model"], more["level"]) == (ModelRef(NAME, "0002"), "error")


async def test_a_backend_that_must_not_serve_a_new_version_is_an_event(tmp_path: Path) -> None:
    async with followed(tmp_path, backend="onnxruntime") as at:
        await at.turn()
        at.plant.train(1)
        await at.turn()
        await until(lambda: at.counters[NAME].version == "0002")
        assert at.kinds() == ["model_swapped", "backend_refused"]
        _, message, more = at.told[-1]
        assert message.startswith("onnxruntime does not serve default 0002: ")
        assert message.endswith("; torchscript serves")
        assert more["model"] == ModelRef(NAME, "0002")


async def ended(at: Followed, monkeypatch: pytest.MonkeyPatch, result: TrainingResult) -> None:
    """Let a training end with ``result`` in the learner's next turn."""
    results = [result]

    async def start_due(trainings: Trainings, *_: Any) -> None:
        while results:
            trainings.ended(results.pop())

    monkeypatch.setattr(Trainings, "start_due", start_due)
    await at.turn()


def outcome(*, promoted: bool, version: str | None = "0002") -> TrainingOutcome:
    request = TrainingRequest(reason="drift", requested_us=START_US)
    return TrainingOutcome(
        model=NAME, version=version, promoted=promoted, reason="because", request=request, figures={"rate": 0.5}
    )


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (outcome(promoted=True), ("model_promoted", "info", 1)),
        (outcome(promoted=False), ("model_not_promoted", "warning", 0)),
        (outcome(promoted=False, version=None), ("model_not_promoted", "warning", 0)),
    ],
)
async def test_the_outcome_of_a_training_is_an_event_with_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result: TrainingOutcome, expected: tuple[str, str, int]
) -> None:
    woken = []
    monkeypatch.setattr(ModelWatch, "wake", lambda _: woken.append(True))
    async with followed(tmp_path) as at:
        await ended(at, monkeypatch, result)
        ((kind, message, more),) = at.told
        counters = at.counters[NAME]
        assert (kind, more["level"], counters.promotions) == expected
        assert (counters.trainings, more["figures"]) == (1, {"rate": 0.5})
        assert more["model"] == (None if result.version is None else ModelRef(NAME, "0002"))
        assert len(woken) == result.promoted
        assert "training after drift" in message
        assert "because" in message


@pytest.mark.parametrize(("kind", "told"), [("failed", ["training_failed"]), ("refused", []), ("interrupted", [])])
async def test_only_a_training_that_failed_is_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, told: list[str]
) -> None:
    async with followed(tmp_path) as at:
        request = TrainingRequest(reason="schedule", requested_us=START_US)
        await ended(at, monkeypatch, TrainingFailed(model=NAME, error="too few", request=request, kind=kind))
        assert at.kinds() == told
        assert at.counters[NAME].trainings == len(told)


# --- before the first model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_kept", "is_training", "unit", "text"),
    [
        (0, False, "", "0 of 200"),
        (199, False, "", "199 of 200"),
        (4321, False, "", "200 of 200"),
        (200, True, "sequences", "200 of 200 sequences, the first model is being trained"),
    ],
)
def test_it_counts_up_to_what_the_first_training_needs(n_kept: int, is_training: bool, unit: str, text: str) -> None:
    assert cold_start_text(n_kept, 200, is_training=is_training, unit=unit) == text


async def test_it_counts_from_the_first_verdict_on(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        said = [at.batcher.learning() for _ in range(3)]
        assert said == ["1 of 50", "2 of 50", "3 of 50"]
        at.judge(3, decision="learning")
        assert at.learners.progress == "learning 3 of 50"
        await at.turn()
        assert at.batcher.learning() == "4 of 50"


async def test_the_count_never_runs_backwards_while_the_store_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    async with followed(tmp_path, cold=True, **SMALL) as at:
        await at.rest()
        monkeypatch.setattr(Keeper, "work", gate.before(Keeper.work))
        gate.close()
        for _ in range(10):
            at.batcher.learning()
        at.judge(10, decision="learning")
        at.clock.advance(1.0)
        await until(gate.is_waited_at)
        assert at.batcher.learning() == "11 of 50"
        assert at.learners.progress == "learning 11 of 50"
        gate.open()
        await at.turn()
        await at.turn()
        assert at.batcher.learning() == "11 of 50"  # the one without a verdict was of a commit that failed


async def test_a_sequence_judged_again_after_a_failed_commit_counts_once(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        for _ in range(6):  # three sequences, each judged twice
            at.batcher.learning()
        at.judge(3, decision="learning")
        await at.turn()
        await at.turn()
        assert at.batcher.learning() == "4 of 50"


# --- a source that waits for it --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _detector_in_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training processes find the detector, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


async def test_wait_until_trained_keeps_what_was_judged_and_trains_nothing_before_its_time(tmp_path: Path) -> None:
    """At once and in storage, on a clock that stands still: neither the next turn nor flush_interval is waited for."""
    async with followed(tmp_path, cold=True, **SMALL) as at:
        at.judge(30, decision="learning")
        await at.learners.wait_until_trained()
        counters = at.counters[NAME]
        assert counters.accepted + counters.reserved == 30
        assert len(at.stored()) == 30
        assert (at.batcher.model, at.told) == (None, [])


async def test_wait_until_trained_returns_after_the_training_that_is_due_and_for_its_model(tmp_path: Path) -> None:
    async with followed(tmp_path, cold=True, **SMALL) as at:
        at.judge(40, decision="learning")
    async with followed(tmp_path, cold=True, first=40, **SMALL) as at:
        assert at.batcher.learning() == "41 of 50", "those of the run before count"
        at.judge(10, decision="learning")
        await at.learners.wait_until_trained()
        assert at.batcher.model is not None
        assert at.batcher.model.ref.version == at.counters[NAME].version == "0001"
        assert at.kinds() == ["model_promoted", "model_swapped"]


# --- a stop while the store hangs ------------------------------------------------------------------------------------

STOP_S = 10  # the default of run.stop_timeout


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """While it is closed, the storage answers no write."""
    gate = Gate()
    folder = type(open_storage("", Path()))
    monkeypatch.setattr(folder, "write", gate.before(folder.write))
    yield gate
    gate.open()


def told(at: Followed) -> list[str]:
    return [message for kind, message, _ in at.told if kind == "store_failed"]


async def test_sequences_that_a_hanging_store_lost_are_counted_and_reported(tmp_path: Path, gate: Gate) -> None:
    async with followed(tmp_path, flush_interval="1s") as at:
        at.judge(10)
        await at.turn(2.0)
        await at.turn()
        assert len(at.stored()) == 10
        gate.close()
        at.judge(20)
        at.clock.advance(2.0)
        await until(gate.is_waited_at)
        at.judge(5)
        at.learners.request_stop()
        at.clock.advance(4.0)
        closing = asyncio.create_task(at.learners.close(wait=True))
        await steps()
        at.clock.advance(STOP_S - 4.1)
        await steps()
        assert not closing.done()
        at.clock.advance(0.2)
        await until(closing.done)
        assert told(at) == [
            "the inlier store has not answered within run.stop_timeout (10 s): 25 sequences are not kept"
        ]
        assert at.counters["default"].unkept == 25
        gate.open()


async def test_the_store_has_a_second_if_the_last_verdicts_took_all_the_time(tmp_path: Path, gate: Gate) -> None:
    async with followed(tmp_path, flush_interval="1h") as at:
        at.judge(3)
        await at.turn()
        gate.close()
        at.learners.request_stop()
        at.clock.advance(STOP_S + 5)
        closing = asyncio.create_task(at.learners.close(wait=True))
        await steps()
        at.clock.advance(0.9)
        await steps()
        assert not closing.done()
        gate.open()
        await until(closing.done)
        assert told(at) == []
        assert len(at.stored()) == 3
