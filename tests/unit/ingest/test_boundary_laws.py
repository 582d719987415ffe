"""The laws of states, words and tags that say where sequences begin and end (``docs/guide/sequences.md``)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.ingest.assembly import Assembler
from streamad.ingest.boundaries.reading import n_samples
from streamad.ingest.sequences.runs import is_tag
from streamad.settings.boundaries import BoundaryRules, WhileSettings
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import OUTSIDE, Boundary
from streamad.types import Record as StoredRecord
from tests.support.examples import examples
from tests.support.ingest.assembly_cases import us
from tests.support.ingest.assembly_model import Cut, Late, Record, cut_of, lates_of, model_of, tags_first
from tests.support.ingest.boundary_cases import (
    BY_BEGIN,
    BY_FIELD,
    BY_ID_TAG,
    BY_TAG,
    BY_TAGS,
    RULES,
    boundary_settings,
    bounded,
)
from tests.support.ingest.buffered import pending_samples
from tests.support.ingest.ended_input import jumped, read_to_end
from tests.support.ingest.restarts import Partition, Step, choosing, never, scripts
from tests.support.runtime.pipeline import START_US

Outcome = tuple[Counter[Cut], Counter[Late], Counter[str]]


def outcome(
    limits: SequenceSettings, rules: BoundaryRules, records: list[Record], expire: dict[int, int] | None = None
) -> Outcome:
    """Run the records to their end; ``expire`` maps offsets to the wall clock's word after them."""
    assembler = Assembler("p", limits, rules=rules)
    finished = read_to_end(assembler, records, expire)
    assert pending_samples(assembler) == assembler.buffered_bytes == 0
    odd = assembler.take_odd()
    del odd["samples"]  # rows without readings whose wrong time made them dead letters
    return Counter(map(cut_of, finished)), Counter(lates_of(assembler.take_late())), odd


def without_positions(found: Outcome) -> Outcome:
    """Return ``found`` as it is when the same samples come in other records."""
    cuts, lates, odd = found
    return (
        Counter(replace(cut, first_position=(0, 0), routes=tuple(sorted(cut.routes))) for cut in cuts.elements()),
        Counter(replace(late, offset=0) for late in lates.elements()),
        odd,
    )


def singles_of(record: Record) -> list[Record]:
    """Return one record for each row, a tag's reading before the rows of its time and later."""
    boundaries = record.boundaries
    return [
        replace(
            record,
            times=(record.times[at],),
            rows=(record.rows[at],),
            end=at == record.end_at,
            boundaries=None if boundaries is None or boundaries[at] is None else (boundaries[at],),
        )
        for at in tags_first(record)
    ]


rules_of = st.sampled_from(RULES)


@given(rules_of, st.data())
@settings(max_examples=examples(600))
def test_agrees_with_the_model_sample_by_sample(rules: BoundaryRules, data: st.DataObject) -> None:
    limits, records = data.draw(boundary_settings(rules)), data.draw(bounded(rules))
    model = model_of(limits, records, rules)
    expected = Counter(model.cuts), Counter(model.late), model.odd
    assert outcome(limits, rules, records) == expected


def test_a_late_begin_word_at_the_time_of_the_one_before_begins_a_torn_sequence() -> None:
    limits = us(end=("marker",), max_duration=12)
    begin = (Boundary(begins=True), None)
    records = [Record("r", None, times, ((1.0,), (1.0,)), boundaries=begin) for times in ((61, 63), (61, 64))]
    cuts, *_ = outcome(limits, BY_BEGIN, records)
    assert {cut.times: cut.partial for cut in cuts} == {(61, 63): True, (64,): True}


