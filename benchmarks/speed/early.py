"""What looks at running sequences cost, beside the same without them.

``cost``: CPU seconds of all looks at a sequence over those of its final score, one sequence at a time as a worker looks
at running ones, and in batches; bytes of the artifact and CPU seconds of the training over those without looks. 200
sequences of 24 channels x 51 samples, ten looks; scores take turns.
``latency``: from the end of a sequence to the commit of its alert, with and without looks, in turns: sequences of 50
streams that run for 5 s each and come in eleven chunks.
``memory``: 10,000 running sequences up to their tenth look: resident memory with and without looks, and bytes of the
progress of each sequence's looks.
Run: ``python benchmarks/speed/early.py [cost] [latency] [memory]``; each part prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

# Benchmarks are scripts, not a package: a module beside this one is imported as it is.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from explained_alerts import CHANNELS, LENGTH, START_S, courses, quantiles_ms, spread

from streamad.ingest.sequences.closed_sequences import looks_key
from streamad.judge.early.course import Course
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.learn.early.training import EarlyTraining
from streamad.learn.parts import detector_for, registry_of, versions_of
from streamad.learn.serving.models import looking_for
from streamad.learn.training.from_recordings import train_model
from streamad.messages import Role
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.system.tasks import wait_for_either
from streamad.telemetry.events import EventLog
from streamad.testing import ListSource
from streamad.types import FloatArray, PartitionAssigned, Record, RecordBatch, Window, WindowSet

TRAINED_ON = 200
STREAMS = 50
RATE = 0.01
CHUNK = 5
BATCHES = (1, 16)
ROLES: tuple[Role, ...] = ("alerts", "warnings", "verdicts")


def plant_of(folder: Path, *, early: bool) -> Plant:
    """Return a plant in a new ``folder``; with ``early`` it looks at running sequences."""
    folder.mkdir(exist_ok=True)
    content: dict[str, Any] = {
        "name": "benchmark",
        "channels": [{"name": f"c{index}"} for index in range(CHANNELS)],
        "source": {"url": "none"},
        "window": {"length": LENGTH},
        "model": {"device": "cpu", "references": []},
        "run": {"commit_interval": "10ms"},
        "sinks": {"warnings": "file:warnings.jsonl"},
    }
    if early:
        content["alerts"] = {"early": {"false_alarm_rate": RATE}}
    return Plant(Settings.model_validate(content), folder, SystemClock())


def trained(plant: Plant) -> float:
    """Train the model of ``plant``; return the CPU seconds, without the proof in a new process."""
    values = courses(TRAINED_ON, seed=0)
    data = WindowSet(values, np.full(TRAINED_ON, LENGTH), tuple(f"n-{i}" for i in range(TRAINED_ON)))
    early = None
    if plant.settings.alerts.early is not None:
        early = EarlyTraining(dict(zip(data.ids, map(whole, values), strict=True)), plant.settings)
    began = time.process_time()
    train_model(
        data,
        detector_for(plant),
        settings=plant.settings,
        registry=registry_of(plant),
        clock=plant.clock,
        prove=lambda *_, **__: (),
        early=early,
    )
    return time.process_time() - began


def whole(values: FloatArray) -> Course:
    """Return the course of ``values`` [C, n], as looks see it: up to the sample before the last."""
    return Course(values[:, :-1], np.ones((values.shape[0], values.shape[1] - 1), np.bool_))


# --- cost ---


def cost(folder: Path) -> dict[str, Any]:
    """Return the ratios of scores, artifacts and trainings."""
    plants = {early: plant_of(folder / f"with-{early}", early=early) for early in (False, True)}
    seconds = {early: trained(plant) for early, plant in plants.items()}
    sizes = {early: size_of(folder / f"with-{early}" / "registry") for early in plants}
    model = versions_of(plants[True]).load()
    assert model is not None
    return {
        "training_s": {"without": round(seconds[False], 1), "with": round(seconds[True], 1)},
        "training_ratio": round(seconds[True] / seconds[False], 2),
        "artifact_bytes": {"without": sizes[False], "with": sizes[True]},
        "artifact_ratio": round(sizes[True] / sizes[False], 2),
        "score": {str(n): score_ratio(model, n) for n in BATCHES},
    }


def size_of(folder: Path) -> int:
    """Return the bytes of all files below ``folder``."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def score_ratio(model: ModelInService, n: int, rounds: int = 15) -> dict[str, Any]:
    """Return CPU milliseconds a sequence of the final score and of all looks, ``n`` at a time, and their ratio."""
    values = courses(n, seed=5)
    lengths = np.full(n, LENGTH)
    assert model.early is not None
    ages = [(look, look.form.n_points) for look in model.early.looks]
    looks = [(look, [Window(one[:, :age], age) for one in values]) for look, age in ages]

    def final() -> None:
        model.scorer.score(values, lengths)

    def early() -> None:
        for look, windows in looks:
            look.z(windows)

    taken: dict[str, list[float]] = {"final": [], "looks": []}
    ways: dict[str, Callable[[], None]] = {"final": final, "looks": early}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began = time.process_time()
            for _ in range(4):
                way()
            if number:  # the first warms up
                taken[name].append((time.process_time() - began) / 4 / n)
    ratios = [looks / final for looks, final in zip(taken["looks"], taken["final"], strict=True)]
    return {
        **{f"{name}_ms": round(1e3 * statistics.median(each), 2) for name, each in taken.items()},
        "looks": len(looks),
        "ratio": spread(ratios),
    }


