"""Run a monitor through the plant's whole life, in the plant's time, as fast as it judges and trains.

A batch begins every two hours and takes most of a day, a training takes minutes. The feed waits during a training.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from life.monitors import Kind, learning_of
from life.plant import START_US, Batch, Phase
from streamad.judge.judging import JudgedSequence
from streamad.learn.store.records import mark_of
from streamad.messages import Decision, Event, Feedback, Verdict
from streamad.plant import Plant
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import EventLog
from streamad.testing import ListSource, ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch, from_us

_PARTITION = "plant"
_AT_ONCE = 20
"""Batches between two checks for a due training: less than two days of the plant."""
_NEW_MODEL = "model_promoted"
_SHOWN = (_NEW_MODEL, "model_not_promoted", "plant_changed", "drift", "training_failed", "learning_failed")


class Emitted(NamedTuple):
    """An event that a monitor emitted after ``n_batches``."""

    n_batches: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Course:
    """A monitor's decision on each batch, by its number, and its events."""

    decisions: list[Decision] = field(default_factory=list)
    events: list[Emitted] = field(default_factory=list)

    def new_models(self) -> list[int]:
        """Return after how many batches each model went into service."""
        return [event.n_batches for event in self.events if event.kind == _NEW_MODEL]


def watched(settings: Settings, phases: Sequence[Phase], batches: Sequence[Batch], *, kind: Kind, seed: int) -> Course:
    """Run a monitor of this kind on ``batches``; prints its events to stderr. Raises StreamadError."""
    with tempfile.TemporaryDirectory(prefix=f"life-{kind}-") as folder:
        make = partial(_Monitor, kind, settings, Path(folder))
        return asyncio.run(_watched(make, phases, batches, random.Random(seed)))


async def _watched(
    make: Callable[[], _Monitor], phases: Sequence[Phase], batches: Sequence[Batch], operator: random.Random
) -> Course:
    monitor = make()
    await monitor.begin()
    try:
        for first in range(0, len(batches), _AT_ONCE):
            some = batches[first : first + _AT_ONCE]
            verdicts = await monitor.judge(some)
            for batch in some:
                verdict = verdicts[batch.number]
                if verdict.decision == "anomalous" and operator.random() < phases[batch.phase].answered:
                    await monitor.mark(verdict, was_right=bool(batch.fault))
            await monitor.wait_until_trained()
    finally:
        await monitor.close()
    return monitor.course


class _Monitor:
    """The product's pipeline over batches of the plant; its clock shows the end of the last one."""

    def __init__(self, kind: Kind, settings: Settings, folder: Path) -> None:
        self.course = Course()
        self._kind = kind
        self._clock = ManualClock(START_US)
        self._source = ListSource([PartitionAssigned(_PARTITION)], endless=True)
        self._verdicts: dict[str, Verdict] = {}
        self._settings = settings
        self._events = EventLog(settings.name, self._clock, self._on_event)
        self._learning = learning_of(kind, Plant(settings, folder, self._clock), self._clock, self._events)

    async def begin(self) -> None:
        """Begin to judge and to learn."""
        self._batchers = await self._learning.begin()
        pipeline = Pipeline(
            self._settings,
            self._source,
            UnsavedCommitter({"windows": self._learning.windows}),
            self._batchers,
            self._clock,
            explainer=None,
            with_verdicts=False,
            with_windows=True,
            on_judged=self._on_judged,
            events=self._events,
        )
        self._running = asyncio.create_task(pipeline.run())

    async def judge(self, batches: Sequence[Batch]) -> dict[int, Verdict]:
        """Return the verdicts on ``batches`` by their numbers."""
        ended_us = max(batch.end_us for batch in batches)
        self._clock.advance(max(0, ended_us - self._clock.now_us()) / 1e6)
        records = tuple(Record(batch.number, batch.message) for batch in batches)
        self._source.feed(RecordBatch(_PARTITION, records, batches[-1].number + 1))
        self._verdicts.clear()
        while len(self._verdicts) < len(batches):
            if self._running.done():
                self._running.result()
            self._clock.advance(0.05)  # for what waits for company, or for the next commit
            await asyncio.sleep(0.001)
        by_number = {_number(sequence): verdict for sequence, verdict in self._verdicts.items()}
        self.course.decisions.extend(by_number[batch.number].decision for batch in batches)
        return by_number

    async def mark(self, verdict: Verdict, *, was_right: bool) -> None:
        """Take an operator's mark on an alert."""
        feedback = Feedback(
            alert_id=verdict.verdict_id,
            judgement="confirmed" if was_right else "false_alarm",
            created_at=from_us(self._clock.now_us()),
        )
        await self._learning.mark(mark_of(feedback))

    async def wait_until_trained(self) -> None:
        """Return once everything judged so far has had its effect: a training, a swap."""
        await self._learning.wait_until_trained()

    async def close(self) -> None:
        """End the monitor."""
        await self._learning.close()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._source.close()
        await self._batchers.close()

    def _on_judged(self, judged: JudgedSequence, _: int) -> None:
        verdict = judged.verdict
        self._verdicts[verdict.sequence] = verdict
        self._learning.judged(judged)

    def _on_event(self, event: Event) -> None:
        emitted = Emitted(len(self.course.decisions), event.kind, event.message)
        last = next((each.kind for each in reversed(self.course.events) if each.kind in _SHOWN), None)
        self.course.events.append(emitted)
        if event.kind == _NEW_MODEL or (event.kind in _SHOWN and event.kind != last):
            line = f"{self._kind:8}  batch {emitted.n_batches:4}  {event.kind}: {event.message}"
            print(line, file=sys.stderr, flush=True)


def _number(sequence: str) -> int:
    return int(sequence.removeprefix("B-")) - 1
