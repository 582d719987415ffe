"""``streamad init`` where a state, or words of begin and end, say where batches lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.settings.plant_yaml import Settings, load_settings


def found(tmp_path: Path, messages: list[dict[str, Any]]) -> tuple[Settings, dict[str, Any]]:
    """Return the config that ``init`` writes for messages, and what it printed."""
    sample, config = tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    sample.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config), "--json", "--force"])
    assert result.exit_code == 0, result.output
    return load_settings(config), json.loads(result.stdout)


def samples(n_batches: int = 8, n: int = 12, pause: int = 0) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the number of the batch, that of the sample in it and the sample, of two machines in turn.

    Samples lie 10 s apart, batches ``pause`` samples more.
    """
    for at in range(n_batches * n):
        for unit in ("R1", "R2"):
            tens = at + at // n * pause
            time = f"2026-03-01T08:{tens // 6:02}:{10 * (tens % 6):02}Z"
            yield at // n, at % n, {"unit": unit, "ts": time, "temp": 20.0 + at % n + 0.1 * at, "flow": 5.0 + at % 7}


def test_a_state_that_comes_in_long_runs_cuts(tmp_path: Path) -> None:
    messages = [
        {**sample, "state": "IDLE" if at < 4 else "RUN", "running": int(at >= 4)} for _, at, sample in samples()
    ]
    settings, said = found(tmp_path, messages)
    state = settings.sequences.while_
    assert state is not None
    assert (state.field, state.in_, settings.sequences.end) == ("state", ("RUN",), ("while",))
    assert [channel.name for channel in settings.channels] == ["temp", "flow"]
    assert said["sequences"]["n_sequences"] == 16
    assert any("state holds RUN" in note and "sequences.while" in note for note in said["notes"])


def test_a_state_in_no_runs_or_beside_an_id_cuts_nothing(tmp_path: Path) -> None:
    mixed = [{**sample, "state": ("IDLE", "RUN")[at % 2]} for _, at, sample in samples()]
    assert found(tmp_path, mixed)[0].sequences.while_ is None
    named = [{**sample, "batch": f"B{batch}", "state": "RUN" if at else "IDLE"} for batch, at, sample in samples()]
    assert found(tmp_path, named)[0].sequences.while_ is None


@pytest.mark.parametrize("empty", ["DATA", ""])
def test_an_end_word_ends(tmp_path: Path, empty: str) -> None:
    messages = [{**sample, "event": "END" if at == 11 else empty} for _, at, sample in samples()]
    settings, said = found(tmp_path, messages)
    fields = settings.decode.fields
    assert fields is not None
    assert (fields.has_end_word, fields.begin, fields.sequence, fields.stream) == (True, None, None, "unit")
    assert said["sequences"]["n_sequences"] == 16
    assert any("END ends a batch (decode.fields.end)" in note for note in said["notes"])


def test_events_of_begin_and_end_name_the_batches(tmp_path: Path) -> None:
    messages = []
    for batch, at, sample in samples():
        event = {"unit": sample["unit"], "ts": sample["ts"], "batch_id": f"{sample['unit']}-{batch}"}
        messages += [{"type": "batch_start", **event}] * (at == 0) + [{"type": "sample", **sample}]
        messages += [{"type": "batch_end", **event}] * (at == 11)
    settings, said = found(tmp_path, messages)
    fields = settings.decode.fields
    assert fields is not None
    assert fields.begin is not None
    assert (fields.begin.field, fields.begin.value) == ("type", ("batch_start",))
    assert (fields.sequence, fields.stream, settings.sequences.without_id) == ("batch_id", "unit", "keep")
    assert said["sequences"]["n_sequences"] == 16


@pytest.mark.parametrize("names", [("START",), ("STOP",), ("START", "STOP")])
def test_an_id_beside_the_event_names_the_batch(tmp_path: Path, names: tuple[str, ...]) -> None:
    messages = []
    for batch, at, sample in [*samples()][:-2]:  # the last batches run still: most ids occur twice, those once
        for word in ["START"] * (at == 0) + ["DATA"] + ["STOP"] * (at == 11):
            named = {"batch": f"{sample['unit']}-{batch}"} if word in names else {}
            messages.append({**(sample if word == "DATA" else {}), "unit": sample["unit"], "ts": sample["ts"]} | named)
            messages[-1]["event"] = word
    settings, said = found(tmp_path, messages)
    assert settings.decode.fields is not None
    assert settings.decode.fields.sequence == "batch"
    assert said["sequences"]["n_sequences"] == 16


