"""How cost and memory grow: with open sequences, streams, channels, window length and routed models.

Each point runs the pipeline (decode, assembly, windows, verdicts, checkpoint; the scorer costs nothing) in a process of
its own over messages that are made on the way; making them does not count. All points have the same number of samples,
and sequences end evenly over the run. The clock is CPU time of the process, from the moment at which every open
sequence has begun; memory is what the process grows by from its first record on. ``growth`` is the largest cost a value
of an axis, divided by that of its smallest size in the same round: 1 or less means that nothing grows faster than its
input. Rounds take turns, and medians are reported. With ``--other`` each round runs both checkouts one after the other.
Run: ``python benchmarks/growth.py [--rounds 3] [--axes open] [--other CHECKOUT] [--plot] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamad.commands.shared.monitor import calm_garbage_collector
from streamad.judge.bank import Batchers, ModelBank
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import ModelRef, Role
from streamad.plugins import ConnectorContext, connect_sink
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import FloatArray, IntArray, PartitionAssigned, Record, RecordBatch, SourceEvent

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs" / "figures" / "growth.png"
START_US = 1_767_225_600_000_000
STEP_US = 1_000
BATCH = 500
N_TERMS = 6
ROLES: tuple[Role, ...] = ("alerts", "verdicts")


@dataclass(frozen=True)
class Point:
    """A size: ``lanes`` sequences at a time, divided among ``streams``, each of ``messages`` messages of ``rows``."""

    size: int
    lanes: int
    streams: int
    channels: int = 8
    rows: int = 1
    messages: int = 51
    models: int = 1

    @property
    def length(self) -> int:
        """Return the samples of a sequence, and the window's length."""
        return self.rows * self.messages


