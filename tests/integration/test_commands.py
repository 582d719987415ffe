"""The commands on a plant with a small real model: what they write, say and return."""

from __future__ import annotations

import csv
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from streamad.judge.attribution import explain
from streamad.language import percent
from tests.support.runtime.cli import OPTIONS, CliPlant, started, streamad, until_line
from tests.support.runtime.pipeline import START_US
from tests.support.waiting import LIMIT_S


def labels_of(plant: CliPlant) -> dict[str, bool]:
    with (plant.folder / "labels.csv").open(newline="") as file:
        return {row["sequence"]: row["label"] != "0" for row in csv.DictReader(file)}


# --- run -------------------------------------------------------------------------------------------------------------


def test_run_judges_every_sequence_and_prints_the_alerts(plant: CliPlant) -> None:
    outcome = plant("run --json")
    assert outcome.code == 0, outcome.err
    truth = labels_of(plant)
    verdicts = plant.lines("verdicts")
    assert {verdict["sequence"] for verdict in verdicts} == set(truth)
    assert len(verdicts) == 16
    alerts = plant.lines("alerts")
    assert len(alerts) == sum(verdict["decision"] == "anomalous" for verdict in verdicts) > 0
    assert [alert["alert_id"] for alert in alerts] == [reason["alert_id"] for reason in plant.lines("attributions")]
    report = outcome.last_json
    assert (report["sequences"], report["alerts"]) == (16, len(alerts))
    assert report["counters"]["samples"] == report["counters"]["sequence_samples"]
    assert outcome.err.count("ALERT") == len(alerts)


@pytest.mark.parametrize("command", ["run --json", "replay --json"])
def test_the_report_contains_the_durations(plant: CliPlant, command: str) -> None:
    started = time.perf_counter()
    report = plant(command).last_json
    elapsed_s = time.perf_counter() - started
    assert 0 < report["wall_s"] < elapsed_s
    assert report["sequences_per_s"] == pytest.approx(16 / report["wall_s"], rel=0.02)
    latency_ms = report["decision_latency_ms"]
    assert set(latency_ms) == {"p50", "p99"}
    assert 0 < latency_ms["p50"] <= latency_ms["p99"] < 1_000 * elapsed_s


def test_a_second_run_writes_nothing_new_and_a_longer_recording_is_continued(plant: CliPlant) -> None:
    assert plant("run --quiet").code == 0
    first = {role: plant.lines(role) for role in ("alerts", "attributions", "verdicts")}
    assert plant("run --json").last_json["sequences"] == 0
    assert {role: plant.lines(role) for role in first} == first
    with (plant.folder / "recordings" / "day.jsonl").open("a") as file:
        file.write(CliPlant.message("r1", "later", 900.0, random.Random(1)) + "\n")
    assert plant("run --json").last_json["sequences"] == 1
    assert [verdict["sequence"] for verdict in plant.lines("verdicts")[-1:]] == ["later"]
    assert plant.lines("verdicts")[:-1] == first["verdicts"]


def test_run_without_a_model_names_the_training_command_in_one_line(untrained_plant: CliPlant) -> None:
    untrained_plant("run").assert_one_line_error("streamad train --config")
    assert not (untrained_plant.folder / "out").exists()


def test_an_outsider_can_read_the_last_line_of_stdout_even_where_alerts_go_there(plant: CliPlant) -> None:
    plant.write_config(sinks={"alerts": "stdout:"})
    outcome = streamad("run", "--json", "--quiet", cwd=plant.folder)
    assert outcome.code == 0, outcome.err
    *alerts, report = [json.loads(text) for text in outcome.out.splitlines()]
    assert report["alerts"] == len(alerts) > 0
    assert all("alert_id" in alert for alert in alerts)
    assert outcome.err == ""


