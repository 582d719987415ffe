"""streamad init: channels that are reported by exception hold; regular sensors, however slow, do not."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant

T0 = 1_772_352_000
Reading = tuple[float, str, float]


def by_exception(rng: random.Random, tag: str, levels: tuple[float, ...], noise: float = 0.0) -> Iterator[Reading]:
    """Yield a reading wherever the value, which goes from level to level of a batch of 300 s, has changed."""
    at = 0.0
    for level in levels:
        yield at, tag, round(level + rng.gauss(0, noise), 2)
        at += 300 / len(levels) * rng.uniform(0.2, 1.8)


def regular(rng: random.Random, tag: str, period: int) -> Iterator[Reading]:
    for at in range(0, 301, period):
        yield at, tag, round(20 + at / 10 + rng.gauss(0, 0.3), 2)


def init(folder: Path, batches: list[list[Reading]], *, files: int = 1) -> tuple[dict[str, str], str]:
    """Run init on batches 1,000 s apart; return the fill of each channel, and what was printed."""
    sample = folder / "sample"
    sample.mkdir()
    for number, readings in enumerate(batches):
        with (sample / f"day{number * files // len(batches)}.jsonl").open("a") as file:
            for at, tag, value in sorted(readings):
                message = {
                    "ts": T0 + 1_000 * number + at,
                    "unit": "R1",
                    "batch": f"B{number:02d}",
                    "tag": tag,
                    "value": value,
                }
                file.write(json.dumps(message) + "\n")
    config = folder / "plant.yaml"
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output
    settings = load_plant(config).settings
    if files > 1:
        assert settings.source.options["files"] == "joined"
    return {channel.name: channel.fill for channel in settings.channels}, " ".join(result.output.split())


def test_a_setpoint_and_a_valve_hold_beside_a_regular_sensor(tmp_path: Path) -> None:
    rng = random.Random(1)
    batches = [
        [*regular(rng, "temp", 10), (0, "setpoint", 20), (100, "setpoint", 80), (0, "valve", 0), (200, "valve", 1)]
        for _ in range(12)
    ]
    fills, printed = init(tmp_path, batches)
    assert fills == {"temp": "linear", "setpoint": "hold", "valve": "hold"}
    assert "setpoint, valve come at irregular times, each reading another value than the one before" in printed
    assert "(channels[].fill: hold); if it runs straight from reading to reading, set linear" in printed


def test_where_all_is_reported_by_exception_all_holds(tmp_path: Path) -> None:
    rng = random.Random(2)
    batches = [
        [
            *by_exception(rng, "temp", (20, 40, 55, 70, 78, 80, 60, 40), 0.5),
            *by_exception(rng, "pressure", (1.0, 2.0, 3.5, 3.0, 1.2), 0.05),
            *by_exception(rng, "flow", (5, 12, 3), 0.2),
        ]
        for _ in range(30)
    ]
    fills, printed = init(tmp_path, batches)
    assert fills == {"temp": "hold", "pressure": "hold", "flow": "hold"}
    assert "unscorable" not in printed


@pytest.mark.parametrize("slow", [30, 60, 150])
def test_regular_sensors_of_several_rates_do_not_hold(tmp_path: Path, slow: int) -> None:
    rng = random.Random(slow)
    batches = [[*regular(rng, "temp", 10), *regular(rng, "pressure", slow)] for _ in range(12)]
    fills, printed = init(tmp_path, batches)
    assert fills == {"temp": "linear", "pressure": "linear"}
    assert "hold" not in printed


def test_a_value_that_is_repeated_does_not_hold(tmp_path: Path) -> None:
    rng = random.Random(5)
    batches = [
        [*regular(rng, "temp", 10), *((at, "step", float(at > 100)) for at in range(0, 300, 30))] for _ in range(12)
    ]
    assert init(tmp_path, batches)[0] == {"temp": "linear", "step": "linear"}


def test_days_of_one_stream_are_joined_so_that_values_are_carried_over_midnight(tmp_path: Path) -> None:
    rng = random.Random(3)
    batches: list[list[Reading]] = [list(regular(rng, "temp", 10)) for _ in range(12)]
    for number, batch in enumerate(batches):
        if number % 4 == 0:  # reported only where it changes, and never again on the second day's first batches
            batch.append((0, "setpoint", 70 + number))
        batch.append((150, "jacket", 60))
        batch.append((290, "jacket", 10))
    fills, _ = init(tmp_path, batches, files=2)
    assert fills["jacket"] == "hold"
