"""Which way of using several cores scores fastest: torch's own threads, threads of ours, or processes.

Scoring alone, windows/s by the wall clock, NATOPS size (24 channels, 51 samples), N = cores, every form in turn:

- one: one thread;
- intra_op: one thread that calls torch, which uses N (torchscript only: the other backends take one thread a call);
- split: the rows of each batch divided among N threads, so that one batch at a time is scored;
- threads: N threads, each with batches of its own, one scorer;
- processes: N processes, each with one thread and a scorer of its own.

Then a worker on Kafka over a backlog, from a quarter of its verdicts to the last: with one, intra_op and split, and N
workers of one group (``streamad run --workers N``), each on one thread.
Run on a quiet machine: ``python benchmarks/speed/scoring_threads.py [--detectors default] [--kafka] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kafka_bench_plant import CHANNELS, LENGTH, Plant, feed_backlog, plant_on_a_broker
from other_programs import OtherPrograms

CORES = os.cpu_count() or 1
BATCHES = (1, 16, 64)
POLL_MS = 20


class SplitScorer:
    """A scorer whose batches are divided among threads in equal parts; its inner scorer must be safe for threads."""

    def __init__(self, inner: Any, n_threads: int) -> None:
        self._inner, self._n = inner, n_threads
        self._pool = ThreadPoolExecutor(n_threads)
        self.window_shape, self.n_terms = inner.window_shape, inner.n_terms

    def score(self, windows: Any, lengths: Any) -> Any:
        """Return the terms of all windows."""
        size = -(-len(windows) // self._n)
        starts = range(0, len(windows), max(size, 1))
        parts = [(windows[start : start + size], lengths[start : start + size]) for start in starts]
        if len(parts) < 2:
            return self._inner.score(windows, lengths)
        return np.concatenate(list(self._pool.map(lambda part: self._inner.score(*part), parts)))


# --- scoring alone ---------------------------------------------------------------------------------------------------


def scorer_of(config: Path) -> Any:
    """Return the champion's scorer."""
    from streamad.learn.parts import versions_of  # noqa: PLC0415
    from streamad.plant import Plant as Loaded  # noqa: PLC0415
    from streamad.settings.plant_yaml import load_settings  # noqa: PLC0415
    from streamad.system.clock import SystemClock  # noqa: PLC0415

    return versions_of(Loaded(load_settings(config), config.parent, SystemClock())).load().scorer


def windows_of(size: int) -> tuple[Any, Any]:
    """Return a batch of windows and lengths."""
    values = np.random.default_rng(size).standard_normal((size, CHANNELS, LENGTH)).astype(np.float32)
    return values, np.full(size, LENGTH, dtype=np.int64)


def calls_until(scorer: Any, size: int, end_s: float) -> int:
    """Score batches until ``end_s`` of the monotonic clock, which all processes share; return their number."""
    batch, n = windows_of(size), 0
    while time.monotonic() < end_s:
        scorer.score(*batch)
        n += 1
    return n


def serve(connection: Connection, config: Path) -> None:
    """Score batches of the size and until the time that the parent sends; a size of 0 ends the process."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    scorer = scorer_of(config)
    connection.send(0)
    while (order := connection.recv())[0]:
        connection.send(calls_until(scorer, *order))


def alone(config: Path, rounds: int, slice_s: float) -> dict[str, Any]:
    """Return the windows/s of each form and batch size, and the ratios to one thread within the rounds."""
    import torch  # noqa: PLC0415

    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(CORES)]
    children = [context.Process(target=serve, args=(theirs, config)) for _, theirs in pipes]
    for child in children:
        child.start()
    ours = [pipe for pipe, _ in pipes]
    for pipe in ours:
        pipe.recv()
    scorer = scorer_of(config)
    split, pool = SplitScorer(scorer, CORES), ThreadPoolExecutor(CORES)

    def on_threads(size: int, end_s: float) -> int:
        return sum(pool.map(lambda _: calls_until(scorer, size, end_s), range(CORES)))

    def in_processes(size: int, end_s: float) -> int:
        for pipe in ours:
            pipe.send((size, end_s))
        return sum(pipe.recv() for pipe in ours)

    forms: dict[str, tuple[int, Callable[[int, float], int]]] = {
        "one": (1, lambda size, end_s: calls_until(scorer, size, end_s)),
        "intra_op": (CORES, lambda size, end_s: calls_until(scorer, size, end_s)),
        "split": (1, lambda size, end_s: calls_until(split, size, end_s)),
        "threads": (1, on_threads),
        "processes": (1, in_processes),
    }
    found: dict[str, dict[str, list[float]]] = {str(size): {form: [] for form in forms} for size in BATCHES}
    expected = {size: scorer.score(*windows_of(size)) for size in BATCHES}
    for size in BATCHES:
        np.testing.assert_allclose(split.score(*windows_of(size)), expected[size], rtol=1e-4)
    for turn in range(rounds + 1):
        for size in BATCHES:
            for form, (n_torch, count) in forms.items():
                torch.set_num_threads(n_torch)
                began = time.monotonic()
                n = count(size, began + slice_s)
                if turn:  # the first one warms up
                    found[str(size)][form].append(n * size / (time.monotonic() - began))
    for pipe in ours:
        pipe.send((0, 0.0))
    for child in children:
        child.join()
    return {size: with_ratios(rates) for size, rates in found.items()}


def with_ratios(rates: dict[str, list[float]]) -> dict[str, Any]:
    """Return each form's median rate and, within the rounds, how many times that of one thread it is."""
    ratios = {
        form: [each / one for each, one in zip(found, rates["one"], strict=True)] for form, found in rates.items()
    }
    return {
        form: {
            "per_s": round(median(found), 1),
            "times_one": round(median(ratios[form]), 2),
            "range": [round(min(ratios[form]), 2), round(max(ratios[form]), 2)],
        }
        for form, found in rates.items()
    }


