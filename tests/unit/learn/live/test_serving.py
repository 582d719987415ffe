"""What a run says of a first model that a learner elsewhere trains."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streamad.judge.scoring import MicroBatcher
from streamad.learn.live.serving import Serving
from streamad.learn.process.service import ModelState
from streamad.telemetry.events import EventLog
from tests.support.learning.store import NAME, QUIET, LearningPlant


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (None, "no model yet: streamad learn trains the first one"),
        (ModelState(accepted=30, reserve=10, aside=5), "40 of 60"),
        (ModelState(accepted=50, reserve=12, training="training"), "60 of 60, the first model is being trained"),
    ],
)
async def test_a_verdict_without_a_model_says_what_the_learner_has_said(
    state: ModelState | None, says: str, tmp_path: Path
) -> None:
    plant = LearningPlant(tmp_path, learning={**QUIET, "process": "here", "first_training": 60, "min_training": 20})
    status = tmp_path / "learner.json"
    if state is not None:
        status.write_bytes(msgspec.json.encode({NAME: state}))
    serving = Serving(plant.plant, EventLog("plant", plant.plant.clock), status=status)
    batcher = await serving.begin()
    assert isinstance(batcher, MicroBatcher)
    serving._states = serving._read_status()  # noqa: SLF001 - which it does once a second
    assert batcher.learning() == says
    await serving.close(wait=False)
    await batcher.close()
