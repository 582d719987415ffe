"""The records that cross doors, and the messages: what goes out as JSON comes back the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.messages import (
    Alert,
    Attribution,
    ChannelShare,
    DeadLetter,
    Event,
    Feedback,
    LateRecord,
    Message,
    ModelRef,
    Origin,
    Promotion,
    TermShare,
    Verdict,
    message_types,
)
from streamad.types import (
    ChannelSpec,
    FinishedSequence,
    Position,
    SampleBlock,
    WindowSet,
    from_us,
)

T0 = datetime(2026, 3, 1, 8, 15, 30, 250_001, tzinfo=UTC)
T1 = T0 + timedelta(minutes=90)
MODEL = ModelRef("reactor", "0007")
MESSAGES: list[Message] = [
    Alert(
        alert_id="a1",
        stream="reactor-1",
        sequence="B-1042 °é\n",
        reason="marker",
        start_time=T0,
        end_time=T1,
        n_samples=51,
        score=12.25,
        p_value=0.01,
        false_alarm_rate=0.02,
        tail="empirical",
        model=MODEL,
        created_at=T1,
    ),
    Attribution(
        alert_id="a1",
        stream="reactor-1",
        sequence="B-1042",
        score=12.25,
        terms=[TermShare(transformation=0, term=1.5, calibration_quantile=0.99)],
        dominating_transformation=0,
        channels=[ChannelShare(channel="temp_c", unit="°C", share=1.0)],
        method="occlusion",
        tail="empirical",
        model=MODEL,
        created_at=T1,
    ),
    Verdict(
        verdict_id="v1",
        stream="reactor-1",
        sequence="B-1042",
        decision="unscorable",
        reason="gap",
        start_time=T0,
        end_time=T1,
        n_samples=1,
        detail="1 sample, at least 2 are needed",
        created_at=T1,
    ),
    DeadLetter(
        origin=Origin("recordings/a.jsonl", 3),
        kind="not_json",
        error="unexpected end",
        value=b"\x00\xff{",
        key=b"\xfe",
        size_bytes=3,
        sha256="0" * 64,
        created_at=T1,
    ),
    LateRecord(
        origin=Origin("plant-0", 2**63 - 1),
        stream="reactor-1",
        sequence=None,
        cause="late",
        times=[T0, T1],
        values=[[1.5, None], [None, -0.0]],
        created_at=T1,
    ),
    Event(kind="started", message="no progress yet", model=MODEL, figures={"share": 0.5}, created_at=T1),
    Feedback(alert_id="a1", judgement="false_alarm", note="filter change", by="shift 2", model="m", created_at=T1),
    Promotion(model="m", version="0007", created_at=T1),
]
ids = [type(message).__name__ for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_survives_json_and_msgpack(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)) == message
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_fits_its_json_schema_and_names_its_version(message: Message) -> None:
    (schema,), components = msgspec.json.schema_components([type(message)], ref_template="#/$defs/{name}")
    written = json.loads(msgspec.json.encode(message))
    jsonschema.validate(written, {**schema, "$defs": components})
    assert written["schema_version"] == 1
    assert written["created_at"] == "2026-03-01T09:45:30.250001Z"


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_that_lacks_what_is_required_or_has_another_type_is_refused(message: Message) -> None:
    written = json.loads(msgspec.json.encode(message))
    for wrong in ({key: value for key, value in written.items() if key != "created_at"}, written | {"created_at": 1j}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, type(message))


def test_each_kind_of_message_has_one_schema_name() -> None:
    assert {type(message) for message in MESSAGES} == set(message_types().values())


def test_bytes_of_a_dead_letter_are_base64() -> None:
    assert json.loads(msgspec.json.encode(MESSAGES[3]))["value"] == "AP97"


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_from_us_is_exact_over_all_years(time_us: int) -> None:
    moment = from_us(time_us)
    assert moment.tzinfo is UTC
    assert (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == time_us


@pytest.mark.parametrize("time_us", [-62_135_596_800_000_001, 253_402_300_800_000_000])
def test_from_us_refuses_what_no_calendar_holds(time_us: int) -> None:
    with pytest.raises(OverflowError):
        from_us(time_us)


def test_from_us_against_another_zone() -> None:
    there = datetime(2026, 3, 1, 10, 15, 30, 250_001, tzinfo=timezone(timedelta(hours=2)))
    assert from_us(1_772_352_930_250_001) == T0 == there


def test_positions_order_by_offset_then_index() -> None:
    assert Position(1, 9) < Position(2, 0) < Position(2, 1)


def test_messages_and_specs_cannot_be_changed() -> None:
    frozen: list[tuple[Any, str]] = [(MESSAGES[0], "score"), (ChannelSpec("a"), "name"), (MODEL, "version")]
    for record, name in frozen:
        with pytest.raises(AttributeError):
            setattr(record, name, "x")


def test_a_finished_sequence_knows_its_span() -> None:
    times_us = np.array([5, 7, 11], dtype=np.int64)
    sequence = FinishedSequence("s", "q", "marker", times_us, np.zeros((3, 2), np.float32), Position(0, 0))
    assert (sequence.start_us, sequence.end_us, sequence.n_samples) == (5, 11, 3)
    assert type(sequence.start_us) is int
    assert len(SampleBlock("s", None, 0, times_us, sequence.values)) == 3


def test_taking_windows_keeps_their_ids_and_lengths() -> None:
    values = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    windows = WindowSet(values, np.array([4, 3, 2]), ("a", "b", "c"))
    taken = windows.take([2, 0, 2])
    assert taken.ids == ("c", "a", "c")
    assert taken.lengths.tolist() == [2, 4, 2]
    np.testing.assert_array_equal(taken.values, values[[2, 0, 2]])
    assert len(taken) == 3
    assert len(windows.take([])) == 0
