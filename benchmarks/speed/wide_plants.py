"""Plants of many channels or of many streams, and long exports: how long each command takes, and its memory.

The recordings are written to a temporary folder: ``--sequences`` sequences of eight samples with the wanted number of
channels, as CSV; and one record for each of the wanted number of streams, as JSON lines. Each figure is of a process
of its own. ``--megabytes``: ``init`` alone, on a CSV export of that size with eight channels. Growth is the CPU time a
channel, a stream or a megabyte beside that of the row before: 1 means linear.
Run: ``python benchmarks/speed/wide_plants.py [--channels 1000 7000 49000] [--streams 10000 60000]
[--megabytes 3 1000] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import yaml
from pyarrow import csv

ROOT = Path(__file__).resolve().parents[2]
N_SAMPLES = 8
_PART = 400
"""Sequences of an export that are made at once: below 3 MB."""


def write_channels(folder: Path, n_channels: int, n_sequences: int) -> None:
    """Write recordings of ``n_channels`` channels as CSV; values vary by sample and sequence."""
    names = [f"c{number}" for number in range(n_channels)]
    with (folder / "recordings.csv").open("w") as file:
        file.write(",".join(["time", "batch", *names]) + "\n")
        for sequence in range(n_sequences):
            for sample in range(N_SAMPLES):
                row = [f"{(sequence * 7 + sample * 3 + number) % 11 / 10:g}" for number in range(n_channels)]
                file.write(",".join([f"{1_790_000_000 + 60 * sequence + sample}", f"B-{sequence}", *row]) + "\n")


def write_streams(folder: Path, n_streams: int) -> None:
    """Write one sequence of each of ``n_streams`` streams, a plant for it, and recordings for its model."""
    with (folder / "recordings.jsonl").open("w") as file:
        for number in range(n_streams):
            file.write(json.dumps(sequence_of(f"s{number}", number)) + "\n")
    with (folder / "normal.jsonl").open("w") as file:
        for number in range(24):
            file.write(json.dumps(sequence_of("s", number)) + "\n")
    plant = {
        "name": "streams",
        "channels": [{"name": "a"}, {"name": "b"}],
        "source": {"url": "file://recordings.jsonl"},
        "sequences": {"end": ["marker"], "max_streams": n_streams},
        "window": {"length": N_SAMPLES, "min_samples": 1},
        "model": {"recordings": "normal.jsonl", "detector": "nearest", "references": []},
        "sinks": {"alerts": "file://alerts.jsonl"},
    }
    (folder / "plant.yaml").write_text(yaml.safe_dump(plant))


def sequence_of(stream: str, number: int) -> dict[str, Any]:
    """Return a message with one whole sequence."""
    times = [1_790_000_000.0 + 60 * number + sample for sample in range(N_SAMPLES)]
    values = [[(number * 7 + sample) % 11 / 10, (number + sample * 3) % 5 / 4] for sample in range(N_SAMPLES)]
    return {"stream": stream, "sequence": f"B-{number}", "times": times, "values": values, "end": True}


def measured(folder: Path, *arguments: str) -> dict[str, float]:
    """Run a command of streamad in ``folder``; return wall seconds, CPU seconds and peak memory. Raises if it fails."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "connectors"), str(ROOT / "models")])
    began_s = time.perf_counter()
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamad", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {(folder / 'said.txt').read_text()[-2000:]}")
    return {
        "seconds": time.perf_counter() - began_s,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "memory_mb": usage.ru_maxrss / 1024,
    }


def of_channels(n_channels: int, n_sequences: int) -> list[dict[str, Any]]:
    """Return the figures of the commands for a plant of ``n_channels`` channels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_channels(folder, n_channels, n_sequences)
        found = [("init", measured(folder, "init", "recordings.csv", "--out", "plant.yaml"))]
        plant = yaml.safe_load((folder / "plant.yaml").read_text())
        plant["model"] = {**plant.get("model", {}), "detector": "nearest", "references": []}
        (folder / "plant.yaml").write_text(yaml.safe_dump(plant))
        for command in ("train", "check", "replay"):
            found.append((command, measured(folder, command, "--config", "plant.yaml")))
    return [{"what": "channels", "n": n_channels, "command": command, **figures} for command, figures in found]


def of_streams(n_streams: int) -> list[dict[str, Any]]:
    """Return the figures of a replay of ``n_streams`` streams."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_streams(folder, n_streams)
        measured(folder, "train", "--config", "plant.yaml")
        figures = measured(folder, "replay", "--config", "plant.yaml")
    return [{"what": "streams", "n": n_streams, "command": "replay", **figures}]


def write_export(path: Path, megabytes: int) -> None:
    """Write a CSV export of about this size: sequences of 60 samples of eight channels, with ids and local dates."""
    with path.open("wb") as file:
        for part in count():
            if file.tell() >= megabytes * 1_000_000:
                return
            rows = np.arange(60 * _PART) + 60 * _PART * part
            sequence, sample = np.divmod(rows, 60)
            columns: dict[str, Any] = {
                "time": (rows + 20 * sequence).astype("datetime64[s]") + np.timedelta64(20_454, "D"),
                "batch": [f"B-{number:07d}" for number in sequence],
            }
            columns |= {
                f"c{number}": (5 + np.sin(sample / 9 + number) + sequence * 7 % 11 / 50).round(3) for number in range(8)
            }
            options = csv.WriteOptions(include_header=part == 0, quoting_style="none")
            csv.write_csv(pyarrow.table(columns), file, options)


def of_megabytes(megabytes: int) -> list[dict[str, Any]]:
    """Return the figures of ``init`` on an export of this size."""
    with tempfile.TemporaryDirectory() as name:
        write_export(Path(name) / "export.csv", megabytes)
        figures = measured(Path(name), "init", "export.csv", "--out", "plant.yaml")
    return [{"what": "megabytes", "n": megabytes, "command": "init", **figures}]


def with_growth(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return ``rows`` with ``growth``: CPU time a channel or stream, divided by that of the next smaller size."""
    last: dict[tuple[str, str], dict[str, Any]] = {}
    grown = []
    for row in rows:
        before = last.get((row["what"], row["command"]))
        growth = None
        if before is not None:
            growth = row["cpu_seconds"] / row["n"] / (before["cpu_seconds"] / before["n"])
        last[row["what"], row["command"]] = row
        grown.append({**row, "growth": growth})
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, nargs="*", default=[1_000, 7_000, 49_000])
    parser.add_argument("--streams", type=int, nargs="*", default=[10_000, 60_000])
    parser.add_argument("--megabytes", type=int, nargs="*", default=[3, 1_000])
    parser.add_argument("--sequences", type=int, default=24, help="sequences of the plants of many channels")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n in sorted(options.channels):
        rows += of_channels(n, options.sequences)
    for n in sorted(options.streams):
        rows += of_streams(n)
    for n in sorted(options.megabytes):
        rows += of_megabytes(n)
    rows = with_growth(rows)
    if options.json:
        print(json.dumps({"sequences": options.sequences, "rows": rows}))
        return
    print("| what | n | command | s | CPU s | MB | growth |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        growth = "" if row["growth"] is None else f"{row['growth']:.2f}"
        times = f"{row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['memory_mb']:.0f}"
        print(f"| {row['what']} | {row['n']:,} | {row['command']} | {times} | {growth} |")


if __name__ == "__main__":
    main()
