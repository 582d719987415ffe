"""How long a worker needs from its start, or after the death of another, to the first verdicts of its partitions.

One broker, one topic of 4 partitions, 24 channels, a trained model, ``streamad run`` as a process of its own. A feeder
sends one sequence at a time to every partition in turn, and a subscriber sees verdicts as they are committed. Phases
are taken from the worker's own log; the last partition counts. In each round:

- start: a worker starts in a new group, behind a backlog;
- again: it is stopped (SIGTERM) and started again, after more was fed;
- stopped: one of two workers is stopped, and the other one takes its partitions over;
- killed: one of two workers is killed (SIGKILL); the brokers notice after ``--session-timeout``;
- replaced: a worker with an instance id of its own is killed and started again at once.

Times count from the start of the process, from the signal, or from the start after the kill, up to the first verdict of
a sequence that was sent after that moment (of the backlog, if the worker starts).
Run on a quiet machine: ``python benchmarks/speed/restart.py [--rounds 3] [--detector default] [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import msgspec
import yaml
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from kafka_bench_plant import PARTITIONS, Plant, chunk, plant_on_a_broker, sequences

BACKLOG = 8
FEED_S = 0.05
STREAMS_OF_EACH = 16
LONGEST_S = 120.0
WAYS = ("start", "again", "stopped", "killed", "replaced")


class Topic:
    """The input: sequences of all partitions, one at a time, with the moments at which they were sent."""

    def __init__(self, plant: Plant, kind: str, group: str) -> None:
        self._plant, self._kind, self._group = plant, kind, group
        self._made = sequences(1 << 40, seed=7)
        self._n = 0
        self.sent_s: dict[str, float] = {}
        self.verdicts: list[tuple[float, int, str]] = []
        """When each verdict was seen, the input partition of its sequence, and the sequence's id."""
        self._seen = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connect the feeder and the subscriber."""
        bootstrap = self._plant.bootstrap
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await self._producer.start()
        subscribing = asyncio.create_task(self._subscribe())
        try:
            yield
        finally:
            subscribing.cancel()
            await asyncio.gather(subscribing, return_exceptions=True)
            await self._producer.stop()

    async def feed(self, n: int) -> None:
        """Send ``n`` sequences to the partitions in turn."""
        for _ in range(n):
            partition, turn = self._n % PARTITIONS, self._n // PARTITIONS
            name, (_, _, values, _) = f"{partition}-{turn}", next(self._made)
            now_s = self.sent_s[name] = time.time()
            stream = f"line-{partition}-{turn % STREAMS_OF_EACH}"
            value = chunk(stream, name, values, now_s - 0.5)
            await self._producer.send(f"samples-{self._kind}", value, stream.encode(), partition)
            self._n += 1
        await self._producer.flush()

    async def feed_on(self) -> None:
        """Send sequences without end."""
        while True:
            await self.feed(1)
            await asyncio.sleep(FEED_S)

    async def judged(self, since_s: float, partitions: Iterable[int], *, seen_since_s: float = 0.0) -> dict[int, float]:
        """Return when the first verdict of a sequence sent since ``since_s`` was seen, for each of ``partitions``.

        Those seen before ``seen_since_s`` do not count: they are of a worker that is being stopped.
        """
        async with asyncio.timeout(LONGEST_S):
            while True:
                first: dict[int, float] = {}
                for seen_s, partition, name in self.verdicts:
                    if self.sent_s[name] >= since_s and seen_s >= seen_since_s:
                        first.setdefault(partition, seen_s)
                if first.keys() >= set(partitions):
                    return {partition: first[partition] for partition in partitions}
                self._seen.clear()
                await self._seen.wait()

    async def _subscribe(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._plant.bootstrap, isolation_level="read_committed", fetch_max_wait_ms=20
        )
        await consumer.start()
        tps = [TopicPartition(f"{self._group}.verdicts", number) for number in range(PARTITIONS)]
        consumer.assign(tps)
        await consumer.seek_to_beginning(*tps)
        try:
            while True:
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    for record in records:
                        name = msgspec.json.decode(record.value)["sequence"]
                        self.verdicts.append((time.time(), int(name.partition("-")[0]), name))
                    self._seen.set()
        finally:
            await consumer.stop()


class Worker:
    """One process of ``streamad run`` and the moments of its log, seconds since the epoch."""

    def __init__(self, config: Path, instance: str | None = None) -> None:
        self._config, self._instance = config, instance
        self.started_s = 0.0
        self.log: list[tuple[float, dict[str, Any]]] = []
        self._logged = asyncio.Event()

    async def start(self) -> None:
        """Start the process."""
        options = [] if self._instance is None else ["--instance", self._instance]
        self.started_s = time.time()
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streamad", "-v", "run", "--quiet", "--config", self._config.name, *options),
            cwd=self._config.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if line.startswith(b"{"):
                said = json.loads(line)
                self.log.append((datetime.fromisoformat(said["timestamp"]).timestamp(), said))
            self._logged.set()
        self._logged.set()

    @property
    def partitions(self) -> list[int]:
        """Return the partitions that it was assigned, as far as it did not lose them."""
        ours: dict[int, bool] = {}
        for _, said in self.log:
            if said["event"] in ("partition assigned", "partition dropped"):
                ours[int(said["partition"].rpartition("-")[2])] = said["event"] == "partition assigned"
        return sorted(number for number, is_ours in ours.items() if is_ours)

    def last_s(self, event: str, since_s: float = 0.0) -> float:
        """Return the moment at which ``event`` was logged last; ``since_s`` if it was not since then."""
        return max((at_s for at_s, said in self.log if said["event"] == event and at_s >= since_s), default=since_s)

    async def until(self, n_partitions: int) -> None:
        """Wait until it has ``n_partitions``."""
        async with asyncio.timeout(LONGEST_S):
            while len(self.partitions) != n_partitions:
                if self._reading.done():
                    raise SystemExit(f"the worker has ended: {self.log[-3:]}")
                self._logged.clear()
                await self._logged.wait()

    async def end(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Send a signal and wait for the end; return the moment of the end."""
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(LONGEST_S):
            await self._process.wait()
        ended_s = time.time()
        await self._reading
        return ended_s


