"""The law of restarts with ends from outside: what the wall clock or short memory ended is ended there again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.table.rows import Row
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import Record
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import (
    arrivals,
    orderly,
    orderly_settings,
    restarting,
    restarting_settings,
    sequence_settings,
    together,
    us,
)
from tests.support.ingest.assembly_model import Record as Samples
from tests.support.ingest.restarts import Outside, Partition, Step, choosing, list_of, never, scripts
from tests.support.ingest.tables import rows, table_of, table_settings
from tests.support.runtime.pipeline import START_US


@given(table_settings(), rows(start=START_US + 50, routes=True), scripts(arrivals(most=16)), st.data())
@settings(max_examples=examples(300))
def test_a_restart_cuts_by_the_table_as_before(
    limits: SequenceSettings, table: list[Row], script: list[Step], data: st.DataObject
) -> None:
    # No wall clock: a table cuts recordings.
    script = [replace(step, outside=tuple(each for each in step.outside if each.kind == "evict")) for step in script]
    batches, from_start = table_of(table, routes=data.draw(st.booleans())), data.draw(st.booleans())
    uninterrupted = Partition(limits, script, never, from_start=from_start, table=batches).run(0)
    partition = Partition(
        limits,
        script,
        choosing(data),
        from_start=from_start,
        table=batches,
    )
    assert partition.run(data.draw(st.integers(1, 3))) == uninterrupted


@given(sequence_settings(), scripts(arrivals(most=16)), st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=examples(400))
def test_ends_from_outside_are_repeated_where_they_were(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    max_streams = data.draw(st.integers(1, 3))
    if max_streams < 3:  # fewer than may come; who is refused is exact only while no stream is forgotten
        limits = limits.model_copy(update={"max_streams": max_streams, "closed_memory": 1000})
    uninterrupted = Partition(limits, script, never, from_start=from_start).run(0)
    partition = Partition(limits, script, choosing(data), from_start=from_start)
    assert partition.run(crashes) == uninterrupted


@given(orderly_settings(), scripts(orderly(most=20)), st.integers(1, 3), st.booleans(), st.data())
def test_a_restart_changes_nothing_where_samples_go_the_short_ways(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    uninterrupted = Partition(limits, script, never, from_start=from_start).run(0)
    partition = Partition(limits, script, choosing(data), from_start=from_start)
    assert partition.run(crashes) == uninterrupted


@given(
    sequence_settings(), scripts(together(arrivals(most=16)), each=True), st.integers(1, 3), st.booleans(), st.data()
)
@settings(max_examples=examples(400))
def test_a_restart_changes_nothing_where_records_hold_several_sequences(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    uninterrupted = Partition(limits, script, never, from_start=from_start, each=True).run(0)
    partition = Partition(limits, script, choosing(data), from_start=from_start, each=True)
    assert partition.run(crashes) == uninterrupted


@given(restarting_settings(), scripts(restarting(), 0), st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=examples(300))
def test_a_restart_finds_the_same_beginnings_where_times_restart(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    uninterrupted = Partition(limits, script, never, from_start=from_start, time="relative").run(0)
    partition = Partition(
        limits,
        script,
        choosing(data),
        from_start=from_start,
        time="relative",
    )
    assert partition.run(crashes) == uninterrupted


@given(
    st.one_of(sequence_settings(), orderly_settings()),
    st.one_of(scripts(arrivals(most=16)), scripts(orderly(most=20))),
    st.integers(1, 3),
    st.booleans(),
    st.data(),
)
@settings(max_examples=examples(400))
def test_a_restart_carries_the_same_readings_into_each_sequence(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    limits = limits.model_copy(update={"without_id": data.draw(st.sampled_from(["keep", "skip"]))})
    uninterrupted = Partition(limits, script, never, from_start=from_start, fill="hold").run(0)
    partition = Partition(limits, script, choosing(data), from_start=from_start, fill="hold")
    assert partition.run(crashes) == uninterrupted


@given(restarting_settings(), scripts(restarting(), 0), st.integers(1, 3), st.booleans(), st.data())
def test_a_restart_carries_the_same_readings_where_times_restart(
    limits: SequenceSettings, script: list[Step], crashes: int, from_start: bool, data: st.DataObject
) -> None:
    how: dict[str, Any] = {"from_start": from_start, "time": "relative", "fill": "hold"}
    uninterrupted = Partition(limits, script, never, **how).run(0)
    partition = Partition(limits, script, choosing(data), **how)
    assert partition.run(crashes) == uninterrupted


def test_late_samples_of_one_message_from_behind_the_limit_have_one_verdict_over_a_restart() -> None:
    limits = us(end=("marker",), max_duration=10, allowed_lateness=0, closed_memory=0)
    parts = [("B", (60, 90)), ("A", (61, 80)), ("B", (95,))]  # those of A are late; B is open at the crash
    message = [Samples("r", key, times, ((1.0, 2.0),) * len(times), False, 60) for key, times in parts]
    record = Record(0, list_of(message, START_US, broken=False), START_US + 60)
    script = [Step(record, 1, (Outside("expire", 12),))]

    def at_the_end(what: str, n: int) -> int:
        return n if what == "crash" and n == 4 else 0

    uninterrupted = Partition(limits, script, never, from_start=True, each=True).run(0)
    assert any(getattr(told, "reason", None) == "late" for told in uninterrupted)
    assert Partition(limits, script, at_the_end, from_start=True, each=True).run(1) == uninterrupted