@pytest.mark.parametrize(
    ("number", "supervised"), [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)]
)
def test_a_signal_stops_run_in_bounded_time_with_exit_code_0_and_the_next_run_goes_on(
    plant: CliPlant, number: signal.Signals, supervised: bool
) -> None:
    plant.write_config(run={"commit_interval": "20ms"})
    calm = plant("replay --json --out calm").last_json["sequences"]
    source = plant.folder / "recordings" / "day.jsonl"
    rng = random.Random(3)
    with source.open("a") as file:
        file.writelines(CliPlant.message("r3", f"more-{i}", i * 30.0, rng) + "\n" for i in range(1_200))
    command = ["-v", "run", "--supervised"] if supervised else ["run"]
    verdicts = plant.folder / "out" / "verdicts.jsonl"
    with started(*command, "--quiet", "--json", cwd=plant.folder) as process:
        deadline = time.monotonic() + LIMIT_S
        while not (verdicts.exists() and verdicts.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        if supervised:  # by its supervisor, after whoever stops them all
            until_line(process, "stop requested")
            process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    first = json.loads(out.splitlines()[-1])["sequences"]
    assert 0 < first == len(plant.lines("verdicts"))
    second = plant("run --quiet --json").last_json["sequences"]
    ids = [verdict["verdict_id"] for verdict in plant.lines("verdicts")]
    assert first + second == len(ids) == len(set(ids)) == calm + 1_200


# --- replay ----------------------------------------------------------------------------------------------------------


def weaken_the_faults(plant: CliPlant, share: float) -> None:
    """Leave ``share`` of the shift of the pressure in the anomalous recordings."""
    recordings = plant.folder / "recordings" / "day.jsonl"
    truth, messages = labels_of(plant), [json.loads(text) for text in recordings.read_text().splitlines()]
    for message in messages:
        if truth[message["sequence"]]:
            message["values"] = [[temp, 3.25 + share * (pressure - 3.25)] for temp, pressure in message["values"]]
    recordings.write_text("".join(f"{json.dumps(message)}\n" for message in messages))


def test_replay_measures_what_an_extrapolated_rate_does_to_detection(plant: CliPlant) -> None:
    assert "uncertified" not in plant("replay --labels labels.csv --json").last_json
    nearest = {"detector": "nearest", "options": {}}
    plant.write_config(model=nearest, alerts={"false_alarm_rate": 1e-9})
    weaken_the_faults(plant, 0.1)
    trained = plant("train")
    assert trained.code == 0
    assert "scored out of fold, which estimate the false-alarm rate and certify none; now in service" in " ".join(
        trained.out.split()
    )
    assert "scored out of fold estimate false-alarm rates from" in " ".join(trained.out.split())
    report = plant("replay --labels labels.csv --json").last_json
    (below,) = report["uncertified"].values()
    assert below["method"] == "out_of_fold"
    assert below["alert_score"] > below["highest_score"]
    assert below["n_needed"] == 999_999_999
    assert report["detection_rate"] < report["at_rank_rate"]["detection_rate"]
    said = " ".join(plant("replay --labels labels.csv --quiet").out.split())
    found, would = report["detection_rate"], report["at_rank_rate"]["detection_rate"]
    rate = f"{below['rank_rate']:g}"
    assert f"at {rate} {100 * would:.1f} % of the anomalous (now {100 * found:.1f} %) and" in said
    assert f"scored out of fold estimate false-alarm rates from {rate} on and certify none; 1e-09 is extrapo" in said
    assert f"or raise alerts.false_alarm_rate to {rate}, an estimate as well" in said
    shown = " ".join(plant("models show").out.split())
    assert "certify none" in shown
    assert "certifies none" in shown
    plant.write_config(model=nearest, alerts={"false_alarm_rate": below["rank_rate"]})
    promised = plant("replay --labels labels.csv --json").last_json
    assert "uncertified" not in promised
    assert promised["detection_rate"] == would
    assert promised["false_alarm_rate"] == report["at_rank_rate"]["false_alarm_rate"]


def test_replay_with_labels_reports_the_quality_of_detection(plant: CliPlant) -> None:
    outcome = plant("replay --labels labels.csv --json --out said")
    assert outcome.code == 0, outcome.err
    truth = labels_of(plant)
    verdicts = [json.loads(text) for text in (plant.folder / "said" / "verdicts.jsonl").read_text().splitlines()]
    odd = [verdict for verdict in verdicts if truth[verdict["sequence"]]]
    normal = [verdict for verdict in verdicts if not truth[verdict["sequence"]]]
    assert (len(odd), len(normal)) == (4, 12)
    above = sum((o["score"] > n["score"]) + 0.5 * (o["score"] == n["score"]) for o in odd for n in normal)
    report = outcome.last_json
    assert report["auc"] == pytest.approx(above / 48)
    assert report["detection_rate"] == sum(v["decision"] == "anomalous" for v in odd) / 4
    assert report["false_alarm_rate"] == sum(v["decision"] == "anomalous" for v in normal) / 12
    low, high = report["false_alarm_interval"]
    assert low <= report["false_alarm_rate"] <= high
    assert (report["n_normal"], report["n_anomalous"]) == (12, 4)
    assert not (plant.folder / "out").exists()
    assert not (plant.folder / "checkpoint").exists()


def test_run_writes_windows_where_a_sink_is_and_replay_into_its_folder(plant: CliPlant) -> None:
    plant("run --quiet")
    alerts = {alert["alert_id"] for alert in plant.lines("alerts")}
    assert alerts
    assert not (plant.folder / "out" / "windows.jsonl").exists()
    plant.write_config(
        sinks={"windows": "new/windows.jsonl", "verdicts": "new/verdicts.jsonl"},
        display={"windows": "all"},
        run={"checkpoint": "new/checkpoint"},
    )
    assert plant("run --quiet").code == 0
    assert plant("replay --quiet --out said").code == 0
    for folder in ("new", "said"):
        windows = [json.loads(text) for text in (plant.folder / folder / "windows.jsonl").read_text().splitlines()]
        verdicts = [json.loads(text) for text in (plant.folder / folder / "verdicts.jsonl").read_text().splitlines()]
        scored = [each["verdict_id"] for each in verdicts if each["decision"] in ("normal", "anomalous")]
        assert sorted(each["verdict_id"] for each in windows) == sorted(scored)
        assert {each["verdict_id"] for each in windows if each["alerted"]} == alerts
        assert all(each["channels"] == ["temp", "pressure"] and each["units"] == ["degC", "bar"] for each in windows)


def test_replay_says_how_many_sequences_have_no_label_and_how_many_of_these_alerted(plant: CliPlant) -> None:
    whole = plant("replay --labels labels.csv --json").last_json
    assert (whole["n_unlabelled"], whole["n_unlabelled_alerts"]) == (0, 0)
    assert "have no label" not in plant("replay --labels labels.csv --quiet").out
    table = plant.folder / "labels.csv"
    rows = table.read_text().splitlines()
    odd = [row for row in rows[1:] if row.endswith(",1")]
    table.write_text("\n".join(row for row in rows if row not in odd[:2]) + "\n")
    part = plant("replay --labels labels.csv --json").last_json
    assert (part["n_anomalous"], part["n_unlabelled"]) == (2, 2)
    n_alerts = part["n_unlabelled_alerts"]
    assert n_alerts == whole["alerts"] - round(part["detection_rate"] * 2 + part["false_alarm_rate"] * 12)
    text = f"note: 2 of 16 judged sequences have no label; {n_alerts} of these alerted"
    assert text in " ".join(plant("replay --labels labels.csv --quiet").out.split())


def test_replay_prints_the_same_figures_as_text(plant: CliPlant) -> None:
    report = plant("replay --labels labels.csv --json").last_json
    quiet = plant("replay --labels labels.csv --quiet")
    said = quiet.out
    assert quiet.err == ""
    assert f"{report['auc']:.4f}" in said
    assert f"{percent(report['detection_rate'], 1)} of 4 anomalous" in said


def test_an_unscorable_sequence_is_neither_found_nor_a_false_alarm(plant: CliPlant) -> None:
    before = plant("replay --labels labels.csv --json").last_json
    assert before["n_unscorable"] == 0
    assert "unscorable" not in plant("replay --labels labels.csv --quiet").out
    content = {"stream": "r1", "end": True, "times": [START_US / 1e6 + 900], "values": [[20.0, 3.0]]}
    with (plant.folder / "recordings" / "day.jsonl").open("a") as file:
        file.writelines(json.dumps({**content, "sequence": name}) + "\n" for name in ("short", "odd-1", "odd-2"))
    with (plant.folder / "labels.csv").open("a") as file:
        file.write("short,0\nodd-1,1\nodd-2,1\n")
    report = plant("replay --labels labels.csv --json").last_json
    assert (report["n_normal"], report["n_anomalous"], report["n_unscorable"]) == (13, 6, 3)
    assert report["detection_rate"] == pytest.approx(before["detection_rate"] * 4 / 6)
    assert report["false_alarm_rate"] == pytest.approx(before["false_alarm_rate"] * 12 / 13)
    assert report["auc"] == before["auc"]
    said = plant("replay --labels labels.csv --quiet").out
    assert "3 of these: neither found nor false alarms" in said


def test_replay_of_other_recordings_takes_a_path_from_where_one_stands(plant: CliPlant, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    for number in (1, 2):
        (plant.folder / "recordings" / "day.jsonl").rename(plant.folder / "recordings" / f"day-{number}.jsonl")
        plant.write_recordings(f"again{number}")
        (plant.folder / f"again{number}" / "day.jsonl").rename(plant.folder / "recordings" / "day.jsonl")
    assert plant("replay recordings/day-1.jsonl --json").last_json["sequences"] == 16
    assert plant("replay recordings/day-?.jsonl --json").last_json["sequences"] == 32
    assert plant("replay", plant.folder / "recordings", "--json").last_json["sequences"] == 48


def test_replay_ten_thousand_times_as_fast_as_real_time(plant: CliPlant) -> None:
    fast, full = plant("replay --speed 10000 --json").last_json, plant("replay --json").last_json
    assert fast["counters"]["verdicts"] == full["counters"]["verdicts"]


@pytest.mark.parametrize(("speed", "least_s"), [("real", 0.6), ("2", 0.3)])
def test_a_paced_replay_takes_as_long_as_the_recording_did(plant: CliPlant, speed: str, least_s: float) -> None:
    rows = [[20.0 + 4 * i, 3.0] for i in range(10)]
    with (plant.folder / "recordings" / "day.jsonl").open("w") as file:
        for start_s in (0.0, 0.6):
            times = [START_US / 1e6 + start_s + i / 100 for i in range(10)]
            content = {"stream": "r1", "sequence": f"{start_s}", "times": times, "values": rows, "end": True}
            file.write(json.dumps(content) + "\n")
    report = plant("replay --json --speed", speed).last_json
    assert report["sequences"] == 2
    assert report["wall_s"] >= least_s


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "cannot read"),
        (b"", "no column"),
        (b"sequence;mark\na;1\n", "no column of the label (label) (columns: sequence, mark): name those that it has"),
        (b"batch,label\na,1\n", "no column of the id (sequence) (columns: batch, label)"),
        (b"sequence,label\n", "no labels"),
        (b"\xff\xfe\x00\x01,\x00", "not a CSV"),
        (b"sequence,label\nsomething,0\nother,1\n", "'recordings-0' of stream 'r1', the labels 'something'"),
        (b"stream,sequence,label\nr9,recordings-0,0\n", "'recordings-0' of stream 'r1', the labels 'r9/recordings-0'"),
        (b"sequence,label\na,0\na,1\n", "another label"),
    ],
)
def test_wrong_labels_are_reported_in_one_line(plant: CliPlant, content: bytes | None, word: str) -> None:
    if content is not None:
        (plant.folder / "wrong.csv").write_bytes(content)
    plant("replay --quiet --labels wrong.csv").assert_one_line_error(word)


