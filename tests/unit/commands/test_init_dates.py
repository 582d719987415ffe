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
from streamad.commands.init.facts.columns import Column
from streamad.commands.init.rules.dates import formats_of
from streamad.commands.shared.plants import load_plant
from streamad.runtime.recordings import read_sequences
from streamad.runtime.wiring import source_for
from streamad.settings.decode import DecodeSettings
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
    rows = [f"02.03.2026 06:{m:02d}:00,{m // 10 + 1:05d},{20 + m % 7}\n" for m in range(40)]
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


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("%a, %d %b %Y %H:%M:%S %Z", "{:%a, %d %b %Y %H:%M:%S} GMT".format),
        ("%a, %d %b %Y %H:%M:%S %z", "{:%a, %d %b %Y %H:%M:%S} +0000".format),
        ("%a %Y-%m-%d %H:%M:%S %Z", "{:%a %Y-%m-%d %H:%M:%S} UTC".format),
        ("%a %b %d %H:%M:%S %Z %Y", "{:%a %b %d %H:%M:%S} UTC {0:%Y}".replace("{:", "{0:").format),
        (None, lambda time: f"/Date({int(time.timestamp()) * 1_000})/"),
        ("dotnet_ticks", lambda time: (int(time.timestamp()) + 62_135_596_800) * 10**7),
        ("filetime", lambda time: (int(time.timestamp()) + 11_644_473_600) * 10**7),
    ],
)
def test_dates_of_mails_and_of_windows_are_found(
    form: str | None, written: Callable[[datetime], Any], tmp_path: Path
) -> None:
    sample = csv(tmp_path / "day.csv", written)
    decode = decode_of(sample)
    assert (decode.time_format, decode.timezone, decode.unit) == (form, None, "s")
    if form is not None:
        assert decode_of(sample, "--force", "--time-format", form).time_format == form


def test_the_other_reading_of_ticks_is_said(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: (int(time.timestamp()) + 62_135_596_800) * 10**7)
    assert "time is read as dotnet_ticks, as .NET counts; as Unix time in ns it lies in 1990" in init(sample).stderr


def test_unix_times_that_may_be_those_of_fit_are_a_guess(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: int(time.timestamp()) - 631_065_600)
    result = init(sample)
    assert (
        "time is read as unix_s, 2 March 2006, 06:00:00; as garmin_fit it would be 1 March 2026, 06:00:00: "
        "--time-format garmin_fit" in result.stderr
    )
    assert load_plant(tmp_path / "plant.yaml").settings.decode.time_format is None
    assert decode_of(sample, "--force", "--time-format", "garmin_fit").time_format == "garmin_fit"


def test_fields_of_fit_make_its_times_the_likelier_reading(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: int(time.timestamp()) - 631_065_600)
    sample.write_text(sample.read_text().replace("temp;press", "heart_rate;cadence"))
    assert decode_of(sample).time_format == "garmin_fit"
    assert "as unix_s it would be 2 March 2006" in init(sample, "--force").stderr


def test_of_two_readings_one_must_be_chosen(tmp_path: Path) -> None:
    sample = csv(tmp_path / "day.csv", lambda time: time.strftime("%m/%d/%Y %I:%M:%S %p"))
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
    assert decode.fields.time == ("Datum", "Uhrzeit")
    assert decode.time_format == (None if form == "%Y-%m-%d;%H:%M:%S" else form.replace(";", " "))
    assert decode.timezone == "UTC"


def test_of_two_readings_of_a_date_apart_one_must_be_chosen(tmp_path: Path) -> None:
    sample = csv(tmp_path / "split.csv", lambda time: f"{time:%d/%m/%Y;%H:%M:%S}", header="Datum;Uhrzeit")
    assert "(--time-format '%d/%m/%Y %H:%M:%S')" in str(init(sample).exception)
    assert decode_of(sample, "--time-format", "%d/%m/%Y %H:%M:%S").time_format == "%d/%m/%Y %H:%M:%S"


