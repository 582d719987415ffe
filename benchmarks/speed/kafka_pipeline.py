"""How fast a worker reads, judges and commits from Kafka, beside a bare loop that only fetches and decodes.

One broker, one topic of 4 partitions, 24 channels, sequences of 50 samples, the model at NATOPS size (C 24, L 51).
In every round, for chunked (50 samples) and single-sample messages, child processes read the same backlog:

- bare: ``getmany`` and a msgspec decode of every message, nothing else;
- streamad: source, assembly, scoring on a thread of its own, and exactly-once output (verdicts and alerts);

and a third one whose scorer costs nothing: what a worker reads without the model's share. Each stage alone, over the
same records, gives its share of the CPU. Then the latency, at half and at a tenth of the measured chunked rate, of a
worker and of a bare loop that only copies each message in a transaction with its offset (``kafka_live.py``); then the
memory of a worker. Each live phase has a topic of its own, and no sequences of a stream overlap in time: a phase with
late samples, or without an alert, ends the benchmark.
Run on a quiet machine: ``python benchmarks/speed/kafka_pipeline.py [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kafka_bench_plant import (
    CHANNELS,
    LENGTH,
    PARTITIONS,
    SAMPLES,
    STREAMS,
    Plant,
    feed_backlog,
    plant_on_a_broker,
)
from kafka_live import Live, copy, latency

from streamad.system.clock import SystemClock
from streamad.types import Record

# --- child processes -------------------------------------------------------------------------------------------------


def rss_mb() -> float:
    """Return this process's resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def peak_rss_mb() -> float:
    """Return this process's peak memory in MB; ``ru_maxrss`` would begin with that of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6


class Single(msgspec.Struct):
    """A message of one sample."""

    stream: str
    sequence: str
    time: float
    values: dict[str, float]
    end: bool = False


class Chunk(msgspec.Struct):
    """A message of one sequence."""

    stream: str
    sequence: str
    times: list[float]
    values: list[list[float]]
    end: bool = False


async def bare(bootstrap: str, topic: str, kind: str) -> dict[str, float]:
    """Fetch and decode the whole topic."""
    decoder = msgspec.json.Decoder(Chunk if kind == "chunked" else Single)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level="read_committed", fetch_max_wait_ms=250
    )
    await consumer.start()
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(tps)
    await consumer.seek_to_beginning(*tps)
    left = sum((await consumer.end_offsets(tps)).values())
    samples = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while left:
        for records in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
            left -= len(records)
            for record in records:
                message = decoder.decode(record.value)
                samples += len(message.times) if isinstance(message, Chunk) else 1
    figures = {"samples": samples, "wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    figures["peak_rss_mb"] = peak_rss_mb()
    await consumer.stop()
    return figures


class FreeScorer:
    """A scorer that costs nothing, for what a worker reads without the model's share."""

    window_shape = (CHANNELS, LENGTH)
    n_terms = 6

    def score(self, windows: Any, lengths: Any) -> Any:
        """Return terms of 1."""
        return np.ones((len(windows), self.n_terms), dtype=np.float32)


def free_model() -> Any:
    """Return a model in service that costs nothing; its calibration is made up, and every sequence is normal."""
    from streamad.judge.calibration import Calibration  # noqa: PLC0415
    from streamad.judge.scoring import ModelInService  # noqa: PLC0415
    from streamad.messages import ModelRef  # noqa: PLC0415

    terms = np.random.default_rng(0).uniform(0.5, 1.5, (200, FreeScorer.n_terms)).astype(np.float32)
    return ModelInService(ModelRef("free", "0001"), FreeScorer(), Calibration.from_terms(terms, 0.01))


def trained_model(plant: Any) -> Any:
    """Return the champion of the registry, on one thread."""
    import torch  # noqa: PLC0415

    from streamad.learn.parts import versions_of  # noqa: PLC0415

    torch.set_num_threads(1)
    return versions_of(plant).load()


