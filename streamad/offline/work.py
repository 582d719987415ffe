"""Judges one unit after the other: what a process, or an actor of Ray, does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from importlib.metadata import version

from streamad.errors import OutputError, SourceError, StreamadError
from streamad.ingest.table.reading import read_table
from streamad.messages import Verdict
from streamad.offline.files import Made, file_of, writing_rows
from streamad.offline.judging import SequenceJudge, judged
from streamad.offline.models import ANY, Models, digest_in_registry, digest_of_all
from streamad.offline.replaying import KINDS, Replayer
from streamad.offline.tally import Tally
from streamad.offline.units import Task, Unit, part_of, units_of
from streamad.plugins import failure_of
from streamad.ports import Source
from streamad.runtime.recordings import MeasuredSource, cut
from streamad.runtime.wiring import source_for
from streamad.telemetry.metrics import Counters

ShowShare = Callable[[float], None]
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit: its ``tally``, or the ``error`` for which it failed."""

    unit: Unit
    tally: Tally | None = None
    error: str = ""


class Worker:
    """Judges units, one at a time, with models and a table of batches that it reads once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._models = Models(task.plant, task.versions)
        self._table = read_table(task.plant.settings, task.plant.base_dir)
        self._digests: dict[str, str] = {}
        self._runner = asyncio.Runner()
        self._replayer: Replayer | None = None

    def close(self) -> None:
        """End what the units have started."""
        self._forget_replayer()
        self._runner.close()

    def do(self, unit: Unit, show: ShowShare | None = None) -> Outcome:
        """Judge ``unit`` into its files. Raises OutputError; what else goes wrong is in the outcome."""
        try:
            work = self._scored(unit, show) if self._task.kind == "score" else self._replayed(unit, show)
            return Outcome(unit, self._runner.run(work))
        except OutputError:
            raise
        except StreamadError as error:
            self._forget_replayer()
            return Outcome(unit, error=str(error))
        except Exception as error:  # noqa: BLE001 - connectors and detectors are foreign code, and other units go on
            self._forget_replayer()
            return Outcome(unit, error=failure_of(error))

    async def _scored(self, unit: Unit, show: ShowShare | None) -> Tally:
        task, plant = self._task, self._task.plant
        source = self._source(unit)
        judge, counters = SequenceJudge(plant, self._models), Counters()

        def shown(_: Counters, share: float | None) -> None:
            if show is not None and share is not None:
                show(share)

        with writing_rows(file_of(task.folder, "verdicts", unit.partition, unit.place), [Verdict]) as rows:
            async with aclosing(judged(plant, source, judge, counters, shown, table=self._table)) as found:
                async for verdicts in found:
                    rows.add(verdicts)
            tally = Tally.of(judge, counters)
            rows.finish(self._made(unit, source, judge.names, tally))
        return tally

    async def _replayed(self, unit: Unit, show: ShowShare | None) -> Tally:
        source = MeasuredSource(self._source(unit))
        if self._replayer is None:
            self._replayer = Replayer(self._task, self._table)
        with ExitStack() as files:
            rows = {
                role: files.enter_context(
                    writing_rows(file_of(self._task.folder, role, unit.partition, unit.place), [kind])
                )
                for role, kind in KINDS.items()
            }
            telling = asyncio.create_task(_tell(source, show)) if show is not None else None
            try:
                tally, names = await self._replayer.replayed(source, rows)
            finally:
                if telling is not None:
                    telling.cancel()
            made = self._made(unit, self._source(unit), names, tally)
            for writer in rows.values():
                writer.finish(made)
        return tally

    def _source(self, unit: Unit) -> Source:
        task = self._task
        return part_of(cut(source_for(task.plant, task.url), task.span, unit.partition), unit)

    def _made(self, unit: Unit, source: Source, names: Collection[str], tally: Tally) -> Made:
        """Return what the unit's files are made of. Raises SourceError if its recordings have changed meanwhile."""
        if unit.digest and [each.digest for each in units_of(source)] != [unit.digest]:
            raise SourceError("was changed while it was read: run the same command again")
        digests = {name: self._digest(name) for name in sorted(names)}
        return Made(unit.partition, unit.digest, self._task.config, digests, version("streamad-monitor"), tally)

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            if name == ANY:
                self._digests[name] = digest_of_all(self._task.versions)
            else:
                ref = self._models.ref_of(name)
                self._digests[name] = "" if ref is None else digest_in_registry(self._task.plant, name, ref.version)
        return self._digests[name]

    def _forget_replayer(self) -> None:
        replayer, self._replayer = self._replayer, None
        if replayer is not None:
            with suppress(StreamadError):
                self._runner.run(replayer.close())


async def _tell(source: MeasuredSource, show: ShowShare) -> None:
    while True:
        show(source.share_read() or 0.0)
        await asyncio.sleep(_LOOK_S)
