"""streamad feedback: what an operator says is kept where learning finds it, or refused with what to do."""

from __future__ import annotations

import json
import os
import pwd
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.errors import ConfigError, SourceError, StreamadError, UsageError
from streamad.learn.store.records import Mark
from streamad.messages import Alert, Feedback, ModelRef, Request
from streamad.outputs.marks.rules import feedback_problem
from streamad.outputs.marks.table import read_feedback_csv
from streamad.outputs.reader import Decoder
from streamad.system.clock import SystemClock
from streamad.types import from_us
from tests.support.learning.stored import add, identity, learn, plant_of, sequence, store_of
from tests.support.web.messages import verdict, warning_of
from tests.support.web.page import plant_in


def run(config: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["feedback", *map(str, arguments), "--config", str(config)])


def refusal(config: Path, *arguments: str | Path, kind: type[StreamadError] = UsageError) -> str:
    result = run(config, *arguments)
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def marks(config: Path, model: str = "default") -> dict[str, Mark]:
    """Return the marks in the store once a learner has read what was written."""
    learn(config)
    return store_of(config, model).marks()


def messages(config: Path, place: str = "marks.jsonl") -> list[dict[str, Any]]:
    """Return what was written to the place of feedback, by default that beside the store."""
    path = config.parent / place
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = plant_of(tmp_path)
    add(path, {"accepted": [sequence(1)], "aside": [sequence(2, decision="anomalous"), sequence(3)]})
    return path


# --- into the store, through the learner ---


@pytest.mark.parametrize("word", ["false-alarm", "confirmed", "veto"])
def test_feedback_on_an_alert_is_a_mark_of_the_store_once_the_learner_has_read_it(config: Path, word: str) -> None:
    before_us = SystemClock().now_us()
    result = run(config, "--alert", identity(2), f"--{word}", "--note", "neuer Filter, ä", "--by", "Schicht 2")
    assert result.exit_code == 0
    assert "B-2, ended" in result.stdout
    assert result.stdout.splitlines()[-1] == "kept in marks.jsonl: it counts once the learner has read it"
    assert result.stderr == ""
    assert store_of(config).marks() == {}, "the learner alone writes the store"
    assert [message["alert_id"] for message in messages(config)] == [identity(2)]
    mark = marks(config)[identity(2)]
    assert (mark.judgement, mark.note, mark.by) == (word.replace("-", "_"), "neuer Filter, ä", "Schicht 2")
    assert before_us <= mark.at_us <= SystemClock().now_us()


