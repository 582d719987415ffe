"""``streamad explain``: what it says of an alert afterwards, and what it says if something is missing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cli import CliPlant
from tests.support.runtime.judged_plant import ROLES, copied, judged_plant, rewrite

PNG = b"\x89PNG\r\n"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return judged_plant(tmp_path_factory.mktemp("judged"))


@pytest.fixture
def plant(
    judged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CliPlant:
    return CliPlant(copied(judged, tmp_path / "plant"), capsys, monkeypatch)


def odd_alert(plant: CliPlant) -> dict[str, Any]:
    """The alert with the highest score: a stuck, shifted pressure."""
    return max(plant.lines("alerts"), key=lambda alert: alert["score"])


def normal_ids(plant: CliPlant) -> list[str]:
    return [each["verdict_id"] for each in plant.lines("verdicts") if each["decision"] == "normal"]


def reset(plant: CliPlant, **sinks: Any) -> None:
    """Write the config with other sinks, leaving the outputs."""
    of = {role: f"out/{role}.jsonl" for role in ROLES} | sinks
    plant.write_config(model={"detector": "nearest", "options": {}, "references": []}, sinks=of)


def test_it_says_which_channel_when_against_what_and_draws_it(plant: CliPlant) -> None:
    alert = odd_alert(plant)
    told = plant("explain", alert["alert_id"][:8], "--plot", "why.png")
    assert told.code == 0, told.err
    assert told.err == ""
    first = told.out.splitlines()[0]
    assert first.startswith(f"{alert['stream']} {alert['sequence']}: pressure ")
    assert "above the band" in first
    for words in (f"id       {alert['alert_id']}", "alert by model default 0001", "channels pressure", "nearest  "):
        assert words in told.out
    assert "above all 24 calibration sequences, alerts from" in told.out
    assert "note:" not in told.out
    assert (plant.folder / "why.png").read_bytes().startswith(PNG)


def test_the_attribution_of_the_outputs_is_shown_and_no_model_is_loaded(
    plant: CliPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("streamad.commands.explain.anew")]:
        monkeypatch.delitem(sys.modules, name)
    told = plant("explain", odd_alert(plant)["alert_id"], "--json")
    assert told.last_json["made_anew"] is False
    assert told.last_json["attribution"]["channels"][0]["channel"] == "pressure"
    assert "streamad.commands.explain.anew" not in sys.modules


def test_json_has_the_messages_the_scores_and_what_is_missing(plant: CliPlant) -> None:
    alert = odd_alert(plant)
    told = plant("explain", alert["alert_id"].upper(), "--json").last_json
    assert told["id"] == alert["alert_id"]
    assert told["alert"] == alert
    assert told["verdict"]["decision"] == "anomalous"
    assert told["attribution"]["method"] == "channel-replacement"
    assert told["window"]["channels"] == 2
    assert told["calibration"] == {"n": 24, "n_at_least": 0, "alerts_from": told["calibration"]["alerts_from"]}
    assert told["missing"] == []
    assert told["plot"] is None


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_suffix_chooses_the_format(plant: CliPlant, suffix: str) -> None:
    assert plant("explain", odd_alert(plant)["alert_id"], "--plot", f"why.{suffix}").code == 0
    content = (plant.folder / f"why.{suffix}").read_bytes()
    assert content.startswith({"png": PNG, "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_a_verdict_without_an_alert_is_shown_over_the_band(plant: CliPlant) -> None:
    windows = {each["verdict_id"] for each in plant.lines("windows")}
    gone = next(each for each in normal_ids(plant) if each not in windows)
    told = plant("explain", gone)
    assert told.code == 0
    assert "decision normal by model default 0001" in told.out
    assert "display.windows: all keeps those without an alert, too" in told.out
    drawn = plant("explain", gone, "--recording", "recordings/day.jsonl", "--plot", "n.png")
    assert drawn.code == 0, drawn.err
    assert "note:" not in drawn.out
    assert (plant.folder / "n.png").read_bytes().startswith(PNG)


# --- what is missing ------------------------------------------------------------------------------------------------


def test_without_a_sink_of_windows_it_says_so_and_the_recording_has_them(plant: CliPlant) -> None:
    reset(plant, windows=None)
    alert_id = odd_alert(plant)["alert_id"]
    told = plant("explain", alert_id)
    assert told.code == 0
    assert "note: its readings were not kept (sinks.windows" in told.out
    plant("explain", alert_id, "--plot", "why.png").assert_one_line_error("no picture", "--recording FILE")
    assert not (plant.folder / "why.png").exists()
    drawn = plant("explain", alert_id, "--plot", "why.png", "--recording", "recordings/day.jsonl")
    assert (drawn.code, drawn.err) == (0, "")
    assert (plant.folder / "why.png").exists()


def test_a_window_that_is_gone_is_named_with_its_place(plant: CliPlant) -> None:
    (plant.folder / "out" / "windows.jsonl").write_text("")
    told = plant("explain", odd_alert(plant)["alert_id"])
    assert "note: its readings are not in out/windows.jsonl" in told.out


@pytest.mark.parametrize(
    "changes",
    [
        {"values": "AAAA"},
        {"values": "???"},
        {"values": "AADAfw==", "channels": ["a"], "units": [""], "length": 1},
        {"values": "", "channels": [], "units": []},
        {"length": 0},
        {"length": 10**9},
        {"units": []},
        {"channels": ["temp"]},
    ],
    ids=str,
)
def test_a_damaged_window_is_no_picture_but_the_reasons_are_told(plant: CliPlant, changes: dict[str, Any]) -> None:
    rewrite(plant.folder / "out" / "windows.jsonl", **changes)
    told = plant("explain", odd_alert(plant)["alert_id"])
    assert told.code == 0, told.err
    assert "note: the window cannot be read: window " in told.out
    assert "channels pressure" in told.out


def test_a_version_that_was_removed_leaves_the_curves_without_a_band(plant: CliPlant) -> None:
    shutil.rmtree(plant.folder / "registry" / "default" / "versions" / "0001")
    told = plant("explain", odd_alert(plant)["alert_id"], "--plot", "why.png")
    assert told.code == 0, told.err
    assert "note: model default 0001 cannot be read any more" in told.out
    assert "channels pressure" in told.out
    assert (plant.folder / "why.png").exists()


def test_reasons_that_are_not_there_yet_are_made_from_the_kept_window(plant: CliPlant) -> None:
    written = {each["alert_id"]: each for each in plant.lines("attributions")}
    alert_id = odd_alert(plant)["alert_id"]
    (plant.folder / "out" / "attributions.jsonl").write_text("")
    told = plant("explain", alert_id, "--json").last_json
    assert told["made_anew"] is True
    assert told["missing"] == []
    made, wanted = told["attribution"], written[alert_id]
    assert {**made, "created_at": 0} == {**wanted, "created_at": 0}


@pytest.mark.parametrize("way", ["recording", "gone", "no sink"])
def test_reasons_that_are_not_there_are_made_from_the_recording(plant: CliPlant, way: str) -> None:
    written = {each["alert_id"]: each for each in plant.lines("attributions")}
    alert_id = odd_alert(plant)["alert_id"]
    (plant.folder / "out" / "attributions.jsonl").write_text("")
    (plant.folder / "out" / "windows.jsonl").write_text("")
    if way == "no sink":
        reset(plant, attributions=None)
    if way == "recording":
        told = plant("explain", alert_id, "--json", "--recording", "recordings/day.jsonl").last_json
        assert told["made_anew"] is True
        assert told["attribution"]["segments"] == written[alert_id]["segments"]
        return
    told_text = plant("explain", alert_id)
    assert told_text.code == 0
    expected = "were not kept (sinks.attributions" if way == "no sink" else "are not in out/attributions.jsonl"
    assert f"note: its reasons {expected}" in told_text.out
    assert "--recording FILE makes the reasons now" in told_text.out


def test_an_alert_that_could_not_be_explained_says_why_and_is_tried_again(plant: CliPlant) -> None:
    none = {"method": "none", "channels": [], "terms": [], "segments": [], "nearest": [], "leading_terms": []}
    rewrite(plant.folder / "out" / "attributions.jsonl", **none, detail="it took over a minute")
    alert_id = odd_alert(plant)["alert_id"]
    assert plant("explain", alert_id, "--json").last_json["attribution"]["method"] == "channel-replacement"
    (plant.folder / "out" / "windows.jsonl").write_text("")
    assert "note: the alert could not be explained: it took over a minute" in plant("explain", alert_id).out


def test_a_pruned_version_cannot_explain_anew_and_another_can(plant: CliPlant) -> None:
    assert plant("train").code == 0
    shutil.rmtree(plant.folder / "registry" / "default" / "versions" / "0001")
    (plant.folder / "out" / "attributions.jsonl").write_text("")
    alert_id = odd_alert(plant)["alert_id"]
    told = plant("explain", alert_id, "--recording", "recordings/day.jsonl")
    assert told.code == 0, told.err
    assert "note: no reasons can be made: model default has no version 0001" in told.out
    assert "makes the reasons now" not in told.out  # it has tried
    anew = plant("explain", alert_id, "--recording", "recordings/day.jsonl", "--version", "2", "--json").last_json
    assert anew["alert"]["model"]["version"] == "0002"
    assert anew["attribution"]["channels"][0]["channel"] == "pressure"


def test_alerts_that_cannot_be_read_are_named_and_judged_anew_from_the_recording(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    for role in ("alerts", "verdicts", "attributions", "windows"):
        rewrite(plant.folder / "out" / f"{role}.jsonl", type=None, schema_version=1)
    told = plant("explain", alert_id)
    told.assert_one_line_error("out/alerts.jsonl, byte", "it has no field `type`", "--recording FILE")
    anew = plant("explain", alert_id, "--recording", "recordings/day.jsonl")
    assert anew.code == 0, anew.err
    assert "pressure" in anew.out.splitlines()[0]


def test_channels_that_were_renamed_since_have_no_band_and_are_not_explained_anew(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    rewrite(plant.folder / "out" / "windows.jsonl", channels=["temperature", "pressure"])
    (plant.folder / "out" / "attributions.jsonl").write_text("")
    told = plant("explain", alert_id, "--plot", "why.svg", "--json")
    assert told.code == 0, told.err
    assert told.last_json["made_anew"] is False
    assert any("its reasons are not in" in each for each in told.last_json["missing"])
    assert (plant.folder / "why.svg").exists()


def test_a_recording_whose_sequence_cannot_be_judged_any_more_says_why(plant: CliPlant) -> None:
    alert_id = min(plant.lines("alerts"), key=lambda alert: alert["n_samples"])["alert_id"]
    (plant.folder / "out" / "windows.jsonl").write_text("")
    sinks = {role: f"out/{role}.jsonl" for role in ROLES}
    model = {"detector": "nearest", "options": {}, "references": []}
    plant.write_config(model=model, sinks=sinks, window={"min_samples": 12})
    told = plant("explain", alert_id, "--recording", "recordings/day.jsonl")
    assert told.code == 0, told.err
    assert "note: the sequence in recordings/day.jsonl cannot be judged: too few samples" in told.out


def test_messages_of_other_programs_with_odd_times_and_figures_are_told(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    rewrite(plant.folder / "out" / "alerts.jsonl", start_time="2026-03-01T06:00:00", score=1.7e308)
    first = plant.lines("attributions")[0]["segments"][0] | {"start": -1e300, "end": 1e300, "channel": "pressure"}
    rewrite(plant.folder / "out" / "attributions.jsonl", segments=[first])
    told = plant("explain", alert_id, "--plot", "why.png")
    assert told.code == 0, told.err
    assert (plant.folder / "why.png").read_bytes().startswith(PNG)


# --- ids and options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("5f0c", "at least the first 6"),
        ("", "at least the first 6"),
        ("<script>alert(1)</script>", "hex digits only"),
        ("../../etc/passwd", "hex digits only"),
        ("\x1b[31mred\x07", "hex digits only"),
        ("a" * 33, "32 hex digits"),
        ("\uff19\uff16b595", "hex digits only"),
        ("96b595\n96b595", "hex digits only"),
    ],
)
def test_what_is_no_id_is_refused_in_one_line(plant: CliPlant, text: str, words: str) -> None:
    told = plant("explain", text)
    told.assert_one_line_error("is not the id of an alert or verdict", words, code=2)
    assert "\x1b" not in told.err


def test_an_unknown_id_names_the_places_and_the_next_steps(plant: CliPlant) -> None:
    told = plant("explain", "0123456789ab")
    told.assert_one_line_error("out/alerts.jsonl", "out/verdicts.jsonl", "alerts tail --no-follow", "--recording FILE")


def test_the_id_of_a_warning_explains_the_sequence_that_was_warned_of(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    warning = {"warning_id": "abcdef" + "0" * 26, "age": 0.8}
    rows = [
        {**verdict, "warning": warning if verdict["verdict_id"] == alert_id else None}
        for verdict in plant.lines("verdicts")
    ]
    (plant.folder / "out" / "verdicts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = plant("explain", "abcdef00")
    assert told.code == 0, told.err
    assert f"id       {alert_id}" in told.out


def test_an_unknown_id_without_any_output_is_said(plant: CliPlant) -> None:
    shutil.rmtree(plant.folder / "out")
    plant("explain", "0123456789ab").assert_one_line_error("no outputs that can be read yet", "--recording FILE")


def test_an_ambiguous_beginning_names_the_candidates(plant: CliPlant) -> None:
    lines = (plant.folder / "out" / "verdicts.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines[:2]]
    for number, verdict in enumerate(verdicts):
        verdict["verdict_id"] = f"abcdef{number}" + "0" * 25
    (plant.folder / "out" / "verdicts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in verdicts))
    told = plant("explain", "abcdef")
    told.assert_one_line_error("2 ids begin with abcdef", "abcdef0", verdicts[1]["sequence"], code=2)
    assert plant("explain", "abcdef1").code == 0


def test_an_id_that_the_recording_lacks_is_said_with_its_namesake(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    shifted = plant.folder / "shifted.jsonl"
    lines = (plant.folder / "recordings" / "day.jsonl").read_text().splitlines()
    shifted.write_text("".join(f"{line}\n" for line in [lines[0], *lines]))
    told = plant("explain", alert_id, "--recording", "shifted.jsonl")
    told.assert_one_line_error("shifted.jsonl holds", "but with the id")
    other = plant("explain", alert_id, "--recording", "normal/day.jsonl")
    other.assert_one_line_error("none of 24 sequences of normal/day.jsonl", "name the recording that holds it")
    plant("explain", alert_id, "--recording", "none.jsonl").assert_one_line_error("none.jsonl")


def test_an_id_that_no_output_has_is_judged_from_the_recording(plant: CliPlant) -> None:
    alert = odd_alert(plant)
    shutil.rmtree(plant.folder / "out")
    told = plant("explain", alert["alert_id"][:10], "--recording", "recordings/day.jsonl", "--json").last_json
    assert told["alert"]["alert_id"] == alert["alert_id"]
    assert told["alert"]["score"] == pytest.approx(alert["score"], rel=1e-4)
    assert told["made_anew"] is True


def test_an_unscorable_sequence_has_its_reason_and_no_picture(plant: CliPlant) -> None:
    first = json.loads((plant.folder / "recordings" / "day.jsonl").read_text().splitlines()[0])
    first |= {"sequence": "short", "times": first["times"][:1], "values": first["values"][:1]}
    (plant.folder / "short.jsonl").write_text(json.dumps(first) + "\n")
    score = plant("score", "short.jsonl", "--json").last_json
    told = plant("explain", score["verdict_id"], "--recording", "short.jsonl", "--plot", "why.png")
    assert told.code == 1
    assert "could not be judged (too few samples" in told.out
    assert "error: no picture: the sequence in short.jsonl cannot be judged: too few samples" in told.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--plot", "why.gif"], "a .png, .svg or .pdf file"),
        (["--plot", "why"], "a .png, .svg or .pdf file"),
        (["--version", "1"], "add --recording FILE"),
    ],
)
def test_options_that_do_not_fit_are_usage_errors(plant: CliPlant, options: list[str], words: str) -> None:
    plant("explain", odd_alert(plant)["alert_id"], *options).assert_one_line_error(words, code=2)


def test_a_picture_does_not_go_to_a_place_of_the_plant(plant: CliPlant) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    told = plant("explain", alert_id, "--plot", "registry/default/why.png")
    told.assert_one_line_error("--plot", code=2)
    plant("explain", alert_id, "--plot", "nowhere/why.png").assert_one_line_error("nowhere")


def test_without_matplotlib_one_line_names_the_extra(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    alert_id = odd_alert(plant)["alert_id"]
    told = plant("explain", alert_id, "--plot", "why.png")
    told.assert_one_line_error("pictures need matplotlib", "extra plots", code=2)
    assert plant("explain", alert_id).code == 0
    assert plant("replay", "--quiet", "--plot", "pictures").code == 2
    assert plant("report").code == 0  # its curves are those of the page


HOSTILE = ("<script>alert(1)</script>", "\x1b[31mred\x07", "a\u202eb", "$x^2$\\frac{", "two\nlines\ttab", "[bold]x[/]")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_not_obeyed(plant: CliPlant, name: str) -> None:
    alert_id = odd_alert(plant)["alert_id"]
    for role in ("alerts", "verdicts", "windows"):
        rewrite(plant.folder / "out" / f"{role}.jsonl", stream=name, sequence=name)
    attribution = plant.folder / "out" / "attributions.jsonl"
    share = {"channel": "pressure", "unit": name, "share": 1.0}
    rewrite(attribution, stream=name, sequence=name, channels=[share], nearest=[{"sequence": name, "distance": 1.0}])
    told = plant("explain", alert_id, "--plot", "why.png")
    assert told.code == 0, told.err
    assert not {*told.out} & {"\x1b", "\x07", "\u202e", "\t"}
    assert len(told.out.splitlines()[0]) > len(name)
    assert "[bold]" in told.out or name != "[bold]x[/]"