AXES: dict[str, tuple[str, list[Point]]] = {
    "open": ("open sequences, one a stream", [Point(n, n, n) for n in (10, 100, 1_000, 10_000)]),
    "shared": ("open sequences in ten streams", [Point(n, n, 10) for n in (10, 100, 1_000, 10_000)]),
    "streams": ("streams", [Point(n, n, n, rows=50, messages=1) for n in (10, 100, 1_000)]),
    "channels": ("channels", [Point(n, 64, 64, channels=n, rows=50, messages=1) for n in (8, 32, 128, 512)]),
    "window": ("window length", [Point(n, 16, 16, rows=16, messages=n // 16) for n in (16, 64, 256, 1_024, 4_096)]),
    "models": ("routed models", [Point(n, 100, 100, rows=50, messages=1, models=n) for n in (1, 10, 100)]),
}


# --- one point -------------------------------------------------------------------------------------------------------


class FreeScorer:
    """A scorer that costs nothing."""

    n_terms = N_TERMS

    def __init__(self, point: Point) -> None:
        self.window_shape = (point.channels, point.length)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return terms of 0, which are no alert."""
        return np.zeros((len(windows), N_TERMS), dtype=np.float32)


class Messages:
    """The point's messages, the lanes in turn; the readings repeat, so that making a message costs little."""

    def __init__(self, point: Point) -> None:
        self._point = point
        rng = np.random.default_rng(0)
        names = [f"c{number}" for number in range(point.channels)]
        values = rng.normal(size=(16, point.rows, point.channels)).round(4).tolist()
        if point.rows == 1:
            self._values = [json.dumps(dict(zip(names, rows[0], strict=True))) for rows in values]
        else:
            self._values = [json.dumps(rows) for rows in values]

    def __iter__(self) -> Iterator[Record]:
        point, offset = self._point, 0
        phases = [lane * point.messages // point.lanes for lane in range(point.lanes)]
        turn = 0
        while True:
            first_us = START_US + turn * point.rows * STEP_US
            times = [(first_us + row * STEP_US) / 1e6 for row in range(point.rows)]
            when = f'"time":{times[0]}' if point.rows == 1 else f'"times":{times}'
            timestamp_us = first_us + point.rows * STEP_US
            for lane, phase in enumerate(phases):
                number, index = divmod(turn + phase, point.messages)
                end = "true" if index + 1 == point.messages else "false"
                stream, model = lane % point.streams, lane % point.models
                text = f'{{"stream":"s{stream}","sequence":"{lane}-{number}","recipe":"m{model}",{when},"end":{end},'
                value = f'{text}"values":{self._values[(lane + turn) % 16]}}}'.encode()
                yield Record(offset, value, timestamp_us)
                offset += 1
            turn += 1


def memory_mb() -> float:
    """Return this process's resident memory in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


class MadeSource(ListSource):
    """Delivers messages as they are made and takes the time: first one of each lane, then those that count."""

    def __init__(self, point: Point, n_samples: int) -> None:
        super().__init__([])
        self._messages = iter(Messages(point))
        self._n_warm = point.lanes
        self._n = max(1, n_samples // point.rows)
        self.cpu_s = self.wall_s = 0.0
        self.n_samples = self._n * point.rows
        self.first_mb = self.last_mb = 0.0
        self.stop = lambda: None

    async def batches(self) -> AsyncIterator[SourceEvent]:
        """Play the messages; ``stop`` is called after the last one."""
        yield PartitionAssigned("p")
        if "p" not in self._next:
            await self._change()
        self.first_mb = memory_mb()
        async for batch in self._some(self._n_warm):
            yield batch
        await asyncio.sleep(0.1)  # what the first ones left to do
        cpu_s, wall_s, self.cpu_s = time.process_time(), time.perf_counter(), 0.0
        async for batch in self._some(self._n):
            yield batch
        self.cpu_s += time.process_time() - cpu_s
        self.wall_s = time.perf_counter() - wall_s
        self.last_mb = memory_mb()
        self.stop()

    async def _some(self, n: int) -> AsyncIterator[RecordBatch]:
        """Yield ``n`` messages and subtract from ``cpu_s`` what making them takes."""
        for first in range(0, n, BATCH):
            began_s = time.thread_time()
            records = tuple(next(self._messages) for _ in range(min(BATCH, n - first)))
            self.cpu_s -= time.thread_time() - began_s
            yield RecordBatch("p", records, records[-1].offset + 1)
            await asyncio.sleep(0)


def settings_of(point: Point) -> Settings:
    """Return the config of the point's plant."""
    return Settings.model_validate(
        {
            "name": "growth",
            "channels": [{"name": f"c{number}"} for number in range(point.channels)],
            "source": {"url": "none"},
            "window": {"length": point.length, "min_samples": 1},
            "sequences": {"end": ["marker"], "max_buffered_bytes": "4GB"},
            "models": {"field": "recipe", "max_models": point.models} if point.models > 1 else None,
        }
    )


def batchers_of(point: Point, settings: Settings, clock: SystemClock) -> Batchers:
    """Return the batcher of one free model, or a bank of free ones."""
    terms = np.random.default_rng(0).normal(size=(200, N_TERMS)).astype(np.float32)
    calibration = Calibration.from_terms(terms, 0.02)

    def load(name: str) -> ModelInService:
        return ModelInService(ModelRef(name, "0001"), FreeScorer(point), calibration)

    if settings.models is None:
        return MicroBatcher(load("growth"), clock, settings.run)
    return ModelBank(settings, clock, load)


async def run(point: Point, n_samples: int, folder: Path) -> dict[str, float]:
    """Run one point and return its figures."""
    settings, clock = settings_of(point), SystemClock()
    context = ConnectorContext(settings.channel_specs, clock, folder)
    sinks = {role: connect_sink(str(folder / f"{role}.jsonl"), {}, context) for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
    batchers, source = batchers_of(point, settings, clock), MadeSource(point, n_samples)
    pipeline = Pipeline(settings, source, committer, batchers, clock, explainer=None, with_verdicts=True)
    source.stop = pipeline.request_stop
    try:
        with calm_garbage_collector():
            await pipeline.run()
    finally:
        for each in (batchers, source, committer):
            await each.close()
    counters = pipeline.counters
    if counters.dead_letters or counters.late_samples or set(counters.sequences) - {"marker"}:
        raise SystemExit(f"{point}: {counters.as_dict()}")
    return {
        "us_per_sample": 1e6 * source.cpu_s / source.n_samples,
        "ns_per_value": 1e9 * source.cpu_s / source.n_samples / point.channels,
        "memory_mb": source.last_mb - source.first_mb,
        "samples_per_s": source.n_samples / source.wall_s,
        "sequences": sum(counters.sequences.values()),
        "commits": counters.commits,
    }


# --- all points ------------------------------------------------------------------------------------------------------


def child(point: Point, n_samples: int, checkout: Path) -> dict[str, float]:
    """Run ``point`` in a process of its own with the packages of ``checkout``."""
    path = os.pathsep.join(str(checkout / part) for part in ("", "connectors", "models"))
    spec = json.dumps({"point": asdict(point), "n_samples": n_samples})
    command = [sys.executable, str(Path(__file__).resolve()), "--child", spec]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{point}: {done.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(axis: str, n_samples: int, rounds: int, largest: int, checkouts: list[Path]) -> list[dict[str, Any]]:
    """Return the figures of one axis in each checkout: medians over the rounds."""
    points = [point for point in AXES[axis][1] if point.size <= largest]
    found: dict[Path, list[list[dict[str, float]]]] = {checkout: [] for checkout in checkouts}
    for _ in range(rounds):
        turn: dict[Path, list[dict[str, float]]] = {checkout: [] for checkout in checkouts}
        for point in points:
            for checkout in checkouts:
                turn[checkout].append(child(point, n_samples, checkout))
        for checkout, figures in turn.items():
            found[checkout].append(figures)
    return [_medians(axis, points, found[checkout], checkout) for checkout in checkouts]


def _medians(axis: str, points: list[Point], rounds: list[list[dict[str, float]]], checkout: Path) -> dict[str, Any]:
    medians = [
        {"size": point.size, **{key: statistics.median(turn[at][key] for turn in rounds) for key in rounds[0][at]}}
        for at, point in enumerate(points)
    ]
    costs = [[figures["ns_per_value"] / turn[0]["ns_per_value"] for figures in turn] for turn in rounds]
    return {
        "axis": axis,
        "checkout": "this" if checkout == ROOT else "other",
        "points": medians,
        "growth": statistics.median(max(turn) for turn in costs),
    }


def report(figures: dict[str, Any]) -> None:
    """Print the figures of one axis."""
    print(f"{AXES[figures['axis']][0]}, {figures['checkout']} checkout: growth {figures['growth']:.2f}")
    for point in figures["points"]:
        cost = f"{point['us_per_sample']:>9.2f} µs a sample {point['ns_per_value']:>8.0f} ns a value"
        rate = f"{point['samples_per_s']:>10,.0f} samples/s"
        print(f"  {point['size']:>7,} {cost} {point['memory_mb']:>8.1f} MB {rate}", flush=True)


def plot(axes: list[dict[str, Any]]) -> None:
    """Draw docs/figures/growth.png: cost a value beside that of the smallest size, and memory."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only the figure needs it

    names = list(dict.fromkeys(each["axis"] for each in axes))
    figure, panels = plt.subplots(2, len(names), figsize=(2.6 * len(names), 5), sharey="row", squeeze=False)
    for each in axes:
        above, below = panels[:, names.index(each["axis"])]
        sizes = [point["size"] for point in each["points"]]
        costs = [point["ns_per_value"] / each["points"][0]["ns_per_value"] for point in each["points"]]
        line = {"marker": "o"} if each["checkout"] == "this" else {"marker": ".", "color": "C7", "linestyle": "--"}
        above.plot(sizes, costs, label="now" if each["checkout"] == "this" else "before", **line)
        below.plot(sizes, [max(0.1, point["memory_mb"]) for point in each["points"]], **line)
        above.axhline(1.2, color="black", linewidth=0.6)
        above.set(xscale="log", ylim=(0, 1.6), title=AXES[each["axis"]][0])
        above.title.set_fontsize(9)
        below.set(xscale="log", yscale="log")
    panels[0, 0].set_ylabel("CPU time a value,\nsmallest size = 1")
    panels[0, 0].annotate("aim: 1.2", (0.04, 0.77), xycoords="axes fraction", fontsize=8)
    panels[1, 0].set_ylabel("memory, MB")
    if any(each["checkout"] == "other" for each in axes):
        panels[0, 0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        spec = json.loads(sys.argv[2])
        with tempfile.TemporaryDirectory() as name:
            print(json.dumps(asyncio.run(run(Point(**spec["point"]), spec["n_samples"], Path(name)))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", nargs="+", choices=tuple(AXES), default=tuple(AXES))
    parser.add_argument("--samples", type=int, default=200_000, help="of each point (default: 200,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--largest", type=int, default=10_000, help="leave larger sizes out")
    parser.add_argument("--other", type=Path, help="another checkout, measured beside this one")
    parser.add_argument("--plot", action="store_true", help="write docs/figures/growth.png")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    checkouts = [ROOT] if options.other is None else [options.other.resolve(), ROOT]
    found: list[dict[str, Any]] = []
    for axis in options.axes:
        for each in measure(axis, options.samples, options.rounds, options.largest, checkouts):
            found.append(each)
            report(each)
    if options.plot:
        plot(found)
    if options.json:
        given = {"samples": options.samples, "rounds": options.rounds, "cores": os.cpu_count()}
        print(json.dumps({**given, "axes": found}))


if __name__ == "__main__":
    main()
