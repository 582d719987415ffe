"""streamad init: JSON and base64 in the fields of messages, and packed messages, are found; the config reads them."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters

T0 = 1_772_352_930


def samples() -> list[tuple[str, dict[str, Any]]]:
    """Return batch, and time and readings, of four batches."""
    rng = random.Random(5)
    return [
        (f"B-{i // 30}", {"ts": T0 + i, "temp": round(rng.gauss(80, 1), 2), "press": round(rng.gauss(3, 0.1), 2)})
        for i in range(120)
    ]


def read(folder: Path, lines: list[str]) -> tuple[Settings, int, Counters]:
    """Run init on the lines; return the settings, the number of readings that the config finds, and what it counts."""
    sample, config = folder / "sample.jsonl", folder / "plant.yaml"
    sample.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception

    async def count() -> tuple[int, Counters]:
        plant, counters = load_plant(config), Counters()
        found = read_sequences(plant.settings, source_for(plant), plant.clock, counters)
        return sum([one.values.size async for one in found]), counters

    n, counters = asyncio.run(count())
    return load_plant(config).settings, n, counters


def in_base64(content: Any) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


@pytest.mark.parametrize(
    ("make", "nested", "time"),
    [
        (lambda batch, data: {"unit": "R1", "batch": batch, "data": json.dumps(data)}, "data", "data.ts"),
        (lambda batch, data: {"unit": "R1", "batch": batch, "m": {"data": in_base64(data)}}, "m.data", "m.data.ts"),
        (
            lambda batch, data: {"all": json.dumps({"batch": batch, "m": in_base64(data)})},
            ("all", "all.m"),
            "all.m.ts",
        ),
    ],
)
def test_fields_with_content_as_text_are_found(
    make: Callable[[str, dict[str, Any]], dict[str, Any]], nested: Any, time: str, tmp_path: Path
) -> None:
    lines = [json.dumps(make(batch, data)) for batch, data in samples()]
    settings, n, counters = read(tmp_path, lines)
    fields = settings.decode.fields
    assert fields is not None
    assert (fields.nested, fields.time) == (nested, time)
    assert n == 240
    assert not counters.dead_letters


def test_messages_written_as_text_once_more_are_read(tmp_path: Path) -> None:
    lines = [json.dumps(json.dumps({"batch": batch, **data})) for batch, data in samples()]
    settings, n, counters = read(tmp_path, lines)
    assert [channel.name for channel in settings.channels] == ["temp", "press"]
    assert n == 240
    assert not counters.dead_letters


Lines = Callable[[str, dict[str, Any]], list[str]]


def one_line(batch: str, data: dict[str, Any]) -> list[str]:
    return [f"modbus,unit=R1,batch={batch} temp={data['temp']},press={data['press']} {data['ts'] * 10**9}"]


def a_line_for_each(batch: str, data: dict[str, Any]) -> list[str]:
    return [f"{name},unit=R1,batch={batch} value={data[name]} {data['ts'] * 10**9}" for name in ("temp", "press")]


@pytest.mark.parametrize("make", [one_line, a_line_for_each])
def test_line_protocol_is_found(make: Lines, tmp_path: Path) -> None:
    settings, n, counters = read(tmp_path, [line for batch, data in samples() for line in make(batch, data)])
    assert (settings.decode.format, settings.decode.unit) == ("influx", "ns")
    assert [channel.name for channel in settings.channels] == ["temp", "press"]
    assert (settings.decode.fields and settings.decode.fields.stream) == "unit"
    assert n == 240
    assert not counters.dead_letters
    assert not counters.bad_values
