"""The learner of a plant as a command runs it: one at a time on a machine, until it is stopped or has learned all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from streamad.commands.shared.console import err, note, stop_on_signals, wrapped
from streamad.commands.shared.monitor import event_printer
from streamad.errors import StoreError, StreamadError
from streamad.learn.parts import registry_of, store_for, store_path
from streamad.learn.process.events import LearnerEvents
from streamad.learn.process.service import PlantLearner
from streamad.learn.process.state import state_file
from streamad.learn.trainer.results import TrainingResult
from streamad.learn.trainer.status import TrainingStatus, read_status
from streamad.messages import Request
from streamad.outputs.marks.place import send_feedback
from streamad.plant import Plant
from streamad.system.locks import try_lock
from streamad.system.tasks import wait_for_either

_LOOK_S = 1.0
_POLL_S = 0.2


class NoAnswerError(StreamadError):
    """Raised if the learner of a command has ended without an answer to its request."""


def learner_of(plant: Plant, *, trains: bool = True) -> tuple[PlantLearner, LearnerEvents]:
    """Return the learner of the plant, and its events, which are shown on stderr as they come."""
    store_path(plant).parent.mkdir(parents=True, exist_ok=True)
    events = LearnerEvents(plant, event_printer(plant))
    return PlantLearner(plant, events.emit, state_file(plant), events=events.counts, trains=trains), events


@asynccontextmanager
async def the_only_learner(plant: Plant, learner: PlantLearner, on_wait: Callable[[], None]) -> AsyncIterator[bool]:
    """Hold the lock of the store during the block, which gets False if a stop is requested before it is free.

    ``on_wait`` is called once if another learner of this machine has it.
    """
    lock = await _locked(plant, learner, on_wait)
    try:
        yield lock is not None
    finally:
        await learner.close()
        if lock is not None:
            os.close(lock)


async def _locked(plant: Plant, learner: PlantLearner, on_wait: Callable[[], None]) -> int | None:
    is_told = False
    while not learner.is_stopped:
        if (lock := await asyncio.to_thread(try_lock, store_path(plant).with_name("learner.lock"))) is not None:
            return lock
        if not is_told:
            on_wait()
        is_told = True
        await plant.clock.sleep(_LOOK_S)
    return None


async def purged_here(plant: Plant, request: Request) -> int | None:
    """Send a request to purge, and do it here if the learner is started by runs and none works now.

    Return how many sequences were deleted; None: the learner does it once it reads it. Raises StreamadError.
    """
    await send_feedback(plant, [request])
    if _is_elsewhere(plant):
        return None
    learner, events = learner_of(plant, trains=False)
    learner.finish()
    async with the_only_learner(plant, learner, learner.request_stop) as is_alone:
        if is_alone:
            async with events:
                await learner.run()
        return learner.purged.get(request.request_id)


async def trained(
    plant: Plant, model: str, request: Request, show: Callable[[TrainingStatus], None]
) -> TrainingResult | None:
    """Send a request to train and return the result, None if a signal comes first: the training resumes later.

    If no learner works on this machine, and runs start it (``learning.process: here``), it works here until then.
    ``show`` gets the progress. Raises StreamadError.
    """
    await send_feedback(plant, [request])
    stop = asyncio.Event()
    working = None if _is_elsewhere(plant) else asyncio.create_task(_learn(plant, stop))
    if working is None:
        err.print(wrapped("asked; the result comes once streamad learn, wherever it works, has trained"))
    try:
        with stop_on_signals(stop.set, "the training saves how far it is"):
            while not stop.is_set():
                if (result := await _result(plant, model, request, show)) is not None:
                    return result
                if working is not None:
                    has_ended = working.done()
                    if has_ended:
                        working.result()
                    if has_ended or await asyncio.to_thread(_is_answered, plant, model, request):
                        if (result := await _result(plant, model, request, show)) is None:
                            raise NoAnswerError("the learner could not train: see its events (training_failed)")
                        return result
                await wait_for_either(stop, timeout_s=_POLL_S)
            return None
    finally:
        stop.set()
        if working is not None:
            await asyncio.wait({working})


def _is_answered(plant: Plant, model: str, request: Request) -> bool:
    with suppress(StoreError):  # busy for the moment: the next look may succeed
        store = store_for(plant, model)
        try:
            store.open_to_read()
            return store.is_answered(request.request_id)
        finally:
            store.close()
    return False


async def _result(
    plant: Plant, model: str, request: Request, show: Callable[[TrainingStatus], None]
) -> TrainingResult | None:
    status = await asyncio.to_thread(read_status, registry_of(plant), model)
    if status.last is not None and status.last.request.id == request.request_id:
        return status.last
    show(status)
    return None


async def _learn(plant: Plant, stop: asyncio.Event) -> None:
    """Learn until ``stop``, or until all that is there is learned and what is due is trained."""
    learner, events = learner_of(plant)
    learner.finish()

    async def stop_with() -> None:
        await stop.wait()
        learner.request_stop()

    stopping = asyncio.create_task(stop_with())
    try:
        async with the_only_learner(plant, learner, _note_another) as is_alone:
            if is_alone:
                async with events:
                    await learner.run()
    finally:
        stopping.cancel()


def _note_another() -> None:
    err.print(note("the learner that works on this store trains it: waiting for the result"))


def _is_elsewhere(plant: Plant) -> bool:
    learning = plant.settings.learning
    return learning is not None and learning.process == "elsewhere"
