"""``streamad check`` where no state or word of the config occurs: it shows those that the messages hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from streamad.cli import app

FIELDS = {"stream": "unit", "sequence": None, "time": "ts", "end": None, "values": None}
LONG = {**FIELDS, "channel": "tag", "value": "value"}


@pytest.mark.parametrize(("fields", "state"), [(FIELDS, "field"), ({**FIELDS, "each": "list"}, "field"), (LONG, "tag")])
def test_many_samples_outside_of_sequences_are_a_warning_with_their_states(
    tmp_path: Path, fields: dict[str, Any], state: str
) -> None:
    states = ["RUN"] * 10 + ["START, slow"] * 4 + ["IDLE"] * 5 + [None]
    messages: list[dict[str, Any]] = []
    for at, word in enumerate(states):
        sample = {"ts": 1_772_000_000 + at}
        if state == "tag":
            messages += [{**sample, "tag": "state", "value": word}, {**sample, "tag": "temp", "value": float(at)}]
        else:
            messages.append({**sample, "state": word, "temp": float(at)})
    messages = [{"unit": "R1", **message} for message in messages]
    if "each" in fields:
        messages = [{"unit": "R1", "list": messages}]
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    config = {
        "channels": [{"name": "temp"}],
        "source": {"url": "day.jsonl"},
        "decode": {"fields": fields},
        "sequences": {"end": ["while"], "while": {state: "state", "in": ["run"]}},
        "window": {"length": 16},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", "-c", str(tmp_path / "plant.yaml"), "--fast", "--json"])
    (found,) = [each for each in json.loads(checked.stdout)["checks"] if "in no sequence; " in each["message"]]
    nothing = "" if state == "tag" else ", nothing (1)"  # a null ends no reading of a tag
    assert found["outcome"] == "warning"
    assert found["message"] == (
        f"50\u00a0% of 20 samples are in no sequence; there state holds IDLE (5), START, slow (4){nothing}"
    )
    line = f'sequences.while: {{{state}: state, in: [run, IDLE, "START, slow"]}}'
    assert found["advice"] == f"if states of these belong to batches, write those, too: {line}"


@pytest.mark.parametrize(
    ("fields", "sequences", "each", "said"),
    [
        ({}, {"while": {"field": "m.state", "in": ["running"]}}, {"m": {"state": "RUN"}}, "m.state holds RUN, IDLE"),
        ({}, {"while": {"field": "state", "in": ["RUN"]}}, {}, "no message has state"),
        ({}, {"while": {"field": "state", "in": ["RUN"]}}, {"state": 3}, "state holds 3, IDLE"),
        ({"begin": {"field": "event", "value": "begin"}}, {}, {"event": "START"}, "event holds START"),
        (LONG, {"while": {"tag": "State", "in": ["RUN"]}}, {"tag": "State", "value": "On"}, "State holds On, IDLE"),
    ],
)
def test_samples_in_no_sequence_are_said_with_the_words_found(
    tmp_path: Path, fields: dict[str, Any], sequences: dict[str, Any], each: dict[str, Any], said: str
) -> None:
    messages: list[dict[str, Any]] = []
    for at in range(20):
        more = each
        if at >= 10 and each and "event" not in each:
            more = {"m": {"state": "IDLE"}} if "m" in each else {**each, "value" if "tag" in each else "state": "IDLE"}
        sample = {"unit": "R1", "ts": 1_772_000_000 + at}
        reading = {"tag": "temp", "value": float(at)} if "tag" in each else {"temp": float(at)}
        messages += [{**sample, **more}, {**sample, **reading}] if "tag" in each else [{**sample, **reading, **more}]
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")
    end = ["while"] if sequences else ["marker"]
    config = {
        "channels": [{"name": "temp"}],
        "source": {"url": "day.jsonl"},
        "decode": {
            "fields": {**FIELDS, **fields, **({} if sequences else {"end": {"field": "event", "value": "END"}})}
        },
        "sequences": {"end": end, **sequences},
        "window": {"length": 16},
    }
    (tmp_path / "plant.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    checked = CliRunner().invoke(app, ["check", "-c", str(tmp_path / "plant.yaml"), "--fast", "--json"])
    report = json.loads(checked.stdout)
    (failed,) = [finding for finding in report["checks"] if finding["outcome"] == "failed"]
    assert failed["message"] == f"all 20 samples are in no sequence: {said}"
    assert failed["advice"] == "check sequences.while, decode.fields.begin and their words"
