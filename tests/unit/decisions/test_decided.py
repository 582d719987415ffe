"""Tests of who records which decision: nothing goes into service, and nobody marks, without an entry."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.decisions.chain import entry_in
from streamad.decisions.in_service import settings_digest
from streamad.decisions.recording import TRAINER, current_user
from streamad.errors import OutputError
from streamad.learn.registry.approvals import digest_of
from streamad.learn.registry.manifest import PromotionDecision
from streamad.learn.registry.registry import OvertakenError
from streamad.messages import DecisionEntry
from streamad.outputs.versions.service import put_into_service
from streamad.web.access import Level, Person
from streamad.web.acting import Acting
from streamad.web.store.view import View
from tests.support.kafka.child import PLUGINS
from tests.support.learning.stored import LEARNING, SHARES, add, identity, plant_of, registry_at, sequence, train

MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}
SINKS = {"alerts": "out/alerts.jsonl", "decisions": "out/decisions.jsonl"}
KIM = Person("kim", Level.ENGINEER)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plant with two versions, the first of them promoted by the rule."""
    monkeypatch.syspath_prepend(PLUGINS)
    path = plant_of(
        tmp_path, learning=LEARNING, model=MODEL, alerts={"false_alarm_rate": 0.2}, sinks=SINKS, web={"allow": "models"}
    )
    add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(path) == "0001"
    return path


def entries(config: Path) -> list[DecisionEntry]:
    path = config.parent / "out/decisions-others.jsonl"
    return [entry_in(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def said(config: Path, *arguments: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    assert done.exit_code == 0, (done.output, done.exception)


def test_versions_that_come_into_service_and_are_turned_down_are_decisions(config: Path) -> None:
    registry = registry_at(config)
    (first,) = entries(config)
    assert (first.kind, first.subject, first.who, first.identity) == ("promote", "default 0001", "streamad", "program")
    assert first.details == {
        "digest": digest_of(registry.manifest("default", "0001")),
        "config": settings_digest(load_plant(config)),
    }
    assert first.reason.startswith("promoted")
    add(config, {"accepted": [sequence(1_000 + n) for n in range(3)]})
    assert train(config) == "0002"
    ruled = entries(config)[1]
    assert (ruled.kind, ruled.subject, ruled.identity) == ("promote", "default 0002", "program")
    said(config, "models", "rollback", "--note", "too many alerts")
    said(config, "models", "promote", "0002", "--note", "looked at", "--by", "shift 2")
    back, again = entries(config)[2:]
    assert (back.kind, back.subject, back.who, back.reason) == (
        "rollback",
        "default 0001",
        current_user(),
        "too many alerts",
    )
    assert (again.kind, again.subject, again.who, again.reason) == ("promote", "default 0002", "shift 2", "looked at")
    assert {back.identity, again.identity} == {"claimed"}
    assert back.writer.startswith(f"plant/command/{current_user()}@")


def test_a_promotion_that_comes_too_late_is_undone_in_the_log(config: Path) -> None:
    with pytest.raises(OvertakenError):
        registry_at(config).promote("default", "0001", expected="0009", by=TRAINER)
    *_, asked, undone = entries(config)
    assert (asked.kind, undone.kind) == ("promote", "undone")
    assert undone.details["of"] == str(asked.number)
    assert "0009 was expected" in undone.reason


def test_what_cannot_be_recorded_does_not_come_into_service(config: Path) -> None:
    registry = registry_at(config)
    with registry.new_version("default") as staged:
        for path in registry.folder("default", "0001").iterdir():
            if path.name != "manifest.json":
                (staged.folder / path.name).write_bytes(path.read_bytes())
        version = staged.publish(registry.manifest("default", "0001"))
    log = config.parent / "out/decisions-others.jsonl"
    log.unlink()
    log.mkdir()
    with pytest.raises(OutputError, match="decisions-others"):
        put_into_service(load_plant(config), "default", version, "0001")
    assert registry.current("default") == "0001"


def test_what_a_person_turns_down_and_the_rule_refuses_is_a_decision(config: Path) -> None:
    add(config, {"accepted": [sequence(1_000 + n) for n in range(3)]})
    registry = registry_at(config)
    assert train(config) == "0002"
    held = PromotionDecision(
        promoted=False, reason="held", decided_at=registry.manifest("default", "0002").created_at, champion="0001"
    )
    registry.record_decision("default", "0002", held, by=TRAINER)
    registry.record_decision("default", "0002", msgspec.structs.replace(held, waits_for_review=True), by=TRAINER)
    registry.promote("default", "0001", expected="0002", by=TRAINER)
    said(config, "models", "decline", "0002", "--by", "kim", "--note", "line 2 is unlike it")
    refused, waits, _, declined = entries(config)[2:]
    assert [(each.kind, each.who, each.identity) for each in (refused, waits, declined)] == [
        ("refuse", "streamad", "program"),
        ("wait", "streamad", "program"),
        ("decline", "kim", "claimed"),
    ]
    assert {each.subject for each in (refused, waits, declined)} == {"default 0002"}
    assert (refused.reason, declined.reason) == ("held", "line 2 is unlike it")


def test_a_mark_that_cannot_be_written_is_undone_in_the_log(config: Path) -> None:
    (config.parent / "marks.jsonl").mkdir()
    done = CliRunner().invoke(app, ["feedback", "--alert", identity(3), "--confirmed", "--config", str(config)])
    assert isinstance(done.exception, OutputError), done.output
    mark, undone = entries(config)[-2:]
    assert (mark.kind, undone.kind, undone.subject) == ("mark", "undone", identity(3))
    assert undone.details["of"] == str(mark.number)


def test_marks_and_requests_name_who_and_how_the_name_is_known(config: Path) -> None:
    said(config, "feedback", "--alert", identity(3), "--false-alarm", "--note", "filter", "--by", "lee")
    said(config, "models", "relearn", "--since", "2d", "--request")
    plant = load_plant(config)
    view = View(config.parent / "view.sqlite3", keep_us=1 << 60, max_bytes=1 << 30)
    since = {"act": "relearn", "model": "default", "typed": "default", "since": "1d"}
    assert Acting(plant, view).act(KIM, since).code == "asked"
    mark, relearn, asked = entries(config)[-3:]
    assert (mark.kind, mark.subject, mark.who, mark.identity) == ("mark", identity(3), "lee", "claimed")
    assert (mark.reason, mark.details["judgement"]) == ("filter", "false_alarm")
    assert (relearn.kind, relearn.subject, relearn.who) == ("relearn", "default", current_user())
    assert (asked.kind, asked.who, asked.identity, asked.writer) == (
        "relearn",
        "kim",
        "authenticated",
        "plant/page",
    )
    assert asked.details["since"] < relearn.created_at.isoformat()
    assert {each.details["config"] for each in entries(config)} == {settings_digest(plant)}
