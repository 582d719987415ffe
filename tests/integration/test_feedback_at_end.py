"""A learner stores the marks of all feedback that waits before it ends, or says how much waits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from streamad.errors import StoreError
from streamad.learn.process.service import PlantLearner
from streamad.learn.store.inliers import InlierStore
from tests.support.learning.store import QUIET, LearningPlant
from tests.support.runtime.cli import started, until_line
from tests.support.waiting import LIMIT_S
from tests.unit.learn.process.test_service import record

N_WORDS = 102


def plant_with_feedback(folder: Path) -> LearningPlant:
    place = folder / "feedback.jsonl"
    words = ({"alert_id": f"a{n}", "judgement": "veto", "created_at": "2026-01-01T00:00:00Z"} for n in range(N_WORDS))
    place.write_text("".join(json.dumps(each) + "\n" for each in words))
    (folder / "windows.jsonl").write_bytes(msgspec.json.encode(record(1)) + b"\n")
    return LearningPlant(
        folder,
        learning={**QUIET, "feedback": f"file:{place}"},
        sinks={"windows": "file:windows.jsonl"},
        run={"checkpoint": None, "stop_timeout": "2s"},
    )


async def learned_to_the_end(plant: LearningPlant) -> list[tuple[str, str]]:
    """Let a learner take all that is there; return its events."""
    events: list[tuple[str, str]] = []
    learner = PlantLearner(plant.plant, lambda kind, text, **_: events.append((kind, text)))
    learner.finish()
    await learner.run()
    await learner.close()
    return events


async def test_all_that_waits_has_its_mark_when_the_learner_ends(tmp_path: Path) -> None:
    plant = plant_with_feedback(tmp_path)
    assert await learned_to_the_end(plant) == []
    assert set(plant.store().marks()) == {f"a{n}" for n in range(N_WORDS)}
    assert len(plant.stored("accepted") | plant.stored("reserve") | plant.stored("aside")) == 1


async def test_malformed_messages_are_an_event_and_keep_nothing_from_its_end(tmp_path: Path) -> None:
    plant = plant_with_feedback(tmp_path)
    with (tmp_path / "feedback.jsonl").open("a") as file:
        file.write("{}\nno json\n")
    ((kind, text),) = await learned_to_the_end(plant)
    assert kind == "feedback_malformed"
    assert "no feedback message, skipped" in text
    assert len(plant.store().marks()) == N_WORDS


async def test_what_the_store_does_not_take_is_counted_in_an_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = plant_with_feedback(tmp_path)

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(InlierStore, "mark", full)
        events = dict(await learned_to_the_end(plant))
    assert events["feedback_left"] == f"{N_WORDS} messages of feedback wait, for the next start: the disk is full"
    assert await learned_to_the_end(plant) == []
    assert len(plant.store().marks()) == N_WORDS


@pytest.mark.parametrize(("kind", "event"), [("fifo", "feedback_unreadable"), ("sparse", "feedback_malformed")])
def test_no_place_of_feedback_keeps_a_learner_from_its_end(tmp_path: Path, kind: str, event: str) -> None:
    """SIGTERM went unheeded beside a FIFO, and beside a long line for minutes."""
    place = tmp_path / "feedback.jsonl"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        with place.open("wb") as file:
            file.truncate(400_000_000)
    content: dict[str, Any] = {
        "channels": [{"name": "temp"}],
        "source": {"url": "live.jsonl", "options": {"follow": True}},
        "window": {"length": 8},
        "model": {"detector": "pca"},
        "learning": {**QUIET, "feedback": "feedback.jsonl"},
        "sinks": {"alerts": "out/alerts.jsonl"},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "live.jsonl").touch()
    with started("learn", cwd=tmp_path) as process:
        until_line(process, event)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0
