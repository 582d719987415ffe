"""The page Models: what it tells of versions and trainings, and that its forms do what the commands do, once typed."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamad.commands.shared.plants import load_plant
from streamad.decisions.recording import of_command
from streamad.judge.calibration import Calibration
from streamad.judge.early.model import LookForm
from streamad.learn.registry.approvals import digest_of
from streamad.learn.registry.manifest import (
    UNCOMPARED,
    EarlyExpectation,
    EarlyRecord,
    FoundAtRate,
    PromotionDecision,
    ReferenceFigures,
    References,
    encode_manifest,
)
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.results import TrainingFailed
from streamad.learn.trainer.status import TrainingStatus
from streamad.messages import Request
from streamad.outputs.versions.approving import approve
from streamad.types import from_us
from streamad.web.access import Level
from tests.support.learning.stored import (
    LEARNING,
    SHARES,
    START_US,
    add,
    another,
    learn,
    plant_of,
    registry_at,
    sequence,
    store_of,
    train,
)
from tests.support.objects import Bucket
from tests.support.web.messages import verdict
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
    return plant_of(folder, **{"learning": LEARNING, "model": MODEL, "web": {"allow": allow}, **sections})


def page_of(config: Path, level: Level = Level.ENGINEER) -> PageUnderTest:
    return PageUnderTest(config.parent, level=level, plant=load_plant(config))


def shown(config: Path, level: Level = Level.ENGINEER) -> str:
    """Return the text of the page, without its tags."""
    return _text(page_of(config, level).browser().get("/models").text)


def _text(page: str) -> str:
    """Return the text of a page, without its tags."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", page)).split())  # also no-break spaces


def said(config: Path, **form: str) -> str:
    """Return what the page answers to a form."""
    client = page_of(config).browser()
    answer = client.post("/models/act", data={"model": "default", **form}, headers=SAME)
    if answer.status_code == 422:
        return _text(answer.text.partition("<main")[2])
    assert answer.status_code == 303
    return _text(client.get(answer.headers["location"]).text.partition('class="said"')[2].partition("</p>")[0])


def asked(config: Path) -> list[Request]:
    """Return the requests that were sent to the learner."""
    place = config.parent / "marks.jsonl"
    lines = place.read_bytes().splitlines() if place.exists() else []
    return [msgspec.json.decode(line, type=Request) for line in lines]


def in_service(config: Path) -> str | None:
    return registry_at(config).current("default")


# --- what two people decide ---


def test_two_people_put_a_version_into_service_on_the_page(config: Path) -> None:
    _written(config.parent, learning={**LEARNING, "promote": "person"})
    text = shown(config)
    assert "Approve 0001" in text
    assert "Approve 0002" in text, "that in service has no approvals yet"
    assert "Put 0001 into service" not in text
    assert "Nobody can return to 0001 before two people approve it." in text
    digest = digest_of(registry_at(config).manifest("default", "0001"))
    form = {"act": "approve", "version": "0001", "typed": "0001", "reason": "it found the leak"}
    form |= {"digest": digest, "before": "0002"}
    assert "type 0001 to confirm" in said(config, **{**form, "typed": "1"})
    assert "has changed since it was looked at" in said(config, **{**form, "digest": ""})
    assert "say in a sentence" in said(config, **{**form, "reason": " "})
    assert "two people have to approve it" in said(config, act="promote", version="0001", before="0002", typed="0001")
    assert said(config, **form) == 'role="status">The approval of a version of default is kept.'
    assert "kim has approved model default 0001 already" in said(config, **form)
    text = shown(config)
    assert re.search(r"Approvals of 0001 kim ?, .* UTC ?: it found the leak", text), text[:1500]
    assert "Approve 0001" not in text, "kim has done so"
    assert in_service(config) == "0002"
    approve(load_plant(config), "default", "0001", by=of_command("Lee"), why="so did I")
    assert in_service(config) == "0001"
    text = shown(config)
    assert re.search(r"Lee \(name as given\) ?, ", text)
    assert "Put 0001 into service" not in text


def test_an_approval_beside_another_version_than_was_seen_in_service_is_refused(config: Path) -> None:
    _written(config.parent, learning={**LEARNING, "promote": "person"})
    page = page_of(config).browser().get("/models").text
    form = page.partition("Approve 0001</summary>")[2].partition("</form>")[0]
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form))
    assert sent["before"] == "0002"
    sent |= {"act": "approve", "typed": "0001", "reason": "it found the leak"}
    registry = registry_at(config)
    (config.parent / "registry" / "default" / "CURRENT").write_text("0001\n")
    assert "0001 is in service now, and 0002 when you looked: nothing is approved" in said(config, **sent)
    del sent["before"]
    assert "0001 is in service now, and nothing when you looked" in said(config, **sent)
    assert registry.manifest("default", "0001").approvals == ()