@given(rules_of, st.data())
def test_every_sample_is_in_a_sequence_or_merged_or_late_or_outside(rules: BoundaryRules, data: st.DataObject) -> None:
    limits, records = data.draw(boundary_settings(rules)), data.draw(bounded(rules))
    assembler = Assembler("p", limits, rules=rules)
    finished = read_to_end(assembler, records)
    found = assembler.take_late()
    n = sum(closed.sequence.n_samples for closed in finished if not closed.sequence.is_late)
    n += sum(each.merged for each in (*(closed.sequence for closed in finished), *found))
    odd = assembler.take_odd()
    n += sum(len(late.times_us) for late in found) + odd["outside"]
    n += jumped(assembler).total()
    assert n == sum(n_samples(record.block(0)) for record in records) + odd["samples"]


@given(rules_of, st.data())
def test_chunking_changes_nothing(rules: BoundaryRules, data: st.DataObject) -> None:
    limits = data.draw(boundary_settings(rules))
    clock = data.draw(st.sampled_from([None, 60]))
    singles = [
        single for record in data.draw(bounded(rules)) for single in singles_of(replace(record, record_us=clock))
    ]
    chunks: list[Record] = []
    for single in singles:
        last = chunks[-1] if chunks else None
        of_last = last and (last.stream, last.sequence, last.route, last.end)
        joins = last is not None and of_last == (single.stream, single.sequence, single.route, False)
        joins = joins and last is not None and (not single.end or single.times[0] >= max(last.times))
        if joins and last is not None and data.draw(st.booleans()):
            boundaries = (last.boundaries or (None,) * len(last.times)) + (single.boundaries or (None,))
            times, rows = last.times + single.times, last.rows + single.rows
            chunk = replace(last, times=times, rows=rows, end=single.end, boundaries=boundaries)
            # A tag's reading comes first among those of its time and later in its record, and so it does here.
            if tags_first(chunk) == list(range(len(times))):
                chunks[-1] = chunk
                continue
        chunks.append(single)
    assert without_positions(outcome(limits, rules, chunks)) == without_positions(outcome(limits, rules, singles))


@given(rules_of, st.data())
def test_order_within_the_lateness_bound_changes_nothing(rules: BoundaryRules, data: st.DataObject) -> None:
    limits = data.draw(boundary_settings(rules))
    records = data.draw(bounded(rules, clock="constant"))
    by_time = {(each.stream, each.times[0]): each for record in records for each in singles_of(record)}
    in_order = [by_time[key] for key in sorted(by_time, key=lambda key: key[1])]
    most = limits.allowed_lateness
    delays = data.draw(st.lists(st.integers(0, most), min_size=len(in_order), max_size=len(in_order)))
    arrival = sorted(range(len(in_order)), key=lambda i: in_order[i].times[0] + delays[i])
    found = outcome(limits, rules, [in_order[i] for i in arrival])
    assert without_positions(found) == without_positions(outcome(limits, rules, in_order))


@given(rules_of, st.data())
def test_live_and_replay_cut_the_same(rules: BoundaryRules, data: st.DataObject) -> None:
    limits, records = data.draw(boundary_settings(rules)), data.draw(bounded(rules, clock="rising"))
    clocks = [record.record_us or 0 for record in records]
    expire = {
        offset: data.draw(st.integers(now, later))
        for offset, (now, later) in enumerate(pairwise(clocks))
        if data.draw(st.booleans())
    }
    assert outcome(limits, rules, records, expire) == outcome(limits, rules, records)


# --- restarts --------------------------------------------------------------------------------------------------------

STATE = {"field": "state", "in": ["run"]}
TAG = {"tag": "state", "in": ["RUN"]}
PLANTS: dict[BoundaryRules, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    BY_FIELD: (STATE, None),
    BY_BEGIN: (None, {"begin": {"field": "b", "value": "GO"}, "end": {"field": "e", "value": ["STOP", 1]}}),
    BY_TAG: (TAG, {"channel": "tag", "value": "v"}),
    BY_ID_TAG: (None, {"channel": "tag", "value": "v", "sequence": {"tag": "id"}}),
    BY_TAGS: (TAG, {"channel": "tag", "value": "v", "sequence": {"tag": "id"}}),
}
"""``sequences.while`` and ``decode.fields`` of each rule."""


