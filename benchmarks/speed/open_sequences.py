"""Throughput with and without the workers' status and running sequences: the same run, in turns.

A pipeline (24 channels, one judged sequence in 51 samples, checkpoint and file sinks) reads samples of 200 streams in
turn, five samples a message, as fast as it can: 200 sequences are open all the time. Every other turn has
``sinks.status`` in a folder and ``display.open``, with an interval of 1 s for both, where the defaults are 10 s: what
is measured is ten times what a plant has. Both conditions alternate on the same machine over the same records. Run:
``python benchmarks/speed/open_sequences.py [--turns 20] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

# Benchmarks are scripts, not a package: a module beside this one is imported as it is.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from pipeline import CHANNELS, LENGTH, ROLES, make_model

from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import Running, WorkerStatus
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.runtime import reports
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.runtime.reports import StatusFolder
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import Record

CHUNK = 5
START_S = 1_767_225_600
BATCH = 100
RESAMPLES = 2_000


class CountingFolder:
    """A folder of status that counts what is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = StatusFolder(folder)
        self.n_writes = 0
        self.most_curves = 0

    async def put(self, status: WorkerStatus, running: list[Running]) -> None:
        """Write, and count."""
        await self._folder.put(status, running)
        self.n_writes += 1
        self.most_curves = max(self.most_curves, len(running))

    async def close(self) -> None:
        """Do nothing."""


def records_of(n_streams: int, n_rounds: int) -> list[Record]:
    """Return messages of ``n_streams`` in turn; each stream has ``n_rounds`` sequences, begun at different points."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(LENGTH, CHANNELS)).round(4).tolist()
    messages: list[bytes] = []
    for first in range(0, n_rounds * LENGTH, CHUNK):
        for stream in range(n_streams):
            for at in _parts(first + stream % LENGTH):
                messages.append(
                    msgspec.json.encode(
                        {
                            "stream": f"line-{stream:03d}",
                            "sequence": f"{at[0] // LENGTH:05d}",
                            "times": [START_S + one for one in at],
                            "values": [values[one % LENGTH] for one in at],
                            "end": (at[-1] + 1) % LENGTH == 0,
                        }
                    )
                )
    return [Record(offset, message) for offset, message in enumerate(messages)]


def _parts(first: int) -> list[list[int]]:
    """Return the samples from ``first`` on, ``CHUNK`` of them, by sequence."""
    by_sequence: dict[int, list[int]] = {}
    for sample in range(first, first + CHUNK):
        by_sequence.setdefault(sample // LENGTH, []).append(sample)
    return list(by_sequence.values())


def settings_of() -> Settings:
    """Return the config of the plant."""
    return Settings.model_validate(
        {
            "name": "benchmark",
            "channels": [{"name": f"c{index}"} for index in range(CHANNELS)],
            "source": {"url": "none"},
            "window": {"length": LENGTH, "min_samples": 1},
            "display": {"open": True, "status_interval": "1s"},
        }
    )


async def turn(
    folder: Path, model: ModelInService, records: list[Record], *, with_status: bool
) -> tuple[float, int, int]:
    """Run once; return samples a second, and how often the status was written with how many curves at most."""
    plant = Plant(settings_of(), folder, SystemClock())
    sinks = {role: connect_sink(f"file:{folder / role}.jsonl", {}, plant.context) for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
    batcher = MicroBatcher(model, plant.clock, plant.settings.run)
    source = ListSource.of({"p": records}, batch_records=BATCH)
    pipeline = Pipeline(
        plant.settings, source, committer, batcher, plant.clock, explainer=None, with_verdicts=True
    )  # fmt: skip
    place = CountingFolder(folder / "status")
    reporter = reports.Reporter(plant, pipeline, lambda: [model.ref], place)
    started = time.perf_counter()
    if with_status:
        reporter.start()
    await pipeline.run()
    took_s = time.perf_counter() - started
    await reporter.close(is_clean=True)
    for each in (batcher, source, committer):
        await each.close()
    return pipeline.counters.samples / took_s, place.n_writes, place.most_curves


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by resampling."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    return float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


def measure(n_streams: int, n_rounds: int, turns: int) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    records = records_of(n_streams, n_rounds)
    rates: dict[str, list[float]] = {"without": [], "with": []}
    writes: list[int] = []
    most = 0
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "model").mkdir()
        model = make_model(Path(name) / "model")
        for number in range(turns + 1):
            for kind in list(rates) if number % 2 == 0 else list(reversed(rates)):
                place = Path(name) / f"{kind}-{number}"
                place.mkdir()
                rate, n_writes, n_curves = asyncio.run(turn(place, model, records, with_status=kind == "with"))
                if number:  # the first pair warms up
                    rates[kind].append(rate)
                    writes += [n_writes] if kind == "with" else []
                    most = max(most, n_curves)
    ratios = [with_ / without for without, with_ in zip(rates["without"], rates["with"], strict=True)]
    low, high = interval(ratios)
    return {
        "streams": n_streams,
        "messages": len(records),
        "turns": turns,
        "cores": os.cpu_count(),
        "writes_per_turn": statistics.mean(writes),
        "most_curves": most,
        "samples_per_s": {kind: statistics.median(found) for kind, found in rates.items()},
        "ratio": {"median": statistics.median(ratios), "low": low, "high": high},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--turns", type=int, default=20, help="under each condition (default: 20)")
    parser.add_argument("--streams", type=int, default=200, help="streams, a sequence of each is open (default: 200)")
    parser.add_argument("--sequences", type=int, default=10, help="of each stream in a turn (default: 10)")
    options = parser.parse_args()
    figures = measure(options.streams, options.sequences, options.turns)
    for kind, rate in figures["samples_per_s"].items():
        print(f"{kind:>8} status and open sequences: {rate:>10,.0f} samples/s (median of {figures['turns']} turns)")
    ratio = figures["ratio"]
    print(
        f"with / without {ratio['median']:.3f} (95 % interval {ratio['low']:.3f} to {ratio['high']:.3f}); "
        f"{figures['writes_per_turn']:.1f} writes a turn, up to {figures['most_curves']} sequences in each"
    )
    if options.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
