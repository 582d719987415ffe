"""The cost of a hot swap: latencies of a steady load with and without swaps, in alternating slices.

A MicroBatcher with a NeuTraL AD model (9 channels x 128, the defaults) gets sequences at a fixed mean rate, at random
moments that do not wait for answers. In every other slice a ModelWatch swaps the version every ``--every-s``: from the
registry's files through verification, loading and warm-up in its own thread to the swap between two micro-batches, as
``streamad run`` does. ``latency`` is from the moment a sequence is due to its answer, with ``run.batch_wait``; ``load``
is the time beside the champion, ``wait`` that for its last micro-batch; ``stall`` is the delay of a task that is due
every millisecond.
Run: ``python benchmarks/speed/swap.py [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from steady_load import CHANNELS, LENGTH, make_windows

from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import versions_of
from streamad.learn.registry.hot_swap import ModelWatch, RegistryVersions
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.plant import Plant
from streamad.settings.decode import ChannelSettings
from streamad.settings.learning import ModelSettings
from streamad.settings.outputs import AlertSettings
from streamad.settings.plant_yaml import RunSettings, Settings, SourceSettings
from streamad.system.clock import SystemClock
from streamad.telemetry.metrics import ServedCounters
from streamad.types import Window

VERSIONS = 3  # more than the two that are kept in memory: each swap loads
STALL_S = 0.001


def settings_of(batch_wait_ms: float) -> Settings:
    """Return the config of the plant."""
    return Settings(
        channels=tuple(ChannelSettings(name=f"c{index}") for index in range(CHANNELS)),
        source=SourceSettings(url="none"),
        model=ModelSettings(detector="neutral_ad", device="cpu", options={"epochs": 1}),
        alerts=AlertSettings(false_alarm_rate=0.02),
        run=RunSettings(batch_wait=f"{batch_wait_ms}ms"),  # type: ignore[arg-type]
    )


@dataclass(slots=True)
class Sample:
    """Measurements under one condition, in seconds."""

    latency_s: list[float] = field(default_factory=list)
    stall_s: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return quantiles in milliseconds."""
        kinds = {"latency": self.latency_s, "stall": self.stall_s}
        return {
            **{
                f"{name}_p{share * 100:g}_ms": round(1e3 * float(np.quantile(values, share)), 3)
                for name, values in kinds.items()
                for share in (0.5, 0.99, 1.0)
            },
            "n": len(self.latency_s),
        }


Times: TypeAlias = Mapping[str, float]
"""Seconds of one swap: load_s, wait_s."""


class Bench:
    """The load, and the watch whose registry names another version again and again."""

    def __init__(self, versions: RegistryVersions, names: list[str], arguments: argparse.Namespace) -> None:
        self.swaps: list[Times] = []
        self._versions, self._names, self._arguments = versions, names, arguments
        clock = SystemClock()
        self.batcher = MicroBatcher(versions.load(), clock, settings_of(arguments.batch_wait_ms).run)
        self.watch = ModelWatch(self.batcher, versions, clock, emit=self._emitted, counters=ServedCounters())
        self._windows = [Window(values, LENGTH) for values in make_windows(64, seed=2).values]
        self._rng = np.random.default_rng(3)

    async def slice(self, sample: Sample, *, swaps: bool) -> None:
        """Add one slice of load to ``sample``."""
        beside = [asyncio.create_task(self._stalls(sample))]
        beside += [asyncio.create_task(self._swap_on())] if swaps else []
        started = time.perf_counter()
        rate = self._arguments.rate
        moments = np.cumsum(self._rng.exponential(1 / rate, int(rate * self._arguments.slice_s)))
        tasks = []
        for index, moment in enumerate(moments):
            await asyncio.sleep(max(0.0, started + moment - time.perf_counter()))
            window = self._windows[index % len(self._windows)]
            tasks.append(asyncio.create_task(self._one(window, started + moment)))
        sample.latency_s += await asyncio.gather(*tasks)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)

    async def _one(self, window: Window, due_s: float) -> float:
        await self.batcher.submit(window)
        return time.perf_counter() - due_s

    async def _swap_on(self) -> None:
        while True:
            await asyncio.sleep(self._arguments.every_s)
            before = self._versions.current()
            after = self._names[(self._names.index(before or "") + 1) % len(self._names)]
            self._versions.registry.promote(self._versions.name, after, expected=before)
            await asyncio.shield(self.watch.look())

    async def _stalls(self, sample: Sample) -> None:
        while True:
            due_s = time.perf_counter() + STALL_S
            await asyncio.sleep(STALL_S)
            sample.stall_s.append(time.perf_counter() - due_s)

    def _emitted(self, kind: str, message: str, *, figures: Mapping[str, float] | None = None, **_: Any) -> None:
        if kind != "model_swapped" or figures is None:
            raise SystemExit(message)
        self.swaps.append(figures)


