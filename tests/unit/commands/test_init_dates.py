"""streamad init: dates as plants write them are found; of two readings one must be chosen; the config reads them."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner, Result

from streamad.cli import app
from streamad.commands.init.fields.columns import Column
from streamad.commands.init.fields.dates import formats_of
from streamad.commands.shared.plants import load_plant
from streamad.runtime.replay import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.plant_yaml import DecodeSettings
from streamad.telemetry.metrics import Counters

BEGIN = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)
SERIAL_0 = datetime(1899, 12, 30, tzinfo=UTC)


def csv(path: Path, written: Callable[[datetime], Any], days: int = 1, header: str = "time") -> Path:
    """Write two batches a day of 30 samples each, with times as ``written``."""
    lines = [f"batch;{header};temp;press\n"]
    for day in range(days):
        for batch in range(2):
            for i in range(30):
                time = BEGIN + timedelta(days=day, hours=batch, seconds=10 * i)
                lines.append(f"B{day}-{batch};{written(time)};{80 + i % 7};{3 + i % 5}\n")
    path.write_text("".join(lines))
    return path


def init(sample: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", str(sample), "--out", str(sample.parent / "plant.yaml"), *arguments])


def decode_of(sample: Path, *arguments: str) -> DecodeSettings:
    """Run init; the config must read every sample at its time. Return its section decode."""
    result = init(sample, *arguments)
    assert result.exit_code == 0, result.output or result.exception
    config = sample.parent / "plant.yaml"
    checked = CliRunner().invoke(app, ["check", "-c", str(config), "--fast"])
    assert checked.stdout.splitlines()[-1] == "all checks passed", checked.stdout

    async def read() -> list[tuple[int, int]]:
        plant, counters = load_plant(config), Counters()
        found = [
            (one.start_us, one.n_samples)
            async for one in read_sequences(plant.settings, source_for(plant), plant.clock, counters)
        ]
        assert not counters.dead_letters
        return found

    found = asyncio.run(read())
    assert [n for _, n in found] == [30] * len(found)
    assert found[0][0] == BEGIN.timestamp() * 1e6
    assert found[1][0] - found[0][0] == 3_600_000_000
    return load_plant(config).settings.decode


@pytest.mark.parametrize(
    ("form", "days"),
    [
        ("%d.%m.%Y %H:%M:%S", 1),
        ("%d.%m.%y %H:%M:%S", 1),
        ("%Y/%m/%d %H:%M:%S", 1),
        ("%d-%b-%Y %H:%M:%S", 1),
        ("%b %d, %Y %I:%M:%S %p", 1),
        ("%Y%m%d%H%M%S", 1),
        ("%Y%m%d %H%M%S", 1),
        ("%d/%m/%Y %H:%M:%S", 14),  # the 13th has one reading only
        ("%m/%d/%Y %I:%M:%S %p", 14),
        ("%d.%m.%Y %H:%M:%S.%f", 1),
    ],
)
def test_dates_of_plants_are_found(form: str, days: int, tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime(form), days)
    decode = decode_of(sample)
    assert (decode.time_format, decode.timezone) == (form, "UTC")
    text = (tmp_path / "plant.yaml").read_text()
    assert "a guess: the dates do not name it" in text
    assert "(1 March 2026, 06:00:00)" in text


def test_a_batch_number_of_digits_is_no_time(tmp_path: Path) -> None:
    rows = [f"02.03.2026 06:{m:02d}:00,{m // 10 + 1:05d},{20 + m / 10}\n" for m in range(40)]
    (tmp_path / "batches.csv").write_text("Zeitstempel,Charge,Temperatur\n" + "".join(rows))
    result = init(tmp_path / "batches.csv")
    assert result.exit_code == 0, result.output or result.exception
    decode = load_plant(tmp_path / "plant.yaml").settings.decode
    assert decode.fields is not None
    assert (decode.fields.time, decode.fields.sequence) == ("Zeitstempel", "Charge")


def test_dates_with_an_offset_need_no_zone(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime("%d.%m.%Y %H:%M:%S +0000"))
    decode = decode_of(sample)
    assert (decode.time_format, decode.timezone) == ("%d.%m.%Y %H:%M:%S %z", None)


def test_excel_serial_numbers_are_found(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: f"{(time - SERIAL_0) / timedelta(days=1):.10f}".replace(".", ","))
    decode = decode_of(sample)
    assert (decode.time_format, decode.timezone) == ("excel", "UTC")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unix_times_in_every_unit_are_found(unit: str, tmp_path: Path) -> None:
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    sample = csv(tmp_path / "day.csv", lambda time: int(time.timestamp()) * factor)
    decode = decode_of(sample)
    assert (decode.time_format, decode.unit) == (None, unit)
    assert decode_of(sample, "--force", "--time-format", f"unix_{unit}").time_format == f"unix_{unit}"


def test_of_two_readings_one_must_be_chosen(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime("%m/%d/%Y %I:%M:%S %p"), days=2)
    result = init(sample)
    assert result.exit_code == 1
    assert not (tmp_path / "plant.yaml").exists()
    assert str(result.exception) == (
        "time holds dates such as '03/01/2026 06:00:00 AM', which may be "
        "3 January 2026, 06:00:00 (--time-format '%d/%m/%Y %I:%M:%S %p') or "
        "1 March 2026, 06:00:00 (--time-format '%m/%d/%Y %I:%M:%S %p'): choose one"
    )
    assert decode_of(sample, "--time-format", "%m/%d/%Y %I:%M:%S %p").time_format == "%m/%d/%Y %I:%M:%S %p"


@pytest.mark.parametrize("form", ["%d.%m.%Y;%H:%M:%S", "%m/%d/%Y;%I:%M:%S %p", "%Y-%m-%d;%H:%M:%S"])
def test_a_date_apart_from_its_time_of_day_is_joined_with_it(form: str, tmp_path: Path) -> None:
    sample = csv(tmp_path / "split.csv", lambda time: f"{time:{form}}", days=15, header="Datum;Uhrzeit")
    decode = decode_of(sample)
    assert decode.fields is not None
    assert (decode.fields.time, decode.fields.time_of_day) == ("Datum", "Uhrzeit")
    assert decode.time_format == (None if form == "%Y-%m-%d;%H:%M:%S" else form.replace(";", " "))
    assert decode.timezone == "UTC"


def test_of_two_readings_of_a_date_apart_one_must_be_chosen(tmp_path: Path) -> None:
    sample = csv(tmp_path / "split.csv", lambda time: f"{time:%d/%m/%Y;%H:%M:%S}", days=2, header="Datum;Uhrzeit")
    assert "(--time-format '%d/%m/%Y %H:%M:%S')" in str(init(sample).exception)
    assert decode_of(sample, "--time-format", "%d/%m/%Y %H:%M:%S").time_format == "%d/%m/%Y %H:%M:%S"


def test_a_format_that_reads_no_field_is_one_line(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime("%d.%m.%Y %H:%M:%S"))
    for form, message in (
        ("%Y-%m-%d", "no field holds dates of --time-format '%Y-%m-%d'"),
        ("excel", "no field holds dates of --time-format 'excel'"),
        ("unix_ms", "no field holds dates"),
        ("DD.MM.YYYY", "--time-format: 'DD.MM.YYYY' is no format: write strptime tokens"),
    ):
        result = init(sample, "--time-format", form)
        assert result.exit_code != 0
        assert message in str(result.exception)


def test_dates_of_no_known_format_name_the_option(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime("%d.%m.%Y um %H Uhr %M:%S"))
    result = init(sample)
    assert result.exit_code == 1
    assert "decode.time_format" in str(result.exception)
    form = "%d.%m.%Y um %H Uhr %M:%S"
    assert decode_of(sample, "--time-format", form).time_format == form


def test_parquet_with_local_times(tmp_path: Path) -> None:
    times = [BEGIN.replace(tzinfo=None) + timedelta(hours=i // 30, seconds=10 * (i % 30)) for i in range(60)]
    columns = {
        "batch": [f"B{i // 30}" for i in range(60)],
        "time": pyarrow.array(times, pyarrow.timestamp("ms")),
        "temp": [float(80 + i % 7) for i in range(60)],
        "press": [float(3 + i % 5) for i in range(60)],
    }
    sample = tmp_path / "day.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), sample)
    decode = decode_of(sample)
    assert (decode.time_format, decode.timezone) == (None, "UTC")
    columns["time"] = [f"{time:%d.%m.%Y %H:%M:%S}" for time in times]
    pyarrow.parquet.write_table(pyarrow.table(columns), sample)
    assert decode_of(sample, "--force").time_format == "%d.%m.%Y %H:%M:%S"


@pytest.mark.parametrize(
    ("values", "formats"),
    [
        (["01/02/03 04:05"], ["%d/%m/%y %H:%M", "%m/%d/%y %H:%M", "%y/%m/%d %H:%M"]),
        (["01/02/03 04:05", "13/02/03 04:05"], ["%d/%m/%y %H:%M", "%y/%m/%d %H:%M"]),
        (["23.03.2026 06:00:00", "23.03.2026 06:00:00.5"], ["%d.%m.%Y %H:%M:%S.%f"]),
        (["23.03.2026 06:00:00"] * 3 + ["23.03.2026"], []),
        ([f"23.03.2026 06:{i // 60:02d}:{i % 60:02d}" for i in range(200)] + ["Bad"], ["%d.%m.%Y %H:%M:%S"]),
        (["B-17", "B-18"], []),
        (["1.5", "2.5"], []),
        ([17, 18], []),
        ([20260323060000], ["%Y%m%d%H%M%S"]),
    ],
)
def test_formats_of_a_column(values: list[Any], formats: list[str]) -> None:
    assert formats_of(Column("x", values=values)) == formats
