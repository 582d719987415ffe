"""``streamad learn``: learns from what the workers of a plant have committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from streamad.commands.shared.plants import load_whole_plant
from streamad.outputs.stored import learning_of
from streamad.plant import Plant

if TYPE_CHECKING:
    from streamad.learn.process.events import LearnerEvents
    from streamad.learn.process.service import PlantLearner


def learn(
    config: ConfigOption = Path("plant.yaml"),
    present: Annotated[
        bool, typer.Option("--present", help="Learn from what is there now, train what is due, and end.")
    ] = False,
    shards: Annotated[
        Path | None,
        typer.Option("--import", metavar="FOLDER", help="First take the sequences and marks of a store of shards."),
    ] = None,
    supervised: Annotated[bool, typer.Option(hidden=True)] = False,
    metrics: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Learn from what the workers have committed: store judged windows, watch drift, train models and promote them.

    It judges nothing, and workers need nothing of it but the models that it puts into the registry: it may run on
    another machine that can read the outputs and write the registry, for example one with a GPU. One learner works at a
    time; a second one waits. Ctrl-C ends it: a training that runs is continued at the next start.

    Example: streamad learn --present
    """
    plant = load_whole_plant(config)
    learning_of(plant)
    listen = plant.settings.metrics.listen if metrics or not supervised else None
    run_async(_learn(plant, present=present, supervised=supervised, shards=shards, listen=listen))


async def _learn(plant: Plant, *, present: bool, supervised: bool, shards: Path | None, listen: str | None) -> None:
    from streamad.commands.shared.learner import learner_of, the_only_learner  # noqa: PLC0415 - help needs none

    def on_wait() -> None:
        err.print(note("another learner works on this store: waiting for its end"))

    learner, events = learner_of(plant)
    if present:
        learner.finish()
    if supervised:  # before the wait for another learner: the parent may end meanwhile
        stop_with_parent(learner.request_stop, on_word=learner.finish)
    with stop_on_signals(learner.request_stop, "" if supervised else "ending the training that runs, if any"):
        async with the_only_learner(plant, learner, on_wait) as is_alone:
            if is_alone:
                _look_at_shards(plant, shards)
                async with events, _metrics(None if present else listen, learner, events):
                    await learner.run()
                    await learner.close()
    if not supervised:
        for name, counters in learner.counters.items():
            stored = f"{counters.accepted} accepted, {counters.reserved} reserved, {counters.aside} aside"
            out.print(f"{name}: {stored}; {counters.trainings} trainings, {counters.promotions} promoted")


@asynccontextmanager
async def _metrics(listen: str | None, learner: PlantLearner, events: LearnerEvents) -> AsyncIterator[None]:
    """Serve the learner's metrics during the block, if ``listen`` is an address: those of a run beside it are its own.

    Raises OutputError.
    """
    if listen is None:
        yield
        return
    from streamad.runtime.metrics import LearnerCollector, MetricsServer  # noqa: PLC0415 - for those who want it

    server = MetricsServer(listen, LearnerCollector(learner.counters, events.counts), lambda: True)
    try:
        yield
    finally:
        await server.close()


def _look_at_shards(plant: Plant, shards: Path | None) -> None:
    """Take the shards in the folder ``shards``; None: say if there are some in the store's folder."""
    from streamad.learn.parts import may_be_added, store_for, store_path  # noqa: PLC0415
    from streamad.learn.store.importing import import_shards, models_in_shards  # noqa: PLC0415

    own = store_path(plant)
    if shards is None:
        if not own.exists() and (names := models_in_shards(own.parent)):
            how = f"streamad learn --import {plant.settings.learning.store if plant.settings.learning else ''}"
            err.print(note(f"{own.parent} holds shards of {', '.join(names)}, which are not used: `{how}` takes them"))
        return
    for name in models_in_shards(plant.base_dir / shards):
        if not may_be_added(plant.settings, name, ()):
            err.print(note(f"not imported: {name} is no model of this plant"))
            continue
        store = store_for(plant, name)
        done = import_shards(plant.base_dir / shards / name, store)
        store.close()
        for problem in done.problems:
            err.print(note(f"not imported: {problem}"))
        err.print(note(f"{name}: {count(done.sequences, 'sequence')} and {count(done.marks, 'mark')} imported"))
