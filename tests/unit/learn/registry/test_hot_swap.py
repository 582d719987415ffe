"""The hot swap: noticed within two seconds, loaded beside the champion, one version per window, broken ones refused."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamad.judge.scoring import MicroBatcher
from streamad.learn.registry import hot_swap
from streamad.learn.registry.approvals import NotApprovedError
from streamad.learn.registry.hot_swap import ModelWatch, RegistryVersions
from streamad.learn.registry.registry import Registry
from streamad.messages import ModelRef
from streamad.telemetry.events import Level
from streamad.telemetry.metrics import ServedCounters
from streamad.testing import ManualClock
from streamad.types import Window
from tests.support.learning.plant import MeanDetector, MeanModel, registry_in, settings_of, train, windows_of
from tests.support.runtime.pipeline import steps, until
from tests.support.waiting import LIMIT_S
from tests.unit.learn.trainer.test_people_decide import approve

NAME = "default"


class GatedDetector(MeanDetector):
    """Keeps the folders it loads, and the threads it does so in; waits at a gate where told to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.threads: set[int] = set()
        self.gate = threading.Event()
        self.gate.set()

    def load(self, folder: Path, *, device: str) -> MeanModel:
        self.loads.append(folder.name)
        self.threads.add(threading.get_ident())
        assert self.gate.wait(LIMIT_S)
        return super().load(folder, device=device)


@dataclass
class Watched:
    root: Path | Registry
    clock: ManualClock
    batcher: MicroBatcher
    watch: ModelWatch
    detector: GatedDetector
    counters: ServedCounters
    swaps: list[tuple[str, Mapping[str, float]]] = field(default_factory=list)
    refused: list[tuple[str | None, str]] = field(default_factory=list)

    @property
    def version(self) -> str | None:
        return None if self.batcher.model is None else self.batcher.model.ref.version

    @property
    def registry(self) -> Registry:
        return registry_in(self.root)

    def train(self, seed: int, *, promote: bool = True) -> str:
        return train(self.root, data=windows_of(30, seed=seed), promote=promote)

    def promote(self, version: str) -> None:
        self.registry.promote(NAME, version, expected=self.registry.current(NAME))

    async def pass_seconds(self, n: int) -> None:
        """Let ``n`` looks go by, each through."""
        for _ in range(n):
            await self.idle()
            self.clock.advance(1.0)
        await self.idle()

    async def idle(self) -> None:
        """Return once the watch has looked and waits for its next look."""
        await steps()
        await until(lambda: self.clock.n_sleepers > 0)


@asynccontextmanager
async def watched(root: Path | Registry) -> AsyncIterator[Watched]:
    clock, detector = ManualClock(), GatedDetector()
    versions = RegistryVersions(registry_in(root), NAME, settings_of(), detector)
    batcher = MicroBatcher(versions.load(), clock, name=NAME)
    detector.loads.clear()
    detector.threads.clear()
    swaps: list[tuple[str, Mapping[str, float]]] = []
    refused: list[tuple[str | None, str]] = []

    def emit(
        kind: str,
        message: str,
        *,
        model: ModelRef | None = None,
        figures: Mapping[str, float] | None = None,
        level: Level = "warning",
    ) -> None:
        assert (kind, level) in {("model_swapped", "info"), ("model_refused", "error")}
        if kind == "model_swapped":
            assert figures is not None
            swaps.append((message, figures))
        else:
            refused.append((None if model is None else model.version, message))

    counters = ServedCounters()
    watch = ModelWatch(batcher, versions, clock, emit=emit, counters=counters)
    task = asyncio.create_task(watch.run())
    try:
        yield Watched(root, clock, batcher, watch, detector, counters, swaps, refused)
    finally:
        detector.gate.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watch.close()
        await batcher.close()


def damage(root: Path, version: str) -> None:
    path = Registry(root).folder(NAME, version) / "model.npz"
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 20)


