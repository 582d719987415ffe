"""streamad models: versions are shown, compared, trained, put into service as people ask, or refused in one line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.commands.models.figures import figures_table
from streamad.commands.models.show import show_page
from streamad.commands.shared.figures.certification import rounded_up
from streamad.decisions.recording import current_user
from streamad.errors import ArtifactError, ConfigError, RegistryError, StreamadError, TrainingDataError, UsageError
from streamad.judge.gate import is_reserved
from streamad.language import percent, percents
from streamad.learn.registry.registry import NoModelError
from streamad.learn.store.records import Mark, StoredSequence
from streamad.learn.trainer.status import TrainingStatus
from streamad.messages import Request
from streamad.outputs.versions.training import progress_text
from streamad.system.locks import try_lock
from streamad.types import ChannelSpec, Window, from_us
from tests.support.kafka.child import PLUGINS
from tests.support.learning.stored import (
    HOUR_US,
    LEARNING,
    SHARES,
    START_US,
    add,
    another,
    identity,
    learn,
    plant_of,
    registry_at,
    sequence,
    store_of,
    train,
)
from tests.support.waiting import LIMIT_S

MODEL = {"detector": "mean_square", "folds": 2, "device": "cpu", "references": []}


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PLUGINS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PLUGINS), os.environ.get("PYTHONPATH", "")]))


def run(config: Path, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["models", *map(str, arguments), "--config", str(config)])


def said(config: Path, *arguments: str | Path) -> str:
    result = run(config, *arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def json_of(config: Path, *arguments: str | Path) -> Any:
    return json.loads(said(config, *arguments, "--json").splitlines()[-1])


def refusal(config: Path, *arguments: str | Path, kind: type[StreamadError] = UsageError) -> str:
    result = run(config, *arguments)
    assert isinstance(result.exception, kind), (result.output, result.exception)
    text = str(result.exception)
    assert "\n" not in text
    return text


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A plant with stored sequences and no model yet."""
    path = plant_of(tmp_path, learning=LEARNING, model=MODEL, alerts={"false_alarm_rate": 0.2})
    add(path, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    return path


@pytest.fixture
def trained(config: Path) -> Path:
    """The same with version 0001 in service."""
    assert train(config) == "0001"
    return config


# --- before there is a model ---


def test_a_plant_without_anything(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning=None)
    assert "no version of model 'default' yet" in said(config, "list")
    assert "no version in service, 0 versions" in said(config, "status")
    assert "off: the config has no section learning" in said(config, "status")
    assert "train one with" in refusal(config, "show", kind=NoModelError)
    assert "nothing to roll back" in refusal(config, "rollback", kind=NoModelError)
    for command in (["retrain"], ["relearn", "--since", "1d"], ["compare", "0001", "0002"]):
        assert "no section learning" in refusal(config, *command)
    assert [path.name for path in tmp_path.iterdir()] == ["plant.yaml"]


def test_the_status_of_a_cold_start(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning=LEARNING, model=MODEL)
    add(config, {"accepted": [sequence(n) for n in range(7)], "reserve": [sequence(8)]})
    assert "learning    8 of 20 sequences\n" in said(config, "status")
    assert "next        the first model, once 20 are stored\n" in said(config, "status")
    (model,) = json_of(config, "status")["models"]
    assert model["next_schedule"] is None  # it trains a model anew
    assert (model["champion"], model["learning"], model["state"]) == (None, "8 of 20", "idle")
    assert model["store"] == {"accepted": 7, "reserve": 1, "aside": 0}
    add(config, {"accepted": [sequence(n) for n in range(10, 22)]})
    assert "next        the first model is due when the learner works\n" in said(config, "status")


# --- training ---


def test_a_retraining_is_printed_and_recorded(config: Path) -> None:
    outcome = json_of(config, "retrain")
    assert outcome.items() >= {"type": "trained", "model": "default", "version": "0001", "promoted": True}.items()
    assert outcome["request"]["reason"] == "command"
    assert registry_at(config).current("default") == "0001"
    (row,) = json_of(config, "list")["versions"]
    assert row.items() >= {"version": "0001", "in_service": True, "trained_because_of": "command"}.items()
    (model,) = json_of(config, "status")["models"]
    assert model["last"]["version"] == "0001"
    assert "command: version 0001: promoted, there is no champion to beat" in said(config, "status")
    assert " UTC by schedule" in said(config, "status")


def test_relearning_takes_what_came_since_whatever_was_decided(trained: Path) -> None:
    since = from_us(START_US + 20 * HOUR_US)
    outcome = json_of(trained, "relearn", "--since", since.isoformat())
    assert outcome["promoted"]
    assert outcome["reason"].startswith("promoted without a comparison with 0001: ")
    assert f"; learned anew from what ended since {since.isoformat(timespec='seconds')}" in outcome["reason"]
    assert "look with `streamad models compare 0001 0002`" in outcome["reason"]
    manifest = registry_at(trained).manifest("default", "0002")
    assert manifest.learning is not None
    assert (manifest.learning.reason, manifest.learning.since_us) == ("relearn", START_US + 20 * HOUR_US)
    assert "is no time" in refusal(trained, "relearn", "--since", "soon")
    assert "no time zone" in refusal(trained, "relearn", "--since", "2026-01-01T00:00:00")


def test_too_few_sequences_are_a_failure_in_one_line(tmp_path: Path) -> None:
    config = plant_of(tmp_path, learning=LEARNING, model=MODEL)
    result = run(config, "retrain", "--json")
    assert result.exit_code == 1
    assert isinstance(result.exception, StreamadError)
    assert json.loads(result.stdout)["type"] == "failed"
    assert registry_at(config).versions("default") == ()


def sent(config: Path) -> list[Request]:
    """Return the requests in the place of feedback, in their order."""
    place = config.parent / "marks.jsonl"
    lines = place.read_bytes().splitlines() if place.exists() else []
    return [msgspec.json.decode(line, type=Request) for line in lines]


def test_a_training_is_asked_for_by_one_message_and_done_by_the_learner(trained: Path) -> None:
    assert "requested: the learner trains" in said(trained, "retrain", "--request")
    since = from_us(START_US).isoformat()
    asked = json_of(trained, "relearn", "--since", since, "--request")
    assert asked["model"] == "default"
    assert asked["requested"].items() >= {"type": "request", "action": "relearn", "model": "default"}.items()
    first, second = sent(trained)
    assert (first.action, first.model, first.since, first.by) == ("retrain", "default", None, current_user())
    assert (second.action, second.since, second.request_id) == (
        "relearn", from_us(START_US), asked["requested"]["request_id"]
    )  # fmt: skip
    assert "asked for" not in said(trained, "status"), "no learner has read it"
    assert learn(trained) == []
    assert [request.id for request in store_of(trained).requests()] == [first.request_id, second.request_id]
    lines = [line for line in said(trained, "status").splitlines() if line.startswith("asked for")]
    assert len(lines) == 2
    assert f"relearn from {since[:10]}" in lines[1]
    assert lines[1].endswith("; the learner takes it on")
    assert registry_at(trained).versions("default") == ("0001",)
    kinds = [kind for kind, _ in learn(trained, trains=True)]
    assert len([kind for kind in kinds if kind in {"model_promoted", "model_not_promoted"}]) == 2
    assert registry_at(trained).versions("default") == ("0001", "0002", "0003")
    assert "asked for" not in said(trained, "status")
    assert learn(trained, trains=True) == [], "a request is answered once"
    assert store_of(trained).requests() == []


def test_with_a_learner_elsewhere_nothing_is_trained_by_a_request(trained: Path) -> None:
    settings = yaml.safe_load(trained.read_text())
    trained.write_text(yaml.safe_dump({**settings, "learning": {**LEARNING, "process": "elsewhere"}}))
    said(trained, "retrain", "--request")
    assert [request.action for request in sent(trained)] == ["retrain"]
    assert registry_at(trained).versions("default") == ("0001",)


def test_while_a_learner_works_it_trains_and_the_command_prints_its_result(trained: Path) -> None:
    lock = try_lock(trained.parent / "inliers/learner.lock")
    assert lock is not None
    command = [sys.executable, "-m", "streamad", "models", "retrain", "--json", "--config", str(trained)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not sent(trained) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)  # another process does the work
        learn(trained, trains=True)
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.communicate()
        os.close(lock)
    assert process.returncode == 0, err
    outcome = json.loads(out)
    (request,) = sent(trained)
    assert (outcome["version"], outcome["request"]["id"]) == ("0002", request.request_id)
    assert registry_at(trained).versions("default") == ("0001", "0002")


def test_ctrl_c_ends_a_training_and_a_learner_goes_on(tmp_path: Path) -> None:
    hold, journal = tmp_path / "hold", tmp_path / "journal"
    options = {"journal": str(journal), "hold": str(hold)}
    config = plant_of(tmp_path, learning=LEARNING, model={**MODEL, "detector": "paced", "options": options})
    add(config, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()})  # type: ignore[misc]
    hold.touch()
    command = [sys.executable, "-m", "streamad", "models", "retrain", "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not _is_at_work(config) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)  # another process does the work
        (model,) = json_of(config, "status")["models"]
        assert (model["state"], model["training"]["epoch"]) == ("running", 1)
        assert f"(process {model['training']['pid']} on " in said(config, "status")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "interrupted: the training resumes once a learner works" in err
    assert "Traceback" not in err
    assert "was interrupted and resumes with the learner" in said(config, "status")
    hold.unlink()
    result = CliRunner().invoke(app, ["learn", "--present", "--config", str(config)])
    assert result.exit_code == 0, result.output
    assert "default: 0 accepted, 0 reserved, 0 aside; 1 trainings, 1 promoted" in result.stdout
    assert registry_at(config).versions("default") == ("0001",)
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    epochs = [line["epoch"] for line in lines if line["what"] == "epoch"]
    assert epochs[:4] == [1, 2, 3, 4], lines  # none of the interrupted fit was done again


def _is_at_work(config: Path) -> bool:
    training = json_of(config, "status")["models"][0]["training"]
    return training is not None and training["epoch"] == 1


# --- operators' marks ---


def odd(n: int, **changes: Any) -> StoredSequence:
    """A sequence that alerted, above the others by far."""
    plain = sequence(n)
    values = plain.window.values.copy()
    values[:, : plain.window.length] += 10.0
    window = Window(values, plain.window.length)
    return sequence(n, **{"window": window, "decision": "anomalous", "p_value": 0.01, **changes})


ODD = [n for n in range(72, 99) if not is_reserved(f"r{n % 2}", f"B-{n}", 0.2)][:8]


@pytest.fixture
def spoken(trained: Path) -> Path:
    """The same with eight alerts of which five are called false alarms, and one confirmed."""
    add(trained, {"aside": [odd(n) for n in ODD], "accepted": [sequence(n) for n in range(72, 99) if n not in ODD]})
    store = store_of(trained)
    for n, mark in [*((n, "false_alarm") for n in ODD[:5]), (ODD[5], "confirmed"), (ODD[6], "withdrawn")]:
        store.mark(Mark(id=identity(n), judgement=mark, at_us=START_US, received_us=START_US))  # type: ignore[arg-type]
    return trained


def test_a_version_with_operators_marks_waits_until_a_person_promotes_it(spoken: Path) -> None:
    text = said(spoken, "retrain")
    assert "model default 0003, with operators' marks: waits for review: 5 sequences called false alarms" in text
    serves = registry_at(spoken).current("default")
    rows = {row["version"]: row for row in json_of(spoken, "list")["versions"]}
    assert (rows["0003"]["waits_for_review"], rows["0003"]["in_service"]) == (True, False)
    assert not rows["0002"]["waits_for_review"]
    assert "waits for review" in said(spoken, "list")
    (model,) = json_of(spoken, "status")["models"]
    assert model["waits_for_review"]["version"] == "0003"
    assert "review      0003 waits for review: " in said(spoken, "status")
    assert f"`streamad models compare {serves} 0003`" in text
    alone = json_of(spoken, "compare", "0003")
    assert (alone["a"], alone["b"]) == (serves, "0003")
    assert "5 of them called false alarms" in " ".join(said(spoken, "show", "0003").split())
    taken = run(spoken, "promote", "0003")
    assert ("silences" in taken.output) == (" silence 0 of" not in text)
    (model,) = json_of(spoken, "status")["models"]
    assert (model["champion"], model["waits_for_review"]) == ("0003", None)
    assert "review " not in said(spoken, "status")
    said(spoken, "rollback")  # who takes it back has declined it
    rows = {row["version"]: row for row in json_of(spoken, "list")["versions"]}
    assert (rows["0003"]["declined"], rows["0003"]["waits_for_review"]) == (True, False)
    assert "declined" in said(spoken, "list")
    assert "review " not in said(spoken, "status")


def test_a_version_that_a_person_declines_waits_no_more(spoken: Path) -> None:
    said(spoken, "retrain")
    text = said(spoken, "compare", "0003")
    assert "to take it: streamad models promote 0003" in text
    assert "to leave it: streamad models decline 0003" in text
    store_of(spoken).mark(Mark(id=identity(ODD[7]), judgement="confirmed", at_us=1, received_us=2**52))
    assert "1 mark since then is not in it" in said(spoken, "status")
    assert "is declined: the same marks make no other version" in said(spoken, "decline", "0003")
    assert "review " not in said(spoken, "status")
    assert "does not wait for a review" in refusal(spoken, "decline", "0001")
    serves = registry_at(spoken).current("default")
    assert serves is not None
    assert "streamad models rollback" in refusal(spoken, "decline", serves)
    assert "to leave it" not in said(spoken, "compare", "0003")


def test_a_comparison_shows_the_alerts_that_would_be_silenced_with_their_marks(spoken: Path) -> None:
    """Version 0002 has the odd ones in its reserve, so its threshold lies above theirs."""
    reserved = [n for n in range(100, 300) if is_reserved(f"r{n % 2}", f"B-{n}", 0.2)]
    passed: dict[str, Any] = {"decision": "normal", "p_value": 0.5, "stored_us": START_US}
    add(spoken, {"reserve": [odd(n, time_us=START_US + n, **passed) for n in reserved]})
    assert train(spoken) == "0002"
    if registry_at(spoken).current("default") == "0002":
        registry_at(spoken).promote("default", "0001", expected="0002")
    found = json_of(spoken, "compare", "0002")["comparison"]["silenced"]
    by_id = {each["alert_id"]: each["judgement"] for each in found["alerts"]}
    assert by_id, found
    marks = {identity(n): "false_alarm" for n in ODD[:5]}
    marks |= {identity(ODD[5]): "confirmed", identity(ODD[6]): "withdrawn", identity(ODD[7]): None}
    assert by_id.items() <= marks.items()
    text = said(spoken, "compare", "0002", "0001")
    assert f"{len(by_id)} of {found['n_raised']} (" in text
    assert "would raise again and 0002" in text
    first = text.partition("says nothing):")[2].splitlines()[2]
    assert ("confirmed" in first) == ("confirmed" in by_id.values())


def test_marks_beyond_the_bound_are_a_note(trained: Path) -> None:
    store = store_of(trained)
    for n in SHARES["accepted"]:
        store.mark(Mark(id=identity(n), judgement="veto", at_us=START_US, received_us=START_US + n))
    result = run(trained, "retrain")
    assert "note: " in result.output
    text = " ".join(result.output.split())
    assert "more sequences called confirmed or veto train all the same: marks keep out at most" in text
    record = registry_at(trained).manifest("default", "0002").learning
    assert record is not None
    assert (record.n_excluded, record.n_excluded + record.n_capped) == (8, 40)
    assert "8 more kept out by operators' marks" in " ".join(said(trained, "show", "0002").split())


# --- comparing and showing ---


def test_two_versions_side_by_side(trained: Path) -> None:
    second = another(trained)
    found = json_of(trained, "compare", "0001", second)
    assert (found["a"], found["b"]) == (second, "0001")  # the version in service first
    comparison = found["comparison"]
    assert (comparison["champion"]["version"], comparison["challenger"]["version"]) == (second, "0001")
    text = said(trained, "compare", "0001", second)
    assert f"{second} (in service)" in text
    for model in (comparison["champion"], comparison["challenger"]):
        low, high = model["interval"]
        assert f"{model['n_alerts']}: {percent(model['false_alarm_rate'], 1)}, 95 %: {percents(low, high, 1)}" in text
        assert f"{100 * model['by_fault']['wrong_order']:.1f}\u00a0% (" in text
    assert json_of(trained, "compare", "0001") == found  # with the one in service
    assert registry_at(trained).current("default") == second


def test_simple_kinds_stand_beside_both_versions_and_decide_nothing(trained: Path) -> None:
    second = another(trained)
    bare = json_of(trained, "compare", "0001", second)["comparison"]
    assert bare.pop("references") == {}
    assert "AUC" not in said(trained, "compare", "0001", second)
    plant_of(
        trained.parent,
        model={**MODEL, "references": ["pointwise", "pca", "broken"]},
        learning=LEARNING,
        alerts={"false_alarm_rate": 0.2},
    )
    found = json_of(trained, "compare", "0001", second)["comparison"]
    beside = found.pop("references")
    assert found == bare
    assert list(beside) == ["champion", "challenger"]
    text = " ".join(said(trained, "compare", "0001", second).split())
    for record in beside.values():
        assert [one["kind"] for one in record["others"]] == ["pointwise", "pca", "broken"]
        assert record["n_held_out"] <= found["n_sequences"]
        for one in (record, *record["others"][:2]):
            assert one["found"]["rate"] == 0.2
            assert f"{100 * one['found']['share']:.0f} %" in text.replace("\u00a0", " ")
    assert beside["champion"]["others"][0]["by_fault"] == beside["challenger"]["others"][0]["by_fault"]
    assert "beside 0001 (in service)" not in text
    assert "beside 0001 " in text
    assert "beside 0002 (in service)" in text
    assert "(90 % interval)" in text
    trial = beside["champion"]
    assert f"({trial['n_injected']} injected faults, {trial['n_held_out']} normal)" in text
    assert "broken is left out: detector 'broken' (streamad_test_detector:Missing) cannot be loaded" in text


def test_a_version_says_which_score_alerts_if_the_rate_cannot_be_certified(trained: Path) -> None:
    assert "note" not in said(trained, "show")
    settings = yaml.safe_load(trained.read_text())
    trained.write_text(yaml.safe_dump({**settings, "alerts": {"false_alarm_rate": 0.001}}))
    page = " ".join(said(trained, "show").split())
    n = int(page.partition("note ")[2].split()[0])
    assert f"calibrated {n} sequences of the reserve, which never trains; certifies a false-alarm rate of" in page
    assert f"{n} calibration sequences certify a false-alarm rate of {rounded_up(1 / (n + 1)):g} at best; 0.001" in page
    assert "0.001 is extrapolated: an alert needs a score of" in page
    assert f"where the highest of the calibration is {highest_score(trained):.4g}" in page
    assert f"calibrate with 999 sequences, or raise alerts.false_alarm_rate to {rounded_up(1 / (n + 1)):g}" in page
    calibration = next(trained.parent.rglob("0001/calibration.npy"))
    calibration.write_bytes(calibration.read_bytes()[:-4])
    assert "calibration.npy is damaged" in " ".join(said(trained, "show").split())


def test_a_version_calibrated_out_of_fold_certifies_no_rate(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = registry_at(trained).manifest("default", "0001")
    n, metrics = manifest.metrics.n_calibration, replace(manifest.metrics, method="out_of_fold")
    show_page(replace(manifest, metrics=metrics), "0001")
    text = f"{n} sequences scored out of fold; estimates false-alarm rates from {rounded_up(1 / (n + 1)):g} on and"
    assert f"calibrated  {text} certifies none\n" in capsys.readouterr().out


def highest_score(config: Path) -> float:
    return float(json_of(config, "show")["metrics"]["score_quantiles"]["1"])


def test_a_version_shows_its_effort_and_its_members_weights(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = registry_at(trained).manifest("default", "0001")
    page = said(trained, "show")
    assert "effort " not in page
    assert "weights " not in page
    settings = {"effort": "normal", "weights": {"hydra.leverage": 1.0, "neutral_ad_1.contrast": 0.25}}
    show_page(replace(manifest, training=replace(manifest.training, settings=settings)), "0001")
    page = capsys.readouterr().out
    assert "\neffort      normal\n" in page
    assert "\nweights     hydra.leverage 1.0, neutral_ad_1.contrast 0.25\n" in page


def test_an_unknown_simple_kind_is_refused_before_the_comparison(trained: Path) -> None:
    plant_of(trained.parent, model={**MODEL, "references": ["pcaa"]}, learning=LEARNING)
    result = run(trained, "compare", "0001", another(trained))
    assert isinstance(result.exception, ConfigError)
    assert "model.references.0" in str(result.exception)
    assert "no detector 'pcaa'; did you mean 'pca'?" in str(result.exception)


def test_sequences_too_few_for_a_promotion_are_compared_with_a_note(trained: Path) -> None:
    second = another(trained)
    assert "are few" not in said(trained, "compare", "0001", second)
    plant_of(trained.parent, model=MODEL, learning={**LEARNING, "promotion": {"min_comparison": 200}})
    text = " ".join(said(trained, "compare", "0001", second).split())
    n = json_of(trained, "compare", "0001", second)["comparison"]["n_sequences"]
    assert f"{n} sequences are few: a promotion needs 200 (learning.promotion.min_comparison)" in text


def test_what_cannot_be_compared(trained: Path) -> None:
    assert "are the same version" in refusal(trained, "compare", "0001")
    assert "has no version 0009 (there are: 0001)" in refusal(trained, "compare", "0001", "0009", kind=RegistryError)
    second = another(trained)
    store_of(trained).purge(share="reserve")
    assert "no sequences to compare on" in refusal(trained, "compare", "0001", second, kind=TrainingDataError)


def test_figures_of_a_lone_challenger_and_of_an_older_manifest() -> None:
    figures = {
        "comparison.sequences": 20,
        "comparison.confirmed": 4,
        "challenger.alerts": 1,
        "challenger.false_alarm_rate": 0.05,
    }
    table = figures_table(
        {
            **figures,
            "challenger.confirmed_found": 3,
            "challenger.detection.time_warp": 0.5,
            "challenger.detection.stuck": 0.45,
            "challenger.detection.stuck.weak": 0.1,
            "challenger.detection.stuck.strong": 0.8,
        },
        {"challenger": "0001"},
    )
    assert [str(column.header) for column in table.columns] == ["", "0001"]
    assert list(zip(*(list(column.cells) for column in table.columns), strict=True)) == [
        ("normal sequences compared on", "20"),
        ("false alarms", "1: 5.0\u00a0%"),
        ("  time warp", "50.0\u00a0%"),
        ("  stuck", "45.0\u00a0% (10 / - / 80\u00a0%)"),
        ("confirmed anomalies found", "3 of 4"),
    ]
    assert figures_table({}, {"challenger": "0001"}).row_count == 0


def test_a_version_on_a_page(trained: Path) -> None:
    store_of(trained).mark(Mark(id=identity(70), judgement="false_alarm", at_us=START_US))
    second = another(trained)
    manifest = registry_at(trained).manifest("default", second)
    page = said(trained, "show")
    assert page.startswith(f"model default {second}, in service")
    assert "from 0001" in page
    assert f"trained     {manifest.metrics.n_training} sequences" in page
    assert "because of: command" in page
    assert f"calibrated  {manifest.metrics.n_calibration} sequences " in page
    assert manifest.decision is not None
    assert manifest.decision.reason in page
    assert "injected faults found" in page
    assert all(f"{record.sha256[:16]}..." in page for record in manifest.files.values())
    assert f"not in service ({second} is)" in said(trained, "show", "0001")
    assert "challenged  " in said(trained, "show", "0001")
    assert json_of(trained, "show", "0001")["version"] == "0001"


@pytest.mark.parametrize(("n", "line"), [(10, "a0 [bar], a1, "), (49_000, "a9 and 48990 more")])
def test_a_version_of_many_channels_names_the_first_and_how_many_more(
    trained: Path, n: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = registry_at(trained).manifest("default", "0001")
    channels = tuple(ChannelSpec(f"a{i}", "bar" if i == 0 else "") for i in range(n))
    show_page(replace(manifest, channels=channels), "0001")
    (shown,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("channels ")]
    assert line in shown
    assert ("more" in shown) == (n > 10)
    assert len(shown) < 100


# --- which version serves ---


def test_promote_and_rollback_say_what_is_in_service(trained: Path) -> None:
    second = another(trained)
    assert json_of(trained, "rollback") == {"model": "default", "current": "0001", "before": second}
    assert registry_at(trained).current("default") == "0001"
    text = said(trained, "promote", second)
    assert text == f"model default {second} is now in service (before: 0001); running monitors load it within 2 s\n"
    assert f"{second} is now in service" in said(trained, "rollback", "--to", "0001") + said(trained, "promote", second)


def test_a_damaged_version_can_be_rolled_back(trained: Path) -> None:
    """That is what a rollback is for: its manifest need not be readable."""
    second = another(trained)
    (trained.parent / f"registry/default/versions/{second}/manifest.json").write_bytes(b"damaged")
    assert "0001 is now in service" in said(trained, "rollback", "--to", "0001")


def test_rollback_without_an_earlier_version(trained: Path) -> None:
    assert "0001 replaced no other: there is no other version" in refusal(trained, "rollback")
    assert "this is the version in service" in refusal(trained, "rollback", "--to", "0001")
    assert "has no version 0009" in refusal(trained, "rollback", "--to", "0009", kind=RegistryError)
    second = another(trained)
    (trained.parent / "registry/default/versions/0001").rename(trained.parent / "elsewhere")
    assert f"0001, which {second} replaced, is gone" in refusal(trained, "rollback")


def test_a_damaged_version_does_not_go_into_service(trained: Path) -> None:
    second = another(trained)
    probe = trained.parent / "registry/default/versions/0001/probe.npz"
    probe.write_bytes(probe.read_bytes()[:-1])
    for command in (["rollback"], ["promote", "0001"]):
        assert "0001" in refusal(trained, *command, kind=ArtifactError)
    assert registry_at(trained).current("default") == second


def test_without_learning_running_monitors_do_not_follow(trained: Path) -> None:
    plant_of(trained.parent, learning=None, model=MODEL)
    assert "running monitors load it at their next start" in said(trained, "promote", "0001")


def test_a_damaged_current_is_written_anew_by_promote(trained: Path) -> None:
    """One way out, with the config's own name, and no other version hidden meanwhile."""
    second = another(trained)
    (trained.parent / "registry/default/CURRENT").write_bytes(b"junk!")
    listed = run(trained, "list")
    assert (listed.exit_code, len(listed.stdout.splitlines())) == (0, 3)
    way = f"streamad models promote VERSION --model default --config {trained} (there are: 0001, {second})"
    assert f"{way}\n" in listed.stderr
    for command in (["rollback"], ["show"], ["status"], ["prune", "--keep", "1"]):
        assert "streamad models promote VERSION --model default" in refusal(trained, *command, kind=RegistryError)
    assert json_of(trained, "promote", "1", "--model", "default").items() >= {"current": "0001", "before": None}.items()
    assert registry_at(trained).current("default") == "0001"


# --- what is no version ---


def test_one_bad_folder_hides_no_version(trained: Path) -> None:
    second = another(trained)
    versions = trained.parent / "registry/default/versions"
    (versions / "9999").mkdir()
    shutil.copytree(versions / "0001", versions / "copy")
    (versions / second / "manifest.json").write_bytes(b"damaged")
    listed = run(trained, "list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["version", "0001"]
    notes = listed.stderr.splitlines()
    assert [note.partition(": ")[2].split(":")[0] for note in notes] == [
        f"model default {second}", "model default 9999", "model default copy"
    ]  # fmt: skip
    assert all(note.startswith("note: ") for note in notes)
    found = json_of(trained, "list")
    assert ([row["version"] for row in found["versions"]], len(found["problems"])) == (["0001"], 3)
    assert "2 versions" in said(trained, "status")
    for version in (second, "9999", "copy"):  # a version that is named must be good
        assert version in refusal(trained, "show", version, kind=ArtifactError)


def test_if_nothing_can_be_listed_the_command_fails(trained: Path) -> None:
    (trained.parent / "registry/default/versions/0001/manifest.json").write_bytes(b"damaged")
    assert "no version can be listed" in refusal(trained, "list", kind=RegistryError)
    assert "note: model default 0001: manifest.json is damaged" in run(trained, "list").stderr
    assert json.loads(run(trained, "list", "--json").stdout)["versions"] == []


# --- several models ---


def test_of_several_models_one_must_be_named(tmp_path: Path) -> None:
    config = plant_of(
        tmp_path, learning=LEARNING, model=MODEL, models={"field": "recipe"}, alerts={"false_alarm_rate": 0.2}
    )
    assert "no model yet" in said(config, "list")
    assert "no model yet" in said(config, "status")
    add(config, {"accepted": [sequence(n) for n in range(3)]}, "default.A")  # too few for a model
    add(config, {share: [sequence(n) for n in numbers] for share, numbers in SHARES.items()}, "default.B")  # type: ignore[misc]
    assert "name one with --model: default.A, default.B" in refusal(config, "retrain")
    assert json_of(config, "retrain", "--model", "B")["model"] == "default.B"
    found = {one["model"]: one["current"] for one in json_of(config, "list")["models"]}
    assert found == {"default.A": None, "default.B": "0001"}
    assert [one["model"] for one in json_of(config, "status", "--model", "default.B")["models"]] == ["default.B"]
    assert "model default.B 0001, in service" in said(config, "show", "--model", "B")


# --- progress ---


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"phase": "preparing"}, "preparing"),
        ({"phase": "first", "fit": 1, "n_fits": 2, "epoch": 3, "n_epochs": 9, "loss": 0.25},
         "first fit 1 of 2, epoch 3 of at most 9, loss 0.25"),
        ({"phase": "final", "fit": 1, "n_fits": 1, "epoch": 3, "n_epochs": 9}, "final fit, epoch 3 of at most 9"),
        ({"phase": "proof", "fit": 2, "n_fits": 2, "epoch": 0, "n_epochs": 0, "loss": 0.0},
         "proving that a new process can use the version"),
        ({"phase": "comparison", "fit": 2, "n_fits": 2, "epoch": 4, "n_epochs": 39, "loss": 0.0},
         "comparing, step 4 of 39"),
    ],
)  # fmt: skip
def test_the_progress_of_a_training_as_text(status: dict[str, Any], text: str) -> None:
    assert progress_text(TrainingStatus(**status)) == text


# --- pruning ---


def test_old_versions_are_removed_as_asked_and_as_configured(trained: Path) -> None:
    for _ in range(3):
        another(trained)
    assert "how many versions to keep?" in refusal(trained, "prune")
    assert said(trained, "prune", "--keep", "1", "--dry-run") == "model default: would remove 2 versions: 0001, 0002\n"
    assert json_of(trained, "prune", "--keep", "3") == {
        "model": "default", "removed": ["0001"], "dry_run": False, "versions": ["0002", "0003", "0004"]
    }  # fmt: skip
    assert "nothing to remove, 3 versions" in said(trained, "prune", "--keep", "3")
    assert "would remove 1 version: 0002\n" in said(trained, "prune", "--keep", "2", "--dry-run")
    plant_of(trained.parent, model={**MODEL, "keep": 1}, learning=LEARNING, alerts={"false_alarm_rate": 0.2})
    outcome = json_of(trained, "retrain")  # a training that ends removes what is old
    left = list(registry_at(trained).versions("default"))
    current = registry_at(trained).current("default")
    assert "0002" not in left
    assert {current, outcome["version"]} <= set(left)
