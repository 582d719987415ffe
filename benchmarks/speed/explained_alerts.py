"""Latency of alerts with and without their explanations: the same run, in turns.

A pipeline with the default detector (24 channels x 51 samples), a checkpoint and file sinks gets sequences at a fixed
mean rate, at random moments; one in ten is anomalous. Each turn is a run of its own, with a fresh checkpoint; every
other one makes no attributions. Both conditions alternate on the same machine with the same model and sequences, so
that other load affects both. The latency is from the moment a sequence ends to the commit of its alert. Run:
``python benchmarks/speed/explained_alerts.py [--turns 12] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.judge.explainer import Explainer
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import detector_for, registry_of, versions_of
from streamad.learn.serving.models import explainer_for
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.from_recordings import train_model
from streamad.messages import Role
from streamad.plant import Plant
from streamad.plugins import connect_sink
from streamad.runtime.checkpoint import LocalCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.system.tasks import wait_for_either
from streamad.testing import ListSource
from streamad.types import FloatArray, PartitionAssigned, Record, RecordBatch, WindowSet

CHANNELS, LENGTH = 24, 51
TRAINED_ON = 200
ANOMALOUS_SHARE = 0.1
START_S = 1_767_225_600
ROLES: tuple[Role, ...] = ("alerts", "attributions", "verdicts")
SHARES = (0.5, 0.99)


def settings_of() -> Settings:
    """Return the config of the plant: the defaults, without a wait for company in a batch."""
    return Settings.model_validate(
        {
            "name": "benchmark",
            "channels": [{"name": f"c{index}"} for index in range(CHANNELS)],
            "source": {"url": "none"},
            "window": {"length": LENGTH},
            "model": {"device": "cpu", "references": []},
            "run": {"commit_interval": "10ms"},
        }
    )


def courses(n: int, seed: int) -> FloatArray:
    """Return ``n`` smooth random courses float32 [n, C, L]."""
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 2 * np.pi, LENGTH)
    phase, pace = rng.uniform(0, 0.6, (n, CHANNELS, 1)), 1 + np.arange(CHANNELS)[:, None] / 8
    values = np.sin(grid * pace + phase) + rng.normal(0, 0.1, (n, CHANNELS, LENGTH))
    return values.astype(np.float32)


def message(index: int, values: FloatArray, *, is_odd: bool) -> bytes:
    """Return the whole sequence ``index`` as one message; an odd one has a shift in a quarter of one channel."""
    values = values.copy()
    if is_odd:
        start = index % (LENGTH - LENGTH // 4)
        values[index % CHANNELS, start : start + LENGTH // 4] += 3.0
    times = (START_S + index * 2 * LENGTH + np.arange(LENGTH)).tolist()
    content = {"stream": "line", "sequence": str(index), "times": times, "values": values.T.tolist(), "end": True}
    return json.dumps(content).encode()


class Load:
    """Sequences at random moments, the same in each turn."""

    def __init__(self, rate: float, seconds: float) -> None:
        rng = np.random.default_rng(3)
        n = max(1, int(rate * seconds))
        self.moments: npt.NDArray[np.float64] = np.cumsum(rng.exponential(1 / rate, n))
        odd = rng.random(n) < ANOMALOUS_SHARE
        odd[: n // 2 : 5] = True  # some even in the shortest load
        values = courses(n, seed=2)
        self.messages = [message(i, values[i], is_odd=bool(odd[i])) for i in range(n)]


async def turn(plant: Plant, load: Load, folder: Path, explainer: Explainer | None) -> tuple[list[float], int]:
    """Run once; return the latency of each alert in seconds, and the number of attributions."""
    sinks = {role: connect_sink(f"file:{folder / role}.jsonl", {}, plant.context) for role in ROLES}
    committer = LocalCommitter(folder / "checkpoint", sinks, {role: role for role in ROLES})
    batcher = MicroBatcher(versions_of(plant).load(), plant.clock, plant.settings.run)
    source = ListSource([PartitionAssigned("p")], endless=True)
    due_s: dict[str, float] = {}
    latencies_s: list[float] = []
    all_judged = asyncio.Event()
    n_judged = 0

    def on_judged(sequence: JudgedSequence, _: int) -> None:
        nonlocal n_judged
        n_judged += 1
        if n_judged == len(load.messages):
            all_judged.set()
        if sequence.alert is not None:
            latencies_s.append(time.perf_counter() - due_s[sequence.verdict.sequence])

    pipeline = Pipeline(
        plant.settings,
        source,
        committer,
        batcher,
        plant.clock,
        explainer=explainer,
        with_verdicts=True,
        on_judged=on_judged,
    )
    run = asyncio.create_task(pipeline.run())
    started_s = time.perf_counter()
    for index, moment in enumerate(load.moments.tolist()):
        await asyncio.sleep(max(0.0, started_s + moment - time.perf_counter()))
        due_s[str(index)] = started_s + moment
        source.feed(RecordBatch("p", (Record(index, load.messages[index]),), index + 1, caught_up=True))
    await wait_for_either(all_judged, run)
    pipeline.request_stop()
    await run
    for each in (batcher, source, committer):
        await each.close()
    return latencies_s, pipeline.counters.attributions


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    plant = Plant(settings_of(), folder, SystemClock())
    data = WindowSet(
        courses(TRAINED_ON, seed=0), np.full(TRAINED_ON, LENGTH), tuple(f"n-{i}" for i in range(TRAINED_ON))
    )
    train_model(
        data,
        detector_for(plant),
        settings=plant.settings,
        registry=registry_of(plant),
        clock=plant.clock,
        prove=proved_in_new_process,
    )
    load = Load(arguments.rate, arguments.turn_s)
    found: dict[str, list[list[float]]] = {"without": [], "with": []}
    n_attributions = {"without": 0, "with": 0}
    explainer = explainer_for(plant)  # it loads the model in the warm-up, as a run does at its first alert
    for number in range(arguments.turns + 1):
        order = list(found) if number % 2 == 0 else list(reversed(found))
        for name in order:
            place = folder / f"{name}-{number}"
            latencies_s, n = await turn(plant, load, place, explainer if name == "with" else None)
            if number:  # the first pair warms up
                found[name].append(latencies_s)
                n_attributions[name] += n
    explainer.close()
    conditions = {name: quantiles_ms([each for turn in turns for each in turn]) for name, turns in found.items()}
    pairs = [
        {share: with_[share] / without[share] for share in without}
        for without, with_ in zip(*(map(quantiles_ms, found[name]) for name in ("without", "with")), strict=True)
    ]
    return {
        "rate": arguments.rate,
        "turns": arguments.turns,
        "turn_s": arguments.turn_s,
        "cores": os.cpu_count(),
        "alerts": {name: sum(map(len, turns)) for name, turns in found.items()},
        "attributions": n_attributions,
        "latency_ms": conditions,
        "ratio": {share: conditions["with"][share] / value for share, value in conditions["without"].items()},
        "ratio_of_pairs": {share: spread([pair[share] for pair in pairs]) for share in pairs[0]},
    }


def quantiles_ms(latencies_s: list[float]) -> dict[str, float]:
    """Return the quantiles in milliseconds by name."""
    return {f"p{share * 100:g}": 1e3 * float(np.quantile(latencies_s, share)) for share in SHARES}


def spread(values: list[float]) -> dict[str, float]:
    """Return the median and the quartiles."""
    low, median, high = (float(np.quantile(values, share)) for share in (0.25, 0.5, 0.75))
    return {"low": low, "median": median, "high": high}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    parser.add_argument("--turns", type=int, default=12, help="under each condition (default: 12)")
    parser.add_argument("--turn-s", type=float, default=10, help="seconds of each turn (default: 10)")
    parser.add_argument("--rate", type=float, default=10, help="sequences per second (default: 10)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(arguments, Path(folder)))
    print(f"{'explanations':>12} {'alerts':>7} {'attributions':>13} {'p50':>9} {'p99':>9}")
    for name, row in figures["latency_ms"].items():
        counts = f"{figures['alerts'][name]:>7} {figures['attributions'][name]:>13}"
        print(f"{name:>12} {counts} {row['p50']:>6.1f} ms {row['p99']:>6.1f} ms")
    for share, value in figures["ratio"].items():
        pairs = figures["ratio_of_pairs"][share]
        quartiles = f"{pairs['low']:.2f} to {pairs['high']:.2f}"
        print(
            f"{share} with / without: {value:.2f}; of pairs of turns: median {pairs['median']:.2f}, half in {quartiles}"
        )
    if arguments.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
