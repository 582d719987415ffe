"""Versions that serve no more are loaded for their looks once; what failed for a passing reason is tried again."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamad.errors import ArtifactError, RegistryError, StreamadError
from streamad.judge.early import pinned
from streamad.judge.early.pinned import NotNowError, PinnedVersions
from streamad.judge.scoring import ModelInService
from streamad.learn.registry import verify
from streamad.learn.registry.hot_swap import RegistryVersions
from streamad.learn.registry.registry import Registry as FileRegistry
from streamad.messages import Event, ModelRef
from streamad.telemetry.events import EventLog
from streamad.testing import ManualClock
from tests.support.learning import plant
from tests.support.runtime.early import model
from tests.support.runtime.pipeline import until
from tests.support.waiting import LIMIT_S

REF = ModelRef("test", "0001")


def caused_by(cause: OSError) -> ArtifactError:
    """The error of the registry if a file cannot be read."""
    error = ArtifactError("early/0/model.npz cannot be read")
    error.__cause__ = ArtifactError("no backend serves")
    error.__cause__.__cause__ = cause
    return error


SHARE = caused_by(OSError(errno.EIO, "Input/output error"))


class Registry:
    """Loads by ``answers``, one after the other: an error is raised."""

    def __init__(self, *answers: Exception | ModelInService) -> None:
        self.clock = ManualClock()
        self.events: list[Event] = []
        self.n_loads = 0
        self._answers: Iterator[Exception | ModelInService] = iter(answers)
        self.versions = PinnedVersions(self._load, self.clock, EventLog("p", self.clock, self.events.append).emit)

    def _load(self, ref: ModelRef) -> ModelInService:
        assert ref == REF
        self.n_loads += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def waits_s(self) -> float:
        """How long the next attempt waits."""
        with pytest.raises(NotNowError) as found:
            await self.versions.looks_of(REF)
        return found.value.wait_us / 1e6


@pytest.mark.parametrize("error", [SHARE, OSError(errno.EMFILE, "Too many open files")], ids=["in the registry", "own"])
async def test_a_passing_error_is_tried_again_after_growing_pauses_and_is_no_event(error: Exception) -> None:
    served = model()
    registry = Registry(*[error] * 8, served)
    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
        assert await registry.waits_s() == pause_s
        n_loads = registry.n_loads
        registry.clock.advance(pause_s - 0.5)
        assert await registry.waits_s() == 0.5
        assert registry.n_loads == n_loads, "no attempt before its time"
        registry.clock.advance(0.5)
    for _ in range(2):
        assert await registry.versions.looks_of(REF) is served.early
    assert registry.n_loads == 9
    assert registry.events == []


@pytest.mark.parametrize(
    "error",
    [
        ArtifactError("model test 0001: early/0/model.npz is damaged"),
        RegistryError("model test has no version 0001"),
        caused_by(FileNotFoundError(errno.ENOENT, "No such file or directory")),
    ],
    ids=["damaged", "pruned", "gone"],
)
async def test_a_damaged_or_missing_version_has_no_looks_and_is_an_event(error: StreamadError) -> None:
    registry = Registry(error)
    for _ in range(2):
        assert await registry.versions.looks_of(REF) is None
    assert [(each.kind, each.model) for each in registry.events] == [("looks_ended", REF)]
    assert f"{error}: sequences that it has looked at" in registry.events[0].message


async def test_what_is_given_up_is_said_once_until_the_version_can_be_read_again() -> None:
    registry = Registry(SHARE, SHARE, model())
    registry.versions.gave_up(REF)
    assert registry.events == []
    for _ in range(2):
        registry.clock.advance(await registry.waits_s())
        registry.versions.gave_up(REF)
    assert [each.kind for each in registry.events] == ["looks_ended"]
    assert "it is tried again" in registry.events[0].message
    assert await registry.versions.looks_of(REF) is not None


async def test_looks_that_nobody_needs_any_more_leave_the_memory_and_are_loaded_again_when_needed() -> None:
    served = model()
    registry = Registry(served, served)
    assert await registry.versions.looks_of(REF) is served.early
    for _ in range(3):
        registry.clock.advance(pinned.UNNEEDED_US / 1e6)
        registry.versions.drop_unneeded()
        assert registry.versions.in_memory(REF) is served.early, "a running sequence shows them"
    registry.clock.advance(pinned.UNNEEDED_US / 1e6 + 1)
    registry.versions.drop_unneeded()
    assert registry.versions.in_memory(REF) is None
    assert await registry.versions.looks_of(REF) is served.early
    assert registry.n_loads == 2


async def test_a_version_without_looks_is_said_once_however_long_nobody_needs_it() -> None:
    registry = Registry(RegistryError("model test has no version 0001"))
    for _ in range(2):
        assert await registry.versions.looks_of(REF) is None
        registry.clock.advance(pinned.UNNEEDED_US / 1e6 + 1)
        registry.versions.drop_unneeded()
    assert len(registry.events) == 1


async def test_a_real_version_whose_files_cannot_be_read_for_a_while_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.train(tmp_path)
    clock, events = ManualClock(), list[Event]()
    trained = RegistryVersions(FileRegistry(tmp_path), "default", plant.settings_of(), plant.MeanDetector())
    versions = PinnedVersions(lambda _: trained.load("0001"), clock, EventLog("p", clock, events.append).emit)

    def unreadable(*_: object) -> str:
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as broken:
        broken.setattr(verify, "difference_of", unreadable)
        with pytest.raises(NotNowError):
            await versions.looks_of(REF)
    clock.advance(1)
    assert await versions.looks_of(REF) is None, "it was trained without looks"
    assert events == []


async def test_a_call_that_does_not_return_is_waited_for_a_while_by_all_at_once_and_is_the_only_one() -> None:
    clock, events, may_return, calls = ManualClock(), list[Event](), threading.Event(), list[ModelRef]()

    def hang(ref: ModelRef) -> ModelInService:
        calls.append(ref)
        assert may_return.wait(LIMIT_S)
        return model()

    versions = PinnedVersions(hang, clock, EventLog("p", clock, events.append).emit)

    async def waits_s(n: int) -> set[float]:
        waiting = asyncio.gather(*(versions.looks_of(REF) for _ in range(n)), return_exceptions=True)
        begun_us = clock.monotonic_us()
        while not waiting.done():
            await asyncio.sleep(0)
            if calls and not waiting.done():
                clock.advance(0.5)
        assert clock.monotonic_us() - begun_us < 2e6 * pinned.LIMIT_S
        return {each.wait_us / 1e6 for each in await waiting if isinstance(each, NotNowError)}

    try:
        assert await waits_s(1000) == {1}
        before_us = clock.monotonic_us()
        with pytest.raises(NotNowError):
            await versions.looks_of(REF)
        assert clock.monotonic_us() == before_us, "at once: it is tried again later"
        clock.advance(1)
        assert await waits_s(1) == {2}
        versions.gave_up(REF)
        assert [each.kind for each in events] == ["looks_ended"]
    finally:
        may_return.set()
    await until(lambda: versions.in_memory(REF) is not None)
    assert await versions.looks_of(REF) is not None, "it was read while nobody waited"
    assert len(calls) == 1
