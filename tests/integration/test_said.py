"""What the commands say: why sequences have no score, that nothing was usable, and whole names at 80 columns."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest

from streamad.commands.shared import console
from tests.support.runtime.cli import NEAREST, CliPlant

MODEL = NEAREST


@pytest.mark.parametrize("command", ["replay", "run", "score"])
@pytest.mark.parametrize(
    ("line", "why"),
    [('{"temp": 1}', "unreadable"), ("not json", "unreadable"), ("\x00\x01", "unreadable")],
    ids=["foreign", "text", "binary"],
)
def test_input_of_which_nothing_is_usable_is_an_error(plant: CliPlant, command: str, line: str, why: str) -> None:
    (plant.folder / "recordings/day.jsonl").write_text(f"{line}\n" * 3)
    outcome = plant(command)
    assert outcome.code == 1
    (error,) = [text for text in outcome.err.splitlines() if text.startswith("error:")]
    assert re.match(r"error: none of 3 records is usable \(3 [a-z_]+: ", error)
    assert why in error
    assert error.endswith("see streamad check --config " + str(plant.config))


@pytest.mark.parametrize("source", [None, {"url": "kafka://127.0.0.1:1/t", "options": {"session_timeout": "20s"}}])
@pytest.mark.parametrize("command", ["replay", "score"])
def test_the_command_that_shows_why_nothing_is_usable_works(
    plant: CliPlant, command: str, source: dict[str, Any] | None
) -> None:
    if source is not None:
        plant.write_config(source=source)
    given = plant.folder / "of mine.jsonl"
    given.write_text('{"temp": 1}\n')
    (error,) = [text for text in plant(command, "--from", given).err.splitlines() if text.startswith("error:")]
    shown = shlex.split(error.partition(": see ")[2])
    assert shown == ["streamad", "check", "--from", str(given), "--config", str(plant.config)]
    checked = plant(*shown[1:], config=False)
    assert "'temp' is not among the channels" in " ".join(checked.out.split()) or "missing_field" in checked.out
    assert "session_timeout" not in checked.out


def test_what_score_could_not_read_is_said(plant: CliPlant) -> None:
    path = plant.folder / "recordings/day.jsonl"
    first, *rest = path.read_text().splitlines()
    unknown = json.dumps({**json.loads(first), "values": {"nobody": 1.0}, "times": None, "time": 1.0})
    path.write_text("\n".join([first, unknown, "{", *rest]) + "\n")
    outcome = plant("score --quiet")
    assert outcome.code == 0
    assert "dead letters: 2 (1 unknown_channel, 1 malformed)" in outcome.err


@pytest.mark.parametrize("is_much", [False, True])
@pytest.mark.parametrize("command", ["replay", "run", "score", "train recordings/day.jsonl"])
def test_losses_are_counted_and_above_5_percent_said_with_the_remedy(
    plant: CliPlant, command: str, is_much: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(plant.folder)
    path = plant.folder / "recordings/day.jsonl"
    messages = [json.loads(line) for line in path.read_text().splitlines()]
    for message in messages if is_much else messages[:1]:
        times = message["times"]
        message["times"] = [times[at - at % 2] for at in range(len(times))]
    path.write_text("".join(f"{json.dumps(message)}\n" for message in messages))
    if command.startswith("train"):
        plant.write_config(sequences={"max_merged": 1})
    outcome = plant(command)
    said = " ".join((outcome.out + outcome.err).split())
    n = len(messages[0]["times"]) // 2
    assert bool(re.search(rf"displaced:? {n} ", said)) != is_much
    remedy = r"displaced: \d+ of \d+ samples are lost; values of equal times replace each other: name a finer time"
    assert bool(re.search(remedy, said)) == is_much
    if command.startswith("train"):
        assert outcome.code == is_much
        assert ("displaced by another value of their channel and time" in said) == is_much


@pytest.mark.parametrize("command", ["replay", "score"])
def test_input_without_a_record_is_an_error_but_in_a_range_of_time_a_note(plant: CliPlant, command: str) -> None:
    (plant.folder / "recordings/day.jsonl").write_text("")
    plant(command).assert_one_line_error("no record was read: is the path or URL right")
    (plant.folder / "empty").mkdir()
    assert plant(f"{command} empty").code != 0


def test_why_sequences_have_no_score(plant: CliPlant) -> None:
    path = plant.folder / "recordings/day.jsonl"
    messages = [json.loads(text) for text in path.read_text().splitlines()]
    for message in messages[:3]:
        message |= {"times": message["times"][:1], "values": message["values"][:1]}
    messages[3]["values"] = [[None, pressure] for _, pressure in messages[3]["values"]]
    path.write_text("".join(f"{json.dumps(message)}\n" for message in messages))
    few, empty = "too few samples (window.min_samples)", "channel temp has no value in the sequence"
    assert f"unscorable 3 {few}; 1 {empty}" in " ".join(plant("replay").out.split())
    assert f"unscorable: 3 {few}; 1 {empty}" in plant("score").err
    assert plant("run --json").last_json["counters"]["unscorable"] == {few: 3, empty: 1}


def test_a_version_is_named_without_its_zeros(plant: CliPlant) -> None:
    assert "model default 0001 is now in service" in plant("models promote 1").out
    assert "model default 0001, in service" in plant("models show 1").out
    assert plant("score --version 1").code == 0
    assert "has no version 7 (there are: 0001)" in plant("models promote 7").err


def test_dates_are_whole_at_80_columns(plant: CliPlant, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = plant("models show --json").last_json
    terminal = console.VisibleConsole(force_terminal=True, width=80, soft_wrap=True)
    monkeypatch.setattr(console, "out", terminal)
    listed = plant("models list").out
    assert f"{manifest['created_at'][:10]} {manifest['created_at'][11:16]}" in listed
    assert "calibrated" in listed
    assert max(len(re.sub("\x1b[^m]*m", "", line)) for line in listed.splitlines()) <= 80