def from_start(worker: Worker, first: dict[int, float]) -> dict[str, float]:
    """Return the seconds of each phase of a worker's start."""
    run_s, assigned_s = worker.last_s("run started"), worker.last_s("partition assigned")
    joined_s, verdict_s = worker.last_s("rebalanced"), max(first.values())
    return {
        "until it runs": run_s - worker.started_s,
        "joining the group": joined_s - run_s,
        "taking partitions over": assigned_s - joined_s,
        "first verdict": verdict_s - assigned_s,
        "total": verdict_s - worker.started_s,
    }


def from_death(other: Worker, at_s: float, ended_s: float, first: dict[int, float]) -> dict[str, float]:
    """Return the seconds of each phase after a signal at ``at_s``; a process may end after it has left its group."""
    joined_s, assigned_s = other.last_s("rebalanced", at_s), other.last_s("partition assigned", at_s)
    verdict_s, left_s = max(first.values()), min(ended_s, joined_s)
    return {
        "end of the process": left_s - at_s,
        "until the group is rebalanced": joined_s - left_s,
        "taking partitions over": assigned_s - joined_s,
        "first verdict": verdict_s - assigned_s,
        "total": verdict_s - at_s,
    }


async def one_worker(config: Path, topic: Topic) -> dict[str, dict[str, float]]:
    """Start a worker behind a backlog, stop it, and start it again behind another one."""
    found = {}
    for way in ("start", "again"):
        since_s = time.time()
        await topic.feed(BACKLOG * PARTITIONS)
        worker = Worker(config)
        await worker.start()
        first = await topic.judged(since_s, range(PARTITIONS))
        found[way] = from_start(worker, first)
        await worker.end()
    return found


async def two_workers(config: Path, topic: Topic, number: signal.Signals) -> dict[str, float]:
    """Let two workers share the partitions, end one by a signal, and wait for verdicts of its partitions."""
    one, other = Worker(config), Worker(config)
    await one.start()
    await one.until(PARTITIONS)
    await other.start()
    await other.until(PARTITIONS // 2)
    await one.until(PARTITIONS - PARTITIONS // 2)
    feeding = asyncio.create_task(topic.feed_on())
    try:
        await topic.judged(time.time(), range(PARTITIONS))
        lost, at_s = one.partitions, time.time()
        ended_s = await one.end(number)
        await other.until(PARTITIONS)
        first = await topic.judged(at_s, lost, seen_since_s=other.last_s("partition assigned", at_s))
        return from_death(other, at_s, ended_s, first)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await other.end()


async def replaced(config: Path, topic: Topic) -> dict[str, float]:
    """Kill a worker that has an instance id, start it again, and wait for verdicts of all partitions."""
    worker = Worker(config, "only")
    await worker.start()
    since_s = time.time()
    await topic.feed(BACKLOG * PARTITIONS)
    await topic.judged(since_s, range(PARTITIONS))
    await worker.end(signal.SIGKILL)
    since_s = time.time()
    await topic.feed(BACKLOG * PARTITIONS)
    again = Worker(config, "only")
    await again.start()
    first = await topic.judged(since_s, range(PARTITIONS))
    found = from_start(again, first)
    await again.end()
    return found


async def measure_round(plant: Plant, name: str, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Return the phases of every way, each in a group and a topic of its own."""
    found: dict[str, dict[str, float]] = {}
    for way in ("start", "stopped", "killed", "replaced"):
        kind = f"{name}-{way}"
        config = plant.config(kind, kind)
        content = yaml.safe_load(config.read_text())
        times = {"session_timeout": options.session_timeout, "heartbeat_interval": options.heartbeat}
        content["source"]["options"] |= {key: f"{value:g}s" for key, value in times.items()}
        config.write_text(yaml.safe_dump(content))
        topic = Topic(plant, kind, kind)
        async with topic.open():
            if way == "start":
                found |= await one_worker(config, topic)
            elif way == "replaced":
                found[way] = await replaced(config, topic)
            else:
                number = signal.SIGTERM if way == "stopped" else signal.SIGKILL
                found[way] = await two_workers(config, topic, number)
        print(f"{kind}: {found[way]}", file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--session-timeout", type=float, default=15.0, help="seconds (default: 15, as by default)")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds between heartbeats (default: 1)")
    parser.add_argument("--detector", choices=("neutral_ad", "default"), default="neutral_ad")
    parser.add_argument("--json", action="store_true", help="print one JSON object last")
    options = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    with plant_on_a_broker(options.detector) as plant:
        plant.train(plant.config("train", "train"))
        for number in range(options.rounds):
            rounds.append(asyncio.run(measure_round(plant, f"round-{number}", options)))
    seconds = {
        way: {phase: round(statistics.median(turn[way][phase] for turn in rounds), 3) for phase in rounds[0][way]}
        for way in WAYS
    }
    given = {name: getattr(options, name) for name in ("rounds", "session_timeout", "heartbeat", "detector")}
    for way, phases in seconds.items():
        print(f"{way}:" + ",".join(f" {phase} {value:.2f} s" for phase, value in phases.items()))
    if options.json:
        print(json.dumps({**given, "cores": os.cpu_count(), "seconds": seconds, "all": rounds}))


if __name__ == "__main__":
    main()
