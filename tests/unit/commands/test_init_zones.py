"""streamad init: the zone of dates, and the hour that comes twice when clocks are set back."""

import asyncio
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from streamad.commands.shared.plants import load_plant
from streamad.errors import SourceError
from tests.unit.commands.test_init import init, sequences_of, table

BERLIN = ZoneInfo("Europe/Berlin")


def night(path: Path, form: str = "%Y-%m-%d %H:%M:%S", days: int = 0) -> Path:
    """Write batches of 20 samples, one every 20 s, in the night when clocks are set back, after ``days`` before it."""
    begin = datetime(2026, 10, 24, 23, 0, tzinfo=UTC) - timedelta(days=days)
    n_samples = 540 + days * 4_320
    times = [(begin + timedelta(seconds=20 * n)).astimezone(BERLIN) for n in range(n_samples)]
    return table(
        path, ["batch", "time", "temp_c"], [[f"B{n // 20}", f"{t:{form}}", math.sin(n)] for n, t in enumerate(times)]
    )


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S"])
def test_with_the_zone_the_hour_that_comes_twice_is_neither_sorted_nor_waited_for(tmp_path: Path, form: str) -> None:
    result = init(night(tmp_path / "night.csv", form), "--timezone", "Europe/Berlin")
    assert result.exit_code == 0, result.output
    settings = load_plant(tmp_path / "plant.yaml").settings
    assert (settings.source.options, settings.sequences.allowed_lateness) == ({}, 0)
    sequences, counters = asyncio.run(sequences_of(tmp_path / "plant.yaml"))
    assert ([one.n_samples for one in sequences], counters.late_samples) == ([20] * 27, 0)


def test_without_the_zone_a_night_that_would_lose_its_second_hour_asks_for_it(tmp_path: Path) -> None:
    result = init(night(tmp_path / "night.csv"))
    assert isinstance(result.exception, SourceError)
    said = str(result.exception)
    assert "would lose 33\u00a0% of 540 samples (179 too late): nothing was written; " in said
    assert "; give the plant's zone with --timezone, for example Europe/Berlin" in said
    assert "times in time go back by an hour, as where clocks are set back" in result.stderr
    assert not (tmp_path / "plant.yaml").exists()


def test_one_such_hour_in_many_days_is_noted_and_not_sorted(tmp_path: Path) -> None:
    result = init(night(tmp_path / "days.csv", days=2))
    assert "times in time go back by an hour, as where clocks are set back" in result.stderr
    settings = load_plant(tmp_path / "plant.yaml").settings
    assert (settings.source.options, settings.sequences.allowed_lateness) == ({}, 0)
    config = tmp_path / "plant.yaml"
    config.write_text(config.read_text().replace("timezone: UTC", "timezone: Europe/Berlin"))
    _, counters = asyncio.run(sequences_of(config))
    assert counters.late_samples == 0


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (lambda time: time.isoformat(), "RFC 3339"),
        (lambda time: int(time.timestamp()), "Unix time in s"),
        (lambda time: f"{time:%d.%m.%Y %H:%M:%S %z}", "dates such as"),
    ],
)
def test_a_zone_without_effect_is_not_written_and_said_so(
    tmp_path: Path, written: Callable[[datetime], Any], what: str
) -> None:
    times = [datetime(2026, 3, 1, 8, tzinfo=BERLIN) + timedelta(minutes=n) for n in range(100)]
    cells = [[f"A-{n // 25}", written(time), math.sin(n)] for n, time in enumerate(times)]
    result = init(table(tmp_path / "day.csv", ["lot", "time", "temp_c"], cells), "--timezone", "Europe/Berlin")
    assert result.exit_code == 0, result.output
    assert f"--timezone has no effect and was not written: time is {what}" in result.stderr
    assert load_plant(tmp_path / "plant.yaml").settings.decode.timezone is None