def test_the_operating_system_names_the_author_and_in_a_file_every_name_is_a_claim(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may append to the file may write any name."""
    user = pwd.getpwuid(os.getuid()).pw_name
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "chief")
    assert run(config, "--alert", identity(1), "--confirmed").exit_code == 0
    assert run(config, "--alert", identity(2), "--confirmed", "--by", "chief").exit_code == 0
    found = marks(config)
    assert (found[identity(1)].author, found[identity(1)].by_verified) == (f"{user} (claimed)", False)
    assert (found[identity(2)].author, found[identity(2)].by_verified) == ("chief (claimed)", False)


def test_a_word_is_taken_back(config: Path) -> None:
    assert run(config, "--alert", identity(2), "--false-alarm").exit_code == 0
    result = run(config, "--alert", identity(2), "--withdraw", "--note", "wrong batch")
    assert result.stdout.startswith("withdrawn: r0 B-2, ended")
    mark = marks(config)[identity(2)]
    assert (mark.judgement, mark.note) == ("withdrawn", "wrong batch")
    path = table(config, f"alert_id,judgement\n{identity(1)},Withdrawn\n")
    assert run(config, "--import", path).exit_code == 0
    assert marks(config)[identity(1)].judgement == "withdrawn"


def test_a_mark_that_is_not_there_cannot_be_taken_back(config: Path) -> None:
    why = "has no mark in the store: there is none to take back (it also takes back one that waits to be read)"
    result = run(config, "--alert", identity(2), "--withdraw")
    assert (result.exit_code, result.stderr) == (0, f"note: {identity(2)} {why}\n")
    assert json.loads(run(config, "--alert", identity(2), "--withdraw", "--json").stdout)["nothing_to_withdraw"] == [
        identity(2)
    ]
    assert run(config, "--alert", identity(2), "--veto").exit_code == 0
    assert marks(config)[identity(2)].judgement == "veto"
    assert run(config, "--alert", identity(2), "--withdraw").stderr == ""
    path = table(config, f"alert_id,judgement\n{identity(1)},veto\n{identity(3)},withdrawn\n")
    result = run(config, "--import", path)
    assert result.stderr == f"note: {identity(3)} {why}\n"


@pytest.mark.parametrize("by", ["", " "])
def test_an_empty_name_is_none_given(config: Path, by: str) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    assert run(config, "--alert", identity(1), "--veto", "--by", by).exit_code == 0
    assert marks(config)[identity(1)].by == user


def test_an_id_that_is_not_stored_is_kept_with_a_note(config: Path) -> None:
    result = run(config, "--alert", identity(7), "--confirmed")
    assert result.exit_code == 0
    assert f"no sequence {identity(7)} is stored (any more)" in result.stderr
    assert identity(7) in marks(config)
    report = json.loads(run(config, "--alert", identity(7), "--veto", "--json").stdout)
    assert report.items() >= {"kept": 1, "place": "marks.jsonl", "without_window": [identity(7)]}.items()
    assert report["overridden"] == []


def test_several_alerts_and_the_beginning_of_an_id(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    ids = ["abcdef" + identity(1)[6:], "abcdee" + identity(2)[6:]]
    add(config, {"accepted": [sequence(n, id=id_) for n, id_ in enumerate(ids)]})
    assert run(config, "--alert", "abcdef", "--alert", "abcdee", "--veto").exit_code == 0
    assert set(marks(config)) == set(ids)
    before = set(store_of(config).marks().items())
    assert "abcde is too short: give at least six characters" in refusal(config, "--alert", "abcde", "--veto")
    assert "no known id begins with abcdeb: give the whole id" in refusal(config, "--alert", "abcdeb", "--veto")
    add(config, {"accepted": [sequence(3, id="abcdef" + identity(3)[6:])]})
    assert "2 ids begin with abcdef: give more" in refusal(config, "--alert", "abcdef", "--veto")
    assert set(store_of(config).marks().items()) == before


def test_a_stored_id_is_whole_whatever_its_form(tmp_path: Path) -> None:
    """Ids are opaque: of any length and alphabet, one the beginning of another."""
    config = plant_of(tmp_path)
    add(config, {"accepted": [sequence(n, id=id_) for n, id_ in enumerate(["op-7", "op-7-later", "OLD_FORM"])]})
    for id_ in ("op-7", "OLD_FORM"):
        assert run(config, "--alert", id_, "--veto").exit_code == 0
    assert set(marks(config)) == {"op-7", "OLD_FORM"}
    assert run(config, "--alert", "op-7-l", "--veto").exit_code == 0
    assert "op-7-later" in marks(config)


@pytest.mark.parametrize(("stream", "name", "empty"), [("", "B-2", "--stream"), ("r0", "", "--sequence")])
@pytest.mark.parametrize("more", [[], ["--alert", identity(2)]])
def test_an_empty_name_is_no_sequence(stream: str, name: str, empty: str, more: list[str], config: Path) -> None:
    text = refusal(config, "--stream", stream, "--sequence", name, "--veto", *more)
    assert text == f"{empty} is empty: give the name that streamad inliers list --each shows"
    assert not marks(config)


def test_a_sequence_by_its_own_name(config: Path) -> None:
    assert run(config, "--stream", "r0", "--sequence", "B-2", "--false-alarm").exit_code == 0
    assert set(marks(config)) == {identity(2)}
    assert "give its alert's id" in refusal(config, "--stream", "r1", "--sequence", "B-2", "--veto")
    add(config, {"accepted": [sequence(12, stream="r0", sequence="B-2")]})
    text = refusal(config, "--stream", "r0", "--sequence", "B-2", "--veto")
    assert identity(2) in text
    assert identity(12) in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--confirmed"], "name a sequence: --alert"),
        (["--alert", identity(1)], "give one of --false-alarm, --confirmed, --veto and --withdraw"),
        (["--alert", identity(1), "--confirmed", "--veto"], "only one of"),
        (["--stream", "r0", "--confirmed"], "go together"),
        (["--sequence", "B-1", "--confirmed"], "go together"),
        (["--alert", "../../x", "--confirmed"], "'../../x' is not an alert id"),
        (["--alert", identity(1), "--confirmed", "--note", "x" * 2_001], "note has 2001 characters"),
        (["--alert", identity(1), "--confirmed", "--model", "other"], "no such model"),
        (["--alert", identity(1), "--confirmed", "--import", "a.csv"], "--import names sequences"),
        (["--alert", identity(1), "--confirmed", "--skip-bad"], "--skip-bad goes with --import"),
    ],
)
def test_contradictory_or_incomplete_arguments_are_refused(config: Path, arguments: list[str], text: str) -> None:
    assert text in refusal(config, *arguments)
    assert marks(config) == {}


# --- without a section learning ---


def alert(n: int, sequence: str) -> bytes:
    return msgspec.json.encode(
        Alert(
            alert_id=f"{n:06x}" + identity(n)[6:],
            stream="r1",
            sequence=sequence,
            reason="marker",
            start_time=from_us(0),
            end_time=from_us(1_000_000),
            n_samples=9,
            score=9.0,
            p_value=0.01,
            false_alarm_rate=0.02,
            tail="empirical",
            model=ModelRef("default", "0001"),
            created_at=from_us(2_000_000),
        )
    )


@pytest.fixture
def unlearning(tmp_path: Path) -> Path:
    """A plant without a section learning that has raised two alerts."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/alerts.jsonl").write_bytes(b"".join(alert(n, f"B-{n}") + b"\n" for n in (1, 2)))
    return plant_of(tmp_path, learning=None)