async def worker(config: Path, n_sequences: int | None, is_free: bool) -> dict[str, Any]:
    """Run the pipeline of ``config`` until ``n_sequences`` are judged, or until standard input ends."""
    from streamad.commands.shared.console import stop_with_parent  # noqa: PLC0415
    from streamad.commands.shared.monitor import calm_garbage_collector  # noqa: PLC0415
    from streamad.judge.judging import JudgedSequence  # noqa: PLC0415
    from streamad.judge.scoring import MicroBatcher  # noqa: PLC0415
    from streamad.plant import Plant  # noqa: PLC0415
    from streamad.runtime.pipeline import Pipeline  # noqa: PLC0415
    from streamad.runtime.wiring import committer_for, source_for  # noqa: PLC0415
    from streamad.settings.plant_yaml import load_settings  # noqa: PLC0415

    plant = Plant(load_settings(config), config.parent, SystemClock())
    settings, clock = plant.settings, plant.clock
    model = free_model() if is_free else trained_model(plant)
    source = source_for(plant)
    committer, batcher = committer_for(plant, source), MicroBatcher(model, clock, settings.run)
    judged, last_s = 0, 0.0
    began: list[float] = []

    def on_judged(_: JudgedSequence, __: int) -> None:
        nonlocal judged, last_s
        judged += 1
        last_s = time.perf_counter()
        if judged == n_sequences:
            pipeline.request_stop()

    pipeline = Pipeline(
        settings, source, committer, batcher, clock, explainer=None, with_verdicts=True, on_judged=on_judged
    )
    if n_sequences is None:
        stop_with_parent(pipeline.request_stop)

    async def watch() -> None:
        memory: list[float] = []
        while not began:
            if pipeline.counters.records:
                began.extend((time.perf_counter(), time.process_time()))
            await asyncio.sleep(0.002)
        while n_sequences is None:
            memory.append(rss_mb())
            print(json.dumps({"rss_mb": memory[-1], "judged": judged}), flush=True)
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    try:
        with calm_garbage_collector():
            await pipeline.run()
        committed_s = time.perf_counter()
    finally:
        watching.cancel()
        await batcher.close()
        await source.close()
        await committer.close()
    return {
        "samples": pipeline.counters.samples,
        "sequences": judged,
        "wall_s": last_s - began[0] if began else 0.0,
        "committed_s": committed_s - began[0] if began else 0.0,
        "cpu_s": time.process_time() - began[1] if began else 0.0,
        "commits": pipeline.counters.commits,
        "late": pipeline.counters.late_samples,
        "peak_rss_mb": peak_rss_mb(),
    }


async def fetched(bootstrap: str, topic: str) -> tuple[list[Record], float]:
    """Fetch the whole topic; return its records and the CPU seconds that fetching took."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", fetch_max_wait_ms=250)
    await consumer.start()
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(tps)
    await consumer.seek_to_beginning(*tps)
    left = sum((await consumer.end_offsets(tps)).values())
    found: list[Record] = []
    cpu = time.process_time()
    while left:
        for messages in (await consumer.getmany(timeout_ms=200, max_records=500)).values():
            left -= len(messages)
            found += [Record(len(found) + i, m.value, m.timestamp * 1000, m.key) for i, m in enumerate(messages)]
    cpu = time.process_time() - cpu
    await consumer.stop()
    return found, cpu


def stages(config: Path, bootstrap: str, topic: str) -> dict[str, float]:
    """Run each stage alone over the topic's records; return CPU microseconds per sample."""
    import torch  # noqa: PLC0415
    from pipeline import Stages  # noqa: PLC0415

    from streamad.learn.parts import versions_of  # noqa: PLC0415
    from streamad.plant import Plant  # noqa: PLC0415
    from streamad.settings.plant_yaml import load_settings  # noqa: PLC0415

    torch.set_num_threads(1)
    settings = load_settings(config)
    plant = Plant(settings, config.parent, SystemClock())
    own = Stages(settings, versions_of(plant).load(), plant.context, config.parent)
    own.records, cpu_s = asyncio.run(fetched(bootstrap, topic))
    seconds = {"fetch": cpu_s}
    for name in ("intake", "window", "score", "judge"):
        cpu = time.process_time()
        getattr(own, name)()
        seconds[name] = time.process_time() - cpu
    n_samples = sum(sequence.n_samples for sequence in own.sequences)
    return {name: 1e6 * value / n_samples for name, value in seconds.items()}


