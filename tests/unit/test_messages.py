"""The messages: what goes out as JSON comes back the same and fits its published schema."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import jsonschema
import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.messages import (
    SCHEMA_VERSION,
    Alert,
    Attribution,
    ChannelShare,
    DeadLetter,
    DecisionEntry,
    EarlyWarning,
    Event,
    Feedback,
    LateRecord,
    Message,
    ModelRef,
    NearestSequence,
    OpenSequence,
    Origin,
    Request,
    Running,
    TermShare,
    Verdict,
    Window,
    WorkerStatus,
    message_schemas,
    message_type,
    message_types,
    packed_values,
    unpacked_curve,
    unpacked_values,
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
        nearest=[NearestSequence(sequence="reactor-1/B-1017 °é", distance=0.25)],
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
    Window(
        verdict_id="v1",
        stream="reactor-1",
        sequence="B-1042",
        start_time=T0,
        end_time=T1,
        n_samples=51,
        model=MODEL,
        channels=["temp_c", "ph"],
        units=["°C", ""],
        length=3,
        values=packed_values(np.array([[1.5, -0.0, 2.0], [7.0, 7.25, 3e38]], np.float32)),
        alerted=True,
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
    Feedback(
        alert_id="a1",
        judgement="false_alarm",
        note="filter change",
        by="shift 2",
        assignee="kim",
        comment="ordered",
        model="m",
        created_at=T1,
    ),
    Request(
        request_id="9b1c6f0e",
        action="purge",
        model="reactor",
        before=T0,
        share="aside",
        ids=["a1"],
        note="the sensor was broken",
        by="kim",
        created_at=T1,
    ),
    WorkerStatus(
        instance="line-1",
        started_at=T1,
        interval_s=10.0,
        partitions=2,
        lag=None,
        records=7,
        samples=9,
        verdicts={"normal": 3},
        alerts=0,
        dead_letters=1,
        waiting_verdicts=0,
        waiting_attributions=0,
        latency_p50_ms=1.5,
        latency_p99_ms=None,
        models=[ModelRef("m", "0007")],
        n_open=1,
        open=[OpenSequence(stream="s", sequence="b", start_time=T1, n_samples=2)],
        created_at=T1,
    ),
    Running(
        instance="line-1",
        stream="s",
        sequence="b",
        start_time=T1,
        n_samples=2,
        channels=["t"],
        units=["K"],
        seconds=[0.0, 1.0],
        values="AACAPwAAwH8=",
        created_at=T1,
    ),
    EarlyWarning(
        warning_id="w1",
        stream="reactor-1",
        sequence="B-1042",
        start_time=T0,
        time=T1,
        n_points=26,
        age=0.5,
        look=5,
        score=4.25,
        p_value=0.01,
        false_alarm_rate=0.01,
        tail="empirical",
        model=MODEL,
        created_at=T1,
    ),
    DecisionEntry(
        kind="promote",
        subject="reactor 0007",
        who="kim",
        identity="authenticated",
        reason="the seal is new",
        details={"before": "0006"},
        created_at=T1,
        writer="reactor/page",
        number=2,
        previous="0" * 64,
        hash="1" * 64,
    ),
]
ids = [type(message).__name__ for message in MESSAGES]


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_survives_json_and_msgpack(message: Message) -> None:
    assert msgspec.json.decode(msgspec.json.encode(message), type=type(message)) == message
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_fits_its_published_schema_and_names_its_type_and_version(message: Message) -> None:
    name = message_type(type(message))
    schema = message_schemas()[name]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.check_schema(schema)
    written = json.loads(msgspec.json.encode(message))
    validator.validate(written)
    assert (written["type"], written["schema_version"]) == (name, SCHEMA_VERSION)
    assert written["created_at"] == "2026-03-01T09:45:30.250001Z"
    lacking = [{key: value for key, value in written.items() if key != required} for required in schema["required"]]
    for wrong in (*lacking, {**written, "schema_version": SCHEMA_VERSION + 1}, {**written, "type": "other"}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


@pytest.mark.parametrize("kind", [Alert, Verdict])
def test_a_message_of_a_former_release_counts_no_lost_samples(kind: type[Alert | Verdict]) -> None:
    (message,) = [each for each in MESSAGES if type(each) is kind][:1]
    written = json.loads(msgspec.json.encode(message))
    assert not {"n_merged", "n_late"} & {*message_schemas()[message_type(kind)]["required"]}
    former = {key: value for key, value in written.items() if key not in {"n_merged", "n_late"}}
    read = msgspec.convert(former, kind)
    assert (read.n_merged, read.n_late) == (0, 0)


def test_every_schema_describes_each_field() -> None:
    for name, schema in message_schemas().items():
        assert schema["$id"] == f"urn:streamad:message:{name}:{SCHEMA_VERSION}"
        assert schema["$schema"].endswith("2020-12/schema")
        for definition in [schema, *schema.get("$defs", {}).values()]:
            assert definition["title"]
            assert all(field["description"] for field in definition["properties"].values())


def test_feedback_that_people_write_needs_no_type() -> None:
    written = {"alert_id": "a1", "judgement": "veto", "created_at": "2026-03-01T09:45:30Z"}
    jsonschema.validate(written, message_schemas()["feedback"])
    assert msgspec.convert(written, Feedback).judgement == "veto"
    jsonschema.validate(written | {"judgement": "withdrawn"}, message_schemas()["feedback"])


@pytest.mark.parametrize(
    ("changes", "is_valid"),
    [
        ({"action": "retrain"}, True),
        ({"action": "relearn", "since": "2026-03-01T08:00:00Z", "model": "reactor"}, True),
        ({"action": "forget"}, False),
        ({"share": "all"}, False),
        ({"ids": "a1"}, False),
        ({"request_id": 5}, False),
        ({"type": "feedback"}, False),
    ],
)
def test_the_printed_schema_of_a_request_takes_what_the_learner_takes(
    changes: dict[str, object], is_valid: bool
) -> None:
    printed = CliRunner().invoke(app, ["schema", "request"])
    assert printed.exit_code == 0
    request = {"type": "request", "request_id": "q1", "action": "purge", "created_at": "2026-03-01T09:00:00Z"} | changes
    validator = jsonschema.Draft202012Validator(json.loads(printed.stdout))
    assert validator.is_valid(request) == is_valid
    if is_valid:
        assert msgspec.json.decode(json.dumps(request), type=Request).action == request["action"]
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(request), type=Request)


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_that_lacks_what_is_required_or_has_another_type_is_refused(message: Message) -> None:
    written = json.loads(msgspec.json.encode(message))
    lacking = {key: value for key, value in written.items() if key != "created_at"}
    for wrong in (lacking, written | {"created_at": 1j}, written | {"type": "other"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, type(message))


def test_each_kind_of_message_has_its_own_type() -> None:
    assert [type(message) for message in MESSAGES] == list(message_types().values())


def test_the_readings_so_far_have_nan_where_none_came() -> None:
    running = next(each for each in MESSAGES if isinstance(each, Running))
    np.testing.assert_array_equal(unpacked_curve(running), np.array([[1.0, np.nan]], np.float32))
    for wrong in ({"values": "!"}, {"values": "AACAPw=="}, {"channels": []}, {"seconds": [0.0]}):
        with pytest.raises(ValueError, match="running s: "):
            unpacked_curve(msgspec.structs.replace(running, **wrong))


def test_bytes_of_a_dead_letter_are_base64() -> None:
    letter = next(each for each in MESSAGES if isinstance(each, DeadLetter))
    assert json.loads(msgspec.json.encode(letter))["value"] == "AP97"


def test_values_of_a_window_come_back_bit_for_bit() -> None:
    window = next(each for each in MESSAGES if isinstance(each, Window))
    assert window.values == "AADAPwAAAIAAAABAAADgQAAA6EDmsWF/"
    expected = np.array([[1.5, -0.0, 2.0], [7.0, 7.25, 3e38]], np.float32)
    assert unpacked_values(window).tobytes() == expected.tobytes()
    assert packed_values(expected) == window.values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": 2}, "24 bytes, but 2 channels of 2 points take 16"),
        ({"length": 4}, "24 bytes, but 2 channels of 4 points take 32"),
        ({"channels": ["temp_c"]}, "24 bytes, but 1 channels of 3 points take 12"),
        ({"values": "AADAPw"}, "no base64"),
        ({"values": "°" * 8}, "no base64"),
        ({"values": "AADA PwAA"}, "no base64"),
        ({"length": 0, "values": ""}, "length 0 must be at least 1"),
        ({"length": -3}, "length -3 must be at least 1"),
    ],
)
def test_values_that_do_not_fit_their_window_are_refused(changes: dict[str, object], words: str) -> None:
    window = next(each for each in MESSAGES if isinstance(each, Window))
    with pytest.raises(ValueError, match=f"window v1: .*{words}"):
        unpacked_values(msgspec.structs.replace(window, **changes))


@pytest.mark.parametrize("message", MESSAGES, ids=ids)
def test_a_message_cannot_be_changed(message: Message) -> None:
    with pytest.raises(AttributeError):
        setattr(message, "created_at", T0)  # noqa: B010 - mypy refuses the assignment