# --- latency ---


class Load:
    """Sequences of ``STREAMS`` streams in chunks, each over ``span_s`` seconds, the same in each turn."""

    def __init__(self, rounds: int, span_s: float) -> None:
        n = rounds * STREAMS
        values = courses(n, seed=2)
        values[::5, 0, -8:] += 3.0  # an alert, mostly without a warning: it begins behind the ninth look
        self.n = n
        self.chunks: list[tuple[float, str, bool, bytes]] = []
        for index in range(n):
            begin_s = (index // STREAMS + index % STREAMS / STREAMS) * span_s
            for first in range(0, LENGTH, CHUNK):
                last = min(first + CHUNK, LENGTH)
                message = chunk(index % STREAMS, index // STREAMS, values[index], first)
                self.chunks.append((begin_s + span_s * last / LENGTH, str(index), last == LENGTH, message))
        self.chunks.sort(key=lambda each: each[0])


def chunk(stream: int, number: int, values: FloatArray, first: int) -> bytes:
    """Return ``CHUNK`` samples of the sequence ``number`` of a stream, from ``first`` on, as one message."""
    at = range(first, min(first + CHUNK, values.shape[1]))
    content = {
        "stream": f"line-{stream}",
        "sequence": f"{stream}-{number}",
        "times": [START_S + 2 * LENGTH * number + one for one in at],
        "values": values[:, at.start : at.stop].T.tolist(),
        "end": at.stop == values.shape[1],
    }
    return msgspec.json.encode(content)


class Running:
    """A pipeline over an endless source, with a checkpoint and file sinks in ``folder``."""

    def __init__(self, plant: Plant, folder: Path, *, looks: bool) -> None:
        sinks = {role: connect_sink(f"file:{folder / role}.jsonl", {}, plant.context) for role in ROLES}
        self.committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
        self.batcher = MicroBatcher(versions_of(plant).load(), plant.clock, plant.settings.run)
        self.source = ListSource([PartitionAssigned("p")], endless=True)
        self.latencies_s: list[float] = []
        self.fed_s: dict[str, float] = {}
        self.n_judged = self.n_fed = 0
        self.changed = asyncio.Event()
        looking = looking_for(plant, self.batcher, None, EventLog("benchmark", plant.clock).emit) if looks else None
        self.pipeline = Pipeline(
            plant.settings,
            self.source,
            self.committer,
            self.batcher,
            plant.clock,
            explainer=None,
            with_verdicts=True,
            on_judged=self._judged,
            looking=looking,
        )
        self.task = asyncio.create_task(self.pipeline.run())

    def _judged(self, sequence: JudgedSequence, _: int) -> None:
        self.n_judged += 1
        self.changed.set()
        if sequence.alert is not None:
            self.latencies_s.append(time.perf_counter() - self.fed_s[sequence.verdict.sequence])

    def feed(self, messages: list[bytes]) -> None:
        """Give ``messages`` to the pipeline as one batch."""
        records = tuple(Record(self.n_fed + place, message) for place, message in enumerate(messages))
        self.n_fed += len(messages)
        self.source.feed(RecordBatch("p", records, self.n_fed, caught_up=True))

    async def end(self) -> None:
        """Stop, and close all parts."""
        self.pipeline.request_stop()
        await self.task
        for each in (self.batcher, self.source, self.committer):
            await each.close()


async def turn(plant: Plant, load: Load, folder: Path, *, looks: bool) -> tuple[list[float], int]:
    """Run once; return the latency of each alert in seconds, and the number of warnings."""
    running = Running(plant, folder, looks=looks)
    began_s = time.perf_counter()
    for due_s, index, is_last, message in load.chunks:
        await asyncio.sleep(max(0.0, began_s + due_s - time.perf_counter()))
        if is_last:
            running.fed_s[f"{int(index) % STREAMS}-{int(index) // STREAMS}"] = began_s + due_s
        running.feed([message])
    while running.n_judged < load.n:
        running.changed.clear()
        await wait_for_either(running.changed, running.task)
    await running.end()
    warned = folder / "warnings.jsonl"
    return running.latencies_s, len(warned.read_text().splitlines()) if warned.exists() else 0


def latency(folder: Path, turns: int) -> dict[str, Any]:
    """Return the quantiles of the latency of alerts with and without looks, and those of the ratios of turns."""
    plant = plant_of(folder / "latency", early=True)
    trained(plant)
    load = Load(rounds=4, span_s=5.0)
    found: dict[str, list[list[float]]] = {"without": [], "with": []}
    n_warnings = 0
    for number in range(turns + 1):
        for name in list(found) if number % 2 == 0 else list(reversed(found)):
            place = folder / f"{name}-{number}"
            place.mkdir()
            latencies_s, n = asyncio.run(turn(plant, load, place, looks=name == "with"))
            if number:  # the first pair warms up
                found[name].append(latencies_s)
                n_warnings += n
    pairs = [
        {share: with_[share] / without[share] for share in without}
        for without, with_ in zip(*(map(quantiles_ms, each) for each in found.values()), strict=True)
    ]
    return {
        "turns": turns,
        "alerts": {name: sum(map(len, each)) for name, each in found.items()},
        "warnings": n_warnings,
        "latency_ms": {name: quantiles_ms([one for each in all_ for one in each]) for name, all_ in found.items()},
        "ratio_of_pairs": {share: spread([pair[share] for pair in pairs]) for share in pairs[0]},
    }


# --- memory ---


async def fill(plant: Plant, folder: Path, n: int, *, looks: bool) -> dict[str, Any]:
    """Feed ``n`` sequences that run chunk by chunk; return resident MB after each, and the bytes of looks in progress.

    All looks that are due are taken, and committed, before the next chunks.
    """
    running = Running(plant, folder, looks=looks)
    values = courses(1, seed=2)[0]
    megabytes = []
    early = running.batcher.model.early if looks and running.batcher.model is not None else None
    for first in range(0, LENGTH - 1, CHUNK):
        for begin in range(0, n, 500):
            running.feed([chunk(stream, 0, values, first) for stream in range(begin, min(begin + 500, n))])
        due = 0 if early is None else early.n_due(first + CHUNK - 1)
        while not is_taken(running, n, first + CHUNK, due):  # noqa: ASYNC110 - looks without a warning tell nobody
            await asyncio.sleep(0.5)
        megabytes.append(round(resident_mb(), 1))
    opened = [each for stream in streams_of(running) for each in stream.open.values()]
    taken = {looks_key(each.key, each.start_us): each.looks for each in opened if each.looks is not None}
    n_looks, size = sum(each.n for each in taken.values()), len(msgspec.msgpack.encode(taken))
    await running.end()
    return {"resident_mb": megabytes, "looks_taken": n_looks, "progress_bytes": size / n}


def streams_of(running: Running) -> list[Any]:
    """Return the streams of the pipeline's only partition."""
    return [stream for part in running.pipeline.status.partitions.values() for stream in part.intake.streams.values()]


def is_taken(running: Running, n: int, n_samples: int, due: int) -> bool:
    """Return whether all sequences have so many samples, and the looks that are due."""
    opened = [each for stream in streams_of(running) for each in stream.open.values()]
    return len(opened) == n and all(
        each.n >= n_samples and (not due or (each.looks is not None and each.looks.n >= due)) for each in opened
    )


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def memory(folder: Path, n: int) -> dict[str, Any]:
    """Return memory and progress with and without looks, each in a process of its own."""
    plant = plant_of(folder / "memory", early=True)
    trained(plant)
    found = {}
    for name in ("without", "with"):
        command = [sys.executable, __file__, "memory", "--in", str(folder), "--sequences", str(n)]
        done = subprocess.run([*command, *(["--looks"] if name == "with" else [])], stdout=subprocess.PIPE, check=True)
        found[name] = json.loads(done.stdout)
    more = [with_ - without for without, with_ in zip(*(each["resident_mb"] for each in found.values()), strict=True)]
    return {"sequences": n, **found, "more_mb": {"first": round(more[0], 1), "last": round(more[-1], 1)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["cost", "latency", "memory"], help="all by default")
    parser.add_argument("--turns", type=int, default=8, help="of latency, under each condition (default: 8)")
    parser.add_argument("--sequences", type=int, default=10_000, help="of memory (default: 10000)")
    parser.add_argument("--in", dest="folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--looks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.folder is not None:
        plant = plant_of(options.folder / "memory", early=True)
        place = options.folder / f"looks-{options.looks}"
        place.mkdir()
        print(json.dumps(asyncio.run(fill(plant, place, options.sequences, looks=options.looks))))
        return
    for part in options.parts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            parts = {
                "cost": lambda folder=folder: cost(folder),
                "latency": lambda folder=folder: latency(folder, options.turns),
                "memory": lambda folder=folder: memory(folder, options.sequences),
            }
            print(json.dumps({part: parts[part]()}), flush=True)


if __name__ == "__main__":
    main()
