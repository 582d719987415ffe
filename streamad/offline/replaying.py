"""Replays one unit after the other into Parquet files, one for each role of messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pydantic import BaseModel

from streamad.ingest.table.rows import BatchTable
from streamad.judge.bank import Batchers
from streamad.judge.explainer import Explainer
from streamad.judge.judging import JudgedSequence
from streamad.learn.serving.models import explainer_for, looking_for, models_at_work
from streamad.messages import (
    Alert,
    Attribution,
    DeadLetter,
    EarlyWarning,
    Event,
    LateRecord,
    OutputRecord,
    Role,
    Verdict,
    Window,
)
from streamad.offline.files import RowWriter
from streamad.offline.tally import Tally
from streamad.offline.units import Task
from streamad.ports import Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.schemas.fetching import fetching
from streamad.settings.fields import ConfigSection
from streamad.telemetry.events import EventLog

KINDS: Final[dict[Role, type[msgspec.Struct]]] = {
    "verdicts": Verdict,
    "alerts": Alert,
    "warnings": EarlyWarning,
    "attributions": Attribution,
    "windows": Window,
    "dead_letters": DeadLetter,
    "late": LateRecord,
    "events": Event,
}
"""What the file of each role holds; verdicts are first, because their file is finished last."""


class Replayer:
    """Runs recordings through the pipeline of ``streamad run``, with models and an explainer that it makes once.

    Micro-batches form as windows come, so the last digits of scores may differ from replay to replay. Whether the plant
    has shifted is not told: that needs all sequences together. Use it inside one event loop, and close it.
    """

    def __init__(self, task: Task, table: BatchTable | None) -> None:
        self._task = task
        self._table = table
        self._batchers: Batchers | None = None
        self._explainer: Explainer | None = None

    async def replayed(self, source: Source, rows: dict[Role, RowWriter]) -> tuple[Tally, set[str]]:
        """Replay ``source`` into ``rows`` and close it; return its figures, and the models that judged.

        "" among them: a sequence has no model. Raises StreamadError.
        """
        plant, settings = self._task.plant, self._task.plant.settings
        names: set[str] = set()

        def judged(sequence: JudgedSequence, _: int) -> None:
            names.add(sequence.verdict.model.name if sequence.verdict.model is not None else "")

        events = EventLog(settings.name, plant.clock, lambda _: None)
        try:
            if self._batchers is None:
                # Not by measurement: then where, and when, a part is judged would decide by which backend.
                self._batchers = await models_at_work(
                    plant, versions=self._task.versions, emit=events.emit, measured=False
                )
                self._explainer = explainer_for(plant)
            async with fetching(plant) as fetcher:
                pipeline = Pipeline(
                    settings,
                    source,
                    UnsavedCommitter({role: _RowSink(writer) for role, writer in rows.items()}),
                    self._batchers,
                    plant.clock,
                    explainer=self._explainer,
                    with_verdicts=True,
                    with_windows=True,
                    on_judged=judged,
                    events=events,
                    table=self._table,
                    looking=looking_for(plant, self._batchers, self._explainer, events.emit),
                    fetcher=fetcher,
                )
                await pipeline.run()
                await pipeline.commit_events()
        finally:
            await source.close()
        counted = pipeline.counters.as_dict()
        n_scored = sum(counted["verdicts"].get(decision, 0) for decision in ("normal", "anomalous"))
        tally = Tally(
            counted,
            counted["verdicts"],
            counted["unscorable"],
            n_scored=n_scored,
            n_known=counted["trained_model"],
        )
        return tally, names

    async def close(self) -> None:
        """End the threads of models and explainer."""
        if self._explainer is not None:
            self._explainer.close()
        if self._batchers is not None:
            await self._batchers.close()


class _RowSink:
    """A sink of one role that a Parquet file takes."""

    options_model: type[BaseModel] = ConfigSection

    def __init__(self, rows: RowWriter) -> None:
        self._rows = rows

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Take ``records``."""
        self._rows.add([record.message for record in records])

    async def flush(self) -> None:
        """Do nothing: the file counts once it is whole."""

    async def close(self) -> None:
        """Do nothing: whoever opened the file ends it."""
