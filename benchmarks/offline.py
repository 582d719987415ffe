"""Measures ``score --out``: one process, two, four, and Ray, on the same recordings in one run; and plans a larger lot.

    python benchmarks/offline.py --files 16 --sequences 400 --samples 200 --detector ensemble
    python benchmarks/offline.py --plan-bytes 1e12 --cores 64 --json

Each way judges all files into a new folder. CPU seconds are those of the command and its processes, not of Ray's; the
plan multiplies what a row, a sequence and a process cost in this run, so it is only as good as the recordings made here
are like yours. Wall times mean something on an idle machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

START_S = 1_772_352_000.0
PERIOD_S = 1.0
GAP_S = 60.0


@dataclass(frozen=True)
class Lot:
    """The recordings of a run: files of sequences of samples of channels."""

    files: int
    sequences: int
    samples: int
    channels: int

    @property
    def rows(self) -> int:
        """Return the number of rows of all files."""
        return self.files * self.sequences * self.samples

    @property
    def all_sequences(self) -> int:
        """Return the number of sequences of all files."""
        return self.files * self.sequences


@dataclass(frozen=True)
class Measured:
    """One way to judge a lot: wall and CPU seconds of the command, and the bytes of its verdicts."""

    way: str
    wall_s: float
    cpu_s: float
    out_bytes: int


@dataclass(frozen=True)
class Plan:
    """The costs of a larger lot: its rows and sequences, core hours, hours on so many cores, bytes of verdicts."""

    rows: float
    sequences: float
    core_hours: float
    cores: int
    hours: float
    out_bytes: float


def write_lot(folder: Path, lot: Lot, *, seed: int, name: str = "day") -> int:
    """Write the files of ``lot``, Parquet with a row a sample, and return their bytes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    n = lot.sequences * lot.samples
    at = np.tile(np.arange(lot.samples), lot.sequences)
    of = np.repeat(np.arange(lot.sequences), lot.samples)
    for number in range(lot.files):
        times_s = START_S + number * 86_400.0 + of * (lot.samples * PERIOD_S + GAP_S) + at * PERIOD_S
        columns: dict[str, Any] = {
            "batch": pa.array([f"B-{number}-{each}" for each in range(lot.sequences)]).take(pa.array(of)),
            "ts": pa.array((times_s * 1e6).astype(np.int64), pa.timestamp("us", tz="UTC")),
        }
        for channel in range(lot.channels):
            course = np.sin(2 * np.pi * at / lot.samples * (1 + channel % 3)) * (1 + channel)
            columns[f"c{channel}"] = pa.array(np.round(course + rng.normal(0, 0.05, n), 3))
        pq.write_table(pa.table(columns), folder / f"{name}-{number:04}.parquet", compression="snappy")
    return sum(path.stat().st_size for path in folder.iterdir())


def write_config(folder: Path, lot: Lot, detector: str) -> None:
    """Write the plant.yaml of ``lot``."""
    content = {
        "channels": [{"name": f"c{number}"} for number in range(lot.channels)],
        "source": {"url": "recordings"},
        "decode": {"fields": {"sequence": "batch", "time": "ts", "values": None}, "default_stream": "plant"},
        "sequences": {"end": ["change"]},
        "window": {"length": lot.samples},
        "model": {"recordings": "normal", "detector": detector, "device": "cpu", "references": []},
    }
    if detector == "ensemble":
        content["model"]["effort"] = "quick"  # type: ignore[index]
    (folder / "plant.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")


