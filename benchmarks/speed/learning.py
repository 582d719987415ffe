"""The cost of learning for each judged sequence without a training: where each worker learns, and with a learner.

Sequences of 9 x 128 and 24 x 51 (channels x samples) go in turns of 500 through ``streamad.learn.live.keeper`` (gate,
inlier store, drift) and as window records through the worker (gate, encoding) and ``streamad.learn.process`` (decoding,
store, drift), into stores on this machine's disk. Times are CPU time of this process, so that other load does not
count; the times of ``flush`` are wall-clock times, because they wait for the disk.
Run: ``python benchmarks/speed/learning.py [--json]``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from streamad.drift.plant_watch import PlantWatch
from streamad.judge.gate import gate, make_window
from streamad.judge.verdicts import alert_id
from streamad.learn.live.keeper import Keeper, ToKeep
from streamad.learn.process.service import stored_sequence
from streamad.learn.store.database import InlierDatabase
from streamad.learn.store.inliers import InlierStore
from streamad.messages import ModelRef, Verdict
from streamad.messages import Window as MessageWindow
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.system.clock import SystemClock
from streamad.system.untrusted_json import decode_json
from streamad.types import ChannelSpec, Position, Window, from_us

SIZES = ((9, 128), (24, 51))
AT_ONCE = 500
START_US = 1_767_225_600_000_000
MODEL = ModelRef("default", "0001")


def judged(number: int, channels: int, length: int, rng: np.random.Generator) -> ToKeep:
    """Return a judged sequence of noise around a common course."""
    end_us = START_US + number * 60_000_000
    verdict = Verdict(
        verdict_id=alert_id("s", f"B-{number}", Position(number, 0), 0),
        stream="s",
        sequence=f"B-{number}",
        decision="normal",
        reason="marker",
        start_time=from_us(end_us - length * 1_000_000),
        end_time=from_us(end_us),
        n_samples=length,
        score=1.0,
        p_value=float(rng.uniform(0.001, 1)),
        model=MODEL,
        created_at=from_us(end_us),
    )
    return ToKeep(verdict, Window(rng.normal(size=(channels, length)).astype(np.float32), length), MODEL, end_us)


def measure(channels: int, length: int, n: int, folder: Path) -> dict[str, float]:
    """Return microseconds for a sequence, and milliseconds for a flush of 500."""
    settings = LearningSettings()
    specs = tuple(ChannelSpec(f"c{index}") for index in range(channels))
    clock = SystemClock()
    store = InlierStore(
        "inliers",
        "default",
        channels=specs,
        window=WindowSettings(length=length),
        settings=settings,
        clock=clock,
        base_dir=folder,
    )
    keeper = Keeper(store, settings, clock, PlantWatch(specs, settings.drift), lambda: MODEL)
    rng = np.random.default_rng(0)
    turns = [
        [judged(number, channels, length, rng) for number in range(first, first + AT_ONCE)]
        for first in range(0, n, AT_ONCE)
    ]
    keeper.work(turns[0], flush=True)  # imports, first reference of the drift monitor
    plant = PlantWatch(specs, settings.drift)
    work: dict[str, Callable[[list[ToKeep]], object]] = {
        "us_per_sequence": lambda turn: keeper.work(turn, flush=False),
        "us_gate": lambda turn: [gate(item.verdict, settings=settings, champion=MODEL) for item in turn],
        "us_drift": lambda turn: [plant.add(0, item.window, 0.5, is_alert=False) for item in turn],
    }
    taken: dict[str, list[float]] = {name: [] for name in (*work, "flush_ms")}
    for turn in turns[1:]:
        for name, do in work.items():
            started = time.process_time()
            do(turn)
            taken[name].append((time.process_time() - started) / AT_ONCE * 1e6)
        started = time.perf_counter()
        keeper.work([], flush=True)
        taken["flush_ms"].append((time.perf_counter() - started) * 1e3)
    return {name: round(statistics.median(values), 1) for name, values in taken.items()} | beside(
        specs, length, turns, folder
    )


def beside(specs: tuple[ChannelSpec, ...], length: int, turns: list[list[ToKeep]], folder: Path) -> dict[str, float]:
    """Return microseconds for a sequence in the worker and in the learner, and milliseconds for storing 500."""
    settings = LearningSettings()
    database = InlierDatabase(
        folder / "inliers.sqlite3",
        "default",
        channels=specs,
        window=WindowSettings(length=length),
        settings=settings,
        clock=SystemClock(),
    )
    database.open()
    plant = PlantWatch(specs, settings.drift)
    taken: dict[str, list[float]] = {"us_worker": [], "us_learner": [], "store_ms": []}
    encoder = msgspec.json.Encoder()
    for turn in turns:
        started = time.process_time()
        records = []
        for item in turn:
            share = gate(item.verdict, settings=settings, champion=MODEL)
            records.append(encoder.encode(make_window(item.verdict, item.window, specs, share, "default")))
        taken["us_worker"].append((time.process_time() - started) / AT_ONCE * 1e6)
        started, began = time.process_time(), time.perf_counter()
        stored = [stored_sequence(decode_json(record, MessageWindow), specs, length, START_US) for record in records]
        for one in stored:
            assert not isinstance(one, str)
            database.offer(one, "accepted")
            plant.add(one.time_us, one.window, 0.5, is_alert=False)
        decoded_s = time.perf_counter() - began
        database.flush()
        taken["us_learner"].append((time.process_time() - started) / AT_ONCE * 1e6)
        taken["store_ms"].append((time.perf_counter() - began - decoded_s) * 1e3)
    return {name: round(statistics.median(values[1:]), 1) for name, values in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--sequences", type=int, default=10_000)
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for channels, length in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            figures[f"{channels}x{length}"] = measure(channels, length, arguments.sequences, Path(folder))
    for size, row in figures.items():
        print(
            f"{size:>8}: {row['us_per_sequence']:.0f} µs of CPU for a sequence (gate {row['us_gate']:.0f}, drift "
            f"{row['us_drift']:.0f}); {row['flush_ms']:.0f} ms for writing {AT_ONCE}; with a learner: worker "
            f"{row['us_worker']:.0f} µs, learner {row['us_learner']:.0f} µs, {row['store_ms']:.0f} ms for writing them"
        )
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