def test_recordings_that_are_all_faulty_need_no_normal_label_and_get_a_note(plant: CliPlant) -> None:
    text = (plant.folder / "labels.csv").read_text()
    (plant.folder / "faulty.csv").write_text(text.replace(",0\n", ",1\n"))
    (plant.folder / "stuck.csv").write_text(text.replace(",0\n", ",stuck\n"))
    noted = plant("replay --json --labels faulty.csv")
    (note,) = noted.err.splitlines()
    assert note.startswith("note: all 16 labels mean anomalous; if some are normal")
    for report in (noted.last_json, plant("replay --json --labels stuck.csv --normal", "").last_json):
        assert (report["n_normal"], report["n_anomalous"]) == (0, 16)
        assert (report["auc"], report["false_alarm_rate"], report["false_alarm_interval"]) == (None, None, None)
        assert report["detection_rate"] == report["alerts"] / 16
    plant("train --json --labels faulty.csv").assert_one_line_error("training needs normal sequences", "--normal")


@pytest.mark.parametrize("command", ["replay --quiet", "replay --quiet --normal 0", "train --json"])
def test_labels_of_unknown_words_are_refused_by_each_command_that_reads_them(plant: CliPlant, command: str) -> None:
    text = (plant.folder / "labels.csv").read_text()
    (plant.folder / "words.csv").write_text(text.replace(",0\n", ",fine\n"))
    plant(f"{command} --labels words.csv").assert_one_line_error("--normal must name some of: 1, fine")