def test_who_may_not_act_sees_the_approvals_and_no_form(config: Path) -> None:
    _written(config.parent, learning={**LEARNING, "promote": "person"})
    approve(load_plant(config), "default", "0001", by=of_command("Lee"), why="better")
    for level in (Level.VIEWER, Level.OPERATOR):
        text = shown(config, level)
        assert re.search(r"Approvals of 0001 Lee \(name as given\) ?, ", text)
        assert "Approve 0001" not in text
    client = page_of(config, Level.OPERATOR).browser()
    form = {"act": "approve", "model": "default", "version": "0001", "typed": "0001", "reason": "x", "digest": "x"}
    assert client.post("/models/act", data=form, headers=SAME).status_code == 403


# --- what is shown ---


def test_a_version_that_was_put_into_service_uncompared_says_so_in_the_readers_language(config: Path) -> None:
    registry = registry_at(config)
    decision = PromotionDecision(promoted=True, reason=UNCOMPARED, decided_at=from_us(START_US))
    registry.record_decision("default", "0001", decision)
    german = page_of(config).browser().get("/models", headers={"accept-language": "de"}).text
    assert "ohne Vergleich in Dienst genommen" in german
    assert UNCOMPARED in shown(config)


def test_it_tells_lineage_decision_and_trainings(config: Path) -> None:
    text = shown(config)
    assert "0002 descends from 0001." in text
    assert "Training: none is running." in text
    assert "promoted, there is no champion to beat" in text
    assert "sequences" in text
    assert "Roll back from 0002 to 0001" in text
    assert "Put 0001 into service" in text
    assert "Put 0002 into service" not in text


