"""The file in which a learner says how far it is: whole or not there, written only if something has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.commands.shared.plants import load_plant
from streamad.learn.process.state import LearnerState, ModelState, StateFile, state_file
from streamad.telemetry.metrics import LearningCounters
from tests.support.learning.stored import plant_of

STATES = LearnerState(
    models={
        "default.A": ModelState(
            accepted=7, reserve=2, aside=1, training="final fit", counters=LearningCounters(drifts=3)
        ),
        "default.B": ModelState(),
    },
    events={"drift": 3},
)


def test_it_is_beside_the_store_and_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = state_file(load_plant(plant_of(tmp_path, learning={"store": "kept/store"})))
    assert file.read() == LearnerState(), "there is none yet"
    (tmp_path / "kept/store").mkdir(parents=True)
    file.write(STATES)
    assert [path.name for path in (tmp_path / "kept/store").iterdir()] == ["learner.json"]
    assert file.read() == STATES


def test_the_same_state_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "learner.json"
    file = StateFile(path)
    file.write(STATES)
    first = path.stat().st_ino
    file.write(LearnerState(models=dict(STATES.models), events=dict(STATES.events)))
    assert path.stat().st_ino == first
    file.write(LearnerState(models={**STATES.models, "default.B": ModelState(accepted=1)}))
    assert path.stat().st_ino != first
    assert file.read().models["default.B"].accepted == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"models": 1}', b'{"models": {"default": {"accepted": "many"}}}', b"\xff"]
)
def test_what_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "learner.json"
    path.write_bytes(content)
    assert StateFile(path).read() == LearnerState()


def test_a_state_that_cannot_be_written_stops_nothing_and_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "learner.json"
    file = StateFile(path)
    (tmp_path / "gone").write_text("a file")
    file.write(STATES)
    assert file.read() == LearnerState()
    (tmp_path / "gone").unlink()
    (tmp_path / "gone").mkdir()
    file.write(STATES)
    assert file.read() == STATES