def test_replay_and_train_read_a_table_of_good_and_bad_with_columns_of_other_names_alike(plant: CliPlant) -> None:
    plant.write_recordings(normal=17, odd=4)
    text = (plant.folder / "labels.csv").read_text().replace("sequence,label", "batch,result")
    (plant.folder / "words.csv").write_text(text.replace(",0\n", ",good\n").replace(",1\n", ",bad\n"))
    columns = "--labels words.csv --label-id batch --label-column result"
    report = plant(f"replay --json {columns}").last_json
    assert (report["n_normal"], report["n_anomalous"]) == (17, 4)
    assert plant(f"train recordings --json {columns}").last_json["metrics"]["n_training"] == 17


def test_training_on_labels_of_other_names_shows_both_names(plant: CliPlant) -> None:
    (plant.folder / "other.csv").write_text("sequence,label\n2026-03-03 00:04:00,0\n")
    outcome = plant("train", "--labels", "other.csv")
    outcome.assert_one_line_error("none of the 24 sequences is labelled normal", "'2026-03-03 00:04:00'")


def test_labels_with_a_stream_distinguish_sequences_of_the_same_id(plant: CliPlant) -> None:
    rng = random.Random(4)
    truth = [(stream, f"b{i}", stream == "r2") for i in range(17) for stream in ("r1", "r2")]
    with (plant.folder / "recordings" / "day.jsonl").open("w") as file:
        for n, (stream, sequence, odd) in enumerate(truth):
            file.write(CliPlant.message(stream, sequence, n * 30.0, rng, odd=odd) + "\n")
    rows = "".join(f"{stream},{sequence},{odd:d}\n" for stream, sequence, odd in truth)
    (plant.folder / "streams.csv").write_text("stream,sequence,label\n" + rows)
    report = plant("replay --json --labels streams.csv --out said").last_json
    assert (report["n_normal"], report["n_anomalous"]) == (17, 17)
    verdicts = [json.loads(text) for text in (plant.folder / "said" / "verdicts.jsonl").read_text().splitlines()]
    found = [verdict for verdict in verdicts if verdict["decision"] == "anomalous" and verdict["stream"] == "r2"]
    assert report["detection_rate"] == len(found) / 17
    metrics = plant("train recordings --json --labels streams.csv").last_json["metrics"]
    assert metrics["n_training"] == 17


