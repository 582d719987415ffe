"""A plant that learns by itself: cold start, drift, lasting change, outages, other workers; scoring goes on throughout.

The pipeline, its learners and the training processes are the real ones; the detector is one without torch.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamad.language import percent
from streamad.ports import Clock
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import PartitionAssigned, PartitionEnded
from tests.support.kafka.child import PLUGINS
from tests.support.learning.store import NAME, QUIET, LearningPlant, LearningRun, batch, learning_run
from tests.support.waiting import LIMIT_S

AT_ONCE = 20
LEARNING: dict[str, Any] = {
    **QUIET,
    "first_training": 60,
    "min_training": 20,
    "min_interval": 0,
    "reserve": 0.4,
    "promotion": {"min_comparison": 5},
}
RUN = {"batch_windows": 16, "commit_interval": "1ms", "batch_wait": "1ms"}


@pytest.fixture(autouse=True)
def _detector_in_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training processes find the detector, too."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


async def until(is_so: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    """Return when threads and processes have made it so; they get the processor meanwhile."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Live:
    """A run whose sequences come when the test says so."""

    def __init__(self, run: LearningRun, source: ListSource, partition: str, first: int) -> None:
        self.run = run
        self._source = source
        self._partition = partition
        self._first = self._next = first

    async def judge(self, n: int, **more: Any) -> None:
        """Feed ``n`` sequences, return when they have their verdicts."""
        for _ in range(0, n, AT_ONCE):
            numbers = range(self._next, self._next + AT_ONCE)
            self._next += AT_ONCE
            self._source.feed(batch(self._partition, self.run.plant.records(numbers, **more), caught_up=True))
            await until(lambda: len(self.run.judged) == self._next - self._first)

    async def until_kind(self, kind: str, n: int = 1) -> None:
        try:
            await until(lambda: len(self.run.of_kind(kind)) >= n)
        except TimeoutError:
            raise AssertionError(f"no {kind}: {self.run.events}") from None

    async def end(self) -> None:
        self._source.feed(PartitionEnded(self._partition))
        await asyncio.sleep(0)
        await self._source.close()
        await self.run.end()

    def decisions(self, last: int | None = None) -> Counter[str]:
        return Counter(verdict.decision for verdict in self.run.verdicts[-last if last else 0 :])

    @property
    def versions(self) -> tuple[str, ...]:
        return self.run.plant.registry.versions(NAME)


@asynccontextmanager
async def live(
    plant: LearningPlant, *, partition: str = "p", first: int = 0, clock: Clock | None = None
) -> AsyncIterator[Live]:
    source = ListSource([PartitionAssigned(partition)], endless=True)
    async with learning_run(plant, source, clock=clock) as run:
        yield Live(run, source, partition, first)
        failed = run.of_kind("learning_failed")
        assert not failed, failed


def plant_of(folder: Path, **learning: Any) -> LearningPlant:
    return LearningPlant(folder, run=RUN, learning={**LEARNING, **learning})


# --- cold start ------------------------------------------------------------------------------------------------------


async def test_without_a_model_it_learns_trains_and_then_alerts(tmp_path: Path) -> None:
    plant = plant_of(tmp_path)
    async with live(plant) as at:
        await at.judge(40)
        await until(lambda: at.run.serving.progress == "learning, 40 of 60")  # it may lag
        await at.judge(40)
        assert at.decisions() == {"learning": 80}
        assert at.run.verdicts[0].detail == "no model yet: streamad learn trains the first one"
        assert (at.run.verdicts[40].detail or "").endswith(" of 60")
        await at.until_kind("model_swapped")
        await at.until_kind("model_promoted")
        assert len(at.run.events) == 2
        await at.judge(100)
        await at.judge(20, level=10.0)
        assert at.decisions(20) == {"anomalous": 20}
        assert at.decisions(120)["normal"] > 80
        assert "learning" not in at.decisions(120)
        await at.end()
        assert at.versions == ("0001",)
        served, counters = at.run.counters[NAME], at.run.learned()
        assert (served.version, counters.trainings, counters.promotions, served.swaps) == ("0001", 1, 1, 1)
        accepted, reserve, aside = plant.stored("accepted"), plant.stored("reserve"), plant.stored("aside")
        assert (counters.accepted, counters.reserved, counters.aside) == (len(accepted), len(reserve), len(aside))
        assert len(accepted | reserve | aside) == 200
        told = at.run.messages("events")
        assert sorted(event.kind for event in told) == ["model_promoted", "model_swapped"]


