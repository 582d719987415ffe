"""What a run says of a first model that a learner elsewhere trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.judge.scoring import MicroBatcher
from streamad.learn.process.state import LearnerState, ModelState, StateFile
from streamad.learn.serving.serving import Serving
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
    file = StateFile(tmp_path / "learner.json")
    if state is not None:
        file.write(LearnerState(models={NAME: state}))
    serving = Serving(plant.plant, EventLog("plant", plant.plant.clock), state=file)
    batcher = await serving.begin()
    assert isinstance(batcher, MicroBatcher)
    await serving._look(file)  # noqa: SLF001 - which it does once a second
    assert batcher.learning() == says
    await serving.close(wait=False)
    await batcher.close()


class Nobody:
    """A learner that does nothing."""

    async def begin(self) -> None: ...

    async def finish(self) -> None: ...

    def request_stop(self) -> None: ...

    async def close(self) -> None: ...


async def test_the_run_that_has_started_the_learner_counts_its_events_once(tmp_path: Path) -> None:
    """Also over a restart of the learner; what a former one has said is not counted."""
    plant = LearningPlant(tmp_path, learning={**QUIET, "process": "here"})
    file, log = StateFile(tmp_path / "learner.json"), EventLog("plant", plant.plant.clock)
    file.write(LearnerState(events={"drift": 5}))
    serving = Serving(plant.plant, log, Nobody(), file)
    batchers = await serving.begin()
    for events in ({"drift": 1}, {"drift": 3, "plant_changed": 1}, {"drift": 3, "plant_changed": 1}, {"drift": 1}):
        file.write(LearnerState(events=events))
        await serving._look(file)  # noqa: SLF001 - which it does once a second
    assert log.counts == {"drift": 1 + 2 + 1, "plant_changed": 1}
    await serving.close(wait=False)
    await batchers.close()