def test_without_learning_marks_are_kept_and_alerts_name_the_sequences(unlearning: Path) -> None:
    result = run(unlearning, "--alert", "000001", "--confirmed")
    assert result.exit_code == 0, result.output
    kept = "kept in marks.jsonl: 1 mark for reports, the page, and training with a section learning"
    assert (result.stdout.splitlines(), result.stderr) == (["confirmed: r1 B-1", kept], "")
    assert run(unlearning, "--stream", "r1", "--sequence", "B-2", "--veto").exit_code == 0
    whole = [f"{n:06x}" + identity(n)[6:] for n in (1, 2)]
    assert [message["alert_id"] for message in messages(unlearning)] == whole
    assert "no known id begins with 00000f" in refusal(unlearning, "--alert", "00000f", "--veto")
    assert "2 ids begin with 000000" not in refusal(unlearning, "--alert", "00000", "--veto")
    assert "no known sequence 'B-3' of stream 'r1'" in refusal(
        unlearning, "--stream", "r1", "--sequence", "B-3", "--veto"
    )
    page = unlearning.parent / "page.html"
    report = CliRunner().invoke(app, ["report", "--pictures", "0", "--out", str(page), "--config", str(unlearning)])
    assert report.exit_code == 0, report.output
    assert "0 alerts; 0 drift events; 2 marks" in page.read_text()


def test_a_learner_that_comes_later_reads_the_marks_that_were_made_before(unlearning: Path) -> None:
    id_ = "000001" + identity(1)[6:]
    assert run(unlearning, "--alert", "000001", "--veto").exit_code == 0
    config = plant_of(unlearning.parent)
    add(config, {"accepted": [sequence(1, id=id_)]})
    assert {key: mark.judgement for key, mark in marks(config).items()} == {id_: "veto"}


# --- several models ---


def test_feedback_goes_to_the_model_that_holds_the_sequence_or_to_all(tmp_path: Path) -> None:
    config = plant_of(tmp_path, models={"field": "recipe"})
    add(config, {"accepted": [sequence(1)]}, "default.A")
    add(config, {"accepted": [sequence(2)]}, "default.B")
    assert run(config, "--alert", identity(2), "--false-alarm").exit_code == 0
    assert (set(marks(config, "default.A")), set(marks(config, "default.B"))) == (set(), {identity(2)})
    assert run(config, "--alert", identity(9), "--confirmed").exit_code == 0
    assert identity(9) in marks(config, "default.A").keys() & marks(config, "default.B").keys()
    assert run(config, "--alert", identity(8), "--confirmed", "--model", "A").exit_code == 0
    assert identity(8) in marks(config, "default.A").keys() - marks(config, "default.B").keys()