async def test_each_recipe_has_its_own_cold_start(tmp_path: Path) -> None:
    plant = LearningPlant(tmp_path, run=RUN, learning=LEARNING, models={"field": "recipe", "missing": "unscorable"})
    source = ListSource([PartitionAssigned("p")], endless=True)
    async with learning_run(plant, source) as run:
        numbers = iter(range(10_000))

        async def judge(n: int, recipe: str) -> None:
            for _ in range(0, n, AT_ONCE):
                first = next(numbers) * AT_ONCE
                wanted = len(run.judged) + AT_ONCE
                source.feed(batch("p", plant.records(range(first, first + AT_ONCE), recipe=recipe), caught_up=True))
                await until(lambda wanted=wanted: len(run.judged) == wanted)  # type: ignore[misc]

        await judge(80, "red")
        await judge(40, "blue")
        await until(lambda: bool(run.of_kind("model_swapped")))
        await judge(20, "red")
        await judge(20, "blue")
        last = run.verdicts[-40:]
        assert {verdict.decision for verdict in last[20:]} == {"learning"}
        assert last[0].model is not None
        assert last[0].model.name == "default.red"
        await source.close()
        await run.end()
        assert plant.registry.current("default.red") == "0001"
        assert plant.registry.current("default.blue") == "0001", "60 were enough, and the end waited"
        assert len(plant.stored("accepted", "default.blue") | plant.stored("reserve", "default.blue")) == 60


# --- the plant changes -----------------------------------------------------------------------------------------------

DRIFT = {"enabled": True, "min_sequences": 40, "changed_over": 20}


async def test_drift_is_reported_counted_and_trained_on(tmp_path: Path) -> None:
    plant = plant_of(tmp_path, on_drift=True, drift=DRIFT)
    async with live(plant) as at:
        await at.judge(100)
        await at.until_kind("model_swapped")
        await at.judge(100)
        assert at.run.of_kind("drift") == []
        await at.judge(60, level=0.6)
        await at.until_kind("drift")
        event = at.run.of_kind("drift")[0]
        assert set(event.figures) == {"strength", "before", "after", "since_unix_s"}
        assert event.figures["strength"] > 0.5
        assert event.model is not None
        await until(lambda: at.run.learned().trainings == 2)
        assert at.run.learned().drifts == len(at.run.of_kind("drift")) > 0
        outcomes = [event for event in at.run.events if event.kind in ("model_promoted", "model_not_promoted")]
        assert "training after drift" in outcomes[1].message
        assert "comparison.sequences" in outcomes[1].figures


async def test_a_lasting_change_is_reported_and_learned_again(tmp_path: Path) -> None:
    # Relearning takes what is there when the change is certain: of too few, no calibration can alert.
    plant = plant_of(tmp_path, drift=DRIFT, relearn="auto", first_training=90, min_training=50)
    plant.train()  # a first training would take as many sequences as there are by then, and p-values depend on them
    async with live(plant) as at:
        await at.judge(160)
        await at.judge(100, level=8.0)
        await at.until_kind("plant_changed")
        event = at.run.of_kind("plant_changed")[0]
        share = event.figures["alert_share"]
        assert 0.5 < share <= 1.0, "told as soon as it is sure, with what alerts by then; more come"
        assert f"{percent(share)} of the latest" in event.message
        assert "streamad models relearn --since 2026-01-01T0" in event.message
        await at.until_kind("model_swapped")
        await at.until_kind("model_promoted")
        assert at.run.counters[NAME].version == "0002"
        assert "relearning" in at.run.of_kind("model_promoted")[0].message
        await at.judge(60, level=8.0)
        assert at.decisions(60)["normal"] > 45
        assert len(at.run.of_kind("plant_changed")) == 1
        await at.judge(20)
        assert at.decisions(20) == {"anomalous": 20}, "what was normal before is so no more"


# --- trouble ---------------------------------------------------------------------------------------------------------


class JumpingClock(SystemClock):
    """The machine's clock, whose wall time somebody sets."""

    off_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.off_us


@pytest.mark.parametrize("days", [400, -400])
async def test_a_wall_clock_that_jumps_costs_no_sequence_no_model_and_at_most_one_training(
    tmp_path: Path, days: int
) -> None:
    learning = {**LEARNING, "schedule": "0 3 * * *", "min_interval": "1h"}
    plant = LearningPlant(tmp_path, run=RUN, learning=learning, decode={"max_clock_skew": "2000d"})
    plant.train()
    clock = JumpingClock()
    async with live(plant, clock=clock) as at:
        await at.judge(100)
        await until(lambda: at.run.learned().accepted > 0)
        clock.off_us = days * 86_400_000_000
        await at.judge(40)
        await at.run.learn()  # a turn of the learner, in which a schedule might come due
        await at.judge(40)
        await at.end()
        assert at.decisions()["normal"] > 150
        assert at.run.learned().trainings <= 1
        assert at.run.counters[NAME].version is not None
        assert [event.kind for event in at.run.events if not event.kind.startswith("model")] == []
    assert len(plant.stored("accepted") | plant.stored("reserve") | plant.stored("aside")) == 180
