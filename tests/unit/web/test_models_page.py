"""The page Models: what it tells of versions and trainings, and that its forms do what the commands do, once typed."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest

from streamad.commands.shared.plants import load_plant
from streamad.learn.registry.manifest import PromotionDecision
from streamad.learn.trainer.requests import TrainingFailed, TrainingRequest, posted_requests
from streamad.learn.trainer.status import TrainingStatus
from streamad.types import from_us
from streamad.web.access import Level
from tests.support.learning.stored import (
    LEARNING,
    SHARES,
    START_US,
    add,
    another,
    plant_of,
    registry_at,
    sequence,
    train,
)
from tests.support.web.page import SAME, PageUnderTest

PLUGINS = Path(__file__).parents[2] / "support" / "plugins"
MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plant whose page may change models, with the versions 0001 and 0002; the later one is in service."""
    monkeypatch.syspath_prepend(PLUGINS)
    path = _written(tmp_path)
    add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert train(path) == "0001"
    assert another(path) == "0002"
    return path


def _written(folder: Path, allow: str = "models", **sections: object) -> Path:
    learning = {**LEARNING, "control": "control.jsonl"}
    return plant_of(folder, **{"learning": learning, "model": MODEL, "web": {"allow": allow}, **sections})


def page_of(config: Path, level: Level = Level.ENGINEER) -> PageUnderTest:
    return PageUnderTest(config.parent, level=level, plant=load_plant(config))


def shown(config: Path, level: Level = Level.ENGINEER) -> str:
    """Return the text of the page, without its tags."""
    text = page_of(config, level).browser().get("/models").text
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def said(config: Path, **form: str) -> str:
    """Return what the page answers to a form."""
    answer = page_of(config).browser().post("/models/act", data={"model": "default", **form}, headers=SAME)
    assert answer.status_code == 303
    return unquote(answer.headers["location"].partition("said=")[2])


def in_service(config: Path) -> str | None:
    return registry_at(config).current("default")


# --- what is shown ---


def test_it_tells_lineage_decision_and_trainings(config: Path) -> None:
    text = shown(config)
    assert "0002 descends from 0001." in text
    assert "Training: none is running." in text
    assert "promoted, there is no champion to beat" in text
    assert "sequences" in text
    assert "Roll back from 0002 to 0001" in text
    assert "Put 0001 into service" in text
    assert "Put 0002 into service" not in text


def test_champion_against_challenger_has_false_alarms_and_each_fault_by_strength(config: Path) -> None:
    registry = registry_at(config)
    figures = {
        "comparison.sequences": 40.0,
        "champion.false_alarm_rate": 0.05, "champion.alerts": 2.0,
        "challenger.false_alarm_rate": 0.025, "challenger.alerts": 1.0,
        "champion.detection.stuck": 0.5, "challenger.detection.stuck": 0.75,
        **{f"challenger.detection.stuck.{name}": share for name, share in
           zip(("weak", "medium", "strong"), (0.4, 0.8, 1.0), strict=True)},
    }  # fmt: skip
    decision = PromotionDecision(
        promoted=False, reason="not promoted: not better", decided_at=from_us(START_US), figures=figures,
        challenger="0002", champion="0001",
    )  # fmt: skip
    registry.record_decision("default", "0002", decision)
    text = shown(config)
    assert "not promoted: not better" in text
    assert "0002 against 0001: false alarms and injected faults found" in text
    assert "0001 (champion) 0002 (challenger)" in text
    assert "false alarms 2: 5.0% 1: 2.5%" in text
    assert "stuck 50.0% 75.0% (40 / 80 / 100 %)" in text
    registry.decline("default", "0002")
    waiting = msgspec.structs.replace(decision, declined=True)
    registry.record_decision("default", "0002", waiting)
    assert "declined by a person; not promoted: not better" in shown(config)


def test_a_training_under_way_and_the_last_one_are_shown(config: Path) -> None:
    training = registry_at(config).training_folder("default")
    training.mkdir(exist_ok=True)
    request = TrainingRequest(reason="schedule", requested_us=START_US)
    last = TrainingFailed(model="default", error="too few sequences", request=request)
    status = TrainingStatus(state="running", request=request, phase="final", epoch=3, n_epochs=9, loss=0.25, last=last)
    (training / "status.json").write_bytes(msgspec.json.encode(status))
    text = shown(config)
    assert "Training: schedule was interrupted and resumes with a running monitor." in text  # nobody holds the lease
    assert "Last training: schedule: failed: too few sequences." in text


def test_a_version_whose_parent_is_gone_has_no_way_back_and_says_so(config: Path) -> None:
    (registry_at(config).folder("default", "0001")).rename(config.parent / "moved")
    text = shown(config)
    assert "0002 descends from 0001 (gone)." in text
    assert "Roll back from" not in text


def test_a_damaged_current_is_told_and_written_anew(config: Path) -> None:
    current = config.parent / "registry" / "default" / "CURRENT"
    current.write_bytes(b"junk!")
    assert "CURRENT is damaged" in shown(config)
    assert "0001 is now in service" in said(config, act="promote", version="0001", before="", typed="0001")
    assert in_service(config) == "0001"


