"""What goes to a topic: the sinks' JSON with key and headers, cut or split to what a broker takes, nothing lost."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import OutputError
from streamad.messages import (
    Alert,
    Attribution,
    ChannelShare,
    DeadLetter,
    Event,
    LateRecord,
    ModelRef,
    Origin,
    OutputRecord,
    TermShare,
    Window,
    packed_values,
)
from streamad.types import from_us
from streamad_connectors.kafka.writing.messages import OutMessage, encode, size_bytes

NOW = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
ALERT = Alert(
    alert_id="ab12",
    stream="reactor µ",
    sequence="B-1",
    reason="marker",
    start_time=NOW,
    end_time=NOW,
    n_samples=3,
    score=2.5,
    p_value=0.01,
    false_alarm_rate=0.02,
    tail="empirical",
    model=ModelRef("m", "0001"),
    created_at=NOW,
)


def headers_of(message: OutMessage) -> dict[str, str]:
    return {name: value.decode() for name, value in message.headers}


def letter(
    value: bytes, *, key: bytes | None = None, error: str = "no JSON", partition: str = "plant-a-3"
) -> DeadLetter:
    return DeadLetter(
        origin=Origin(partition, 17),
        kind="not_json",
        error=error,
        value=value,
        key=key,
        size_bytes=len(value),
        sha256=hashlib.sha256(value).hexdigest(),
        created_at=NOW,
    )


def late(n_samples: int, n_channels: int, *, seed: float = 0.1) -> LateRecord:
    return LateRecord(
        origin=Origin("plant-0", 4),
        stream="s",
        sequence="q",
        cause="closed",
        times=[from_us(1_772_352_930_000_000 + i * 1_000) for i in range(n_samples)],
        values=[[None if (i + c) % 7 == 0 else seed * i + c for c in range(n_channels)] for i in range(n_samples)],
        created_at=NOW,
    )


def test_an_alert_is_the_line_of_the_file_sink_with_its_stream_as_the_key() -> None:
    (message,) = encode(OutputRecord("alerts", "reactor µ", ALERT), "alerts", 900_000)
    assert message.topic == "alerts"
    assert message.key == "reactor µ".encode()
    assert message.value == msgspec.json.Encoder().encode(ALERT)
    assert headers_of(message) == {
        "streamad-message": "alert",
        "streamad-schema": "2",
        "content-type": "application/json",
    }


@pytest.mark.parametrize(
    ("partition", "where"),
    [
        ("plant-a-3", {"streamad-origin-topic": "plant-a", "streamad-origin-partition": "3"}),
        ("recordings/run-1.csv", {"streamad-origin-partition": "recordings/run-1.csv"}),
        ("/data/run-1", {"streamad-origin-partition": "/data/run-1"}),
    ],
)
def test_a_dead_letter_names_its_origin_and_error_in_headers(partition: str, where: dict[str, str]) -> None:
    message = letter(b"{", error="no JSON: " + "µ" * 400, partition=partition)
    (found,) = encode(OutputRecord("dead_letters", partition, message), "dead", 900_000)
    headers = headers_of(found)
    cut = headers.pop("streamad-error")
    assert headers == {
        "streamad-message": "dead_letter",
        "streamad-schema": "2",
        "content-type": "application/json",
        "streamad-origin-offset": "17",
        "streamad-error-kind": "not_json",
        **where,
    }
    assert len(cut.encode()) in (499, 500)
    assert message.error.startswith(cut)


def test_a_late_record_names_its_origin_and_cause_in_headers() -> None:
    (found,) = encode(OutputRecord("late", "s", late(2, 1)), "late", 900_000)
    assert headers_of(found) == {
        "streamad-message": "late",
        "streamad-schema": "2",
        "content-type": "application/json",
        "streamad-origin-topic": "plant",
        "streamad-origin-partition": "0",
        "streamad-origin-offset": "4",
        "streamad-late-cause": "closed",
    }


def check_letter(message: DeadLetter, max_bytes: int) -> dict[str, Any]:
    (found,) = encode(OutputRecord("dead_letters", message.origin.partition, message), "dead", max_bytes)
    assert size_bytes(found) <= max_bytes
    read: dict[str, Any] = json.loads(found.value)
    assert message.value.startswith(base64.b64decode(read["value"]))
    assert (read["size_bytes"], read["sha256"]) == (message.size_bytes, message.sha256)
    return read


@given(
    size=st.integers(0, 40_000) | st.integers(0, 10_000_000),
    key=st.none() | st.binary(max_size=4_000),
    error=st.text(max_size=200),
    max_bytes=st.integers(5_000, 30_000) | st.integers(5_000, 2_000_000),
)
def test_a_dead_letter_is_cut_to_the_limit_and_keeps_size_and_hash(
    size: int, key: bytes | None, error: str, max_bytes: int
) -> None:
    message = letter((bytes(range(251)) * (size // 251 + 1))[:size], key=key, error=error)
    read = check_letter(message, max_bytes)
    is_whole = len(base64.b64decode(read["value"])) == size and read["key"] == (
        None if key is None else base64.b64encode(key).decode()
    )
    assert read["truncated"] is not is_whole


def test_a_dead_letter_of_10_mb_fills_the_limit() -> None:
    read = check_letter(letter(b"x" * 10_000_000), 900_000)
    assert read["truncated"] is True
    assert read["size_bytes"] == 10_000_000
    assert 674_000 < len(base64.b64decode(read["value"])) < 675_000  # 3/4 of the limit less the rest of the message


def test_a_dead_letter_whose_key_is_too_large_loses_its_value_first() -> None:
    read = check_letter(letter(b"value", key=b"k" * 5_000), 3_000)
    assert read["truncated"] is True
    assert read["value"] == ""
    assert 1_500 < len(base64.b64decode(read["key"])) < 2_250


def joined(messages: list[OutMessage]) -> LateRecord:
    parts = [msgspec.json.decode(message.value, type=LateRecord) for message in messages]
    assert all(part.times for part in parts)
    return msgspec.structs.replace(
        parts[0], times=[t for part in parts for t in part.times], values=[v for part in parts for v in part.values]
    )


@settings(max_examples=40)
@given(
    n_samples=st.integers(1, 600),
    n_channels=st.integers(1, 24),
    seed=st.floats(1e-3, 1e6),
    max_bytes=st.integers(2_000, 60_000),
)
def test_a_late_record_is_split_into_parts_that_join_to_itself(
    n_samples: int, n_channels: int, seed: float, max_bytes: int
) -> None:
    message = late(n_samples, n_channels, seed=seed)
    found = encode(OutputRecord("late", "s", message), "late", max_bytes)
    assert all(size_bytes(part) <= max_bytes for part in found)
    assert joined(found) == message
    whole = size_bytes(OutMessage("late", b"s", msgspec.json.encode(message), found[0].headers))
    assert (len(found) == 1) == (whole <= max_bytes)


def test_a_late_record_of_100_000_samples_and_24_channels_is_split() -> None:
    message = late(100_000, 24, seed=0.123456789)
    found = encode(OutputRecord("late", "s", message), "late", 900_000)
    assert all(size_bytes(part) <= 900_000 for part in found)
    assert joined(found) == message
    n_bytes = sum(len(part.value) for part in found)
    assert len(found) < 3 * n_bytes / 900_000  # no dust


def test_one_late_sample_that_is_too_large_is_an_error() -> None:
    with pytest.raises(OutputError, match="a message for late takes"):
        encode(OutputRecord("late", "s", late(2, 500)), "late", 3_000)


def window(n_channels: int, n_points: int, n_course: int = 0) -> Window:
    values = np.arange(n_channels * n_points, dtype=np.float32).reshape(n_channels, n_points)
    return Window(
        verdict_id="ab12",
        stream="s",
        sequence="q",
        start_time=NOW,
        end_time=NOW,
        n_samples=n_points,
        model=None,
        channels=[f"c{number}" for number in range(n_channels)],
        units=["°C"] * n_channels,
        length=n_points,
        values=packed_values(values),
        alerted=True,
        created_at=NOW,
        course=base64.b64encode(bytes(3 * n_course)).decode() or msgspec.UNSET,
    )


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 700), st.integers(0, 3_000), st.integers(1_200, 20_000))
def test_a_window_is_cut_into_parts_whose_texts_join_to_its_own(
    n_channels: int, n_points: int, n_course: int, max_bytes: int
) -> None:
    message = window(n_channels, n_points, n_course)
    found = encode(OutputRecord("windows", "s", message), "windows", max_bytes)
    assert all(size_bytes(part) <= max_bytes for part in found)
    parts = [msgspec.json.decode(part.value, type=Window) for part in found]
    assert [(part.part, part.parts) for part in parts] == [(i + 1, len(found)) for i in range(len(found))]
    for part in parts:
        for text in (part.values, part.course or ""):
            base64.b64decode(text, validate=True)  # each is valid by itself
    values, course = "".join(p.values for p in parts), "".join(p.course or "" for p in parts) or msgspec.UNSET
    assert msgspec.structs.replace(parts[-1], values=values, course=course, part=1, parts=1) == message
    (whole,) = encode(OutputRecord("windows", "s", message), "windows", 10**6)
    assert (len(found) == 1) == (size_bytes(whole) <= max_bytes)


def test_a_window_that_is_too_large_has_as_few_parts_as_fit() -> None:
    found = encode(OutputRecord("windows", "s", window(24, 65_536)), "windows", 900_000)
    assert len(found) == 10  # 8.4 MB: 9.4 times too large
    assert {headers_of(part)["streamad-message"] for part in found} == {"window"}
    assert {part.key for part in found} == {b"s"}


def test_a_window_whose_other_fields_alone_are_too_large_is_an_error() -> None:
    with pytest.raises(OutputError, match="a message for windows takes"):
        encode(OutputRecord("windows", "s", window(1_000, 10)), "windows", 10_000)


@pytest.mark.parametrize("role", ["events", "attributions"])
def test_any_other_message_that_is_too_large_is_an_error_that_names_the_limit_to_raise(role: str) -> None:
    event = Event(kind="k", message="x" * 2_000, created_at=NOW)
    why = Attribution(
        alert_id="ab12",
        stream="s",
        sequence="q",
        score=1.0,
        terms=[TermShare(transformation=0, term=1.0, calibration_quantile=1.0)],
        dominating_transformation=0,
        channels=[ChannelShare(channel=f"channel-{i}", unit="", share=0.01) for i in range(100)],
        method="occlusion",
        tail="empirical",
        model=ModelRef("m", "0001"),
        created_at=NOW,
    )
    record = OutputRecord("events", "s", event) if role == "events" else OutputRecord("attributions", "s", why)
    with pytest.raises(OutputError, match=f"{role} takes [0-9]+ bytes, topic out is given 2000 at most.*max_message_b"):
        encode(record, "out", 2_000)


def test_the_size_is_never_below_that_of_the_client_whose_limit_must_hold_too() -> None:
    for role_message in (letter(b"x" * 300, key=b"k"), ALERT, late(3, 2)):
        (found,) = encode(OutputRecord("events", "k" * 300, role_message), "t", 900_000)
        estimate = DefaultRecordBatchBuilder.estimate_size_in_bytes(found.key, found.value, list(found.headers))
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1_000_000)
        builder.append(0, 1_772_352_930_000, found.key, found.value, list(found.headers))
        assert size_bytes(found) >= estimate >= len(builder.build())
