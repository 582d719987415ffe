"""Judges one unit after the other: what a process, or an actor of Ray, does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from importlib.metadata import version

from streamad.errors import OutputError, SourceError, StreamadError
from streamad.ingest.table.reading import read_table
from streamad.messages import Verdict
from streamad.offline.files import Made, file_of, writing_rows
from streamad.offline.judging import SequenceJudge, judged
from streamad.offline.models import Models, digest_of
from streamad.offline.tally import Tally
from streamad.offline.units import Task, Unit, part_of, units_of
from streamad.plugins import failure_of
from streamad.runtime.recordings import cut
from streamad.runtime.wiring import source_for
from streamad.telemetry.metrics import Counters

ShowShare = Callable[[float], None]


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

    def do(self, unit: Unit, show: ShowShare | None = None) -> Outcome:
        """Judge ``unit`` into its files. Raises OutputError; what else goes wrong is in the outcome."""
        try:
            return Outcome(unit, asyncio.run(self._scored(unit, show)))
        except OutputError:
            raise
        except StreamadError as error:
            return Outcome(unit, error=str(error))
        except Exception as error:  # noqa: BLE001 - connectors and detectors are foreign code, and other units go on
            return Outcome(unit, error=failure_of(error))

    async def _scored(self, unit: Unit, show: ShowShare | None) -> Tally:
        task, plant = self._task, self._task.plant
        source = part_of(cut(source_for(plant, task.url), task.span, unit.partition), unit)
        judge, counters = SequenceJudge(plant, self._models), Counters()

        def shown(_: Counters, share: float | None) -> None:
            if show is not None and share is not None:
                show(share)

        with writing_rows(file_of(task.folder, "verdicts", unit.partition), [Verdict]) as rows:
            async with aclosing(judged(plant, source, judge, counters, shown, table=self._table)) as found:
                async for verdicts in found:
                    rows.add(verdicts)
            if unit.digest and [each.digest for each in units_of(source)] != [unit.digest]:
                raise SourceError("was changed while it was read: run the same command again")
            tally = Tally.of(judge, counters)
            digests = {name: self._digest(name) for name in sorted(judge.names)}
            rows.finish(Made(unit.partition, unit.digest, task.config, digests, version("streamad-monitor"), tally))
        return tally

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            ref = self._models.ref_of(name)
            self._digests[name] = "" if ref is None else digest_of(self._task.plant, name, ref.version)
        return self._digests[name]