def test_feedback_before_the_first_model_waits_for_it(tmp_path: Path) -> None:
    config = plant_of(tmp_path, models={"field": "recipe"})
    result = run(config, "--alert", identity(1), "--veto")
    assert (result.exit_code, result.stderr) == (0, ""), "nobody knows what is stored"
    learn(config)
    add(config, {"accepted": [sequence(1)]}, "default.A")
    assert {id_: mark.judgement for id_, mark in marks(config, "default.A").items()} == {identity(1): "veto"}


# --- to a topic or file ---

DESK = "desk/feedback.jsonl"


def test_with_a_feedback_url_feedback_goes_there(config: Path) -> None:
    plant_of(config.parent, marks=DESK)
    result = run(config, "--alert", identity(2), "--false-alarm", "--by", "Jo")
    assert f"kept in {DESK}" in result.stdout
    (message,) = messages(config, DESK)
    assert message.items() >= {"alert_id": identity(2), "judgement": "false_alarm", "by": "Jo"}.items()
    assert messages(config) == []
    run(config, "--alert", identity(7), "--false-alarm")
    run(config, "--alert", identity(7), "--false-alarm", "--model", "default")
    assert [message["model"] for message in messages(config, DESK)] == ["default", None, "default"]


def test_a_mark_counts_once_the_learner_has_read_it(config: Path) -> None:
    plant_of(config.parent, marks=DESK)
    last = run(config, "--alert", identity(2), "--veto").stdout.splitlines()[-1]
    assert last == f"kept in {DESK}: it counts once the learner has read it"
    result = run(config, "--alert", identity(1), "--alert", identity(2), "--veto", "--json")
    report = json.loads(result.stdout)
    assert (report["kept"], report["place"]) == (2, DESK)
    last = run(config, "--alert", identity(1), "--alert", identity(2), "--veto").stdout.splitlines()[-1]
    assert last == f"kept in {DESK}: 2 marks, which count once the learner has read them"
    assert set(marks(config)) == {identity(1), identity(2)}


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("out/alerts.jsonl", "is also the file of sinks.alerts"),
        ("nodir/../plant.yaml", "is the config itself"),
        ("link.jsonl", "is the config itself"),
        ("in.jsonl", "would be read as recordings"),
    ],
)
def test_nothing_is_sent_to_a_place_that_a_run_refuses(config: Path, place: str, problem: str) -> None:
    """A mark was appended to plant.yaml, which could not be read any more."""
    plant_of(config.parent, marks=place)
    (config.parent / "link.jsonl").symlink_to(config)
    before = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    text = refusal(config, "--alert", identity(2), "--veto", kind=ConfigError)
    assert "marks (line" in text
    assert problem in text
    assert {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()} == before
    ran = CliRunner().invoke(app, ["run", "--config", str(config)])
    assert isinstance(ran.exception, ConfigError)
    assert problem in str(ran.exception)


def test_a_message_names_the_one_model_that_holds_the_sequence(tmp_path: Path) -> None:
    config = plant_of(tmp_path, models={"field": "recipe"}, marks=DESK)
    add(config, {"accepted": [sequence(1), sequence(3)]}, "default.A")
    add(config, {"accepted": [sequence(2), sequence(3)]}, "default.B")
    path = table(config, "alert_id,judgement\n" + "".join(f"{identity(n)},veto\n" for n in range(1, 5)))
    assert run(config, "--import", path).exit_code == 0
    assert [message["model"] for message in messages(config, DESK)] == ["default.A", "default.B", None, None]


def test_a_desk_that_cannot_read_the_store_may_still_write(tmp_path: Path) -> None:
    config = plant_of(tmp_path, marks=DESK)
    result = run(config, "--alert", identity(2), "--false-alarm")
    assert result.exit_code == 0
    assert result.stderr == ""  # nobody knows what is stored
    (tmp_path / "inliers").write_text("no folder")
    assert run(config, "--alert", identity(3), "--false-alarm").exit_code == 0
    assert [message["alert_id"] for message in messages(config, DESK)] == [identity(2), identity(3)]


# --- tables ---


def table(config: Path, text: str) -> Path:
    path = config.parent / "shift.csv"
    path.write_text(text)
    return path


