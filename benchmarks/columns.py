"""Reading a recording row by row and by column, up to the window: CPU seconds a row and memory of both, in turns.

Files of 9 channels and sequences of 128 rows, one stream or ten interleaved. Each reading is a process of its own; CPU
seconds and memory are its own and those of the process that reads Parquet, without what an empty file takes.
Run: ``python benchmarks/columns.py [--rows 1000000] [--rounds 5] [--gigabytes 1 10] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from streamad.ingest.windowing import judged_window
from streamad.plant import Plant
from streamad.plugins import connect_source
from streamad.ports import Source
from streamad.runtime.recordings import read_by_partition
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters

CHANNELS: Final = tuple(f"c{number}" for number in range(9))
SEQUENCE_ROWS: Final = 128
GROUP_ROWS: Final = 65_536
START_US: Final = 1_767_225_600_000_000
CASES: Final = (("parquet", 1), ("parquet", 10), ("csv", 1))


class RowsOnly:
    """A source without columns."""

    def __init__(self, source: Source) -> None:
        self.options_model = source.options_model
        self.batches, self.seek, self.close = source.batches, source.seek, source.close


def group(first: int, n: int, n_streams: int) -> Any:
    """Return rows ``first`` to ``first + n`` as a table: a row every 0.1 s of each stream."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    rows = np.arange(first, first + n)
    turns, streams = rows // n_streams, rows % n_streams
    readings = np.random.default_rng(first).normal(size=(len(CHANNELS), n))
    columns = {
        "time": pa.array(START_US + turns * 100_000 + streams, pa.timestamp("us", tz="UTC")),
        "line": pa.array(np.char.add("line-", streams.astype(str))),
        "batch": pa.array(np.char.add("B-", (turns // SEQUENCE_ROWS).astype(str))),
    }
    return pa.table(columns | {name: pa.array(each) for name, each in zip(CHANNELS, readings, strict=True)})


def write(path: Path, n: int, n_streams: int) -> None:
    """Write a file of ``n`` rows, piece by piece."""
    import pyarrow.csv  # noqa: PLC0415
    import pyarrow.parquet  # noqa: PLC0415

    schema = group(0, 1, n_streams).schema
    kind = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with kind(path, schema) as writer:
        for first in range(0, n, GROUP_ROWS):
            writer.write_table(group(first, min(GROUP_ROWS, n - first), n_streams))


def plant_of(path: Path) -> Plant:
    """Return a plant that reads ``path``."""
    fields = {"stream": "line", "sequence": "batch", "time": "time", "values": None}
    content = {
        "source": {"url": str(path)},
        "channels": [{"name": name} for name in CHANNELS],
        "decode": {"fields": fields},
        "sequences": {"end": ["change"]},
        "window": {"length": SEQUENCE_ROWS},
    }
    return Plant(Settings.model_validate(content), path.parent, SystemClock())


def cpu_s() -> float:
    """Return the CPU seconds of this process and of those that it has ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


async def windows(plant: Plant, *, by_column: bool) -> tuple[int, Counters]:
    """Read all; return the number of windows, and the counters."""
    source: Any = connect_source(plant.settings.source.url, {}, plant.context)
    counters, n = Counters(), 0
    async for _, closed in read_by_partition(
        plant.settings, source if by_column else RowsOnly(source), plant.clock, counters
    ):
        judged_window(closed.sequence, plant.settings, plant.settings.channel_specs)
        n += 1
    await source.close()
    return n, counters


def step(path: Path, *, by_column: bool) -> dict[str, Any]:
    """Read ``path`` in this process; return the figures."""
    from streamad_connectors.files.formats.parquet_files import reader  # noqa: PLC0415 - after the arguments are read

    began_s = cpu_s()
    n_windows, counters = asyncio.run(windows(plant_of(path), by_column=by_column))
    reader.end_waiting()
    own, others = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "windows": n_windows,
        "rows": counters.records,
        "rows_by_column": counters.by_columns,
        "cpu_s": cpu_s() - began_s,
        "memory_mb": own / 1024,
        "reading_memory_mb": others / 1024,
    }


def measured(path: Path, kind: str) -> dict[str, Any]:
    """Return the figures of reading ``path`` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--read", str(path), "--by", kind], capture_output=True, text=True, check=True
    )
    return cast("dict[str, Any]", json.loads(done.stdout))


def paired(folder: Path, ending: str, n_streams: int, n_rows: int, n_rounds: int) -> dict[str, Any]:
    """Return µs of CPU a row by rows and by columns, medians of the rounds, and the median of their ratios."""
    path, empty = folder / f"{n_streams}.{ending}", folder / f"empty.{ending}"
    write(path, n_rows, n_streams)
    write(empty, 1, n_streams)
    before = {kind: measured(empty, kind)["cpu_s"] for kind in ("row", "column")}
    turns = []
    for number in range(n_rounds):
        kinds = ("row", "column") if number % 2 == 0 else ("column", "row")
        turns.append({kind: measured(path, kind) for kind in kinds})
    path.unlink()
    cost = {kind: [(turn[kind]["cpu_s"] - before[kind]) / n_rows * 1e6 for turn in turns] for kind in before}
    return {
        "file": ending,
        "streams": n_streams,
        "rows": n_rows,
        "share_by_column": turns[0]["column"]["rows_by_column"] / n_rows,
        "same_windows": all(turn["row"]["windows"] == turn["column"]["windows"] for turn in turns),
        "row_us": median(cost["row"]),
        "column_us": median(cost["column"]),
        "ratio": median(row / column for row, column in zip(cost["row"], cost["column"], strict=True)),
        "row_memory_mb": max(turn["row"]["memory_mb"] for turn in turns),
        "column_memory_mb": max(turn["column"]["memory_mb"] for turn in turns),
        "reading_memory_mb": max(turn["column"]["reading_memory_mb"] for turn in turns),
    }


def large(folder: Path, gigabytes: float) -> dict[str, Any]:
    """Return the figures of a Parquet file of that size, read by column."""
    path = folder / "large.parquet"
    write(path, GROUP_ROWS, 1)
    n_rows = int(gigabytes * 1e9 / path.stat().st_size * GROUP_ROWS)
    write(path, n_rows, 1)
    size = path.stat().st_size
    found = measured(path, "column")
    path.unlink()
    return {"gigabytes": size / 1e9, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[], help="sizes of files for the memory alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--by", choices=("row", "column"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(step(options.read, by_column=options.by == "column")))
        return
    with tempfile.TemporaryDirectory() as name:
        cases = [paired(Path(name), *case, options.rows, options.rounds) for case in CASES if options.rounds]
        sizes = [large(Path(name), each) for each in options.gigabytes]
    if options.json:
        print(json.dumps({"rounds": options.rounds, "cases": cases, "sizes": sizes}))
        return
    for each in cases:
        print(
            f"{each['file']:<8}{each['streams']:>3} streams: {each['row_us']:6.1f} µs a row by rows, "
            f"{each['column_us']:5.2f} by columns ({each['share_by_column']:.0%} of them), {each['ratio']:5.1f} times; "
            f"{each['row_memory_mb']:.0f} MB and {each['column_memory_mb']:.0f} MB, "
            f"reading process {each['reading_memory_mb']:.0f} MB; same windows: {each['same_windows']}"
        )
    for each in sizes:
        print(
            f"{each['gigabytes']:6.2f} GB, {each['rows']:,} rows: {each['memory_mb']:.0f} MB, reading process "
            f"{each['reading_memory_mb']:.0f} MB, {each['cpu_s']:.1f} CPU s"
        )


if __name__ == "__main__":
    main()