def measured(folder: Path, way: str, options: list[str]) -> Measured:
    """Judge the lot in ``folder`` with ``options`` into a new folder."""
    command = [sys.executable, "-m", "streamad", "score", "--out", way, *options, "--json"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{way}: {done.stderr.strip()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    out_bytes = sum(path.stat().st_size for path in (folder / way / "verdicts").iterdir())
    return Measured(way, wall_s, cpu_s, out_bytes)


def planned(lot: Lot, lot_bytes: int, one: Measured, start_s: float, *, plan_bytes: float, cores: int) -> Plan:
    """Return what ``plan_bytes`` of recordings like ``lot`` take, by what ``one`` process took beyond its ``start_s``.

    All costs are taken to grow with the rows; ``cores`` processes start once each.
    """
    times = plan_bytes / lot_bytes
    core_s = max(one.cpu_s - start_s, 0.0) * times + cores * start_s
    return Plan(
        rows=lot.rows * times,
        sequences=lot.all_sequences * times,
        core_hours=core_s / 3600,
        cores=cores,
        hours=core_s / 3600 / cores,
        out_bytes=one.out_bytes * times,
    )


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Make the lot, train, judge it in each way, and return all figures."""
    lot = Lot(arguments.files, arguments.sequences, arguments.samples, arguments.channels)
    with tempfile.TemporaryDirectory(prefix="streamad-offline-") as name:
        folder = Path(name)
        write_config(folder, lot, arguments.detector)
        write_lot(folder / "normal", Lot(1, arguments.training, lot.samples, lot.channels), seed=1, name="normal")
        lot_bytes = write_lot(folder / "recordings", lot, seed=2)
        trained = [sys.executable, "-m", "streamad", "train"]
        subprocess.run(trained, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        write_lot(folder / "one", Lot(1, 1, lot.samples, lot.channels), seed=3)
        start = measured(folder, "start", ["one"])
        ways = {"1 process": [], "2 processes": ["--jobs", "2"], "4 processes": ["--jobs", "4"]}
        if not arguments.no_ray:
            ways["Ray, 2 actors"] = ["--on", "ray", "--jobs", "2"]
        found = [measured(folder, way, options) for way, options in ways.items()]
    one = found[0]
    plan = planned(lot, lot_bytes, one, start.cpu_s, plan_bytes=arguments.plan_bytes, cores=arguments.cores)
    judging_s = one.cpu_s - start.cpu_s
    return {
        "lot": asdict(lot) | {"rows": lot.rows, "bytes": lot_bytes, "detector": arguments.detector},
        "start_cpu_s": start.cpu_s,
        "ways": [asdict(each) | {"wall_of_1": each.wall_s / one.wall_s} for each in found],
        "bytes_a_row": lot_bytes / lot.rows,
        "cpu_us_a_row": judging_s / lot.rows * 1e6,
        "cpu_us_a_sequence": judging_s / lot.all_sequences * 1e6,
        "verdict_bytes": one.out_bytes / lot.all_sequences,
        "plan": asdict(plan) | {"bytes": arguments.plan_bytes},
        "cores_here": os.cpu_count(),
    }


def main() -> None:
    """Print the figures, with --json as one object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--sequences", type=int, default=400, help="of a file")
    parser.add_argument("--samples", type=int, default=200, help="of a sequence")
    parser.add_argument("--channels", type=int, default=9)
    parser.add_argument("--training", type=int, default=200, help="normal sequences to train on")
    parser.add_argument("--detector", default="ensemble")
    parser.add_argument("--plan-bytes", type=float, default=1e12)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = run(arguments)
    if arguments.json:
        print(json.dumps(result))
        return
    for way in result["ways"]:
        wall = f"{way['wall_s']:7.1f} s ({way['wall_of_1']:.2f} of one process)"
        print(f"{way['way']:<14} {wall}, CPU {way['cpu_s']:7.1f} s")
    print(f"a process starts in {result['start_cpu_s']:.1f} CPU s; {result['cpu_us_a_row']:.1f} us a row")
    print(f"{result['bytes_a_row']:.1f} bytes a row, {result['verdict_bytes']:.0f} bytes a verdict")
    plan = result["plan"]
    print(
        f"{plan['bytes']:.3g} bytes: {plan['rows']:.3g} rows, {plan['sequences']:.3g} sequences, "
        f"{plan['core_hours']:.0f} core hours ({plan['hours']:.1f} h on {plan['cores']} cores), "
        f"{plan['out_bytes']:.3g} bytes of verdicts"
    )


if __name__ == "__main__":
    main()