def test_a_table_is_imported_with_the_columns_of_each_line(config: Path) -> None:
    path = table(
        config,
        "alert_id,stream,sequence,judgement,note,by,time\n"
        f"{identity(1)},,,confirmed,seal leaked,Kim,2026-01-02T03:04:05Z\n"
        ",r0,B-2,false alarm,,,\n"
        f"{identity(9)},,,veto,,,\n",
    )
    before_us = SystemClock().now_us()
    result = run(config, "--import", path, "--by", "desk")
    assert result.exit_code == 0, result.output
    assert "kept in marks.jsonl: 3 marks, which count once the learner has read them" in result.stdout
    assert result.stderr.startswith(f"note: no sequence {identity(9)} is stored")
    found = marks(config)
    at_us = round(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp() * 1e6)
    said = found[identity(1)]
    assert (said.judgement, said.note, said.author, said.at_us) == ("confirmed", "seal leaked", "Kim (claimed)", at_us)
    assert before_us <= said.received_us <= SystemClock().now_us(), "an early date makes no word older"
    assert (found[identity(2)].judgement, found[identity(2)].by) == ("false_alarm", "desk")
    assert len(found) == 3


def test_feedback_that_a_later_stored_mark_overrides_is_reported(config: Path) -> None:
    assert run(config, "--alert", identity(2), "--veto", "--by", "Kim").exit_code == 0
    said_at = from_us(marks(config)[identity(2)].at_us)
    rows = [f"{identity(2)},confirmed,2026-01-02T03:04:05Z", f"{identity(1)},confirmed,2026-01-02T03:04:05Z"]
    path = table(config, "\n".join(["alert_id,judgement,time", *rows]))
    result = run(config, "--import", path)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"note: {identity(2)} has a later mark, which counts: veto ({said_at:%Y-%m-%d %H:%M:%S} UTC, by Kim (claimed))"
    ]
    assert marks(config)[identity(2)].judgement == "veto"
    assert json.loads(run(config, "--import", path, "--json").stdout)["overridden"] == [identity(2)]


def test_nothing_is_imported_while_lines_are_wrong_unless_that_is_wanted(config: Path) -> None:
    text = (
        "alert_id,stream,sequence,judgement\n"
        ",r0,B-77,veto\n"
        f"{identity(1)},,,veto\n"
        f"{identity(2)},,,perhaps\n"
    )  # fmt: skip
    path = table(config, text)
    result = run(config, "--import", path)
    assert isinstance(result.exception, UsageError)
    assert "2 lines are wrong, nothing was imported" in str(result.exception)
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["wrong line 2", "wrong line 4"]
    assert marks(config) == {}
    one = table(config, f"alert_id,judgement\n{identity(2)},perhaps\n")
    assert "1 line is wrong, nothing was imported" in refusal(config, "--import", one)
    path = table(config, text)
    result = run(config, "--import", path, "--skip-bad")
    assert result.exit_code == 0
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["left out line 2", "left out line 4"]
    assert set(marks(config)) == {identity(1)}


def test_a_table_may_name_models(tmp_path: Path) -> None:
    config = plant_of(tmp_path, models={"field": "recipe"})
    add(config, {"accepted": [sequence(1)]}, "default.A")
    add(config, {"accepted": [sequence(2)]}, "default.B")
    path = table(config, f"alert_id,judgement,model\n{identity(8)},veto,B\n{identity(9)},veto,C\n")
    result = run(config, "--import", path, "--skip-bad")
    assert "left out line 3: --model C: there is no such model" in result.stderr
    assert set(marks(config, "default.B")) == {identity(8)}


def test_ids_in_a_table_may_be_short_like_those_of_the_command(tmp_path: Path) -> None:
    """They became marks on ids that do not exist."""
    config = plant_of(tmp_path)
    ids = ["abcdef" + identity(1)[6:], "abcdee" + identity(2)[6:], "abcdee" + identity(3)[6:]]
    add(config, {"accepted": [sequence(n, id=id_) for n, id_ in enumerate(ids)]})
    path = table(config, "alert_id,judgement\nabcdef,veto\n123,veto\nabcdeb,veto\nabcdee,veto\n")
    result = run(config, "--import", path)
    assert isinstance(result.exception, UsageError)
    assert marks(config) == {}
    words = ("123 is too short: give at least six", "no known id begins with abcdeb", "2 ids begin with abcdee")
    problems = " ".join(result.stderr.split()).split("wrong line ")[1:]
    assert [problem.partition(":")[0] for problem in problems] == ["3", "4", "5"]
    assert all(word in problem for word, problem in zip(words, problems, strict=True))
    assert run(config, "--import", path, "--skip-bad").exit_code == 0
    assert set(marks(config)) == {ids[0]}