async def test_a_promotion_is_in_service_within_two_seconds_of_the_clock(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        await plant.pass_seconds(3)
        assert plant.swaps == []
        assert plant.train(1) == "0002"
        await plant.pass_seconds(2)
        assert plant.version == "0002"
        assert [message for message, _ in plant.swaps] == ["default 0002 is in service instead of 0001"]
        assert (plant.counters.version, plant.counters.swaps) == ("0002", 1)
        assert plant.detector.loads == ["0002"]


async def test_the_champion_scores_on_while_another_version_is_being_loaded(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        await plant.idle()
        plant.detector.gate.clear()
        plant.train(1)
        plant.watch.wake()
        await until(lambda: plant.detector.loads == ["0002"])
        data = windows_of(1, seed=9)
        window = Window(data.values[0], int(data.lengths[0]))
        submitted = asyncio.create_task(plant.batcher.submit(window))
        await steps()
        plant.batcher.flush()
        result = await submitted
        assert result is not None
        assert result.model.ref.version == "0001"
        assert plant.swaps == []
        assert threading.get_ident() not in plant.detector.threads
        plant.detector.gate.set()
        await until(lambda: plant.version == "0002")


async def test_going_back_to_the_former_version_loads_nothing(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        champion = plant.batcher.model
        plant.train(1)
        await plant.pass_seconds(2)
        plant.promote("0001")
        await plant.pass_seconds(1)
        assert plant.version == "0001"
        assert plant.batcher.model is champion
        assert plant.swaps[-1][1]["load_s"] == 0
        plant.promote("0002")  # and forward again
        await plant.pass_seconds(1)
        assert plant.version == "0002"
        assert plant.detector.loads == ["0002"]


async def test_after_a_swap_memory_is_given_back_once_the_version_before_the_former_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tmp_path)
    alive: list[bool] = []
    async with watched(tmp_path) as plant:
        assert plant.batcher.model is not None
        first = weakref.ref(plant.batcher.model.scorer)
        monkeypatch.setattr(hot_swap, "give_back_memory", lambda: alive.append(first() is not None))
        for _ in range(2):
            plant.train(1)
            await plant.pass_seconds(2)
        assert plant.version == "0003"
        assert alive == [True, False]


async def test_a_broken_version_is_reported_once_the_champion_stays_and_a_good_one_is_taken(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        plant.train(1)
        damage(tmp_path, "0002")
        await plant.pass_seconds(300)
        assert plant.version == "0001"
        assert [version for version, _ in plant.refused] == ["0002"]
        assert "damaged" in plant.refused[0][1]
        assert plant.refused[0][1].endswith("; 0001 stays in service")
        assert plant.train(2) == "0003"
        await plant.pass_seconds(2)
        assert plant.version == "0003"
        assert len(plant.refused) == 1


async def test_a_version_that_is_mended_in_place_is_taken_within_a_minute_of_its_mending(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        plant.train(1)
        path = plant.registry.folder(NAME, "0002") / "model.npz"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        await plant.pass_seconds(200)
        n_tried = plant.detector.loads.count("0002")
        assert n_tried == 0, "a file that is not the published one is never handed to the detector"
        path.write_bytes(whole)
        await plant.pass_seconds(61)
        assert plant.version == "0002"
        assert len(plant.refused) == 1


@pytest.mark.parametrize("content", ["../../etc", "0099", ""])
async def test_a_damaged_current_is_reported_once_and_leaves_the_champion(tmp_path: Path, content: str) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        current = tmp_path / NAME / "CURRENT"
        current.write_text(content)
        await plant.pass_seconds(50)
        assert plant.version == "0001"
        assert [version for version, _ in plant.refused] == [None]
        current.write_text("0001\n")
        await plant.pass_seconds(2)
        current.write_text(content)
        await plant.pass_seconds(2)
        assert len(plant.refused) == 2, "a new damage is told again"


async def test_a_registry_whose_current_is_gone_leaves_the_champion(tmp_path: Path) -> None:
    train(tmp_path)
    async with watched(tmp_path) as plant:
        (tmp_path / NAME / "CURRENT").unlink()
        await plant.pass_seconds(3)
        assert (plant.version, plant.refused) == ("0001", [])


async def test_a_version_that_two_people_have_not_approved_is_refused_and_the_champion_stays(tmp_path: Path) -> None:
    train(tmp_path)
    strict = Registry(tmp_path, needs_approvals=True)
    with pytest.raises(NotApprovedError, match="0001 is not put into service: two people have to approve it"):
        RegistryVersions(strict, NAME, settings_of(), MeanDetector()).load()
    approve(strict, "0001", NAME)
    async with watched(strict) as plant:
        train(tmp_path, data=windows_of(30, seed=1))  # with a config that asks nobody
        await plant.pass_seconds(2)
        assert plant.version == "0001"
        ((version, text),) = plant.refused
        assert (version, plant.detector.loads) == ("0002", [])
        assert "nobody has approved it: streamad models approve 0002; 0001 stays in service" in text
        approve(strict, "0002", NAME)
        await plant.pass_seconds(4)
        assert plant.version == "0002"
        strict.promote(NAME, "0001", expected="0002")
        await plant.pass_seconds(2)
        assert plant.version == "0001"
        assert strict.decline(NAME, "0002")
        Registry(tmp_path).promote(NAME, "0002", expected="0001")  # it is in memory still
        await plant.pass_seconds(2)
        assert plant.version == "0001"


@pytest.mark.parametrize("early", [None, {"looks": 3}])
async def test_a_version_without_looks_that_goes_into_service_is_an_event_where_some_are_wanted(
    tmp_path: Path, early: dict[str, int] | None
) -> None:
    train(tmp_path, data=windows_of(30))
    emitted: list[str] = []
    clock, settings = ManualClock(), settings_of(alerts={"early": early})
    batcher = MicroBatcher(None, clock, name=NAME)
    watch = ModelWatch(
        batcher,
        RegistryVersions(Registry(tmp_path), NAME, settings, MeanDetector()),
        clock,
        emit=lambda kind, _, **__: emitted.append(kind),
        counters=ServedCounters(),
    )
    await watch.look()
    assert emitted == ["model_swapped", *(["no_looks"] if early else [])]
    watch.close()
    await batcher.close()