def test_a_replay_explains_its_alerts_only_to_who_can_see_it(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    explained = 0

    def counted(*arguments: Any) -> Any:
        nonlocal explained
        explained += 1
        return explain(*arguments)

    monkeypatch.setattr("streamad.judge.explainer.explain", counted)
    said = plant("replay")
    n_alerts = said.err.count("ALERT")
    assert n_alerts == said.err.count("because of") == explained > 0
    assert plant("replay --json").last_json["alerts"] == n_alerts
    assert plant("replay --quiet").code == 0
    assert explained == n_alerts
    assert plant("replay --json --out said").code == 0
    assert explained == 2 * n_alerts


def test_a_folder_that_holds_outputs_already_is_not_written_to(plant: CliPlant) -> None:
    assert plant("replay --quiet --out said").code == 0
    before = plant.files()
    plant("replay --quiet --out said").assert_one_line_error("already holds", code=2)
    assert plant.files() == before


# --- train, score, models, schema ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "replay --out registry/default",
        "replay --out inliers",
        "replay --out link",
        "replay --out recordings",
        "replay --out normal",
        "replay --out out",
        "record --from recordings --out registry",
        "record --from recordings --out checkpoint/x",
    ],
)
def test_nothing_is_written_into_a_place_of_the_plant(plant: CliPlant, command: str) -> None:
    """Messages among the files of a model, or beside recordings that the next run would read with them."""
    plant.write_config(learning={"store": "inliers"})
    (plant.folder / "link").symlink_to(plant.folder / "registry" / "default" / "versions")
    before = sorted(plant.folder.rglob("*"))
    outcome = plant(command)
    outcome.assert_one_line_error("--out ", "name another", code=2)
    assert sorted(plant.folder.rglob("*")) == before