def child(*arguments: str) -> dict[str, Any]:
    """Run a child of this file to its end and return its last line, decoded."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", *arguments], capture_output=True, text=True, timeout=900, check=False
    )
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


# --- the whole -------------------------------------------------------------------------------------------------------


def throughput(plant: Plant, kind: str, n: int, n_rounds: int) -> dict[str, Any]:
    """Measure the forms in turn over the same backlog of ``n`` sequences; medians over the rounds."""
    plant.config(kind, f"made-{kind}")
    n_messages = asyncio.run(feed_backlog(plant.context, plant.url(kind), kind, n))
    rounds: dict[str, list[dict[str, Any]]] = {"bare": [], "streamad": [], "free": []}
    for number in range(n_rounds):
        rounds["bare"].append(child("bare", plant.bootstrap, f"samples-{kind}", kind))
        for form, flags in (("streamad", ()), ("free", ("--free",))):
            config = plant.config(kind, f"{form}-{kind}-{number}")
            rounds[form].append(child("worker", str(config), str(n), *flags))

    alone = child("stages", str(config), plant.bootstrap, f"samples-{kind}")

    def median(form: str, above: str, below: str) -> float:
        return statistics.median(one[above] / one[below] for one in rounds[form])

    rates = {form: median(form, "samples", "wall_s") for form in rounds}
    return {
        "messages": n_messages,
        "bare": rates["bare"],
        "streamad": rates["streamad"],
        "without_model": rates["free"],
        "ratio": rates["streamad"] / rates["bare"],
        "ratio_without_model": rates["free"] / rates["bare"],
        "cores_used": {form: median(form, "cpu_s", "wall_s") for form in rounds},
        "cpu_us_per_sample": {form: 1e6 * median(form, "cpu_s", "samples") for form in rounds},
        "stages_us_per_sample": {
            **alone,
            "transactions_and_joining": max(0.0, 1e6 * median("streamad", "cpu_s", "samples") - sum(alone.values())),
        },
        "commits": rounds["streamad"][-1]["commits"],
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    sizes = {"chunked": options.sequences, "single": max(STREAMS, options.sequences // 4)}
    sizes = {kind: sizes[kind] for kind in options.kinds}
    figures: dict[str, Any] = {"channels": CHANNELS, "samples_per_sequence": SAMPLES, "cores": os.cpu_count()}
    figures["detector"] = options.detector
    with plant_on_a_broker(options.detector) as plant:
        plant.train(plant.config("live", "first"))
        for kind, n in sizes.items():
            figures[kind] = throughput(plant, kind, n, options.rounds)
            print(f"{kind}: {figures[kind]}", file=sys.stderr)
        half = figures[options.kinds[0]]["streamad"] / SAMPLES / 2
        loads = {}
        for name, rate in (("half", half), ("tenth", half / 5)):
            loads[name] = {form: latency(plant, form, rate, options.latency_s) for form in ("bare", "streamad")}
            loads[name]["ratio"] = {q: loads[name]["streamad"][q] / loads[name]["bare"][q] for q in ("p50", "p99")}
            print(f"latency, {name}: {loads[name]}", file=sys.stderr)
        figures["latency_ms"] = {**{q: loads["half"]["streamad"][q] for q in ("p50", "p99")}, "loads": loads}
        live = Live(plant, "streamad")
        asyncio.run(live.run(half / 2, 60 * options.memory_minutes))
        memory = live.memory_mb
        figures["rss_mb"] = {
            "start": memory[min(60, len(memory) // 10)],
            "end": memory[-1],
            "minutes": round(len(memory) / 60, 1),
        }
    return figures


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        mode, *rest = sys.argv[2:]
        result: dict[str, Any]
        if mode == "bare":
            result = asyncio.run(bare(*rest))
        elif mode == "stages":
            result = stages(Path(rest[0]), *rest[1:])
        elif mode == "copy":
            result = asyncio.run(copy(*rest))
        else:
            count = int(rest[1]) if len(rest) > 1 else None
            result = asyncio.run(worker(Path(rest[0]), count, "--free" in rest))
        print(json.dumps(result), flush=True)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=6000, help="chunked ones; a quarter of it as single samples")
    parser.add_argument("--kinds", nargs="+", choices=("chunked", "single"), default=("chunked", "single"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency-s", type=float, default=30.0)
    parser.add_argument("--memory-minutes", type=float, default=1.0, help="10 for the figure in the docs")
    parser.add_argument("--detector", choices=("neutral_ad", "default"), default="neutral_ad")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    figures = measure(options)
    if options.json:
        print(json.dumps(figures))
        return
    for kind in options.kinds:
        found = figures[kind]
        print(
            f"{kind:<8} bare {found['bare']:>10,.0f} samples/s   streamad {found['streamad']:>10,.0f} "
            f"({found['ratio']:.2f} of it)   without model {found['without_model']:>10,.0f}"
        )
    for load, found in figures["latency_ms"]["loads"].items():
        ours, bare_ones, ratio = found["streamad"], found["bare"], found["ratio"]
        print(
            f"last sample to alert at {load} load: p50 {ours['p50']:.0f} ms, p99 {ours['p99']:.0f} ms; bare loop "
            f"{bare_ones['p50']:.0f}, {bare_ones['p99']:.0f} ms (ratios {ratio['p50']:.2f}, {ratio['p99']:.2f})"
        )
    memory = figures["rss_mb"]
    print(f"memory {memory['start']:.0f} MB at the start, {memory['end']:.0f} MB after {memory['minutes']} minutes")


if __name__ == "__main__":
    main()
