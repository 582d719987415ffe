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
from streamad.judge.early.looking import Looking
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.plugins import ConnectorContext
from streamad.ports import Source
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.system.saved_progress import read_checkpoint
from streamad.telemetry.events import EventLog
from streamad.types import RecordBatch, SourceEvent
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions
from streamad_connectors.files.source import FileSource
from streamad_models.simple import Pointwise
from tests.support.runtime.early import RATE, model
from tests.support.runtime.pipeline import ROLES, explainer_of, model_of, settings_of

SETTINGS = settings_of(
    sequences={"allowed_lateness": "3s"}, run={"commit_interval": "1ms", "batch_wait": "1ms", "batch_windows": 4}
)
LOOKING = settings_of(
    alerts={"early": {"false_alarm_rate": RATE}},
    sequences={"allowed_lateness": "1s"},
    run={"commit_interval": "1ms", "batch_wait": "1ms", "batch_windows": 4},
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

RECORDS_OF_A_LIFE = 14
MOST_AHEAD = 2

MakeModel: TypeAlias = Callable[[], ModelInService]


class SlowSteps:
    """Gives another source's records one by one, never far beyond the newest commit, and stops after some new ones.

    So the number of commits, and how far one life comes, do not depend on how fast the machine and its disk are.
    Records that are read again do not count, and nothing waits for them.
    """

    options_model: type[BaseModel] = FileOptions

    def __init__(self, source: Source, folder: Path) -> None:
        self._source, self._folder = source, folder
        progress = read_checkpoint(folder / "checkpoint").progress
        self._read_below = {name: saved.next_offset for name, saved in progress.items()}

    async def batches(self) -> AsyncIterator[SourceEvent]:
        n_given, n_ahead, n_commits = 0, 0, commits(self._folder)
        async for event in self._source.batches():
            if not isinstance(event, RecordBatch):
                yield event
                continue
            nexts = [record.offset for record in event.records[1:]] + [event.next_offset]
            for record, next_offset in zip(event.records, nexts, strict=True):
                is_new = record.offset >= self._read_below.get(event.partition, 0)
                if is_new and n_given == RECORDS_OF_A_LIFE:
                    await asyncio.Event().wait()  # until it is killed
                yield RecordBatch(event.partition, [record], next_offset)
                n_given, n_ahead = n_given + is_new, n_ahead + is_new
                while n_ahead == MOST_AHEAD:
                    await asyncio.sleep(0.001)
                    if (found := commits(self._folder)) > n_commits:
                        n_commits, n_ahead = found, 0

    async def seek(self, partition: str, offset: int | None) -> int:
        return await self._source.seek(partition, offset)

    async def close(self) -> None:
        await self._source.close()


def monitor(folder: Path, backend: str | None = None, *, to_be_killed: bool = False) -> None:
    """Run from what the disk holds to the end of ``folder``/recordings, or to a SIGTERM.

    ``backend`` serves the exported detector ``pointwise`` in ``folder``/model; None: the scorer of ``model_of``.
    """
    make_model = partial(_model, folder / "model", backend)
    asyncio.run(_run(folder, _recordings(folder, SETTINGS, to_be_killed), SETTINGS, make_model=make_model))


def _recordings(folder: Path, settings: Settings, to_be_killed: bool) -> Source:
    source = FileSource("recordings", FileOptions(), ConnectorContext(settings.channel_specs, SystemClock(), folder))
    return SlowSteps(source, folder) if to_be_killed else source


def _model(folder: Path, backend: str | None) -> ModelInService:
    if backend is None:
        return model_of()
    make, cpu = Pointwise(), "cpu"
    return model_of(make.load(folder, device=cpu) if backend == "torchscript" else make.load_by(backend, folder))


def monitor_by_table(folder: Path, *, to_be_killed: bool = False) -> None:
    """Run from what the disk holds to the end of ``folder``/recordings, cut by ``folder``/batches.csv."""
    source = _recordings(folder, BY_TABLE, to_be_killed)
    asyncio.run(_run(folder, source, BY_TABLE, table=read_table(BY_TABLE, folder)))


def monitor_looking(folder: Path, *, to_be_killed: bool = False) -> None:
    """Run from what the disk holds to the end of ``folder``/recordings, with looks at running sequences."""
    asyncio.run(_run(folder, _recordings(folder, LOOKING, to_be_killed), LOOKING, make_model=model))


def follow(folder: Path) -> None:
    """Run from what the disk holds, and go on with ``folder``/in/app.jsonl until a SIGTERM."""
    context = ConnectorContext(FOLLOWING.channel_specs, SystemClock(), folder)
    options = FileOptions(follow=True, follow_interval="1ms")  # type: ignore[arg-type] - pydantic reads durations
    source = FileSource("in/app.jsonl", options, context)
    asyncio.run(_run(folder, source, FOLLOWING, source.check_cursors))


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
    explainer = explainer_of(settings, clock, make_model())  # a scorer takes one call at a time
    looking = None
    if settings.alerts.early is not None:
        emit = EventLog(settings.name, clock).emit
        looking = Looking(settings, batcher, clock, load=lambda _: make_model(), explainer=explainer, emit=emit)
    pipeline = Pipeline(
        settings,
        source,
        committer,
        batcher,
        clock,
        explainer=explainer,
        with_verdicts=True,
        with_windows=True,
        table=table,
        looking=looking,
    )
    with stop_on_signals(pipeline.request_stop):
        await pipeline.run()
        await batcher.close()
        await source.close()
        await committer.close()


def commits(folder: Path) -> int:
    """The number of the newest commit, 0 before the first."""
    return max((json.loads(path.read_bytes())["number"] for path in (folder / "checkpoint").glob("*.json")), default=0)