def test_a_second_training_makes_and_reports_the_next_version(plant: CliPlant) -> None:
    outcome = plant("train --json")
    assert outcome.code == 0, outcome.err
    report = outcome.last_json
    assert (report["version"], report["promoted"]) == ("0002", True)
    assert report["metrics"]["n_calibration"] == 24
    listed = plant("models list --json").last_json
    assert listed["current"] == "0002"
    assert [row["version"] for row in listed["versions"]] == ["0001", "0002"]
    assert plant("train --no-promote --json").last_json["promoted"] is False
    assert plant("models list --json").last_json["current"] == "0002"


def test_a_warning_names_how_many_sequences_trained_the_model(plant: CliPlant) -> None:
    warning = "24 of 24 have the id of one that trained or calibrated the model"
    assert warning in " ".join(plant("score normal").err.split())
    assert warning in " ".join(plant("replay normal").out.split())
    assert "trained or calibrated" not in plant("score").err


def test_a_training_that_does_not_leave_its_start_is_reported_with_advice(plant: CliPlant) -> None:
    plant.write_config(model={"detector": "neutral_ad", "options": {**OPTIONS, "epochs": 40}})
    assert "did not leave its start" not in plant("train").out
    plant.write_config(model={"detector": "neutral_ad", "options": {**OPTIONS, "epochs": 1, "learning_rate": 1e-7}})
    outcome = plant("train")
    assert outcome.code == 0, outcome.err
    assert "training did not leave its start" in " ".join(plant("models show 0003").out.split())
    assert "training did not leave its start" in outcome.out
    assert "set the option transformation to residual" in " ".join(outcome.out.split())