def test_one_id_spelled_in_two_ways_in_a_table_is_one_sequence(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    id_ = "abcdef" + identity(1)[6:]
    add(config, {"accepted": [sequence(1, id=id_)]})
    result = run(config, "--import", table(config, f"alert_id,judgement\nabcdef,veto\n{id_},confirmed\n"))
    assert isinstance(result.exception, UsageError)
    assert "wrong line 3: confirmed, but line 2 of the same time has veto" in " ".join(result.stderr.split())
    assert marks(config) == {}


def test_ids_may_be_in_upper_case(tmp_path: Path) -> None:
    config = plant_of(tmp_path)
    id_ = "abcdef" + identity(1)[6:]
    add(config, {"accepted": [sequence(1, id=id_)]})
    assert run(config, "--alert", "ABCDEF", "--veto").exit_code == 0
    assert marks(config)[id_].judgement == "veto"
    result = run(config, "--alert", id_.upper(), "--confirmed")
    assert result.stderr == ""
    assert marks(config)[id_].judgement == "confirmed"
    assert run(config, "--import", table(config, f"alert_id,judgement\n{id_.upper()},withdrawn\n")).exit_code == 0
    assert {mark.judgement for mark in marks(config).values()} == {"withdrawn"}


def test_a_table_that_is_none_is_one_line(config: Path) -> None:
    assert "cannot read the feedback" in refusal(config, "--import", "none.csv", kind=SourceError)
    assert "no column judgement" in refusal(config, "--import", table(config, "a,b\n1,2\n"), kind=SourceError)


# --- docs/learning/feedback.md ---


def test_the_documented_table_and_messages_are_understood(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs/learning/feedback.md").read_text(encoding="utf-8")
    (csv_text,) = re.findall(r"```csv\n(.*?)```", text, re.DOTALL)
    decoded = Decoder[Feedback | Request]((Feedback, Request)).decoded
    message, request = map(decoded, re.findall(rb"```json\n(.*?)```", text.encode(), re.DOTALL))
    path = tmp_path / "shift.csv"
    path.write_text(csv_text, encoding="utf-8")
    rows, problems = read_feedback_csv(path, now_us=SystemClock().now_us())
    assert (len(rows), problems) == (2, [])
    assert isinstance(message, Feedback)
    assert rows[0].feedback == msgspec.structs.replace(message, created_at=rows[0].feedback.created_at)
    assert isinstance(request, Request)
    assert request.action == "relearn"
    assert [feedback_problem(each, SystemClock().now_us()) for each in (message, request)] == [None, None]


# --- on warnings ---


@pytest.fixture
def warned(tmp_path: Path) -> Path:
    """A plant with two warnings; the sequence of the first is judged."""
    early = {"false_alarm_rate": 0.02, "early": {"false_alarm_rate": 0.01}}
    plant = plant_in(tmp_path, alerts=early, learning=None, marks="file:marks.jsonl")
    for role, given in (("warnings", [warning_of(1), warning_of(2)]), ("verdicts", [verdict(1)])):
        (tmp_path / f"{role}.jsonl").write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in given))
    assert plant.config is not None
    return plant.config


@pytest.mark.parametrize("n_characters", [8, 32])
def test_a_mark_on_a_warning_is_one_on_the_verdict_of_its_sequence(warned: Path, n_characters: int) -> None:
    name = warning_of(1, warning_id=f"a{1:031x}").warning_id
    content = (warned.parent / "warnings.jsonl").read_text().replace(warning_of(1).warning_id, name)
    (warned.parent / "warnings.jsonl").write_text(content)
    result = run(warned, "--alert", name[:n_characters], "--false-alarm")
    assert result.exit_code == 0, result.output
    assert [message["alert_id"] for message in messages(warned)] == [verdict(1).verdict_id]


def test_a_warning_whose_sequence_still_runs_cannot_be_marked(warned: Path) -> None:
    text = refusal(warned, "--alert", warning_of(2).warning_id, "--confirmed")
    assert text.endswith("is of a warning whose sequence has no verdict yet: mark it once it is judged")
    assert messages(warned) == []
