"""What a child process does in tests that kill it: monitor a folder of recordings in small, slow steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from pydantic import BaseModel

from streamad.commands.shared.console import stop_on_signals
from streamad.ingest.table.reading import read_table
from streamad.ingest.table.rows import BatchTable
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.plugins import ConnectorContext
from streamad.ports import Source
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.types import RecordBatch, SourceEvent
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions
from streamad_connectors.files.source import FileSource
from streamad_models.simple import Pointwise
from tests.support.runtime.pipeline import ROLES, explainer_of, model_of, settings_of

SETTINGS = settings_of(
    sequences={"allowed_lateness": "3s"}, run={"commit_interval": "1ms", "batch_wait": "1ms", "batch_windows": 4}
)
BY_TABLE = settings_of(
    sequences={"end": ["table"], "table": "batches.csv", "allowed_lateness": "3s"},
    run={"commit_interval": "1ms", "batch_wait": "1ms", "batch_windows": 4},
)
# Silence counts as an outage at once, so that no sequence ends by the wall clock.
FOLLOWING = settings_of(
    sequences={"allowed_lateness": "3s", "max_late": 0.5, "max_merged": 0.5},  # most of the messy sequences are judged
    run={"commit_interval": "1ms", "batch_wait": "1ms", "batch_windows": 4, "outage_after": "1us"},
)

MakeModel: TypeAlias = Callable[[], ModelInService]


class SlowSteps:
    """Cuts another source's batches into small ones and takes its time between them."""

    options_model: type[BaseModel] = FileOptions

    def __init__(self, source: Source, records: int, step_s: float) -> None:
        self._source, self._records, self._step_s = source, records, step_s

    async def batches(self) -> AsyncIterator[SourceEvent]:
        async for event in self._source.batches():
            if not isinstance(event, RecordBatch):
                yield event
                continue
            for first in range(0, len(event.records), self._records):
                part = event.records[first : first + self._records]
                rest = event.records[first + self._records :]
                yield RecordBatch(event.partition, part, rest[0].offset if rest else event.next_offset)
                await asyncio.sleep(self._step_s)

    async def seek(self, partition: str, offset: int | None) -> int:
        return await self._source.seek(partition, offset)

    async def close(self) -> None:
        await self._source.close()


def monitor(folder: Path, step_s: float = 0.002, backend: str | None = None) -> None:
    """Run from what the disk holds to the end of ``folder``/recordings, or to a SIGTERM.

    ``backend`` serves the exported detector ``pointwise`` in ``folder``/model; None: the scorer of ``model_of``.
    """
    asyncio.run(_monitor(folder, step_s, partial(_model, folder / "model", backend)))


def _model(folder: Path, backend: str | None) -> ModelInService:
    if backend is None:
        return model_of()
    make, cpu = Pointwise(), "cpu"
    return model_of(make.load(folder, device=cpu) if backend == "torchscript" else make.load_by(backend, folder))


def monitor_by_table(folder: Path, step_s: float = 0.002) -> None:
    """Run from what the disk holds to the end of ``folder``/recordings, cut by ``folder``/batches.csv."""
    context = ConnectorContext(BY_TABLE.channel_specs, SystemClock(), folder)
    source = SlowSteps(FileSource("recordings", FileOptions(), context), 4, step_s)
    asyncio.run(_run(folder, source, BY_TABLE, table=read_table(BY_TABLE, folder)))


def follow(folder: Path) -> None:
    """Run from what the disk holds, and go on with ``folder``/in/app.jsonl until a SIGTERM."""
    context = ConnectorContext(FOLLOWING.channel_specs, SystemClock(), folder)
    options = FileOptions(follow=True, follow_interval="1ms")  # type: ignore[arg-type] - pydantic reads durations
    source = FileSource("in/app.jsonl", options, context)
    asyncio.run(_run(folder, source, FOLLOWING, source.check_cursors))


async def _monitor(folder: Path, step_s: float, make_model: MakeModel) -> None:
    context = ConnectorContext(SETTINGS.channel_specs, SystemClock(), folder)
    await _run(
        folder, SlowSteps(FileSource("recordings", FileOptions(), context), 4, step_s), SETTINGS, make_model=make_model
    )


async def _run(
    folder: Path,
    source: Source,
    settings: Settings,
    check_cursors: Callable[[Mapping[str, str | None]], None] | None = None,
    *,
    make_model: MakeModel = model_of,
    table: BatchTable | None = None,
) -> None:
    clock = SystemClock()
    context = ConnectorContext(settings.channel_specs, clock, folder)
    sinks = {role: JsonlSink(f"out/{role}.jsonl", JsonlSinkOptions(), context) for role in ROLES}
    names = {role: f"out/{role}.jsonl" for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, names, check_cursors)
    batcher = MicroBatcher(make_model(), clock, settings.run)
    pipeline = Pipeline(
        settings,
        source,
        committer,
        batcher,
        clock,
        explainer=explainer_of(settings, clock, make_model()),  # a scorer takes one call at a time
        with_verdicts=True,
        with_windows=True,
        table=table,
    )
    with stop_on_signals(pipeline.request_stop):
        await pipeline.run()
        await batcher.close()
        await source.close()
        await committer.close()


def commits(folder: Path) -> int:
    """The number of the newest commit, 0 before the first."""
    return max((json.loads(path.read_bytes())["number"] for path in (folder / "checkpoint").glob("*.json")), default=0)