def test_a_registry_in_an_object_store_is_shown_and_rolled_back_and_one_that_is_away_is_a_line(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    config = _written(tmp_path, model={**MODEL, "registry": f"{bucket.url}/models"})
    add(config, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    assert [train(config), another(config)] == ["0001", "0002"]
    assert "0002 descends from 0001." in shown(config)
    said(config, act="rollback", version="0002", to="0001", typed="0001")
    assert in_service(config) == "0001"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "the store cannot be reached" in shown(config)


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
    assert "false alarms 2: 5.0 % 1: 2.5 %" in text
    assert "stuck 50.0 % 75.0 % (40 / 80 / 100 %)" in text
    registry.decline("default", "0002")
    waiting = msgspec.structs.replace(decision, declined=True)
    registry.record_decision("default", "0002", waiting)
    assert "declined by a person; not promoted: not better" in shown(config)


def _references(rate: float, share: float, gain: float) -> References:
    """Return figures of a version, of a kind that finds ``gain`` more, and of one that was not measured."""
    found = FoundAtRate(
        rate=rate, n_calibration=40, share=share, interval=(share - 0.02, share + 0.02), by_fault={"stuck_at": share}
    )
    other = msgspec.structs.replace(found, share=share + gain, by_fault={"stuck_at": share + gain})
    pca = ReferenceFigures(kind="pca", auc=0.9, found=other, gain=gain, gain_interval=(gain - 0.1, gain + 0.01))
    left = ReferenceFigures(kind="mpca", left_out="too many channels")
    return References(
        n_held_out=40, n_injected=360, n_bases=40, auc=0.97, by_fault={}, found=found, others=(pca, left)
    )  # fmt: skip


def _told(config: Path, **fields: Any) -> str:
    """Return what the page says of the version in service, with other fields of its manifest."""
    path = registry_at(config).folder("default", "0002") / "manifest.json"
    manifest = msgspec.structs.replace(registry_at(config).manifest("default", "0002"), **fields)
    path.write_bytes(encode_manifest(manifest))
    return shown(config).partition("What 0002 reaches")[2].partition("What 0001 reaches")[0]


def test_a_version_says_what_it_finds_beside_simple_kinds_and_when_it_alerts(config: Path) -> None:
    rate = load_plant(config).settings.alerts.false_alarm_rate
    plain = _told(config, references=_references(rate, 0.94, -0.33))
    assert "It finds 94 % of 360 faults that were injected into normal sequences" in plain
    assert "(90 % interval: 92 % to 96 %)" in plain
    minus = "\N{MINUS SIGN}"
    gain = f"{minus}33 ({minus}43 … {minus}32)"
    assert f"pca: what principal components of the readings leave over 61 % {gain} 0.900" in plain
    assert "Not measured: mpca: too many channels" in plain
    assert "stuck at 94 % 61 %" in plain
    assert "finds more" not in plain
    assert "is configured now" not in plain
    score = Calibration.from_terms(registry_at(config).calibration_terms("default", "0002"), rate).alert_score(rate)
    assert f"A sequence alerts from a score of {score:.4g} on." in plain
    assert "The threshold rests on" in plain


def test_a_simple_kind_that_finds_more_and_another_rate_are_said(config: Path) -> None:
    text = _told(config, references=_references(0.005, 0.4, 0.2))
    assert "at a false-alarm rate of 0.5 %" in text
    assert "The rate that is configured now is" in text
    assert "pca finds more: 60 %." in text


def test_looks_and_weights_are_told(config: Path) -> None:
    manifest = registry_at(config).manifest("default", "0002")
    looks = tuple(LookForm(n_points=n, median=0.0, spread=1.0) for n in (5, 10))
    expected = EarlyExpectation(
        rate=0.01, n_faults=180, n_bases=30, begun=(0.5, 1.0), warned=(0.25, 0.76), interval=(0.69, 0.83)
    )
    early = EarlyRecord(detector=manifest.detector, looks=looks, usual=10, expected=expected)
    settings = {"weights": {"minirocket.leverage": 0.605}, "effort": "quick"}
    training = msgspec.structs.replace(manifest.training, settings=settings)
    text = _told(config, early=early, training=training)
    assert "76 % of 180 injected faults that begin midway are warned of before the end" in text
    assert "at most 1 % of the normal sequences" in text
    assert "50 % 50 % 25 % 100 % 100 % 76 %" in text
    assert "minirocket.leverage 0.605" in text


def test_a_training_under_way_and_the_last_one_are_shown(config: Path) -> None:
    training = registry_at(config).training_folder("default")
    training.mkdir(exist_ok=True)
    request = TrainingRequest(reason="schedule", requested_us=START_US)
    last = TrainingFailed(model="default", error="too few sequences", request=request)
    status = TrainingStatus(state="running", request=request, phase="final", epoch=3, n_epochs=9, loss=0.25, last=last)
    (training / "status.json").write_bytes(msgspec.json.encode(status))
    text = shown(config)
    assert "Training: schedule was interrupted and resumes with the learner." in text  # nobody holds the lock
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


@pytest.mark.parametrize(
    ("schedule", "days", "is_old"),
    [
        ("0 3 * * *", 1.9, False),
        ("0 3 * * *", 2.1, True),
        ("0 3 * * 1", 13.9, False),
        ("0 3 * * 1", 14.1, True),
        (None, 99, False),
    ],
)
def test_a_model_older_than_its_schedule_is_in_the_banner(
    config: Path, schedule: str | None, days: float, is_old: bool
) -> None:
    _written(config.parent, learning={**LEARNING, "schedule": schedule})
    made = registry_at(config).manifest("default", "0002").created_at
    judged = msgspec.structs.replace(verdict(1), created_at=made + timedelta(days=days))
    text = PageUnderTest(config.parent, [judged], plant=load_plant(config)).browser().get("/").text
    assert ("model default is older than its schedule" in text) == is_old
    assert ("its newest version, 0002, was made on" in text) == is_old


# --- what forms do ---


def test_rolling_back_does_what_the_command_does(config: Path) -> None:
    told = said(config, act="rollback", version="0002", to="0001", typed=" 0001 ")
    assert "Model default 0001 is now in service; running monitors load it within 2 s." in told
    assert in_service(config) == "0001"


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
    assert "Nothing was changed" in told
    assert why in told
    assert in_service(config) == "0002"
    assert not asked(config)
    assert not (config.parent / "registry" / "foreign").exists()


def test_relearning_asks_the_learner_as_the_command_does(config: Path) -> None:
    since = from_us(START_US).isoformat()
    told = said(config, act="relearn", since=since, typed="default")
    assert "The training of default is asked for; the learner takes it on." in told
    (request,) = asked(config)
    assert (request.action, request.model, request.since, request.by) == (
        "relearn",
        "default",
        from_us(START_US),
        "kim",
    )
    assert "Asked for" not in shown(config), "the learner has not read it"
    assert learn(config) == []
    assert f"Asked for: relearn from {since[:10]}" in shown(config)
    (kept,) = store_of(config).requests()
    assert (kept.id, kept.reason, kept.since_us) == (request.request_id, "relearn", START_US)
    assert kept.detail == "asked for on the page, by kim (claimed)"


def test_the_log_names_who_acted_and_on_what(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(config, act="rollback", version="0002", to="0001", typed="0001")
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "acted on a model" in each]
    for part in ("kim", "rollback", "default", "0002", "0001"):
        assert part in line
    said(config, act="rollback", version="0002", to="0001", typed="no")
    assert "acted on a model" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "query", ["said=Pay+now&model=default", "said=in_service&model=other", "said=in_service", "said=sent&model=default"]
)
def test_an_address_says_only_what_is_so(config: Path, query: str) -> None:
    text = page_of(config).browser().get(f"/models?{query}").text
    assert 'class="said"' not in text
    assert "Pay now" not in text


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
