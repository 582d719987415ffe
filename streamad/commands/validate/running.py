"""Judges a data set as ``run`` would: replayed several times, and broken off and started anew."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from streamad.commands.shared.console import err, printed
from streamad.commands.shared.figures.report import RunReport
from streamad.commands.shared.monitor import Monitor
from streamad.commands.shared.options import open_input
from streamad.commands.validate.comparing import COMPARED, Outputs, OutputSink, outputs_in
from streamad.commands.validate.data import Given
from streamad.errors import StreamadError, UsageError
from streamad.messages import OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.ports import Committer, ResumableSource, Sink, Source
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.runtime.recordings import MeasuredSource
from streamad.tables import ColumnBatch, Wanted
from streamad.types import RecordBatch, SourceEvent

_COMMIT_US: Final = 50_000
"""Of a run that is broken off: often enough that something is committed before."""


_NEVER_US: Final = 1 << 60
"""These runs are no service: they log no status."""


class InterruptedRunError(StreamadError):
    """Raised when a person stopped a run before its end."""

    exit_code = 130


class _BrokenOffError(StreamadError):
    """Raised in a commit to end a run there."""


class NotingSource(MeasuredSource):
    """Delivers the events of a finite source, and notes ``with_records``: the partitions that have any."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.with_records: set[str] = set()

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Yield the other source's events."""
        async for event in super().batches():
            self._note(event)
            yield event

    async def column_batches(self, wanted: Wanted) -> AsyncIterator[SourceEvent | ColumnBatch]:
        """Yield the other source's events, with columns if it has any."""
        async for event in super().column_batches(wanted):
            self._note(event)
            yield event

    def _note(self, event: SourceEvent | ColumnBatch) -> None:
        match event:
            case ColumnBatch(n=n) if n:
                self.with_records.add(event.partition)
            case RecordBatch(records=records) if records:
                self.with_records.add(event.partition)


class Runs:
    """Runs of a plant with the versions in service at its beginning; the registry and the sinks stay as they are."""

    def __init__(self, plant: Plant, versions: Mapping[str, str]) -> None:
        run = plant.settings.run.model_copy(update={"report_interval": _NEVER_US})
        self._plant = replace(plant, settings=plant.settings.model_copy(update={"run": run}))
        self._versions = versions

    async def replay(self, given: Given, words: str) -> tuple[RunReport, Outputs, Set[str]]:
        """Return the report of one replay, what it said, and the partitions that have records.

        Raises InterruptedRunError, and what a run raises.
        """
        _tell(given, words)
        outputs = Outputs()
        source = NotingSource(open_input(self._plant, given.url))
        committer = UnsavedCommitter({role: OutputSink(role, outputs) for role in COMPARED})
        report = await self._run(self._plant, source, committer)
        return report, outputs, source.with_records

    async def restarted(self, given: Given, n_verdicts: int, cuts: int) -> Outputs:
        """Return what a run said that was broken off ``cuts`` times and started anew from its checkpoint.

        An error ends it as the verdicts at even shares of all are committed: before that, so that they are lost, and
        the last time right after it. The process goes on, so no write is torn.

        Raises InterruptedRunError, UsageError, and what a run raises.
        """
        run = self._plant.settings.run.model_copy(update={"commit_interval": _COMMIT_US})
        plant = replace(self._plant, settings=self._plant.settings.model_copy(update={"run": run}))
        with tempfile.TemporaryDirectory(prefix="streamad-validate-") as name:
            folder = Path(name)
            files = {role: folder / f"{role}.jsonl" for role in COMPARED}
            breaks = _Breaks([n_verdicts * number // (cuts + 1) for number in range(1, cuts + 1)])
            for number in range(cuts + 1):
                _tell(given, f"broken off and started anew: start {number + 1} of {cuts + 1}")
                source = open_input(plant, given.url)
                if not isinstance(source, ResumableSource):
                    raise UsageError(f"data set {given.wanted.name}: a run on it cannot be restarted: restarts: null")
                inner = LocalCommitter(folder / "checkpoint", *_sinks(plant, files), source.check_cursors)
                try:
                    await self._run(plant, source, BreakingCommitter(inner, breaks))
                except _BrokenOffError:
                    continue
            return outputs_in(files)

    async def _run(self, plant: Plant, source: Source, committer: Committer) -> RunReport:
        monitor = Monitor(plant, quiet=True, tells_events=False, keeps_verdicts=True)
        report = await monitor.run(
            source, committer, explain=False, with_verdicts=True, with_windows=False, versions=self._versions
        )
        if report.interrupted:
            raise InterruptedRunError("interrupted")
        return report


def _sinks(plant: Plant, files: Mapping[Role, Path]) -> tuple[dict[Role, Sink], dict[Role, str]]:
    urls: dict[Role, str] = {role: f"file:{path}" for role, path in files.items()}
    return {role: connect_sink(url, {}, plant.context) for role, url in urls.items()}, urls


def _tell(given: Given, words: str) -> None:
    err.print(printed(f"{given.wanted.name}: {words}"))


class _Breaks:
    """When a run is broken off: as it commits the verdict after each of these numbers, of all its starts together."""

    def __init__(self, at: list[int]) -> None:
        self._left = at
        self._n_committed = 0

    def due(self, n_verdicts: int) -> Literal["before", "after"] | None:
        """Return whether the run ends before or after a commit of ``n_verdicts``, None if it goes on."""
        if self._left and self._n_committed + n_verdicts > self._left[0]:
            self._left.pop(0)
            if self._left:
                return "before"
            self._n_committed += n_verdicts
            return "after"
        self._n_committed += n_verdicts
        return None


class BreakingCommitter:
    """Commits by another committer until a break is due: then it raises, and nothing is committed any more."""

    def __init__(self, inner: Committer, breaks: _Breaks) -> None:
        self._inner, self._breaks = inner, breaks
        self._is_dead = False

    @property
    def max_item_bytes(self) -> int | None:
        """Return that of the other committer."""
        return self._inner.max_item_bytes

    async def owing(self) -> Mapping[str, Progress]:
        """Return what the other committer does."""
        return await self._inner.owing()

    async def restore(self, partition: str) -> Progress | None:
        """Return what the other committer does."""
        return await self._inner.restore(partition)

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Commit, or raise, from then on always."""
        if self._is_dead:
            raise _BrokenOffError("broken off before")
        when = self._breaks.due(sum(record.role == "verdicts" for record in outputs))
        self._is_dead = when is not None
        if when != "before":
            await self._inner.commit(update, outputs)
        if when is not None:
            raise _BrokenOffError(f"broken off {when} a commit")

    async def release(self, partition: str) -> None:
        """Release it by the other committer."""
        await self._inner.release(partition)

    async def close(self) -> None:
        """Close the other committer."""
        await self._inner.close()
