"""Latency of scoring under a steady load, with and without the training process beside it.

A MicroBatcher with a NeuTraL AD model (9 channels x 128, the defaults) gets sequences at a fixed mean rate, at random
moments, without waiting for results. The real training process runs all the time, but is stopped (SIGSTOP) in every
other slice: both conditions alternate on the same machine, model and process, so other load affects both.
``latency`` is from the moment a sequence is due to its answer, including the wait for company (``run.batch_wait``);
``scoring`` is the model's own time per batch. Run:
``python benchmarks/speed/retraining_latency.py [--policies] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from steady_load import CHANNELS, LENGTH, make_windows

from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.parts import detector_for, registry_of, store_for, versions_of
from streamad.learn.store.records import StoredSequence, TrainingRequest
from streamad.learn.trainer.child import Child
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.trainer.results import TrainingResult
from streamad.learn.trainer.status import read_status
from streamad.learn.training.from_recordings import train_model
from streamad.plant import Plant
from streamad.ports import Scorer
from streamad.settings.decode import ChannelSettings
from streamad.settings.learning import LearningSettings, ModelSettings
from streamad.settings.outputs import AlertSettings
from streamad.settings.plant_yaml import RunSettings, Settings, SourceSettings
from streamad.system.clock import SystemClock
from streamad.types import FloatArray, IntArray, Window

RESERVED = 200
SETTLE_S = 0.5
START_US = 1_767_225_600_000_000
POLICIES: dict[str, tuple[int, int]] = {
    "idle": (os.SCHED_IDLE, 19),
    "batch": (os.SCHED_BATCH, 19),
    "nice": (os.SCHED_OTHER, 19),
    "equal": (os.SCHED_OTHER, 0),
}


def settings_of(epochs: int, batch_wait_us: int) -> Settings:
    """Return the config of the plant; ``learning.threads`` is 1, as by default."""
    return Settings(
        channels=tuple(ChannelSettings(name=f"c{index}") for index in range(CHANNELS)),
        source=SourceSettings(url="none"),
        model=ModelSettings(detector="neutral_ad", device="cpu", options={"epochs": epochs}),
        alerts=AlertSettings(false_alarm_rate=0.02),
        learning=LearningSettings(),
        run=RunSettings(batch_wait=f"{batch_wait_us}us"),  # type: ignore[arg-type]
    )


def fill_store(settings: Settings, folder: Path, n_stored: int) -> None:
    """Keep enough sequences for a training to go on for the whole measurement."""
    store = store_for(Plant(settings, folder, SystemClock()))
    store.open()
    data = make_windows(n_stored + RESERVED, seed=1)
    now_us = SystemClock().now_us()
    for index, name in enumerate(data.ids):
        window, time_us = Window(data.values[index], LENGTH), START_US + index * 1_000_000
        sequence = StoredSequence(name, "line", name, time_us, now_us, window, "learning")
        store.offer(sequence, "accepted" if index < n_stored else "reserve")
    store.flush()
    store.close()


class TimedScorer:
    """The model, with the time of each batch."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.window_shape, self.n_terms = scorer.window_shape, scorer.n_terms
        self.taken_s: list[float] = []

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Score, and take the time."""
        started = time.perf_counter()
        terms = self._scorer.score(windows, lengths)
        self.taken_s.append(time.perf_counter() - started)
        return terms


@dataclass(slots=True)
class Sample:
    """The measurements under one condition; seconds."""

    latency_s: list[float] = field(default_factory=list)
    scoring_s: list[float] = field(default_factory=list)
    trained_s: float = 0.0
    wall_s: float = 0.0

    def summary(self) -> dict[str, float]:
        """Return the quantiles in milliseconds, and the share of a core that the training got."""
        quantiles = {
            f"{name}_p{share * 100:g}_ms": round(1e3 * float(np.quantile(values, share)), 3)
            for name, values in (("latency", self.latency_s), ("scoring", self.scoring_s))
            for share in (0.5, 0.99)
        }
        return {**quantiles, "n": len(self.latency_s), "training_cpu_share": round(self.trained_s / self.wall_s, 3)}


class Bench:
    """The load, and the training process that is stopped and continued beside it."""

    def __init__(self, batcher: MicroBatcher, scorer: TimedScorer, rate: float, slice_s: float) -> None:
        self._batcher, self._scorer, self._rate, self._slice_s = batcher, scorer, rate, slice_s
        self._windows = [Window(values, LENGTH) for values in make_windows(64, seed=2).values]
        self._rng = np.random.default_rng(3)

    async def slice(self, sample: Sample, pid: int) -> None:
        """Add one slice of load to ``sample``."""
        self._scorer.taken_s.clear()
        trained_s, started = cpu_seconds(pid), time.perf_counter()
        moments = np.cumsum(self._rng.exponential(1 / self._rate, int(self._rate * self._slice_s)))
        tasks = []
        for index, moment in enumerate(moments):
            await asyncio.sleep(max(0.0, started + moment - time.perf_counter()))
            window = self._windows[index % len(self._windows)]
            tasks.append(asyncio.create_task(self._one(window, started + moment)))
        sample.latency_s += await asyncio.gather(*tasks)
        sample.scoring_s += self._scorer.taken_s
        sample.trained_s += cpu_seconds(pid) - trained_s
        sample.wall_s += time.perf_counter() - started

    async def _one(self, window: Window, due_s: float) -> float:
        await self._batcher.submit(window)
        return time.perf_counter() - due_s


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def put(pid: int, policy: tuple[int, int] | None) -> None:
    """Stop a process, or continue it with all its threads under ``policy`` (scheduling class, niceness)."""
    if policy is None:
        os.kill(pid, signal.SIGSTOP)
        return
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), policy[0], os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, int(thread.name), policy[1])
    os.kill(pid, signal.SIGCONT)


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Sample]:
    """Return the sample of each condition."""
    settings = settings_of(1, round(arguments.batch_wait_ms * 1e3))
    plant = Plant(settings, folder, SystemClock())
    detector, registry = detector_for(plant), registry_of(plant)
    train_model(
        make_windows(200, 0),
        detector,
        settings=settings,
        registry=registry,
        clock=SystemClock(),
        prove=proved_in_new_process,
    )
    fill_store(settings, folder, arguments.stored)
    loaded = versions_of(plant).load()
    scorer = TimedScorer(loaded.scorer)
    model = ModelInService(loaded.ref, scorer, loaded.calibration, loaded.reference)
    batcher = MicroBatcher(model, SystemClock(), settings.run)
    child = Child(Plant(settings_of(1_000_000, 0), folder, SystemClock()), "default")
    request = TrainingRequest(reason="command", requested_us=SystemClock().now_us())
    training = asyncio.create_task(child.train(request))
    try:
        await until(lambda: read_status(registry, "default").epoch > 0, training)
        assert child.pid is not None
        return await take_turns(Bench(batcher, scorer, arguments.rate, arguments.slice_s), child.pid, arguments)
    finally:
        child.send(signal.SIGCONT)
        child.end()
        await training
        await batcher.close()


async def take_turns(bench: Bench, pid: int, arguments: argparse.Namespace) -> dict[str, Sample]:
    """Alternate the conditions until each had its seconds."""
    chosen: dict[str, tuple[int, int] | None] = {"without": None, "with": POLICIES["idle"]}
    if arguments.policies:
        chosen = {"without": None, **POLICIES}
    samples = {name: Sample() for name in chosen}
    await bench.slice(Sample(wall_s=1), pid)  # warm up
    for turn in range(max(1, round(arguments.seconds / arguments.slice_s))):
        order = list(chosen) if turn % 2 == 0 else list(reversed(chosen))
        for name in order:
            put(pid, chosen[name])
            await asyncio.sleep(SETTLE_S)
            await bench.slice(samples[name], pid)
    return samples


async def until(is_so: Callable[[], bool], training: asyncio.Task[TrainingResult]) -> None:
    """Wait until the training has begun its epochs."""
    while not is_so():
        if training.done():
            raise SystemExit(f"the training ended before the measurement began: {training.result()}")
        await asyncio.sleep(0.05)


def report(result: dict[str, object], samples: dict[str, dict[str, float]]) -> None:
    """Print a table."""
    print(
        f"{result['rate']:g} sequences/s of {CHANNELS} x {LENGTH}, {result['seconds']:g} s each in turns of "
        f"{result['slice_s']:g} s, batch_wait {result['batch_wait_ms']:g} ms, {result['cores']} cores, "
        f"{result['scoring_threads']} scoring threads\n"
    )
    print(
        f"{'training':>9} {'n':>7} {'latency p50':>12} {'p99':>9} {'scoring p50':>12} {'p99':>9} {'training CPU':>13}"
    )
    for name, row in samples.items():
        print(
            f"{name:>9} {row['n']:>7.0f} {row['latency_p50_ms']:>9.1f} ms {row['latency_p99_ms']:>6.1f} ms "
            f"{row['scoring_p50_ms']:>9.1f} ms {row['scoring_p99_ms']:>6.1f} ms {row['training_cpu_share']:>12.0%}"
        )
    print("\np99 with / without: " + ", ".join(f"{name} {value:.2f}" for name, value in ratios(samples).items()))


def ratios(samples: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the ratio of the 99 % quantiles of latency to those without a training."""
    base = samples["without"]["latency_p99_ms"]
    return {name: round(row["latency_p99_ms"] / base, 3) for name, row in samples.items() if name != "without"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--seconds", type=float, default=60, help="of load under each condition (default: 60)")
    parser.add_argument("--slice-s", type=float, default=5, help="seconds of each turn (default: 5)")
    parser.add_argument("--rate", type=float, default=20, help="sequences per second (default: 20)")
    parser.add_argument("--batch-wait-ms", type=float, default=50, help="run.batch_wait (default: 50)")
    parser.add_argument("--stored", type=int, default=400, help="sequences that the training is of (default: 400)")
    parser.add_argument("--policies", action="store_true", help="compare scheduling classes for the training process")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(measure(arguments, Path(folder)))
    samples = {name: sample.summary() for name, sample in measured.items()}
    given = {name: getattr(arguments, name) for name in ("seconds", "slice_s", "rate", "batch_wait_ms")}
    result = {**given, "cores": os.cpu_count(), "scoring_threads": torch.get_num_threads()}
    report(result, samples)
    if arguments.json:
        print(json.dumps({**result, "conditions": samples, "p99_ratio": ratios(samples)}))


if __name__ == "__main__":
    main()
