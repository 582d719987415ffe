"""A stop ends in bounded time: what is not judged by then belongs to the next run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from streamad.messages import OutputRecord
from streamad.progress import ProgressUpdate
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.testing import ListSource, ManualClock
from streamad.types import FloatArray, IntArray, PartitionAssigned, PartitionEnded, RecordBatch
from tests.support.runtime.pipeline import (
    Run,
    SquareScorer,
    line,
    model_of,
    records_of,
    run_pipeline,
    settings_of,
    steps,
    until,
)


class StuckScorer(SquareScorer):
    """Judges the first batch and is stuck in the second until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.stuck = threading.Event()

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        if self.batches:
            self.stuck.set()
            assert self.go.wait(30)
        return super().score(windows, lengths)


@pytest.mark.parametrize("ends", [False, True])
async def test_a_stop_gives_up_after_its_time_and_what_is_left_is_not_committed(ends: bool) -> None:
    updates: list[ProgressUpdate] = []

    class Kept(UnsavedCommitter):
        async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
            updates.append(update)
            await super().commit(update, outputs)

    records = tuple(records_of([line("a", str(i), [i * 2.0, i * 2 + 1], end=True) for i in range(3)]))
    script = [PartitionAssigned("p"), RecordBatch("p", records, 3), *([PartitionEnded("p")] if ends else [])]
    clock, scorer = ManualClock(), StuckScorer()
    settings = settings_of(run={"batch_windows": 1, "stop_timeout": "5s", "commit_interval": "1s"})

    async def stop(run: Run, task: asyncio.Task[None]) -> None:
        await until(scorer.stuck.is_set)
        run.pipeline.request_stop()
        for _ in range(4):
            clock.advance(1.0)
            await steps()
        assert not task.done()
        clock.advance(1.0)
        await until(task.done)
        scorer.go.set()

    run = await run_pipeline(
        ListSource(script, endless=not ends),
        settings,
        clock=clock,
        model=model_of(scorer, explains=False),
        committer=Kept,
        while_running=stop,
    )
    assert [verdict.sequence for verdict in run.verdicts] == ["0"]
    assert updates[-1].low_watermark == 1
    assert not updates[-1].ended
