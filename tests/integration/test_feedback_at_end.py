"""A run over recordings stores the marks of all feedback that waits before it ends, or says how much waits."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamad.testing import ListSource
from streamad.types import PartitionAssigned, PartitionEnded
from tests.support.learning.store import QUIET, LearningPlant, LearningRun, batch, learning_run
from tests.support.runtime.cli import started, until_line

N_WORDS = 102
N_SEQUENCES = 5
STOP_S = 60


def plant_with_feedback(folder: Path, **learning: Any) -> LearningPlant:
    place = folder / "feedback.jsonl"
    words = ({"alert_id": f"a{n}", "judgement": "veto", "created_at": "2026-01-01T00:00:00Z"} for n in range(N_WORDS))
    place.write_text("".join(json.dumps(each) + "\n" for each in words))
    plant = LearningPlant(folder, learning={**QUIET, "feedback": f"file:{place}", **learning})
    plant.train()
    return plant


async def run_to_the_end(plant: LearningPlant) -> LearningRun:
    events = [PartitionAssigned("p"), batch("p", plant.records(range(N_SEQUENCES))), PartitionEnded("p")]
    async with learning_run(plant, ListSource(events)) as run:
        await run.end()
    assert len(run.judged) == N_SEQUENCES
    return run


async def test_all_that_waits_has_its_mark_when_the_run_ends(tmp_path: Path) -> None:
    plant = plant_with_feedback(tmp_path)
    run = await run_to_the_end(plant)
    assert set(plant.store().marks()) == {f"a{n}" for n in range(N_WORDS)}
    assert run.learning.unread is None
    assert run.of_kind("feedback_left") == []


async def test_malformed_messages_are_counted(tmp_path: Path) -> None:
    plant = plant_with_feedback(tmp_path)
    with (tmp_path / "feedback.jsonl").open("a") as file:
        file.write("{}\nno json\n")
    run = await run_to_the_end(plant)
    assert run.learning.n_malformed_feedback == 2


async def test_what_the_store_does_not_take_is_counted_in_an_event(tmp_path: Path) -> None:
    plant = plant_with_feedback(tmp_path)
    marks = tmp_path / "inliers/default/marks"
    marks.parent.mkdir(parents=True, exist_ok=True)
    marks.write_text("in the way")
    run = await run_to_the_end(plant)
    (left,) = run.of_kind("feedback_left")
    assert left.message.startswith(f"{N_WORDS} messages of feedback wait, for the next run: inlier store: cannot write")
    assert left in run.messages("events")
    marks.unlink()
    await run_to_the_end(plant)
    assert len(plant.store().marks()) == N_WORDS


@pytest.mark.parametrize(("kind", "event"), [("fifo", "feedback_unreadable"), ("sparse", "feedback_malformed")])
def test_no_place_of_feedback_keeps_a_worker_from_its_end(tmp_path: Path, kind: str, event: str) -> None:
    """SIGTERM went unheeded beside a FIFO, and beside a long line for minutes."""
    place = tmp_path / "feedback.jsonl"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        with place.open("wb") as file:
            file.truncate(400_000_000)
    content = {
        "channels": [{"name": "temp"}],
        "source": {"url": "live.jsonl", "options": {"follow": True}},
        "window": {"length": 8},
        "model": {"detector": "pca"},
        "learning": {**QUIET, "feedback": "feedback.jsonl"},
        "sinks": {"alerts": "out/alerts.jsonl"},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "live.jsonl").touch()
    with started("run", cwd=tmp_path) as process:
        until_line(process, event)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