def tags(*, ids: bool, states: bool) -> list[dict[str, Any]]:
    """One reading a message, of two machines: batches of 12 samples, of which the first four are idle."""
    messages = []
    for batch, at, sample in samples():
        readings: dict[str, Any] = {name: sample[name] for name in ("temp", "flow")}
        if ids and at == 0:
            readings = {"BatchID": f"{sample['unit']}-{batch}", **readings}
        if states and at in {0, 4}:
            readings = {"State": "RUN" if at else "IDLE", **readings}
        messages += [
            {"unit": sample["unit"], "ts": sample["ts"], "tag": tag, "value": value} for tag, value in readings.items()
        ]
    return messages


def test_a_tag_names_the_batches(tmp_path: Path) -> None:
    settings, said = found(tmp_path, tags(ids=True, states=False))
    fields = settings.decode.fields
    assert fields is not None
    assert (fields.id_tag, settings.sequences.end) == ("BatchID", ("change",))
    assert [channel.name for channel in settings.channels] == ["temp", "flow"]
    assert said["sequence"] == "BatchID"
    assert said["sequences"]["n_sequences"] == 16
    assert any("BatchID names the batches" in note and "sequence: null" in note for note in said["notes"])


@pytest.mark.parametrize("reports", ["changes", "all"])
def test_an_empty_tag_between_two_batches_is_a_pause(tmp_path: Path, reports: str) -> None:
    """An IoT gateway writes all tags of its machines in each message, or those that have changed."""
    messages = []
    for batch, at, sample in samples():
        place, now = f"Plant.{sample['unit']}.", f"{sample['unit']}-{batch}" if at < 8 else ""
        ids = {"BatchID": now} if reports == "all" or at in {0, 8} else {}
        readings = {**ids, "temp": sample["temp"], "flow": sample["flow"]}
        elements = [{"id": place + tag, "v": value, "q": True, "t": sample["ts"]} for tag, value in readings.items()]
        messages.append({"timestamp": sample["ts"], "values": elements})
    settings, said = found(tmp_path, messages)
    assert settings.sequences.without_id == "skip"
    assert (said["sequences"]["n_sequences"], said["sequences"]["longest"]) == (16, 8)
    assert any("readings of BatchID are empty" in note for note in said["notes"])


def test_a_tag_says_when_a_batch_runs(tmp_path: Path) -> None:
    settings, said = found(tmp_path, tags(ids=False, states=True))
    state = settings.sequences.while_
    assert state is not None
    assert (state.tag, state.in_, settings.sequences.end) == ("State", ("RUN",), ("while",))
    assert said["sequences"]["n_sequences"] == 16


def test_an_id_that_recurs_in_its_stream_names_no_batch(tmp_path: Path) -> None:
    messages = tags(ids=True, states=False)
    for message in messages:
        if message["tag"] == "BatchID":
            message["value"] = f"B{int(message['value'].split('-')[1]) % 2}"
    settings, _ = found(tmp_path, messages)
    assert settings.decode.fields is not None
    assert settings.decode.fields.id_tag is None


@pytest.mark.parametrize(("field", "on", "off"), [("pump", "ON", "OFF"), ("state", "RUN", "IDLE"), ("running", 1, 0)])
def test_pauses_cut_and_no_state(tmp_path: Path, field: str, on: object, off: object) -> None:
    messages = [{**sample, field: on if 3 <= at < 9 else off} for _, at, sample in samples(pause=20)]
    settings, said = found(tmp_path, messages)
    assert (settings.sequences.while_, settings.sequences.end) == (None, ("gap",))
    assert (said["sequences"]["n_sequences"], said["sequences"]["shortest"]) == (16, 12)


def test_what_is_on_without_pauses_is_no_batch(tmp_path: Path) -> None:
    messages = [{**sample, "pump": "ON" if 3 <= at < 9 else "OFF"} for _, at, sample in samples()]
    assert found(tmp_path, messages)[0].sequences.while_ is None
    valve = [{**sample, "valve_state": "OPEN" if 3 <= at < 9 else "OFF"} for _, at, sample in samples()]
    assert found(tmp_path, valve)[0].sequences.while_ is None


