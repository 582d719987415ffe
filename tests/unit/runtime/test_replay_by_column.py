"""A pipeline that keeps no progress reads tables by column, and its outputs are those of reading them row by row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from streamad.errors import SourceError
from streamad.judge.early.model import Look, LookForm, early_model
from streamad.judge.scoring import ModelInService
from streamad.plant import Plant
from streamad.plugins import connect_source
from streamad.runtime.recordings import MeasuredSource
from streamad.tables import ColumnBatch, Wanted
from streamad.types import SourceEvent
from tests.support.runtime.drawn_tables import S_US, START_US, RowsOnly, drawn_plant, plant
from tests.support.runtime.ledger import Ledger
from tests.support.runtime.pipeline import Run, SquareScorer, TickingClock, model_of, run_pipeline, steps, until

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")


def model() -> ModelInService:
    return model_of(SquareScorer((2, 16)))


def looking() -> ModelInService:
    forms = [LookForm(n_points=age, median=float(np.log(1.1)), spread=1.0, still={}) for age in (2, 4, 6)]
    looks = [Look(form, SquareScorer((2, form.n_points))) for form in forms]
    early = early_model(looks, np.random.default_rng(0).uniform(0, 1, 199), 0.02, usual=10, longest=8)
    return replace(model(), early=early)


async def replayed(of: Plant, *, by_column: bool) -> tuple[Run, dict[str, list[Any]]]:
    """Replay the plant's files; return the run, and what it wrote by role, in an order of its own: partitions mix."""
    source: Any = connect_source(of.settings.source.url, of.settings.source.options, of.context)
    clock = TickingClock(0.001, START_US + 10**12)
    try:
        judging = model() if of.settings.alerts.early is None else looking()
        run = await run_pipeline(source if by_column else RowsOnly(source), of.settings, clock=clock, model=judging)
    finally:
        await source.close()
    found: dict[str, list[Any]] = {}
    for role in run.sinks.keys() - {"events"}:
        messages = [msgspec.to_builtins(message) for message in run.messages(role)]
        for each in messages:
            del each["created_at"]
        found[role] = sorted(str(each) for each in messages)
    return run, found


async def assert_alike(of: Plant) -> Run:
    by_row, rows = await replayed(of, by_column=False)
    run, columns = await replayed(of, by_column=True)
    assert columns == rows
    of_reading = dict.fromkeys(("by_columns", "commits", "last_alerts"))
    counters, others = run.pipeline.counters.as_dict() | of_reading, by_row.pipeline.counters.as_dict() | of_reading
    assert counters == others
    return run


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32))
def test_outputs_by_column_are_those_by_row_whatever_the_files_hold(seed: int) -> None:
    with TemporaryDirectory() as name:
        try:
            drawn = drawn_plant(Random(seed), Path(name))
        except (ValidationError, pa.ArrowNotImplementedError):
            reject()
        if drawn.settings.models is not None:  # the one model here has no routes
            reject()
        # How much is read before the wall clock ends a sequence, or a full plant does, depends on the batches.
        if drawn.settings.sequences.max_streams < 10:
            reject()
        try:
            asyncio.run(assert_alike(drawn))
        except SourceError:
            reject()


def write(path: Path, n: int, length: int, **columns: Any) -> None:
    rows = np.arange(n)
    table = {
        "ts": pa.array(START_US + rows * S_US, pa.timestamp("us", tz="UTC")),
        "line": pa.array([path.stem] * n),
        "batch": pa.array([f"B{row // length}" for row in rows.tolist()]),
        "a": pa.array(np.where(rows // length % 7 == 3, 10.0, 1.0)),
        "b": pa.array(rows % length / 16),
    }
    pq.write_table(pa.table(table | columns), path, row_group_size=1_000)


async def test_plain_files_are_replayed_by_column_with_alerts_and_reasons(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write(tmp_path / f"{name}.parquet", 5_000, 10)
    run = await assert_alike(plant(tmp_path, {}, {"end": ["change"]}, alerts={"false_alarm_rate": 0.02}))
    assert run.pipeline.counters.by_columns == 10_000
    assert len(run.verdicts) == 1_000
    assert len(run.messages("alerts")) == len(run.messages("attributions")) == 2 * 71


async def test_running_sequences_are_warned_of_as_by_row(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write(tmp_path / f"{name}.parquet", 2_000, 10)
    alerts = {"false_alarm_rate": 0.02, "early": {"false_alarm_rate": 0.02}}
    run = await assert_alike(plant(tmp_path, {}, {"end": ["change"]}, alerts=alerts))
    assert run.pipeline.counters.by_columns == 4_000
    assert run.pipeline.counters.warned.total() == run.pipeline.counters.alerts == 2 * 29
    assert len(run.messages("alerts")) == 4 * 29, "warnings go with the alerts: they have no sink of their own"


async def test_rows_that_are_not_plain_are_dead_letters_with_their_bytes(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 3_000, 10, line=pa.array(["x" if row % 500 else "" for row in range(3_000)]))
    run = await assert_alike(plant(tmp_path, {}, {"end": ["change"]}))
    letters = run.messages("dead_letters")
    assert [letter.origin.offset for letter in letters] == list(range(0, 3_000, 500))
    assert all(letter.value for letter in letters)


class SlowlySought(MeasuredSource):
    """Its first columns come while their partition is still being restored."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self.n_columns = 0

    async def column_batches(self, wanted: Wanted) -> AsyncIterator[SourceEvent | ColumnBatch]:
        async for event in super().column_batches(wanted):
            self.n_columns += isinstance(event, ColumnBatch)
            yield event

    async def seek(self, partition: str, offset: int | None) -> int:
        begin = await super().seek(partition, offset)
        await until(lambda: bool(self.n_columns))
        await steps(2_000)
        return begin


async def test_columns_of_a_partition_that_is_being_restored_wait_before_the_next_are_read(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 3_000, 10, line=pa.array(["x" if row % 500 else "" for row in range(3_000)]))
    of = plant(tmp_path, {}, {"end": ["change"]})
    source = SlowlySought(connect_source(of.settings.source.url, {}, of.context))
    run = await run_pipeline(source, of.settings, model=model())
    await source.close()
    assert run.pipeline.counters.by_columns == 3_000
    assert [letter.origin.offset for letter in run.messages("dead_letters")] == list(range(0, 3_000, 500))


async def test_progress_that_is_kept_needs_the_cursors_of_rows(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", 1_000, 10)
    of = plant(tmp_path, {}, {"end": ["change"]})
    source = connect_source(of.settings.source.url, {}, of.context)
    run = await run_pipeline(source, of.settings, model=model(), committer=Ledger())
    await source.close()
    assert (run.pipeline.counters.by_columns, run.pipeline.counters.records) == (0, 1_000)
