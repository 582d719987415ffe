"""A plant that reports by exception: its faults are found as with regular samples."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app

T0 = 1_772_352_000
PERIOD_S, POINTS = 10, 31
DEADBANDS = {"temp": 1.0, "pressure": 0.05, "setpoint": 0.0}
Course = dict[str, list[float]]


def course(rng: random.Random, *, faulty: bool) -> Course:
    """Return a batch: a ramp to one of two setpoints, and a pressure that follows; a fault stops the ramp halfway."""
    setpoint = rng.choice([70.0, 80.0])
    shares = [min(1.0, at / 20) for at in range(POINTS)]
    if faulty:
        shares = [min(share, 0.5) for share in shares]
    return {
        "temp": [20 + share * (setpoint - 20) + rng.gauss(0, 0.2) for share in shares],
        "pressure": [1 + 2 * share + rng.gauss(0, 0.01) for share in shares],
        "setpoint": [setpoint] * POINTS,
    }


def regular(batches: list[Course]) -> Iterator[dict[str, object]]:
    for number, batch in enumerate(batches):
        for at in range(POINTS):
            values = {tag: round(values[at], 3) for tag, values in batch.items()}
            yield {"ts": T0 + 1_000 * number + PERIOD_S * at, "unit": "R1", "batch": f"B{number:03d}", **values}


def by_exception(batches: list[Course]) -> Iterator[dict[str, object]]:
    """Yield a reading of a tag if it differs from the one before by more than the deadband, also over batches."""
    last: dict[str, float] = {}
    for number, batch in enumerate(batches):
        for at in range(POINTS):
            for place, (tag, values) in enumerate(batch.items()):
                if tag in last and abs(values[at] - last[tag]) <= DEADBANDS[tag]:
                    continue
                last[tag] = values[at]
                time = T0 + 1_000 * number + PERIOD_S * at + place / 10
                of: dict[str, object] = {"ts": time, "unit": "R1", "batch": f"B{number:03d}"}
                yield of | {"tag": tag, "value": round(values[at], 3)}


CHANNELS = {
    "regular": "[{name: temp}, {name: pressure}, {name: setpoint}]",
    "by_exception": "[{name: temp, fill: hold}, {name: pressure, fill: hold}, {name: setpoint, fill: hold}]",
}
FIELDS = {
    "regular": "{stream: unit, sequence: batch, time: ts, end: null, values: null}",
    "by_exception": "{stream: unit, sequence: batch, time: ts, end: null, channel: tag, value: value}",
}


def found_in(folder: Path, form: str) -> dict[str, str]:
    """Train on normal batches, replay 30 normal and 10 faulty ones, and return the decision on each."""
    rng = random.Random(7)
    write = regular if form == "regular" else by_exception
    live = [course(rng, faulty=number % 4 == 3) for number in range(40)]
    for name, batches in (("normal", [course(rng, faulty=False) for _ in range(80)]), ("live", live)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(message) + "\n" for message in write(batches)))
    config = folder / "plant.yaml"
    config.write_text(
        f"channels: {CHANNELS[form]}\n"
        "source: {url: live.jsonl}\n"
        f"decode: {{fields: {FIELDS[form]}}}\n"
        "sequences: {end: [change]}\n"
        "window: {length: 32, resample: {period: 10s}}\n"
        "model: {recordings: normal.jsonl, detector: nearest, references: []}\n"
        "alerts: {false_alarm_rate: 0.02}\n"
        "sinks: {verdicts: verdicts.jsonl, alerts: alerts.jsonl}\n"
    )
    for command in (["train"], ["run"]):
        result = CliRunner().invoke(app, [*command, "-c", str(config)])
        assert result.exit_code == 0, result.output
    verdicts = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    return {verdict["sequence"]: verdict["decision"] for verdict in verdicts}


@pytest.mark.parametrize("form", ["regular", "by_exception"])
def test_all_faults_are_found_in_either_form(tmp_path: Path, form: str) -> None:
    decisions = found_in(tmp_path, form)
    assert len(decisions) == 40
    faulty = {f"B{number:03d}" for number in range(3, 40, 4)}
    assert {name for name in faulty if decisions[name] == "anomalous"} == faulty
    normal = [decision for name, decision in decisions.items() if name not in faulty]
    assert "unscorable" not in normal
    assert normal.count("anomalous") <= 3