@pytest.mark.parametrize("on_off", [(True, False), (1, 0), ("1", "0")])
@pytest.mark.parametrize("name", ["running", "active", "in_batch", "run", "machine_running"])
def test_a_flag_that_is_true_in_long_runs_cuts(tmp_path: Path, name: str, on_off: tuple[Any, Any]) -> None:
    messages = [{**sample, name: on_off[at < 4]} for _, at, sample in samples()]
    settings, said = found(tmp_path, messages)
    state = settings.sequences.while_
    assert state is not None
    assert (state.field, state.in_) == (name, (on_off[0],))
    assert [channel.name for channel in settings.channels] == ["temp", "flow"]
    assert said["sequences"]["n_sequences"] == 16
    assert any("33\u00a0% of the samples lie outside" in note and "[gap]" in note for note in said["notes"])


@pytest.mark.parametrize("name", ["heater_running", "alarm"])
def test_a_flag_of_a_part_is_a_reading(tmp_path: Path, name: str) -> None:
    messages = [{**sample, name: int(at >= 4)} for _, at, sample in samples()]
    settings, _ = found(tmp_path, messages)
    assert settings.sequences.while_ is None
    assert name in [channel.name for channel in settings.channels]


def events(words: tuple[str, str], *, has_lot: bool, pause: int = 0) -> list[dict[str, Any]]:
    """Messages in which one of two ``words`` stands before the fourth and the ninth sample of each batch."""
    messages = []
    for batch, at, sample in samples(pause=pause):
        lot = {"lot": f"{sample['unit']}-{batch}"} if has_lot else {}
        if at in {3, 8}:
            event = words[at == 8]
            messages.append({"unit": sample["unit"], "ts": sample["ts"], "type": event, **lot})
        messages.append({"type": "sample", **lot, **sample})
    return messages


@pytest.mark.parametrize("words", [("dosing_start", "dosing_end"), ("start", "end")])
def test_words_within_batches_cut_nothing(tmp_path: Path, words: tuple[str, str]) -> None:
    for at, (has_lot, pause, end) in enumerate([(False, 20, "gap"), (True, 0, "change"), (True, 20, "change")]):
        (folder := tmp_path / str(at)).mkdir()
        settings, said = found(folder, events(words, has_lot=has_lot, pause=pause))
        fields = settings.decode.fields
        assert fields is not None
        assert (fields.begin, fields.has_end_word, fields.stream) == (None, False, "unit")
        assert (settings.sequences.end, said["sequences"]["n_sequences"]) == ((end,), 16)


def test_an_end_word_before_each_pause_ends(tmp_path: Path) -> None:
    messages = [{**sample, "event": "END" if at == 11 else ""} for _, at, sample in samples(pause=20)]
    fields = found(tmp_path, messages)[0].decode.fields
    assert fields is not None
    assert fields.has_end_word


def test_a_refusal_for_ids_that_come_again_names_the_memory_of_ids(tmp_path: Path) -> None:
    sample, config = tmp_path / "sample.jsonl", tmp_path / "plant.yaml"
    messages = [{**message, "batch_no": batch % 4} for batch, _, message in samples(n_batches=12)]
    sample.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    arguments = ["init", str(sample), "--out", str(config)]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code == 1
    said = str(refused.exception)
    assert "ids come again after the end, such as 0 of R1: write the config with --force; if each time is " in said
    assert "another sequence, write sequences.closed_memory: 185s; if several go on at once, leave change out" in said
    assert CliRunner().invoke(app, [*arguments, "--force"]).exit_code == 0
    text = config.read_text(encoding="utf-8")
    assert "closed_memory" not in text
    config.write_text(text.replace("sequences:\n", "sequences:\n  closed_memory: 185s\n"), encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", "--config", str(config)])
    assert "24 sequences ended" in checked.output


def test_a_tag_of_words_is_said_to_be_one(tmp_path: Path) -> None:
    messages = tags(ids=True, states=True)
    messages += [{**message, "tag": "Recipe", "value": "A1"} for message in messages if message["tag"] == "BatchID"]
    left_out = found(tmp_path, messages)[1]["left_out"]
    assert left_out["State"] == (
        "its readings are words, such as 'IDLE': channels[].values gives them numbers; a state can cut sequences "
        "(sequences.while: {tag: State}), an id can name them (decode.fields.sequence: {tag: State})"
    )
    assert left_out["Recipe"] == "never changes in the sample ('A1'), so there is nothing to learn"
