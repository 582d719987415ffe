"""Plants and files of tables drawn at random: what is plain, and now and then what is odd."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from streamad.plant import Plant
from streamad.ports import Source
from streamad.settings.plant_yaml import Settings
from streamad.testing import ManualClock

pa: Any = pytest.importorskip("pyarrow")
pq: Any = pytest.importorskip("pyarrow.parquet")

START_US = 1_767_225_600_000_000
S_US = 1_000_000


class RowsOnly:
    """A source without columns."""

    def __init__(self, source: Source) -> None:
        self.options_model = source.options_model
        self.batches, self.seek, self.close = source.batches, source.seek, source.close


def plant(folder: Path, decode: dict[str, Any], sequences: dict[str, Any], **more: Any) -> Plant:
    fields = {"stream": "line", "sequence": "batch", "time": "ts", "values": None} | decode.pop("fields", {})
    content = {
        "source": {"url": str(folder / "*.*")},
        "channels": [{"name": "a", "missing": [-9999]}, {"name": "b"}],
        "decode": {"fields": fields, **decode},
        "sequences": sequences,
        "window": {"length": 16},
    }
    return Plant(Settings.model_validate(content | more), folder, ManualClock(START_US))


def timestamps(times_us: list[int], unit: str, zone: str | None) -> Any:
    ticks = {"s": 1e-6, "ms": 1e-3, "us": 1, "ns": 1_000}[unit]
    return pa.array([min(int(time_us * ticks), (1 << 63) - 1) for time_us in times_us], pa.timestamp(unit, tz=zone))


def text_of(time_us: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)).isoformat()


TIMES: dict[str, Callable[[list[int]], Any]] = {
    "us": lambda of: timestamps(of, "us", "UTC"),
    "s": lambda of: timestamps(of, "s", None),
    "ms": lambda of: timestamps(of, "ms", "+05:30"),
    "ns": lambda of: timestamps(of, "ns", "Europe/Berlin"),
    "float": lambda of: pa.array([time_us / 1e6 for time_us in of]),
    "int": lambda of: pa.array([time_us // S_US for time_us in of]),
    "uint64": lambda of: pa.array([max(time_us // S_US, 0) for time_us in of], pa.uint64()),
    "text": lambda of: pa.array([text_of(time_us) for time_us in of]),
    "local text": lambda of: pa.array([text_of(time_us)[:19] for time_us in of]),
    "decimal": lambda of: pa.array([Decimal(time_us) / S_US for time_us in of], pa.decimal128(18, 6)),
    "date": lambda of: pa.array([min(time_us // 86_400_000_000, 10**6) for time_us in of], pa.int32()).cast(
        pa.date32()
    ),
    "dictionary": lambda of: timestamps(of, "us", "UTC").dictionary_encode(),
    "duration": lambda of: pa.array(of, pa.duration("us")),
    "list": lambda of: pa.array([[time_us / 1e6] for time_us in of]),
}
IDS: dict[str, Callable[[list[str | None]], Any]] = {
    "text": pa.array,
    "large": lambda of: pa.array(of, pa.large_string()),
    "dictionary": lambda of: pa.array(of).dictionary_encode(),
    "int": lambda of: pa.array([None if cell is None else len(cell) + ord(cell[-1:] or "x") for cell in of]),
    "float": lambda of: pa.array([None if cell is None else ord(cell[-1:] or "x") / (1 + (cell == "")) for cell in of]),
    "bool": lambda of: pa.array([None if cell is None else cell < "B" for cell in of]),
    "time": lambda of: timestamps([START_US + ord((cell or "x")[-1:]) for cell in of], "us", "UTC"),
}
READINGS: dict[str, Callable[[list[float | None]], Any]] = {
    "double": pa.array,
    "float": lambda of: pa.array(of, pa.float32()),
    "int8": lambda of: pa.array([whole(cell, 127) for cell in of], pa.int8()),
    "int64": lambda of: pa.array([whole(cell, 1 << 62) for cell in of], pa.int64()),
    "uint64": lambda of: pa.array(
        [None if cell is None else abs(whole(cell, 1 << 62) or 0) for cell in of], pa.uint64()
    ),
    "decimal": lambda of: pa.array(
        [None if whole(cell, 9) is None else Decimal(str(whole(cell, 9))) / 7 for cell in of]
    ),
    "bool": lambda of: pa.array([None if cell is None else cell > 0 for cell in of]),
    "text": lambda of: pa.array([None if cell is None else str(cell) for cell in of]),
    "words": lambda of: pa.array(["high" if cell is None else f"{cell} " for cell in of]).dictionary_encode(),
    "null": lambda of: pa.nulls(len(of)),
    "duration": lambda of: pa.array([whole(cell, 1 << 60) for cell in of], pa.duration("ns")),
    "time": lambda of: timestamps([START_US] * len(of), "ms", "UTC"),
    "half": lambda of: pa.array(np.array([0.5] * len(of), dtype=np.float16)),
    "list": lambda of: pa.array([[cell] for cell in of]),
    "bytes": lambda of: pa.array([b"\xff" for _ in of]),
}
ENDS: dict[str, Callable[[list[bool]], Any]] = {
    "bool": pa.array,
    "int": lambda of: pa.array([int(is_end) for is_end in of]),
    "text": lambda of: pa.array(["yes" if is_end else "" for is_end in of]),
    "odd": lambda of: pa.array([2 if is_end else None for is_end in of]),
}
NOTES: dict[str, Callable[[int], Any]] = {
    "bytes": lambda n: pa.array([b"\xff\xfe"] * n),
    "list": lambda n: pa.array([[1, None]] * n),
    "not UTF-8": lambda n: pa.Array.from_buffers(
        pa.string(), n, [None, pa.array(range(n + 1), pa.int32()).buffers()[1], pa.py_buffer(b"\xff" * n)]
    ),
    "long": lambda n: pa.array(["x" * 3_000] * n),
    "date": lambda n: pa.array([20_000] * n, pa.int32()).cast(pa.date32()),
}


def whole(cell: float | None, most: int) -> int | None:
    return None if cell is None or not np.isfinite(cell) else int(max(min(cell, most), -most))


def drawn_file(random: Random, path: Path, begin_us: int, kinds: dict[str, str]) -> int:
    """Write a file of interleaved streams, with what is odd now and then; return the time of its last row."""
    n, n_streams = random.choice([0, 1, 5, 40, 200]), random.choice([1, 1, 2, 3])
    rare = random.choice([0.0, 0.0, 0.02, 0.2])
    steps = random.choice([[1], [1, 1, 1, 2], [1, 1, 0, -2], [1] * 20 + [40, 400], [1] * 30 + [100_000]])
    length, time_us = random.choice([3, 10, 60]), begin_us
    rows: list[tuple[Any, ...]] = []

    def odd(usual: Any, *others: Any) -> Any:
        return random.choice(others) if random.random() < rare else usual

    for i in range(n):
        time_us += random.choice(steps) * S_US
        stream = f"s{i % n_streams}" if n < 100 or random.random() < 0.9 else "s0"
        rows.append((
            odd(time_us, time_us + 10**15, -1, time_us + 90 * S_US, 10**17),
            odd(stream, None, "", "a\nb", "s7"),
            odd(f"B{i // n_streams // length}", None, "", "x\ty", "B0"),
            random.random() < 1 / length or odd(False, True),
            odd(float(i % 50), None, float("nan"), float("inf"), 1e39, -9999.0),
            odd(i / 7, None, -9999.0, 1e308),
        ))  # fmt: skip
    times, streams, sequences, ends, a, b = (list(cells) for cells in zip(*rows, strict=True)) if rows else [[]] * 6
    columns: dict[str, Any] = {}
    for name, cells, makers in (
        ("ts", times, TIMES), ("line", streams, IDS), ("batch", sequences, IDS), ("end", ends, ENDS),
        ("a", a, READINGS), ("b", b, READINGS),
    ):  # fmt: skip
        if kinds[name] != "absent":
            columns[name] = makers[kinds[name]](cells)
    if n and kinds["ts"] != "absent" and random.random() < rare:
        columns["ts"] = columns["ts"].take(pa.array([None, *range(1, n)], pa.int32()))
    if kinds["note"] != "absent":
        columns["note"] = NOTES[kinds["note"]](n)
    pq.write_table(pa.table(columns), path, row_group_size=random.choice([1, 7, 50, 1000]))
    os.utime(path, (START_US // S_US, random.choice([START_US + 10**12, START_US + 300 * S_US, time_us]) / 1e6))
    return time_us


def some(random: Random, usual: str, kinds: dict[str, Any]) -> str:
    """Return a kind of column, mostly the usual one."""
    return usual if random.random() < 0.6 else random.choice([*kinds, "absent"])


def drawn_plant(random: Random, folder: Path) -> Plant:
    """Write files and return a plant that reads them."""
    kinds = {
        "ts": some(random, "us", TIMES), "line": some(random, "text", IDS), "batch": some(random, "text", IDS),
        "end": some(random, "bool", ENDS), "a": some(random, "double", READINGS),
        "b": some(random, "float", READINGS), "note": random.choice(["absent", "absent", "absent", *NOTES]),
    }  # fmt: skip
    time_us = START_US - 10**9
    for number in range(random.choice([1, 1, 2])):
        time_us = drawn_file(random, folder / f"day-{number}.parquet", time_us, kinds)
    end = random.sample(["marker", "change", "gap", "length"], random.choice([1, 2]))
    sequences: dict[str, Any] = {"end": end}
    sequences |= {"gap": "30s"} if "gap" in end else {}
    sequences |= {"length": random.choice([1, 9, 50])} if "length" in end else {}
    for name, values in {
        "allowed_lateness": ["3s", "100s"], "max_duration": ["20s", "300s"], "max_samples": [5, 30],
        "closed_memory": ["1s"], "without_id": ["skip"], "max_streams": [1, 2],
    }.items():  # fmt: skip
        if random.random() < 0.2:
            sequences[name] = random.choice(values)
    decode: dict[str, Any] = {"default_stream": "plant"} if random.random() < 0.5 else {}
    for name, values in {
        "time_unit": ["ms", "us"], "time_format": ["%Y-%m-%dT%H:%M:%S", "unix_s", "excel"],
        "timezone": ["Europe/Berlin"], "missing": [["high"]], "max_clock_skew": ["100s"],
        "max_message_bytes": [2_000], "time": ["relative"], "sequence_from": ["file"], "max_dead_letter_bytes": [10],
        "fields": [{"sequence": ["line", "batch"]}, {"sequence": None}, {"end": {"field": "batch", "value": "B1"}},
                   {"stream": "key"}, {"ignore_unknown": False}, {"end": None}, {"time": "n.ts"}, {"stream": "note.x"}],
    }.items():  # fmt: skip
        if random.random() < 0.07:
            decode[name] = random.choice(values)
    more: dict[str, Any] = {}
    if random.random() < 0.2:
        more["models"] = {"field": random.choice(["batch", "line", "product"])}
    if random.random() < 0.15:
        more["channels"] = [{"name": "a", "fill": "hold", "values": {"high": 3}}, {"name": "b"}]
    more["source"] = {"url": str(folder / "*.*"), "options": {"files": random.choice(["joined", "separate"])}}
    return plant(folder, decode, sequences, **more)