def test_without_learning_there_is_nothing_to_relearn_from(config: Path) -> None:
    _written(config.parent, learning=None)
    assert "Relearn" not in shown(config)
    assert "no section learning" in said(config, act="relearn", since="2d", typed="default")


@pytest.mark.parametrize(
    ("allow", "level", "why"),
    [
        ("judging", Level.ENGINEER, "are off (web.allow: models)"),
        ("models", Level.OPERATOR, "need the level engineer"),
        ("models", Level.VIEWER, "need the level engineer"),
    ],
)
def test_who_may_not_act_sees_no_form_and_why(config: Path, allow: str, level: Level, why: str) -> None:
    _written(config.parent, allow)
    text = page_of(config, level).browser().get("/models").text
    assert "<form" not in text
    assert why in text


# --- what forms do ---


def test_rolling_back_does_what_the_command_does(config: Path) -> None:
    told = said(config, act="rollback", version="0002", to="0001", typed=" 0001 ")
    assert told.startswith("model default 0001 is now in service (before: 0002)")
    assert in_service(config) == "0001"
    message = json.loads((config.parent / "control.jsonl").read_text().splitlines()[-1])
    assert (message["model"], message["version"]) == ("default", "0001")


def test_who_rolls_a_version_with_marks_back_has_declined_it(config: Path) -> None:
    registry = registry_at(config)
    decision = PromotionDecision(
        promoted=False, reason="waits", decided_at=from_us(START_US), waits_for_review=True, champion="0001"
    )
    registry.record_decision("default", "0002", decision)
    said(config, act="rollback", version="0002", to="0001", typed="0001")
    left = registry.manifest("default", "0002").decision
    assert left is not None
    assert (left.declined, left.waits_for_review) == (True, False)


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"act": "rollback", "version": "0002", "to": "0001", "typed": "0002"}, "type 0001 to confirm"),
        ({"act": "rollback", "version": "0002", "to": "0001"}, "type 0001 to confirm"),
        ({"act": "rollback", "version": "0002", "typed": ""}, "choose one of the buttons"),
        ({"act": "rollback", "version": "0001", "to": "0002", "typed": "0002"}, "another was promoted meanwhile"),
        ({"act": "promote", "version": "0001", "typed": "yes"}, "type 0001 to confirm"),
        ({"act": "promote", "version": "0001", "before": "0001", "typed": "0001"}, "another was promoted meanwhile"),
        ({"act": "promote", "version": "../0001", "typed": "../0001"}, "not a plain name"),
        ({"act": "decline", "version": "0002"}, "0002 is in service"),
        ({"act": "decline", "version": "0001"}, "does not wait for a review"),
        ({"act": "relearn", "since": "2d", "typed": "0002"}, "type default to confirm"),
        ({"act": "relearn", "since": "soon", "typed": "default"}, "since soon: is no time"),
        ({"act": "relearn", "since": "", "typed": "default"}, "is no time"),
        ({"act": "relearn", "model": "foreign", "since": "2d", "typed": "foreign"}, "there is no such model"),
        ({"act": "explode", "typed": ""}, "choose one of the buttons"),
    ],
)
def test_a_form_that_must_not_act_changes_nothing(config: Path, form: dict[str, str], why: str) -> None:
    told = said(config, **form)
    assert told.startswith("nothing was changed: ")
    assert why in told
    assert in_service(config) == "0002"
    assert not posted_requests(registry_at(config), "default")
    assert not (config.parent / "registry" / "foreign").exists()


def test_relearning_asks_running_monitors_as_the_command_does(config: Path) -> None:
    since = from_us(START_US).isoformat()
    told = said(config, act="relearn", since=since, typed="default")
    assert "a running monitor takes it on" in told
    (request,) = posted_requests(registry_at(config), "default").values()
    assert (request.reason, request.since_us) == ("relearn", START_US)
    assert f"Asked for: relearn from {since[:10]}" in shown(config)


@pytest.mark.parametrize("act", ["promote", "rollback", "relearn", "decline"])
@pytest.mark.parametrize("origin", [None, "https://evil.example"])
def test_a_form_of_another_site_acts_on_no_model(config: Path, act: str, origin: str | None) -> None:
    form = {"act": act, "model": "default", "version": "0002", "to": "0001", "since": "2d", "typed": "0001"}
    headers = {} if origin is None else {"origin": origin}
    answer = page_of(config).browser().post("/models/act", data=form, headers=headers)
    assert answer.status_code == 403
    assert in_service(config) == "0002"


@pytest.mark.parametrize("act", ["promote", "rollback", "relearn", "decline"])
def test_an_operator_acts_on_no_model(config: Path, act: str) -> None:
    form = {"act": act, "model": "default", "version": "0002", "to": "0001", "since": "2d", "typed": "0001"}
    answer = page_of(config, Level.OPERATOR).browser().post("/models/act", data=form, headers=SAME)
    assert answer.status_code == 403
    assert in_service(config) == "0002"
