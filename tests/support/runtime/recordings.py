"""Runs a plant whose source are recordings in a folder, with its checkpoint, and counts what came out."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

from streamad.ingest.record_times import times_for
from streamad.judge.scoring import MicroBatcher
from streamad.plugins import ConnectorContext, connect_source
from streamad.ports import Clock
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.saved_progress import read_checkpoint
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions
from streamad_connectors.files.source import FileSource
from tests.support.runtime.pipeline import ROLES, TickingClock, explainer_of, line, model_of, settings_of


async def run_recordings(
    folder: Path,
    url: str = "in/*.jsonl",
    settings: Settings | None = None,
    clock: Clock | None = None,
    while_running: Callable[[Pipeline], Awaitable[None]] | None = None,
    **options: Any,
) -> Pipeline:
    """Run from the checkpoint in ``folder`` to the end of its recordings; return the ended pipeline.

    With ``while_running``, which acts beside it, to the end of that.
    """
    settings = settings or settings_of(run={"commit_interval": "1ms", "batch_windows": 2})
    clock = clock or TickingClock(0.001)
    context = ConnectorContext(
        settings.channel_specs, clock, folder, sequence_from=settings.decode.sequence_from, times=times_for(settings)
    )
    sinks = {role: JsonlSink(f"out/{role}.jsonl", JsonlSinkOptions(), context) for role in ROLES}
    source = connect_source(url, options, context)
    names = {role: f"out/{role}.jsonl" for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, names, cast("FileSource", source).check_cursors)
    batcher = MicroBatcher(model_of(), clock, settings.run)
    pipeline = Pipeline(
        settings,
        source,
        committer,
        batcher,
        clock,
        explainer=explainer_of(settings, clock),
        with_verdicts=True,
        with_windows=True,
    )
    run = asyncio.create_task(pipeline.run())
    try:
        if while_running is not None:
            acting = asyncio.ensure_future(while_running(pipeline))
            await asyncio.wait({run, acting}, return_when=asyncio.FIRST_COMPLETED)
            acting.cancel()
            pipeline.request_stop()
            if not run.done():
                await acting
        await run
    finally:
        await batcher.close()
        await source.close()
        await committer.close()
    return pipeline


def verdicts(folder: Path) -> Counter[tuple[str, str, int]]:
    """The decision and number of samples of each verdict, by its sequence."""
    lines = (folder / "out" / "verdicts.jsonl").read_text().splitlines()
    messages = [json.loads(text) for text in lines]
    return Counter((message["sequence"], message["decision"], message["n_samples"]) for message in messages)


def write_recording(path: Path, messages: Sequence[bytes]) -> None:
    """Write JSON lines, and the folder."""
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(b"".join(message + b"\n" for message in messages))


def batches_of(names: Sequence[str], *, start_s: float = 0.0, samples: int = 2) -> list[bytes]:
    """Messages of one stream: a sample each, sequences one after the other, each with ``samples``."""
    times = [(name, start_s + number * samples + k) for number, name in enumerate(names) for k in range(samples)]
    return [line("a", name, [time_s]) for name, time_s in times]


def committed(folder: Path) -> int:
    """The offset up to which the only partition was read, by the checkpoint; -1 before the first commit."""
    progress = read_checkpoint(folder / "checkpoint").progress
    return next((each.next_offset for each in progress.values()), -1)