def test_an_interrupted_training_is_reported(untrained_plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("streamad.commands.train.train_model", interrupted)
    outcome = untrained_plant("train")
    assert outcome.code != 0
    assert "interrupted: the same command resumes from here\n" in outcome.err


def test_train_on_the_normal_ones_by_label(plant: CliPlant) -> None:
    plant.write_recordings(normal=17, odd=4)
    report = plant("train recordings --labels labels.csv --json").last_json
    assert report["metrics"]["n_training"] == 17


@pytest.mark.parametrize(
    ("recordings", "word"),
    [("nowhere.jsonl", "no such file"), ("labels.csv", "unreadable"), ("one.jsonl", "sequences")],
)
def test_unusable_training_data_is_reported_in_one_line(plant: CliPlant, recordings: str, word: str) -> None:
    (plant.folder / "one.jsonl").write_text(CliPlant.message("r1", "only", 0.0, random.Random(1)) + "\n")
    before = plant.files()
    outcome = plant("train", recordings, "--json")
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert word in outcome.err.splitlines()[-1]
    assert "Traceback" not in outcome.err
    assert plant.files() == before


def test_score_prints_the_verdicts_that_run_writes(plant: CliPlant) -> None:
    scored = [json.loads(text) for text in plant("score --json").out.splitlines()]
    plant("run --quiet")

    def figures(verdicts: list[dict[str, Any]]) -> dict[str, Any]:
        return {v["verdict_id"]: (v["decision"], v["n_samples"], pytest.approx(v["score"], rel=1e-5)) for v in verdicts}

    assert figures(scored) == figures(plant.lines("verdicts"))
    table = plant("score").out
    assert all(verdict["sequence"] in table for verdict in scored)


def test_models_show_prints_the_manifest_and_list_marks_what_is_in_service(plant: CliPlant) -> None:
    manifest = plant("models show --json").last_json
    assert (manifest["name"], manifest["version"], manifest["metrics"]["method"]) == ("default", "0001", "out_of_fold")
    assert "0001" in plant("models show 0001").out
    assert "in service" in plant("models list").out


def test_models_of_an_empty_registry(untrained_plant: CliPlant) -> None:
    assert "streamad train" in untrained_plant("models list").out
    assert untrained_plant("models list --json").last_json["versions"] == []
    untrained_plant("models show").assert_one_line_error("streamad train")


@pytest.mark.parametrize("command", ["run --quiet", "score", "models list", "models show", "train --json"])
def test_a_registry_that_is_a_file_is_reported_in_one_line(untrained_plant: CliPlant, command: str) -> None:
    (untrained_plant.folder / "registry").write_text("I am a file")
    outcome = untrained_plant(command)
    if command == "models list":
        assert outcome.code in (0, 1)
        assert "Traceback" not in outcome.err
    else:
        outcome.assert_one_line_error()
    assert (untrained_plant.folder / "registry").read_text() == "I am a file"


@pytest.mark.parametrize("version", ["0099", "../../etc", "x" * 200])
@pytest.mark.parametrize("command", ["replay --quiet --version", "score --version", "models show"])
def test_a_version_that_does_not_exist_is_reported_in_one_line(plant: CliPlant, command: str, version: str) -> None:
    plant(command, version).assert_one_line_error()


def test_the_schemas_fit_the_messages_of_a_run(plant: CliPlant) -> None:
    with (plant.folder / "recordings" / "day.jsonl").open("a") as file:
        file.write('{"broken\n' + CliPlant.message("r1", "recordings-0", 0.0, random.Random(1)) + "\n")
    assert plant("run --quiet").code == 0
    schemas = json.loads(plant("schema", config=False).out)
    for role, name in {
        **{"alerts": "alert", "attributions": "attribution", "verdicts": "verdict"},
        **{"dead_letters": "dead_letter", "late": "late"},
    }.items():
        messages = plant.lines(role)
        assert messages, role
        validator = jsonschema.Draft202012Validator(schemas[name])
        for message in messages:
            validator.validate(message)
    single = json.loads(plant("schema alert", config=False).out)
    assert single == schemas["alert"]
    assert plant("schema nonsense", config=False).code == 2


# --- the whole -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "replay", "train", "score", "models list", "models show", "check"])
def test_a_missing_config_is_reported_with_exit_code_2(tmp_path: Path, command: str, plant: CliPlant) -> None:
    plant.config.unlink()
    outcome = plant(command)
    assert outcome.code == 2
    assert "plant.yaml" in outcome.err
    assert "Traceback" not in outcome.err


def test_help_and_version_work_for_every_command(plant: CliPlant) -> None:
    for command in ("", "run", "replay", "train", "score", "models", "models list", "schema", "check", "simulate"):
        outcome = plant(f"{command} --help", config=False)
        assert outcome.code == 0
        assert "Usage" in outcome.out
    assert plant("--version", config=False).out.startswith("streamad ")
    assert plant("", config=False).code == 2
    assert plant("fly", config=False).code == 2


def test_a_reader_that_goes_away_is_no_traceback(plant: CliPlant) -> None:
    plant.write_config(sinks={"alerts": "stdout:"})
    command = f"{sys.executable} -m streamad run --quiet --json | true"
    done = subprocess.run(
        command, shell=True, cwd=plant.folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_an_interrupted_replay_is_marked_as_interrupted(plant: CliPlant) -> None:
    arguments = ["replay", "--speed", "0.001", "--labels", "labels.csv", "--json"]
    with started("--verbose", *arguments, cwd=plant.folder) as process:
        until_line(process, "partition assigned")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["interrupted"] is True


def test_a_full_standard_output_is_one_line(plant: CliPlant) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "streamad", "schema"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: cannot write to standard output: No space left on device"]


def test_promote_puts_an_older_version_back_into_service(plant: CliPlant) -> None:
    assert plant("models promote 0001").code == 0
    assert plant("models list --json").last_json["current"] == "0001"
    plant("models promote 0099").assert_one_line_error("0099")
