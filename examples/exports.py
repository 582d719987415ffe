"""Writes a simulated plant's recordings again, as historians and MES export them.

    streamad simulate --out plant --normal 60 --faulty 20
    python examples/exports.py plant exports

Each folder of ``exports`` has normal batches (``train``) and later ones with faults (``live``) in one format; the page
docs/guide/exports.md takes each of them from ``streamad init`` to alerts.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

CHANNELS = ("temp_c", "ph", "dissolved_oxygen", "agitator_power", "feed_rate", "base_flow", "coolant_flow")
TAGS = ("TIC-101.PV", "QIC-102.PV", "QI-103.PV", "JI-104.PV", "FIC-105.PV", "FI-106.PV", "FI-107.PV")
UNITS = ("°C", "pH", "%", "kW", "L/h", "L/h", "L/h")
BERLIN, CHICAGO = ZoneInfo("Europe/Berlin"), ZoneInfo("America/Chicago")
BAD = ("Bad", "I/O Timeout")
BAD_SHARE = 0.012


@dataclass(frozen=True, slots=True)
class Reading:
    """The values of the channels of one unit at one time, within a batch."""

    unit: str
    batch: str
    time: datetime
    values: tuple[float, ...]


def readings_of(recordings: Path) -> list[Reading]:
    """Return the readings of a file of ``streamad simulate --out``, in the order of their times."""
    found = []
    with recordings.open(encoding="utf-8") as lines:
        for message in map(json.loads, lines):
            for time_s, values in zip(message["times"], message["values"], strict=True):
                time = datetime.fromtimestamp(time_s, UTC)
                found.append(Reading(message["stream"], message["sequence"], time, tuple(values[: len(CHANNELS)])))
    return sorted(found, key=lambda reading: (reading.time, reading.unit))


def write_german(readings: Iterable[Reading], folder: Path) -> None:
    """One file a day, one row a value, in Windows' code page: semicolons, decimal commas, texts in place of numbers."""
    draw = random.Random(0)
    days: dict[str, list[list[str]]] = {}
    for reading in readings:
        local = reading.time.astimezone(BERLIN)
        rows = days.setdefault(f"{local:%Y-%m-%d}", [])
        for tag, unit, value in zip(TAGS, UNITS, reading.values, strict=True):
            cell = draw.choice(BAD) if draw.random() < BAD_SHARE else str(value).replace(".", ",")
            rows.append([f"{local:%d.%m.%Y %H:%M:%S}", reading.unit, tag, cell, unit])
    for day, rows in days.items():
        header = ["Zeitstempel", "Anlage", "Messgröße", "Wert", "Einheit"]
        _write_csv(folder / f"{day}.csv", header, rows, encoding="cp1252", delimiter=";")


def write_american(readings: Iterable[Reading], folder: Path) -> None:
    """One row a time, one column a channel, dates with the month first and a clock of twelve hours."""
    rows = (
        [f"{reading.time.astimezone(CHICAGO):%m/%d/%Y %I:%M:%S %p}", reading.unit, reading.batch, *reading.values]
        for reading in readings
    )
    _write_csv(folder / "export.csv", ["Timestamp", "Unit", "Batch ID", *CHANNELS], rows)


def write_split_dates(readings: Iterable[Reading], folder: Path) -> None:
    """Like ``write_american``, with the date and the time of day in columns of their own, the day first."""
    rows = (
        [f"{local:%d.%m.%Y}", f"{local:%H:%M:%S}", reading.unit, reading.batch, *reading.values]
        for reading in readings
        for local in [reading.time.astimezone(BERLIN)]
    )
    _write_csv(folder / "export.csv", ["Datum", "Uhrzeit", "Anlage", "Charge", *CHANNELS], rows)


def write_parquet(readings: Iterable[Reading], folder: Path) -> None:
    """Write local times without an offset."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    found = list(readings)
    columns = {
        "timestamp": [reading.time.astimezone(BERLIN).replace(tzinfo=None) for reading in found],
        "unit": [reading.unit for reading in found],
        "batch": [reading.batch for reading in found],
    }
    for name, values in zip(CHANNELS, zip(*(reading.values for reading in found), strict=True), strict=True):
        columns[name] = list(values)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "export.parquet")


def write_mes(readings: Iterable[Reading], folder: Path) -> None:
    """Write the historian's rows without batches, and the table of the MES: batch, unit, start, end."""
    found = list(readings)
    spans: dict[tuple[str, str], list[datetime]] = {}
    for reading in found:
        spans.setdefault((reading.unit, reading.batch), []).append(reading.time)
    rows = ([reading.time.isoformat(), reading.unit, *reading.values] for reading in found)
    _write_csv(folder / "historian.csv", ["time", "unit", *CHANNELS], rows)
    table = ([batch, unit, min(times).isoformat(), max(times).isoformat()] for (unit, batch), times in spans.items())
    _write_csv(folder / "mes.csv", ["batch", "unit", "start", "end"], table)


def write_json(readings: Iterable[Reading], folder: Path) -> None:
    """Write one object a time: a header, and for each tag an object of value and quality."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "export.jsonl").open("w", encoding="utf-8") as lines:
        for reading in readings:
            lines.write(json.dumps(_nested(reading)) + "\n")


def _nested(reading: Reading) -> dict[str, object]:
    data = {tag: {"v": value, "q": 192} for tag, value in zip(TAGS, reading.values, strict=True)}
    header = {"equipment": reading.unit, "lot": reading.batch}
    return {"header": header, "ts": round(reading.time.timestamp() * 1000), "data": data}


def _write_csv(
    path: Path, header: list[str], rows: Iterable[Iterable[object]], encoding: str = "utf-8", delimiter: str = ","
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as target:
        writer = csv.writer(target, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)


FORMATS = {
    "german": write_german,
    "american": write_american,
    "split-dates": write_split_dates,
    "parquet": write_parquet,
    "mes": write_mes,
    "json": write_json,
}


def write_exports(plant: Path, out: Path) -> Iterator[Path]:
    """Write all formats of the plant's recordings; yield each folder."""
    parts = {part: readings_of(plant / part / "recordings.jsonl") for part in ("train", "live")}
    for name, write in FORMATS.items():
        for part, readings in parts.items():
            write(readings, out / name / part)
        (out / name / "labels.csv").write_text((plant / "live" / "labels.csv").read_text("utf-8"), "utf-8")
        yield out / name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plant", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    for folder in write_exports(arguments.plant, arguments.out):
        print(f"wrote {folder}")