async def measure(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Sample], list[Times], float]:
    """Return the measurements under each condition, the swaps, and the processor seconds of one."""
    settings = settings_of(arguments.batch_wait_ms)
    versions = versions_of(Plant(settings, folder, SystemClock()))
    names = [
        train_model(
            make_windows(arguments.training, seed),
            versions.detector,
            settings=settings,
            registry=versions.registry,
            clock=SystemClock(),
            prove=proved_in_new_process,
        )
        for seed in range(VERSIONS)
    ]
    bench = Bench(versions, names, arguments)
    samples = {"without": Sample(), "with": Sample()}
    try:
        await bench.slice(Sample(), swaps=True)  # warm up
        bench.swaps.clear()
        for turn in range(max(1, round(arguments.seconds / arguments.slice_s))):
            for name in sorted(samples, reverse=bool(turn % 2)):
                await bench.slice(samples[name], swaps=name == "with")
    finally:
        bench.watch.close()
        await bench.batcher.close()
    return samples, bench.swaps, cpu_of_load(versions)


def cpu_of_load(versions: RegistryVersions, n: int = 5) -> float:
    """Return the processor seconds of loading a version, which other load on the machine does not change."""
    taken = []
    for _ in range(n):
        started = time.process_time()
        versions.load()
        taken.append(time.process_time() - started)
    return float(np.median(taken))


def swap_figures(swaps: list[Times]) -> dict[str, float]:
    """Return the times of the swaps in milliseconds."""
    kinds = {"load": [swap["load_s"] for swap in swaps], "wait": [swap["wait_s"] for swap in swaps]}
    return {
        "swaps": len(swaps),
        **{
            f"{name}_{word}_ms": round(1e3 * float(np.quantile(values, share)), 3)
            for name, values in kinds.items()
            for word, share in (("median", 0.5), ("max", 1.0))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--seconds", type=float, default=60, help="of load under each condition (default: 60)")
    parser.add_argument("--slice-s", type=float, default=5, help="seconds of each turn (default: 5)")
    parser.add_argument("--rate", type=float, default=50, help="sequences per second (default: 50)")
    parser.add_argument("--every-s", type=float, default=1, help="pause between two swaps (default: 1)")
    parser.add_argument("--training", type=int, default=160, help="sequences that train a version (default: 160)")
    parser.add_argument("--batch-wait-ms", type=float, default=50, help="run.batch_wait (default: 50)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples, swaps, load_cpu_s = asyncio.run(measure(arguments, Path(folder)))
    rows = {name: sample.summary() for name, sample in samples.items()}
    figures = {**swap_figures(swaps), "load_cpu_ms": round(1e3 * load_cpu_s, 1)}
    given = {name: getattr(arguments, name) for name in ("seconds", "slice_s", "rate", "every_s", "batch_wait_ms")}
    cost = {
        f"cost_{quantile}_ms": round(
            rows["with"][f"latency_{quantile}_ms"] - rows["without"][f"latency_{quantile}_ms"], 3
        )
        for quantile in ("p50", "p99", "p100")
    }
    result = {**given, "cores": os.cpu_count(), "scoring_threads": torch.get_num_threads(), **figures, **cost}
    print(
        f"{arguments.rate:g} sequences/s of {CHANNELS} x {LENGTH}, {arguments.seconds:g} s each in turns of "
        f"{arguments.slice_s:g} s, a swap every {arguments.every_s:g} s, {os.cpu_count()} cores\n"
    )
    print(f"{'swaps':>8} {'n':>7} {'latency p50':>12} {'p99':>9} {'max':>9} {'stall p99':>10} {'max':>9}")
    for name, row in rows.items():
        print(
            f"{name:>8} {row['n']:>7.0f} {row['latency_p50_ms']:>9.1f} ms {row['latency_p99_ms']:>6.1f} ms "
            f"{row['latency_p100_ms']:>6.1f} ms {row['stall_p99_ms']:>7.1f} ms {row['stall_p100_ms']:>6.1f} ms"
        )
    print(
        f"\n{figures['swaps']:.0f} swaps: loading beside the champion {figures['load_median_ms']:.0f} ms (median, at "
        f"most {figures['load_max_ms']:.0f} ms), {figures['load_cpu_ms']:.0f} ms of processor time; waiting for its "
        f"last batch {figures['wait_median_ms']:.2f} ms (at most {figures['wait_max_ms']:.1f} ms)"
    )
    if arguments.json:
        print(json.dumps({**result, "conditions": rows}))


if __name__ == "__main__":
    main()