@pytest.mark.parametrize("form", ["%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %H:%M:%S", "%d-%m-%y %H:%M"])
def test_days_that_follow_each_other_in_one_reading_decide_for_it(form: str, tmp_path: Path) -> None:
    times = [BEGIN + timedelta(hours=i // 6 * 9, minutes=i % 6) for i in range(60)]  # 1 to 4 March
    lines = [f"B{n // 6};{time:{form}};{80 + n % 7};{3 + n % 5}\n" for n, time in enumerate(times)]
    sample = tmp_path / "days.csv"
    sample.write_text("batch;time;temp;press\n" + "".join(lines))
    result = init(sample)
    assert f"time is read as {form}, because its days follow each other so; as " in result.stderr
    assert load_plant(tmp_path / "plant.yaml").settings.decode.time_format == form


@pytest.mark.parametrize("days", [(1, 8), (5, 11)])  # a week apart as one, months as the other: both may be
def test_days_far_apart_in_both_readings_decide_nothing(days: tuple[int, int], tmp_path: Path) -> None:
    lines = [f"{n};B{day};{day:02d}/03/2026 06:{n:02d}:00;{n % 7}\n" for day in days for n in range(30)]
    sample = tmp_path / "days.csv"
    sample.write_text("n;batch;time;temp\n" + "".join(lines))
    assert "choose one" in str(init(sample).exception)


Columns = dict[str, Callable[[datetime], Any]]
SPLITS: list[tuple[Columns, tuple[str, str], str]] = [
    (
        {"Startdatum": "{:%d.%m.%Y}".format, "Startzeit": "{:%H:%M:%S}".format,
         "Enddatum": lambda time: f"{time + timedelta(days=1):%d.%m.%Y}",
         "Endzeit": lambda time: f"{time + timedelta(hours=5):%H:%M:%S}"},
        ("Startdatum", "Startzeit"), "Enddatum and Endzeit would do as well",
    ),
    (
        {"Startdatum": "{:%d.%m.%Y}".format, "Endzeit": lambda time: f"{time + timedelta(hours=5):%H:%M:%S}",
         "Startzeit": "{:%H:%M:%S}".format, "Enddatum": lambda time: f"{time + timedelta(days=1):%d.%m.%Y}"},
        ("Startdatum", "Startzeit"), "Enddatum and Endzeit would do as well",
    ),
    (
        {"end_date": lambda time: f"{time + timedelta(days=1):%Y-%m-%d}", "end_time": lambda _: "00:00:00",
         "start_date": "{:%Y-%m-%d}".format, "start_time": "{:%H:%M:%S}".format},
        ("start_date", "start_time"), "end_date and end_time would do as well",
    ),
    (
        {"duration": lambda time: f"00:0{time.minute % 7}:00", "Datum": "{:%d.%m.%Y}".format,
         "Laufzeit": lambda time: f"00:00:{time.second:02d}", "Uhrzeit": "{:%H:%M:%S}".format},
        ("Datum", "Uhrzeit"), "",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "chosen", "others"), SPLITS)
def test_dates_and_times_of_day_of_one_stem_are_a_pair(
    columns: Columns, chosen: tuple[str, str], others: str, tmp_path: Path
) -> None:
    sample = csv(
        tmp_path / "pairs.csv", lambda time: ";".join(str(of(time)) for of in columns.values()), 15, ";".join(columns)
    )
    decode = decode_of(sample)
    assert decode.fields is not None
    assert decode.fields.time == chosen
    assert others in init(sample, "--force").stderr
    channels = [channel.name for channel in load_plant(tmp_path / "plant.yaml").settings.channels]
    assert channels == ["temp", "press"]


@pytest.mark.parametrize("form", ["%Y%m%d;%H%M%S", "%d.%m.%Y;%H%M%S", "%Y%m%d;%H:%M:%S"])
def test_digits_alone_are_dates_and_times_of_day(form: str, tmp_path: Path) -> None:
    sample = csv(tmp_path / "digits.csv", lambda time: f"{time:{form}}", days=3, header="Datum;Uhrzeit")
    decode = decode_of(sample)
    assert decode.fields is not None
    assert decode.fields.time == ("Datum", "Uhrzeit")
    assert decode.time_format == form.replace(";", " ")


@pytest.mark.parametrize(("clock", "step"), [("%H%M%S", 20), ("%H%M", 60)])
def test_times_of_day_that_lost_their_zeros_as_numbers_are_read(clock: str, step: int, tmp_path: Path) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    times = [begin + timedelta(seconds=step * i) for i in range(1_000)]
    columns = {
        "batch": [f"B{i // 50}" for i in range(1_000)],
        "Datum": [int(f"{time:%Y%m%d}") for time in times],
        "Zeit": [int(f"{time:{clock}}") for time in times],
        "temp": [float(80 + i % 7) for i in range(1_000)],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "day.parquet")
    result = init(tmp_path / "day.parquet")
    assert result.exit_code == 0, result.output or result.exception
    assert load_plant(tmp_path / "plant.yaml").settings.decode.time_format == f"%Y%m%d {clock}"

    async def read() -> list[int]:
        plant, counters = load_plant(tmp_path / "plant.yaml"), Counters()
        found = read_sequences(plant.settings, source_for(plant), plant.clock, counters)
        starts = [one.start_us async for one in found]
        assert not counters.dead_letters
        return starts

    expected = [int(times[i].timestamp()) * 1_000_000 for i in range(0, 1_000, 50)]
    assert asyncio.run(read()) == expected


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