# --- a worker on Kafka -----------------------------------------------------------------------------------------------


def child(form: str, config: Path) -> None:
    """Run a worker until standard input ends."""
    import kafka_pipeline  # noqa: PLC0415
    import torch  # noqa: PLC0415

    whole = kafka_pipeline.trained_model

    def model(plant: Any) -> Any:
        from dataclasses import replace  # noqa: PLC0415

        found = whole(plant)
        torch.set_num_threads(CORES if form == "intra_op" else 1)
        return replace(found, scorer=SplitScorer(found.scorer, CORES)) if form == "split" else found

    kafka_pipeline.trained_model = model
    asyncio.run(kafka_pipeline.worker(config, None, False))


async def rate_of(bootstrap: str, topic: str, n: int) -> float:
    """Return the verdicts/s of ``topic`` after the first quarter of ``n``: workers that join late have joined then."""
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

    found, first = 0, (0.0, 0)
    async with AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        while found < n:
            found += sum(len(records) for records in (await consumer.getmany(timeout_ms=POLL_MS)).values())
            if not first[1] and found >= n // 4:
                first = (time.monotonic(), found)
    return (found - first[1]) / (time.monotonic() - first[0])


def on_kafka(plant: Plant, n: int, rounds: int) -> dict[str, Any]:
    """Return verdicts/s of a worker of each form, and of several workers, over one backlog in turns."""
    asyncio.run(feed_backlog(plant.context, plant.url("chunked"), "chunked", n))
    forms = {"one": ("one", 1), "intra_op": ("intra_op", 1), "split": ("split", 1), "processes": ("one", CORES)}
    rates: dict[str, list[float]] = {form: [] for form in forms}
    for number in range(rounds):
        for name, (form, n_workers) in forms.items():
            group = f"{name}-{number}"
            config = plant.config("chunked", group)
            command = [sys.executable, __file__, "--child", form, str(config)]
            workers = [
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(n_workers)
            ]
            rates[name].append(asyncio.run(rate_of(plant.bootstrap, f"{group}.verdicts", n)))
            for worker in workers:
                worker.communicate()
            print(f"kafka {number} {name}: {rates[name][-1]:.0f} verdicts/s", file=sys.stderr)
    return with_ratios(rates)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures that ``--json`` prints; ``others`` is how many cores other programs took meanwhile."""
    others = OtherPrograms()
    result: dict[str, Any] = {"cores": CORES, "rounds": options.rounds}
    for detector in options.detectors:
        with plant_on_a_broker(detector) as plant:
            config = plant.config("chunked", "first")
            plant.train(config)
            result[detector] = {"alone": alone(config, options.rounds, options.slice_s)}
            if options.kafka:
                result[detector]["kafka"] = on_kafka(plant, options.sequences, options.rounds)
    return {**result, "others": others.cores()}


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--detectors", nargs="+", choices=("neutral_ad", "default"), default=("neutral_ad", "default"))
    parser.add_argument("--kafka", action="store_true", help="also a worker on Kafka")
    parser.add_argument("--sequences", type=int, default=12_000, help="backlog of a worker")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slice-s", type=float, default=1.0)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    result = measure(options)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{CORES} cores, of which other programs took {result['others']}")
    for detector in options.detectors:
        parts = {f"batch {size}": row for size, row in result[detector]["alone"].items()}
        parts |= {"from Kafka": result[detector]["kafka"]} if options.kafka else {}
        for part, row in parts.items():
            cells = [f"{form} {each['per_s']:,.0f}/s ({each['times_one']:.2f})" for form, each in row.items()]
            print(f"{detector:<11} {part:<10} {'   '.join(cells)}")


if __name__ == "__main__":
    main()
