"""streamad init: lists with the time of their first sample and a step are found; the config reads them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streamad.cli import app
from streamad.commands.shared.plants import load_plant
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.decode import FieldSettings
from streamad.telemetry.metrics import Counters
from streamad.types import FinishedSequence

T0 = 1_772_352_000
PER_MESSAGE, N_MESSAGES, N_BATCHES = 8, 5, 6
Make = Callable[[str, int, float, dict[str, list[float]]], dict[str, Any]]


def messages(make: Make, step_s: float) -> Iterator[dict[str, Any]]:
    """Yield the messages of six batches, an hour apart; ``make`` gets the batch, the time in us, step and lists."""
    rng = random.Random(7)
    for batch in range(N_BATCHES):
        for n in range(N_MESSAGES):
            time_us = (T0 + 3_600 * batch) * 1_000_000 + round(n * PER_MESSAGE * step_s * 1e6)
            data = {name: [round(rng.gauss(20, 3), 2) for _ in range(PER_MESSAGE)] for name in ("temp", "flow")}
            yield make(f"B{batch}", time_us, step_s, data)


def init(folder: Path, make: Make, step_s: float) -> tuple[FieldSettings, str]:
    """Run init on the messages; its config must read every sample at its time."""
    sample, config = folder / "sample.jsonl", folder / "plant.yaml"
    sample.write_text("".join(json.dumps(message) + "\n" for message in messages(make, step_s)))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(config)])
    assert result.exit_code == 0, result.output or result.exception

    async def read() -> list[FinishedSequence]:
        plant, counters = load_plant(config), Counters()
        found = [one async for one in read_sequences(plant.settings, source_for(plant), plant.clock, counters)]
        assert not counters.dead_letters
        assert not counters.bad_values
        return found

    found = asyncio.run(read())
    n = PER_MESSAGE * N_MESSAGES
    expected = [
        [(T0 + 3_600 * batch) * 10**6 + round(i * step_s * 1e6) for i in range(n)] for batch in range(N_BATCHES)
    ]
    assert [one.times_us.tolist() for one in found] == expected
    settings = load_plant(config).settings
    assert [channel.name for channel in settings.channels] == ["temp", "flow"]
    assert settings.decode.fields is not None
    return settings.decode.fields, result.output


@pytest.mark.parametrize(
    ("make", "step_s", "start", "step"),
    [
        (
            lambda batch, us, s, data: {"asset": "R1", "cycle": batch, "t0": us / 1e6, "dt": s, "data": data},
            10.0, "t0", "dt",
        ),
        (
            lambda batch, us, s, data: {"asset": "R1", "cycle": batch, "t0": us // 1000, "dt": s * 1e3, **data},
            0.02, "t0", "dt",
        ),
        (
            lambda batch, us, s, data: {"lot": batch, "time": us // 1000, "interval": s, **data},
            0.5, "time", "{'field': 'interval', 'unit': 's'}",
        ),
        (
            lambda batch, us, s, data: {"lot": batch, "head": {"utcTime": us // 1000, "rateHz": 1 / s}, **data},
            0.125, "head.utcTime", "{'field': 'head.rateHz', 'unit': 'hz'}",
        ),
    ],
)  # fmt: skip
def test_start_and_step_are_found(make: Make, step_s: float, start: str, step: str, tmp_path: Path) -> None:
    fields, output = init(tmp_path, make, step_s)
    found = fields.step if isinstance(fields.step, str) else str(fields.step and fields.step.model_dump())
    assert (fields.start, found) == (start, step)
    assert "is taken for the step" not in output


def test_a_step_that_nothing_confirms_is_a_guess(tmp_path: Path) -> None:
    def make(batch: str, time_us: int, step_s: float, data: dict[str, list[float]]) -> dict[str, Any]:
        return {"lot": batch, "time": time_us // 1_000 + 7 * (time_us % 3_600_000_000) // 1_000, "dt": step_s, **data}

    sample = tmp_path / "sample.jsonl"
    sample.write_text("".join(json.dumps(message) + "\n" for message in messages(make, 0.1)))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(tmp_path / "plant.yaml")])
    assert "dt is taken for the step in s, by its name: if that is wrong, correct decode.fields.step" in result.stderr


def test_lists_without_a_step_are_named(tmp_path: Path) -> None:
    rows = [{"lot": f"B{i // 20}", "time": T0 + i, "temp": i % 7 + 0.5, "shape": [1.0, 2.0, i]} for i in range(60)]
    sample = tmp_path / "sample.jsonl"
    sample.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["init", str(sample), "--out", str(tmp_path / "plant.yaml")])
    assert "shape: lists of numbers need a list of times, or a step beside their time (decode.fields.step)" in (
        result.stderr
    )
