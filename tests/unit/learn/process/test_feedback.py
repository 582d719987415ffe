"""The learner hears each mark and request, whatever else lies in the file; tables say which lines are wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from streamad.errors import OutputError, SourceError
from streamad.learn.process.feedback_reader import FeedbackReader
from streamad.learn.store.records import mark_of
from streamad.messages import Feedback, Request
from streamad.outputs.marks.place import send_feedback
from streamad.outputs.marks.rules import feedback_problem
from streamad.outputs.marks.table import read_feedback_csv
from streamad.outputs.reader import Received
from streamad.plant import Plant
from streamad.settings.plant_yaml import Settings
from streamad.testing import ManualClock
from tests.support.learning.plant import settings_of
from tests.support.waiting import LIMIT_S

NOW = datetime(2026, 3, 1, 8, 15, 30, tzinfo=UTC)
NOW_US = round(NOW.timestamp()) * 1_000_000
BEFORE_YEAR_1 = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
AFTER_YEAR_9999 = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))


def said(alert_id: str = "a1", **changes: Any) -> Feedback:
    return Feedback(**{"alert_id": alert_id, "judgement": "false_alarm", "created_at": NOW, **changes})


def asked(request_id: str = "q1", **changes: Any) -> Request:
    return Request(**{"request_id": request_id, "action": "retrain", "created_at": NOW, **changes})


def line(feedback: Feedback | Request) -> bytes:
    return msgspec.json.encode(feedback) + b"\n"


def settings() -> Settings:
    return settings_of(learning={"feedback": "file:in/feedback.jsonl?poll=1ms"})


@dataclass
class Desk:
    """A plant whose feedback lies in a file; a reader of it keeps what it hears and tells."""

    folder: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(NOW_US))
    heard: list[Feedback | Request] = field(default_factory=list)
    senders: list[str | None] = field(default_factory=list)
    told: list[tuple[str, str]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def path(self) -> Path:
        return self.folder / "in/feedback.jsonl"

    def plant(self, settings: Settings) -> Plant:
        return Plant(settings, self.folder, self.clock)

    def append(self, *lines: bytes) -> None:
        self.path.parent.mkdir(exist_ok=True)
        with self.path.open("ab") as file:
            file.writelines(lines)

    async def hear(self, feedback: Feedback | Request, sender: str | None = None) -> None:
        self.heard.append(feedback)
        self.senders.append(sender)
        self.changed.set()

    def emit(self, kind: str, message: str) -> None:
        self.told.append((kind, message))
        self.changed.set()

    @property
    def ids(self) -> list[str]:
        return [feedback.alert_id for feedback in self.heard if isinstance(feedback, Feedback)]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    async def sleeps(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not self.clock.n_sleepers:  # noqa: ASYNC110 - the clock tells nobody
                await asyncio.sleep(0)

    @asynccontextmanager
    async def reader(
        self, on_feedback: Callable[[Feedback | Request, str | None], Any] | None = None
    ) -> AsyncIterator[None]:
        reader = FeedbackReader(self.plant(settings()), on_feedback or self.hear, self.emit)
        task = asyncio.create_task(reader.run())
        try:
            yield
        finally:
            await reader.close()
            await reader.close()
            await task


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- the reader ---


async def test_lines_of_any_program_are_read_in_order_and_go_on_where_the_last_reader_ended(desk: Desk) -> None:
    desk.append(line(said("a1", note="ä")), line(said("a2", judgement="confirmed")))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 2)
        await send_feedback(desk.plant(settings()), [said("a3"), said("a4")])
        await desk.until(lambda: len(desk.heard) == 4)
    assert desk.heard[:2] == [said("a1", note="ä"), said("a2", judgement="confirmed")]
    desk.append(line(said("a5")))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 5)
    assert desk.ids == ["a1", "a2", "a3", "a4", "a5"]
    assert not desk.told


async def test_whoever_a_message_says_it_is_from_its_sender_is_whom_the_system_names(desk: Desk) -> None:
    learning = {"feedback": "kafka://broker:9092/desk", "feedback_principal": "principal"}
    reader = FeedbackReader(desk.plant(settings_of(learning=learning)), desk.hear, desk.emit)
    for sender in (None, "User:kim", "x" * 201):
        await reader.take(Received(said(by="chief"), "desk-0, offset 0", sender))
    assert desk.senders == [None, "User:kim", "x" * 200]
    heard = desk.heard[0]
    assert isinstance(heard, Feedback)
    (authenticated, claimed) = (mark_of(heard, by=by) for by in ("User:kim", None))
    assert (authenticated.author, authenticated.by_verified) == ("User:kim", True)
    assert (claimed.author, claimed.by_verified) == ("chief (claimed)", False)


@pytest.mark.parametrize("place", [None, "desk/feedback.jsonl", "file:desk/feedback.jsonl"])
def test_a_file_does_not_say_who_wrote_a_line(place: str | None) -> None:
    with pytest.raises(ValidationError, match="this is no topic: write marks: kafka:///TOPIC"):
        settings_of(learning={"feedback": place, "feedback_principal": "principal"})


async def test_a_message_in_hand_at_the_end_comes_again(desk: Desk) -> None:
    desk.append(line(said("a1")), line(said("a2")))
    started = asyncio.Event()

    async def hang(feedback: Feedback | Request, sender: str | None) -> None:
        started.set()
        await asyncio.Event().wait()

    async with desk.reader(hang), asyncio.timeout(LIMIT_S):
        await started.wait()
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 2)
    assert desk.ids == ["a1", "a2"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OutputError("the store's disk is full"),
            ("feedback_waits", "feedback on a1 cannot be kept yet: the store's disk is full"),
        ),
        (ZeroDivisionError("a bug"), ("feedback_unreadable", "feedback is not read: ZeroDivisionError('a bug')")),
    ],
)
async def test_a_message_that_cannot_be_stored_is_reported_once_and_tried_again(
    desk: Desk, error: Exception, told: tuple[str, str]
) -> None:
    desk.append(line(said("a1")), line(said("a2")))
    attempts = 0

    async def keep(feedback: Feedback | Request, sender: str | None) -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= 3:
            raise error
        await desk.hear(feedback)

    async with desk.reader(keep):
        for n in (1, 2, 3):
            await desk.sleeps()
            assert attempts == n
            desk.clock.advance(10)
        await desk.until(lambda: len(desk.heard) == 2)
    assert desk.ids == ["a1", "a2"]
    assert desk.told == [told]


async def test_invalid_feedback_is_skipped_counted_and_reported_at_most_once_a_minute(desk: Desk) -> None:
    bad = [b"not json\n", b'{"alert_id": "a"}\n', b"[" * 5_000 + b"\n", b'\xff{"alert_id"}\n', line(said("../a"))]
    bad.append(line(said("a9")).replace(b'"feedback"', b'"alert"'))
    desk.append(*bad, line(said("a1")).replace(b'"type":"feedback",', b""))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 1)
        ((kind, text),) = desk.told
        assert kind == "feedback_malformed"
        assert text.startswith(f"{desk.path}, byte 0: no feedback message, skipped: ")
        desk.clock.advance(60)
        desk.append(line(said("a2", judgement="veto"))[:-2] + b"\n")
        await desk.until(lambda: len(desk.told) == 2)
    assert "skipped (and 5 before it): " in desk.told[1][1]
    assert desk.ids == ["a1"]
    assert all("\n" not in text for _, text in desk.told)


async def test_a_type_that_is_left_out_or_another_program_s_own_changes_nothing(desk: Desk) -> None:
    types = (b"", b'"type":null,', b'"type":"hmi_ack",', b'"type":["x"],', b'"type":5,')
    desk.append(*(line(said(f"a{n}")).replace(b'"type":"feedback",', kind) for n, kind in enumerate(types)))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == len(types))
    assert desk.heard == [said(f"a{n}") for n in range(len(types))]
    assert not desk.told


@pytest.mark.parametrize(("models", "taken"), [(None, ["default"]), ({"field": "recipe"}, ["default", "default.A"])])
async def test_a_model_that_is_none_of_the_plant_gets_no_marks(
    desk: Desk, models: dict[str, Any] | None, taken: list[str]
) -> None:
    names = ["default", "default.A", "other", "defaults"]
    desk.append(*(line(said(f"a-{name.replace('.', '_')}", model=name)) for name in names), line(said("last")))
    plant = settings_of(learning={"feedback": "file:in/feedback.jsonl?poll=1ms"}, models=models)
    reader = FeedbackReader(desk.plant(plant), desk.hear, desk.emit)
    task = asyncio.create_task(reader.run())
    await desk.until(lambda: "last" in desk.ids)
    await reader.close()
    await task
    assert [feedback.model for feedback in desk.heard] == [*taken, None]
    assert "is not one of this plant's models (default" in desk.told[0][1]


async def test_a_second_reader_of_a_file_stands_by_and_takes_over(desk: Desk) -> None:
    second = Desk(desk.folder)
    desk.append(line(said("a1")))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 1)
        async with second.reader():
            await second.until(lambda: len(second.told) == 1)
            ((kind, text),) = second.told
            assert kind == "feedback_unreadable"
            assert "another program reads with this group" in text
            desk.append(line(said("a2")))
            await desk.until(lambda: len(desk.heard) == 2)
    async with second.reader():
        second.append(line(said("a3")))
        await second.until(lambda: len(second.heard) == 1)
    assert second.ids == ["a3"]


async def test_a_source_that_cannot_be_read_is_reported_once_and_tried_again(desk: Desk) -> None:
    desk.append(line(said("a1")))
    position = desk.path.with_name("feedback.jsonl.streamad.plant.feedback.position")
    position.write_text("damaged")
    async with desk.reader():
        await desk.until(lambda: len(desk.told) == 1)
        await desk.sleeps()
        desk.clock.advance(10)
        await desk.sleeps()  # it has failed once more
        position.unlink()
        desk.clock.advance(10)
        await desk.until(lambda: len(desk.heard) == 1)
    assert [kind for kind, _ in desk.told] == ["feedback_unreadable"]


async def test_a_file_without_feedback_yet_is_not_reported(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    async with desk.reader():
        while not desk.path.parent.exists():  # noqa: ASYNC110 - the reader keeps its position there
            await asyncio.sleep(0)
        desk.append(line(said("a1")))
        await desk.until(lambda: len(desk.heard) == 1)
    assert not desk.told
    assert capsys.readouterr().err == ""


# --- what a message must be ---


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"alert_id": ""}, "'' is not an alert id"),
        ({"alert_id": "a/../b"}, "'a/../b' is not an alert id"),
        ({"alert_id": "a" * 65}, "'aaa"),
        ({"model": "../m"}, "model '../m'"),
        ({"created_at": NOW.replace(tzinfo=None)}, "no time zone"),
        ({"created_at": BEFORE_YEAR_1}, "outside the years 1 to 9999"),
        ({"created_at": NOW + timedelta(microseconds=1)}, "lies in the future"),
        ({"note": "x" * 2_001}, "note has 2001 characters"),
        ({"by": "x" * 201}, "by has 201 characters"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], problem: str) -> None:
    found = feedback_problem(said(**changes), NOW_US)
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    "changes",
    [{}, {"alert_id": "a" * 64}, {"model": "press.A-7"}, {"note": "x" * 2_000}, {"by": "x" * 200}, {"created_at": NOW}],
)
def test_what_is_taken(changes: dict[str, Any]) -> None:
    assert feedback_problem(said(**changes), NOW_US) is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"request_id": ""}, "request_id '' is none"),
        ({"request_id": "a/../b"}, "request_id 'a/../b' is none"),
        ({"request_id": "a" * 65}, "request_id 'aaa"),
        ({"model": "../m"}, "model '../m'"),
        ({"since": NOW}, "since goes with relearn"),
        ({"action": "relearn"}, "relearn needs it"),
        ({"action": "purge", "since": NOW}, "since goes with relearn"),
        ({"before": NOW}, "before, share, ids and everything go with purge"),
        ({"action": "retrain", "everything": True}, "before, share, ids and everything go with purge"),
        ({"action": "purge"}, "a purge needs a condition"),
        ({"action": "purge", "share": "aside", "everything": True}, "a purge needs a condition"),
        ({"share": "aside"}, "before, share, ids and everything go with purge"),
        ({"ids": []}, "before, share, ids and everything go with purge"),
        ({"action": "relearn", "since": NOW, "ids": ["a1"]}, "before, share, ids and everything go with purge"),
        ({"action": "relearn", "since": NOW.replace(tzinfo=None)}, "since 2026-03-01T08:15:30 has no time zone"),
        ({"action": "relearn", "since": BEFORE_YEAR_1}, "since 0001-01-01T00:00:00+14:00 lies outside the years"),
        ({"action": "purge", "before": NOW.replace(tzinfo=None)}, "before 2026-03-01T08:15:30 has no time zone"),
        ({"action": "purge", "before": AFTER_YEAR_9999}, "before 9999-12-31T23:00:00-14:00 lies outside the years"),
        ({"created_at": NOW + timedelta(microseconds=1)}, "lies in the future"),
        ({"by": "x" * 201}, "by has 201 characters"),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(changes: dict[str, Any], problem: str) -> None:
    """Half of a purge would delete what nobody named."""
    found = feedback_problem(asked(**changes), NOW_US)
    assert found is not None
    assert problem in found


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"action": "relearn", "since": NOW - timedelta(days=9)},
        {"action": "purge", "everything": True},
        {"action": "purge", "before": NOW + timedelta(days=9), "share": "aside", "ids": ["a1"], "model": "press.A"},
    ],
)
def test_a_whole_request_is_taken(changes: dict[str, Any]) -> None:
    assert feedback_problem(asked(**changes), NOW_US) is None


@pytest.mark.parametrize("content", [{"action": "forget"}, {"share": "all"}, {"ids": "a1"}, {"request_id": None}])
async def test_a_message_that_says_it_is_a_request_and_is_none_is_skipped(desk: Desk, content: dict[str, Any]) -> None:
    """It is no mark either, whatever else it holds."""
    fields = {**json.loads(line(asked(action="purge"))), **json.loads(line(said())), **content, "type": "request"}
    desk.append(json.dumps(fields).encode() + b"\n", line(said("a2")))
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 1)
    assert desk.heard == [said("a2")]
    assert [kind for kind, _ in desk.told] == ["feedback_malformed"]


async def test_marks_and_requests_are_heard_in_their_order_and_a_request_for_another_plant_is_not(desk: Desk) -> None:
    messages = [said("a1"), asked(action="purge", ids=["a1"]), asked(model="other"), said("a2")]
    await send_feedback(desk.plant(settings()), messages)
    async with desk.reader():
        await desk.until(lambda: len(desk.heard) == 3)
    assert desk.heard == [messages[0], messages[1], messages[3]]
    ((kind, text),) = desk.told
    assert (kind, "model other is not one of this plant's models" in text) == ("feedback_malformed", True)


# --- sending to a file ---


async def test_lines_are_whole_after_a_foreign_half_line_and_beside_other_writers(desk: Desk) -> None:
    desk.append(b'{"half')
    await asyncio.gather(*(send_feedback(desk.plant(settings()), [said(f"a{i}", note="x" * 500)]) for i in range(20)))
    lines = desk.path.read_bytes().splitlines()
    assert lines[0] == b'{"half'
    assert sorted(json.loads(text)["alert_id"] for text in lines[1:]) == sorted(f"a{i}" for i in range(20))


async def test_a_file_that_cannot_be_written_is_one_line(desk: Desk) -> None:
    desk.path.mkdir(parents=True)
    with pytest.raises(
        OutputError, match=r"cannot write .*feedback\.jsonl: Is a directory; it is a folder: name a file"
    ):
        await send_feedback(desk.plant(settings()), [said()])


# --- tables ---


def table(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "shift.csv"
    path.write_text(text, encoding=encoding)
    return path


def test_a_table_by_alert_id(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "Alert_ID;Judgement;note;by;time;model\n"
        "a1;false alarm;Filter getauscht;Jörg;2026-03-01T07:00:00+01:00;m.A\n"
        "\n"
        "a2;Confirmed;;;;\n",
        "utf-8-sig",
    )
    rows, problems = read_feedback_csv(path, now_us=NOW_US, by="desk")
    assert problems == []
    assert [(row.line, row.key) for row in rows] == [(2, "a1"), (4, "a2")]
    assert rows[0].feedback == said(
        "a1", note="Filter getauscht", by="Jörg", model="m.A", created_at=datetime(2026, 3, 1, 6, tzinfo=UTC)
    )
    assert rows[1].feedback == said("a2", judgement="confirmed", by="desk")


def test_a_table_by_stream_and_sequence(tmp_path: Path) -> None:
    rows, problems = read_feedback_csv(
        table(tmp_path, "stream,sequence,judgement\nr1,B-7,veto\n"), now_us=NOW_US, by="desk"
    )
    assert problems == []
    assert [(row.key, row.feedback.judgement, row.feedback.alert_id) for row in rows] == [(("r1", "B-7"), "veto", "")]


@pytest.mark.parametrize("word", ["falsealarm", "false alarm", "False-Alarm", "FALSE_ALARM", " FalseAlarm "])
def test_a_false_alarm_in_many_spellings(tmp_path: Path, word: str) -> None:
    (row,), problems = read_feedback_csv(table(tmp_path, f"alert_id,judgement\na1,{word}\n"), now_us=NOW_US)
    assert (row.feedback.judgement, problems) == ("false_alarm", [])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", NOW - timedelta(hours=2)),
        ("2026-02-24", datetime(2026, 2, 24, tzinfo=UTC)),
        ("2026-02-24 14:20+01:00", datetime(2026, 2, 24, 13, 20, tzinfo=UTC)),
    ],
)
def test_times_of_a_table(tmp_path: Path, text: str, moment: datetime) -> None:
    (row,), problems = read_feedback_csv(table(tmp_path, f"alert_id,judgement,time\na1,veto,{text}\n"), now_us=NOW_US)
    assert (row.feedback.created_at, problems) == (moment, [])


@pytest.mark.parametrize("text", ["2026-02-24 14:20", "2026-02-24T14:20", "2026-02-24 14:20:30"])
def test_a_time_without_an_offset_is_said_to_lack_it(tmp_path: Path, text: str) -> None:
    rows, problems = read_feedback_csv(table(tmp_path, f"alert_id,judgement,time\na1,veto,{text}\n"), now_us=NOW_US)
    assert rows == []
    assert problems == [f"line 2: time {text}: has no time zone; add Z for UTC, or an offset such as +01:00"]


def test_every_bad_line_is_named_with_its_number(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "alert_id,stream,sequence,judgement,time,note\n"
        "a1,,,false_alarm,,\n"
        "a2,,,maybe,,\n"
        ",r1,,veto,,\n"
        "a3,,,veto,yesterday,\n"
        "a4,,,veto,2026-03-01T07:00:00,\n"
        "a5,,,veto,2026-03-01T09:00:00Z,\n"
        "a6,,,veto,,x,y\n"
        f"a7,,,veto,,{'x' * 2_001}\n"
        "a1,,,confirmed,,\n"
        "a1,,,veto,2026-03-01T08:00:00Z,\n"
        "a1,,,false_alarm,,\n",
    )
    rows, problems = read_feedback_csv(path, now_us=NOW_US)
    assert [(row.line, row.key) for row in rows] == [(2, "a1"), (11, "a1")]
    expected = {
        3: "judgement 'maybe' is not one of false_alarm, confirmed, veto",
        4: "names no sequence",
        5: "time yesterday: is no time",
        6: "time 2026-03-01T07:00:00: has no time zone",
        7: "lies in the future",
        8: "has more cells than the header",
        9: "note has 2001 characters",
        10: "confirmed, but line 2 of the same time has false_alarm",
    }
    assert [problem.partition(": ")[0] for problem in problems] == [f"line {number}" for number in expected]
    for problem, text in zip(problems, expected.values(), strict=True):
        assert text in problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"alert_id,verdict\na,veto\n", "no column judgement (columns: alert_id, verdict)"),
        (b"stream,judgement\na,veto\n", "no column alert_id, nor stream and sequence (columns: stream, judgement)"),
        (b"alert_id,judgement,who\na,veto,x\n", "unknown column: who (known: alert_id,"),
        (b"alert_id,judgement,judgement\na,veto,x\n", "column twice: judgement"),
        (b"alert_id,judgement\n", "holds no feedback"),
        (b"", "no column judgement (columns: none)"),
        (b"alert_id,judgement,note\na,veto,\xff\n", "is not a CSV file in UTF-8"),
        (None, "cannot read the feedback"),
    ],
)
def test_a_table_that_is_none(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "shift.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_feedback_csv(path, now_us=NOW_US)
    assert str(caught.value).startswith(f"{path}: ")
    assert problem in str(caught.value)
