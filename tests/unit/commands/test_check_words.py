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
