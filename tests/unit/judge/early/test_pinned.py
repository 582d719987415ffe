"""Versions that serve no more are loaded for their looks once; what failed for a passing reason is tried again."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamad.errors import ArtifactError, RegistryError, StreamadError
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

REF = ModelRef("test", "0001")


def caused_by(cause: OSError) -> ArtifactError:
    """What the registry raises where a file cannot be read."""
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
        broken.setattr(verify, "_difference", unreadable)
        with pytest.raises(NotNowError):
            await versions.looks_of(REF)
    clock.advance(1)
    assert await versions.looks_of(REF) is None, "it was trained without looks"
    assert events == []