def message_of(record: Record, start_us: int) -> bytes:
    """Return the record as a message of a plant with such boundaries; without one, as a reading of the tag x or y."""
    times = [(start_us + time) / 1e6 for time in record.times]
    boundaries = record.boundaries or (None,) * len(times)
    first = boundaries[0]
    message: dict[str, Any] = {"stream": record.stream, "sequence": record.sequence, "recipe": record.route}
    if first is not None and is_tag(first):
        message |= {"time": times[0], "tag": "id" if first.names else "state"}
        return json.dumps(
            message | {"v": (first.sequence or "") if first.names else "RUN" if first.state else 0}
        ).encode()
    if first is not None and first.is_bare:
        message |= {"time": times[0], "b": "go" if first.begins else "no", "e": "stop" if first.ends else ""}
        return json.dumps(message).encode()
    message |= {"times": times, "values": record.rows, "end": record.end, "e": "STOP" if record.end else None}
    message["b"] = "GO" if any(each is not None and each.begins for each in boundaries) else None
    message["state"] = ["IDLE" if each == OUTSIDE else "RUN" for each in boundaries]
    return json.dumps(message).encode()


def reading_of(record: Record, start_us: int) -> bytes:
    """Return the record of one row as a message of one reading."""
    if record.boundaries is not None:
        return message_of(record, start_us)
    x, y = record.rows[0]
    tag, value = ("y", y) if x is None else ("x", x)
    time = (start_us + record.times[0]) / 1e6
    return json.dumps({"stream": record.stream, "time": time, "tag": tag, "v": value}).encode()


@given(rules_of, st.integers(1, 3), st.booleans(), st.data())
@settings(max_examples=examples(600))
def test_a_restart_changes_nothing(rules: BoundaryRules, crashes: int, from_start: bool, data: st.DataObject) -> None:
    state, fields = PLANTS[rules]
    limits = data.draw(boundary_settings(rules))
    if state is not None:
        limits = limits.model_copy(update={"while_": WhileSettings(**state), "end": (*limits.end, "while")})
    has_tags = rules.by_tag or rules.by_id_tag
    records = bounded(rules, most=16, longest=1 if has_tags else 3)
    script = data.draw(scripts(records, single=reading_of if has_tags else message_of))
    how: dict[str, Any] = {"from_start": from_start, "fields": fields}
    how["fill"] = data.draw(st.sampled_from(["linear", "hold"]))
    uninterrupted = Partition(limits, script, never, **how).run(0)
    partition = Partition(limits, script, choosing(data), **how)
    assert partition.settings.boundaries == rules
    assert partition.run(crashes) == uninterrupted


def test_a_state_without_readings_that_waits_at_a_crash_ends_its_sequence_after_it() -> None:
    """The state comes before the samples around it: nothing else has the records be read from there."""
    bare = Boundary(is_bare=True, state=False)
    records = [Record("r", None, (61,), ((None, None),), boundaries=(bare,))]
    records += [Record("r", None, (time,), ((1.0, 2.0),)) for time in (60, 62, 80)]
    script = [Step(StoredRecord(at, message_of(record, START_US)), at + 1) for at, record in enumerate(records)]
    limits = us(**{"end": ("while",), "while": STATE}, max_duration=60, allowed_lateness=8)
    uninterrupted = Partition(limits, script, never, from_start=False).run(0)
    assert sorted(cut.times for cut in uninterrupted) == [(START_US + 60,), (START_US + 62, START_US + 80)]
    for crash_at in range(3):
        asked: Counter[str] = Counter()

        def choose(what: str, n: int, asked: Counter[str] = asked, crash_at: int = crash_at) -> int:
            asked[what] += 1
            return n if what == "crash" and asked[what] == crash_at + 1 else int(what == "commit")

        assert Partition(limits, script, choose, from_start=False).run(1) == uninterrupted
