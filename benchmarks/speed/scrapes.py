"""Throughput with and without metrics that are scraped: the same run, in turns.

A pipeline (24 channels, judged sequences of 51 samples, checkpoint and file sinks) reads as fast as it can. Every other
turn serves its metrics and is scraped once a second, where Prometheus does once in 15 s, by a thread of this process:
the scrape itself and the client share its two cores. Both conditions alternate over the same records.
Run: ``python benchmarks/speed/scrapes.py [--turns 20] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np

# Benchmarks are scripts, not a package: a module beside this one is imported as it is.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pipeline import CHANNELS, LENGTH, ROLES, make_model

from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.metrics import MetricsServer, Observed, ServedModel, WorkerCollector
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import Record

START_S = 1_767_225_600
CHUNK = 5
RESAMPLES = 2_000


def records_of(n_sequences: int) -> list[Record]:
    """Return messages of ``CHUNK`` samples, sequence after sequence."""
    values = np.random.default_rng(0).normal(size=(LENGTH, CHANNELS)).round(4).tolist()
    messages = []
    for sequence in range(n_sequences):
        for first in range(0, LENGTH, CHUNK):
            at = range(first, min(first + CHUNK, LENGTH))
            message = {
                "stream": f"line-{sequence % 20:02d}",
                "sequence": f"{sequence:05d}",
                "times": [START_S + sequence * LENGTH + one for one in at],
                "values": [values[one] for one in at],
                "end": at[-1] == LENGTH - 1,
            }
            messages.append(msgspec.json.encode(message))
    return [Record(offset, message) for offset, message in enumerate(messages)]


@asynccontextmanager
async def scraped(pipeline: Pipeline, batcher: MicroBatcher, found: list[int]) -> AsyncIterator[None]:
    """Serve the metrics during the block, and scrape them once a second; ``found`` gets the bytes of each answer."""
    models = [ServedModel(model.ref, 0.02, 99) for model in batcher.models]
    observed = Observed(
        pipeline=pipeline,
        models=lambda: models,
        events={},
        now_us=SystemClock().now_us,
        scoring=batcher.durations,
        explaining=None,
        shares_topic=True,
    )
    server = MetricsServer("127.0.0.1:0", WorkerCollector(observed), lambda: True)
    stopping = threading.Event()

    def scrape() -> None:
        while not stopping.is_set():
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
                found.append(len(answer.read()))
            stopping.wait(1.0)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        await asyncio.to_thread(thread.join)
        await server.close()


async def turn(folder: Path, model: ModelInService, records: list[Record], found: list[int] | None) -> float:
    """Run once; return samples a second. ``found``: scrape, and count."""
    settings = Settings.model_validate(
        {
            "name": "benchmark",
            "channels": [{"name": f"c{index}"} for index in range(CHANNELS)],
            "source": {"url": "none"},
            "window": {"length": LENGTH, "min_samples": 1},
        }
    )
    plant = Plant(settings, folder, SystemClock())
    sinks = {role: connect_sink(f"file:{folder / role}.jsonl", {}, plant.context) for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
    batcher = MicroBatcher(model, plant.clock, settings.run)
    source = ListSource.of({"p": records}, batch_records=100)
    pipeline = Pipeline(settings, source, committer, batcher, plant.clock, explainer=None, with_verdicts=True)
    begun = time.perf_counter()
    async with AsyncExitStack() as stack:
        if found is not None:
            await stack.enter_async_context(scraped(pipeline, batcher, found))
        await pipeline.run()
        took_s = time.perf_counter() - begun
    await batcher.close()
    await committer.close()
    return pipeline.counters.samples / took_s


def main() -> None:
    """Run the turns and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20, help="turns of each condition")
    parser.add_argument("--sequences", type=int, default=1_500, help="sequences of a turn")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    records = records_of(options.sequences)
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder))
    rates: dict[bool, list[float]] = {False: [], True: []}
    found: list[int] = []
    for number in range(2 * options.turns):
        is_scraped = (number + number // 2) % 2 == 1  # off on on off: a slow drift of the machine cancels
        with tempfile.TemporaryDirectory() as folder:
            rate = asyncio.run(turn(Path(folder), model, records, found if is_scraped else None))
        rates[is_scraped].append(rate)
        print(f"turn {number + 1} of {2 * options.turns}: {rate:,.0f} samples/s", file=sys.stderr)
    ratios = [on / off for off, on in zip(rates[False], rates[True], strict=True)]
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.05, 0.95))
    result = {
        "without": round(statistics.median(rates[False])),
        "with": round(statistics.median(rates[True])),
        "ratio": round(statistics.median(ratios), 4),
        "interval_90": [round(float(low), 4), round(float(high), 4)],
        "scrapes": len(found),
        "bytes_of_a_scrape": round(statistics.median(found)),
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"samples/s: {result['without']:,} without, {result['with']:,} with metrics ({len(found)} scrapes)")
    print(f"with / without, median of pairs: {result['ratio']} (90 % interval {low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
