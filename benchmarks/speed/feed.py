"""What feeds a GPU: windows/s from Parquet into a scorer that costs nothing, by processes, and up to which stage.

Files of sequences of 50 rows of 9 channels, one stream a file. Stages, each with all before it: ``rows`` reads columns
up to the finished sequence, ``windows`` builds what a model sees, ``verdicts`` is all that ``score --out`` does, its
Parquet file included, with a scorer that answers at once; ``replay`` is ``replay --format parquet`` with such a scorer.
CPU µs a window are of all processes, the one that reads Parquet included; the stages take turns, medians of the rounds.
A GPU that scores more windows a second waits.
Run: ``python -m benchmarks.speed.feed [--files 4] [--sequences 20000] [--processes 1 2] [--rounds 3] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final, cast
from unittest.mock import patch

import numpy as np

from benchmarks.columns import CHANNELS, START_US, cpu_s
from streamad.ingest.windowing import judged_window
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef
from streamad.offline import replaying
from streamad.offline.models import Models
from streamad.offline.units import Kind, Task, Unit, units_of
from streamad.offline.work import Worker
from streamad.plant import Plant
from streamad.plugins import connect_source
from streamad.ranges import EVERYTHING
from streamad.runtime.recordings import read_by_partition
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import Counters
from streamad.types import FloatArray, IntArray

SAMPLES: Final = 50
STAGES: Final = ("rows", "windows", "verdicts", "replay")
_TOGETHER: Final = 1024
"""Windows that a GPU scores together."""


class FreeScorer:
    """Gives each window the same two terms, at once."""

    window_shape = (len(CHANNELS), SAMPLES)
    n_terms = 2
    n_together = _TOGETHER

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms float32 [B, 2] of windows [B, C, L]."""
        return np.ones((len(windows), self.n_terms), np.float32)


class FreeModels(Models):
    """One model, which is loaded already."""

    def get(self, name: str) -> ModelInService:
        """Return it."""
        terms = np.random.default_rng(0).uniform(0.5, 2.0, (200, FreeScorer.n_terms)).astype(np.float32)
        if name not in self._found:
            self._found[name] = ModelInService(
                ModelRef(name, "0001"), FreeScorer(), Calibration.from_terms(terms, 0.02)
            )
        return cast("ModelInService", self._found[name])


def write(folder: Path, n_files: int, n_sequences: int) -> None:
    """Write files of ``n_sequences`` sequences each."""
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    for number in range(n_files):
        rows = np.arange(n_sequences * SAMPLES)
        readings = np.random.default_rng(number).normal(size=(len(CHANNELS), len(rows)))
        columns = {
            "time": pa.array(START_US + rows * 100_000, pa.timestamp("us", tz="UTC")),
            "line": pa.array(np.full(len(rows), f"line-{number}")),
            "batch": pa.array(np.char.add("B-", (rows // SAMPLES).astype(str))),
        }
        table = pa.table(columns | {name: pa.array(each) for name, each in zip(CHANNELS, readings, strict=True)})
        pq.write_table(table, folder / f"{number}.parquet")


def plant_of(folder: Path) -> Plant:
    """Return a plant that reads the files in ``folder``."""
    content = {
        "source": {"url": f"{folder}/*.parquet"},
        "channels": [{"name": name} for name in CHANNELS],
        "decode": {"fields": {"stream": "line", "sequence": "batch", "time": "time", "values": None}},
        "sequences": {"end": ["change"]},
        "window": {"length": SAMPLES},
    }
    return Plant(Settings.model_validate(content), folder, SystemClock())


def _units(plant: Plant) -> list[Unit]:
    return units_of(connect_source(plant.settings.source.url, {}, plant.context))


async def _read(plant: Plant, unit: Unit, *, makes_windows: bool) -> int:
    source: Any = connect_source(str(plant.base_dir / unit.partition), {}, plant.context)
    n = 0
    async for _, closed in read_by_partition(plant.settings, source, plant.clock, Counters()):
        if makes_windows:
            judged_window(closed.sequence, plant.settings, plant.settings.channel_specs)
        n += 1
    await source.close()
    return n


def step(folder: Path, stage: str, part: int, parts: int) -> dict[str, float]:
    """Judge every ``parts``-th file of ``folder``, in this process; return the figures."""
    from streamad_connectors.files.formats.parquet_files import reader  # noqa: PLC0415 - after the arguments are read

    plant = plant_of(folder)
    units = _units(plant)[part::parts]
    kind: Kind = "replay" if stage == "replay" else "score"
    task = Task(kind, plant, None, EVERYTHING, {}, folder / f"out-{part}", "")
    with patch.object(replaying, "models_at_work", _free_batcher), closing(Worker(task)) as worker:
        worker._models = FreeModels(plant, {})  # noqa: SLF001 - in place of those of a registry
        began_s, began_cpu_s = time.monotonic(), cpu_s()
        n = sum(_work(stage, plant, worker)(unit) for unit in units)
        wall_s = time.monotonic() - began_s
    reader.end_waiting()
    return {"windows": n, "wall_s": wall_s, "cpu_s": cpu_s() - began_cpu_s, "memory_mb": _memory_mb()}


async def _free_batcher(plant: Plant, **_: Any) -> MicroBatcher:
    name = plant.settings.model.name
    return MicroBatcher(FreeModels(plant, {}).get(name), plant.clock, plant.settings.run, name=name)


def _work(stage: str, plant: Plant, worker: Worker) -> Callable[[Unit], int]:
    if stage in {"rows", "windows"}:
        return lambda unit: asyncio.run(_read(plant, unit, makes_windows=stage == "windows"))

    def judged(unit: Unit) -> int:
        outcome = worker.do(unit)
        assert outcome.tally is not None, outcome.error
        return sum(outcome.tally.decisions.values())

    return judged


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(folder: Path, stage: str, n_processes: int) -> dict[str, float]:
    """Return windows a second, each process by its own time of work, and CPU µs a window."""
    words = [sys.executable, "-m", "benchmarks.speed.feed", "--read", str(folder), "--stage", stage]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen([*words, "--part", str(part), str(n_processes)], stdout=subprocess.PIPE, env=environment)
        for part in range(n_processes)
    ]
    found = [json.loads(process.communicate()[0]) for process in running]
    assert not any(process.returncode for process in running)
    n = sum(each["windows"] for each in found)
    return {
        "windows": n,
        "windows_a_s": sum(each["windows"] / each["wall_s"] for each in found),
        "cpu_us": 1e6 * sum(each["cpu_s"] for each in found) / n,
        "memory_mb": max(each["memory_mb"] for each in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--sequences", type=int, default=20_000, help="of each file")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read is not None:
        print(json.dumps(step(options.read, options.stage, *options.part)))
        return
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.files, options.sequences)
        turns = [
            {(n, stage): measured(Path(name), stage, n) for n in options.processes for stage in STAGES}
            for _ in range(options.rounds)
        ]
    found = [
        {"processes": n, "stage": stage}
        | {figure: round(median(turn[n, stage][figure] for turn in turns), 1) for figure in turns[0][n, stage]}
        for n, stage in turns[0]
    ]
    if options.json:
        print(
            json.dumps({"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "cells": found})
        )
        return
    print(f"{'processes':>9} {'up to':<9} {'windows/s':>10} {'CPU us':>7} {'MB':>5}")
    for each in found:
        row = f"{each['processes']:>9} {each['stage']:<9} {each['windows_a_s']:>10,.0f}"
        print(f"{row} {each['cpu_us']:>7.1f} {each['memory_mb']:>5.0f}")


if __name__ == "__main__":
    main()
