"""Writes one simulated plant as an export of a random shape: the kinds of files that plants have."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from hypothesis import strategies as st

NAMES = ("temp", "pressure", "speed")
UNITS = {"temp": "degC", "pressure": "bar", "speed": "rpm"}
_BEGIN = datetime(2026, 3, 2, 6, 0, 0, 500_000, tzinfo=UTC)
_STEP = timedelta(milliseconds=9_750)
_PAUSE = timedelta(minutes=20)


@dataclass(frozen=True)
class Row:
    """One sample of the plant: its batch, its place in the batch and in all, its time, and three readings."""

    batch: int
    place: int
    at: int
    time: datetime
    readings: tuple[float, float | None, float]
    stream: int = 0

    @property
    def id(self) -> str:
        return f"B-{self.batch + 1:04d}"

    @property
    def elapsed_s(self) -> float:
        return self.place * _STEP.total_seconds()


Batches = list[list[Row]]


def plant(seed: int, n_batches: int = 8, *, n_streams: int = 1, has_holes: bool = False) -> Batches:
    """Return batches in the order of their beginnings; those of different streams overlap."""
    rng, at = random.Random(seed), 0
    times = [_BEGIN + timedelta(minutes=2 * stream) for stream in range(n_streams)]
    found: Batches = []
    for batch in range(n_batches):
        rows, stream = [], batch % n_streams
        for place in range(rng.randrange(21, 32)):
            readings = (
                round(20 + 5 * math.sin(place / 4) + rng.random(), 3),
                None if has_holes and at % 13 == 5 else round(1 + rng.random() / 10, 4),
                round(1500 + 600 * math.cos(place / 6) + 9 * rng.random(), 1),
            )
            rows.append(Row(batch, place, at, times[stream], readings, stream))
            times[stream] += _STEP
            at += 1
        found.append(rows)
        times[stream] += _PAUSE
    return found


Field = Callable[[Row], Any]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3600:02d}:{int(seconds) // 60 % 60:02d}:{seconds % 60:06.3f}"


TIMES: dict[str, dict[str, Field]] = {
    "iso": {"": lambda row: row.time.isoformat().replace("+00:00", "Z")},
    "german": {"": lambda row: f"{row.time:%d.%m.%Y %H:%M:%S}.{row.time.microsecond // 1000:03d}"},
    "american": {"": lambda row: f"{row.time + timedelta(days=20):%m/%d/%Y %I:%M:%S.%f %p}"},
    "unix ms": {"": lambda row: round(row.time.timestamp() * 1000)},
    "split": {"date": lambda row: f"{row.time:%d.%m.%Y}", "clock": lambda row: f"{row.time:%H:%M:%S.%f}"},
    "split with ms": {
        "date": lambda row: f"{row.time:%Y-%m-%d}",
        "clock": lambda row: f"{row.time:%H:%M:%S}",
        "ms": lambda row: row.time.microsecond // 1000,
    },
    "parts of a second": {
        "": lambda row: f"{row.time:%Y-%m-%d %H:%M:%S}",
        "ms": lambda row: row.time.microsecond // 1000,
    },
    "elapsed": {"": lambda row: _clock(row.elapsed_s)},
    "seconds": {"": lambda row: row.elapsed_s},
    "negative": {"": lambda row: row.elapsed_s - 50},
    "none": {},
}
_TIME_NAMES = {"": ("time", "Timestamp", "t", "Zeit"), "date": ("Datum", "Date"), "clock": ("Uhrzeit", "Time")}
IDS: dict[str, dict[str, Field]] = {
    "named": {"Batch ID": lambda row: row.id},
    "number": {"lot": lambda row: row.batch + 1},
    "two": {"faultNumber": lambda row: row.batch // 4, "simulationRun": lambda row: row.batch % 4 + 1},
    "none": {},
}
BESIDE: dict[str, Field] = {
    "anomaly": lambda row: int(row.at % 9 == 0),
    "Reference": lambda row: 7000 + 3 * row.batch,
    "ts_ms": lambda row: round(row.time.timestamp() * 1000),
    "row_no": lambda row: row.at,
    "operator": lambda row: "A. B.",
}
STYLES: dict[str, tuple[Callable[[float], str], str]] = {
    "plain": (str, ","),
    "semicolons": (str, ";"),
    "tabs": (str, "\t"),
    "decimal comma": (lambda value: str(value).replace(".", ","), ";"),
    "thousands": (lambda value: f"{value:,}", ","),
    "german thousands": (lambda value: f"{value:,}".translate(str.maketrans(",.", ".,")), ";"),
    "swiss": (lambda value: f"{value:,}".replace(",", "'"), ";"),
}
ABOVE: dict[str, list[str]] = {
    "none": [],
    "title": ["Export of the historian", ""],
    "comments": ["# device: logger 4", "# rate: 0.1 Hz"],
    "pairs": ["Device{d}logger 4", "Serial{d}00417", "[Data]"],
}
FILES = ("one", "a file", "a folder", "halves")


@dataclass
class Shape:
    """A shape of exports: what was drawn, so that a failure says it."""

    kind: str
    files: str
    time: str
    ids: str
    style: str = "plain"
    above: str = "none"
    units: str = "none"
    n_streams: int = 1
    has_holes: bool = False
    has_index: bool = False
    line_end: str = "\n"
    encoding: str = "utf-8"
    beside: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    order: tuple[int, ...] = ()


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    def one(of: Iterable[str]) -> str:
        return draw(st.sampled_from(sorted(of)))

    kind = one(["csv", "csv", "jsonl", "nested", "parquet", "lists", "long", "long jsonl"])
    is_text = kind in ("csv", "long")
    return Shape(
        kind,
        one(FILES),
        one(TIMES),
        one(IDS),
        one(STYLES) if is_text else "plain",
        one(ABOVE) if is_text else "none",
        one(["none", "row", "brackets"]) if kind == "csv" else "none",
        draw(st.sampled_from([1, 1, 2])),
        draw(st.booleans()),
        kind == "csv" and draw(st.booleans()),
        one(["\n", "\r\n"]) if is_text else "\n",
        one(["utf-8", "utf-8-sig", "utf-16"]) if is_text else "utf-8",
        tuple(draw(st.sets(st.sampled_from(sorted(BESIDE)), max_size=2))) if kind != "lists" else (),
        {part: draw(st.sampled_from(names)) for part, names in _TIME_NAMES.items()} | {"ms": "ms"},
        tuple(draw(st.permutations(range(10)))),
    )


def write(shape: Shape, batches: Batches, folder: Path) -> Path:
    """Write the plant; return the path that ``init`` gets."""
    top, ending = folder / "export", {"csv": "csv", "long": "csv", "parquet": "parquet", "lists": "parquet"}
    end = ending.get(shape.kind, "jsonl")
    half = len(batches) // 2
    parts: dict[str, Batches]
    if shape.files == "one":
        parts = {f"plant.{end}": batches}
    elif shape.files == "a file":
        parts = {f"export/{rows[0].id}.{end}": [rows] for rows in batches}
    elif shape.files == "a folder":
        parts = {f"export/{rows[0].id}/data.{end}": [rows] for rows in batches}
    else:
        parts = {f"export/day1.{end}": batches[:half], f"export/day2.{end}": batches[half:]}
    for name, of in parts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(shape, path, of)
    if shape.files == "one":
        return folder / f"plant.{end}"
    return top / f"*/data.{end}" if shape.files == "a folder" else top


def _fields(shape: Shape) -> dict[str, Field]:
    times = {shape.names[part]: of for part, of in TIMES[shape.time].items()}
    if shape.n_streams > 1:
        times["reactor"] = lambda row: f"R{row.stream + 1}"
    return times | IDS[shape.ids] | {name: BESIDE[name] for name in shape.beside}


def _ordered(shape: Shape, names: Iterable[str]) -> list[str]:
    found = list(names)
    return [found[at] for at in shape.order if at < len(found)] + found[len(shape.order) :]


def _write(shape: Shape, path: Path, batches: Batches) -> None:
    fields = _fields(shape)
    rows = sorted((row for of in batches for row in of), key=lambda row: row.time)
    if shape.kind in ("long", "long jsonl"):
        messages = [
            {name: get(row) for name, get in fields.items()} | {"tag": tag, "value": row.readings[at]}
            for row in rows
            for at, tag in enumerate(NAMES)
            if row.readings[at] is not None
        ]
    else:
        messages = [{name: get(row) for name, get in fields.items()} | _readings(row) for row in rows]
    order = _ordered(shape, messages[0])
    messages = [{name: message[name] for name in order} for message in messages]
    if shape.kind == "nested":
        messages = [
            {name: value for name, value in message.items() if name not in NAMES}
            | {"data": {name: message[name] for name in NAMES}}
            for message in messages
        ]
    if shape.kind in ("csv", "long"):
        _write_table(shape, path, messages)
    elif shape.kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(messages), path)
    elif shape.kind == "lists":
        whole = {*IDS[shape.ids], "reactor"}
        lists = [
            {name: get(of[0]) for name, get in fields.items() if name in whole}
            | {name: [get(row) for row in of] for name, get in fields.items() if name not in whole}
            | {name: [row.readings[at] for row in of] for at, name in enumerate(NAMES)}
            for of in batches
        ]
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lists), path)
    else:
        path.write_text("".join(json.dumps(message) + "\n" for message in messages), encoding="utf-8")


def _readings(row: Row) -> dict[str, Any]:
    return dict(zip(NAMES, row.readings, strict=True))


def _write_table(shape: Shape, path: Path, messages: list[dict[str, Any]]) -> None:
    number, delimiter = STYLES[shape.style]

    def cell(value: Any) -> str:
        if value is None:
            return ""
        text = number(value) if isinstance(value, float) else str(value)
        return f'"{text}"' if delimiter in text else text

    lines = [line.format(d=delimiter) for line in ABOVE[shape.above]]
    if shape.has_index:
        messages = [{"": at, **message} for at, message in enumerate(messages)]
    has_brackets = shape.units == "brackets"
    lines.append(
        delimiter.join(f"{name} [{UNITS[name]}]" if has_brackets and name in UNITS else name for name in messages[0])
    )
    if shape.units == "row":
        lines.append(delimiter.join(UNITS.get(name, "") for name in messages[0]))
    lines += [delimiter.join(map(cell, message.values())) for message in messages]
    path.write_bytes("".join(line + shape.line_end for line in lines).encode(shape.encoding))
