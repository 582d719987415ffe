"""``streamad learn``: learns from what the workers of a plant have committed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamad.commands.shared.console import (
    ConfigOption,
    count,
    err,
    note,
    out,
    run_async,
    stop_on_signals,
    stop_with_parent,
)
from streamad.commands.shared.monitor import event_line
from streamad.commands.shared.plants import load_whole_plant
from streamad.errors import UsageError
from streamad.messages import Event
from streamad.plant import Plant

if TYPE_CHECKING:
    from streamad.learn.process.service import PlantLearner

_LOOK_S = 1.0


def learn(
    config: ConfigOption = Path("plant.yaml"),
    present: Annotated[
        bool, typer.Option("--present", help="Learn from what is there now, train what is due, and end.")
    ] = False,
    import_shards: Annotated[
        bool, typer.Option("--import", help="First take what workers stored while learning.process was worker.")
    ] = False,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Learn from what the workers have committed: store judged windows, watch drift, train models and promote them.

    It judges nothing, and workers need nothing of it but the models that it puts into the registry: it may run on
    another machine that can read the outputs and write the registry, for example one with a GPU. One learner works at a
    time; a second one waits. Ctrl-C ends it: a training that runs is continued at the next start.

    Example: streamad learn --present
    """
    plant = load_whole_plant(config)
    learning = plant.settings.learning
    if learning is None:
        raise UsageError("the config has no section learning: there is nothing to learn")
    if learning.process == "worker":
        raise UsageError("learning.process is worker, so each worker learns by itself: set it to here or elsewhere")
    run_async(_learn(plant, present=present, supervised=supervised, imports=import_shards))


async def _learn(plant: Plant, *, present: bool, supervised: bool, imports: bool) -> None:
    from streamad.learn.parts import database_path  # noqa: PLC0415 - help and wrong options need none
    from streamad.learn.process.events import LearnerEvents  # noqa: PLC0415
    from streamad.learn.process.service import PlantLearner  # noqa: PLC0415

    def shown(event: Event) -> None:
        err.print(event_line(event, names_model=plant.settings.models is not None))

    store = database_path(plant)
    store.parent.mkdir(parents=True, exist_ok=True)
    events = LearnerEvents(plant, shown)
    learner = PlantLearner(plant, events.emit, store.with_name("learner.json"))
    if present:
        learner.finish()
    if supervised:  # before the wait for another learner: the parent may end meanwhile
        stop_with_parent(learner.request_stop, on_word=learner.finish)
    with stop_on_signals(learner.request_stop, "" if supervised else "ending the training that runs, if any"):
        lock = await _locked(plant, store.with_name("learner.lock"), learner)
        try:
            if lock is not None:
                if imports:
                    await asyncio.to_thread(_import, plant)
                async with events:
                    await learner.run()
                    await learner.close()
        finally:
            await learner.close()
            if lock is not None:
                os.close(lock)
    if not supervised:
        for name, counters in learner.counters.items():
            stored = f"{counters.accepted} accepted, {counters.reserved} reserved, {counters.aside} aside"
            out.print(f"{name}: {stored}; {counters.trainings} trainings, {counters.promotions} promoted")


async def _locked(plant: Plant, path: Path, learner: PlantLearner) -> int | None:
    """Return the lock of the store once no other learner has it, None if a stop is requested first."""
    from streamad.system.locks import try_lock  # noqa: PLC0415

    is_told = False
    while not learner.is_stopped:
        if (lock := await asyncio.to_thread(try_lock, path)) is not None:
            return lock
        if not is_told:
            err.print(note("another learner works on this store: waiting for its end"))
        is_told = True
        await plant.clock.sleep(_LOOK_S)
    return None


def _import(plant: Plant) -> None:
    """Take the shards in ``learning.store``, of each model; say how many sequences and what cannot be read."""
    from streamad.learn.parts import shards_of, store_for  # noqa: PLC0415
    from streamad.learn.store.database import InlierDatabase  # noqa: PLC0415
    from streamad.learn.store.importing import import_shards  # noqa: PLC0415

    for name, shards in shards_of(plant).items():
        store = store_for(plant, name)
        assert isinstance(store, InlierDatabase)
        done = import_shards(shards, store)
        store.close()
        for problem in done.problems:
            err.print(note(f"not imported: {problem}"))
        err.print(note(f"{name}: {count(done.sequences, 'sequence')} and {count(done.marks, 'mark')} imported"))
