"""Faults between a device and its verdicts: SIGKILL hits the bridge, the publisher, Kafka and workers.

The publisher of ``faults_on_mqtt.py`` publishes to mosquitto, which now and then restarts in order; ``streamad bridge``
copies to a topic, and workers judge. A process that ended with a broker's restart is started again, as by a supervisor.
The law: every message is in the topic, perhaps more than once. The outputs are those of an undisturbed run over the
topic, and each sequence has one verdict, which is that of an undisturbed run over every message once, because payloads
have times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults_on_mqtt import messages_of
from streamad.messages import Role
from streamad.types import Record
from tests.support.kafka.broker import Broker, new_broker, read_committed
from tests.support.kafka.plant import KafkaPlant, Outputs, difference_of
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.mosquitto import Mosquitto, mosquitto

PARTITIONS, N_WORKERS = 4, 2
MESSAGES_PER_KILL = 600
BETWEEN_S = 2.0
FAULTS = {"bridge": 10, "publisher": 5, "kafka": 3, "worker": 2, "mosquitto": 2}
END_S, SILENCE_S = 300.0, 30.0
WRONG = ("messages_lost",)
Messages = Sequence[tuple[str, str]]  # stream, payload


class PublishedPlant(KafkaPlant):
    """A plant that can say what an undisturbed run over ``published``, each once, writes.

    Left out is each stream's last sequence, which nothing but time ends.
    """

    published: Messages | None = None
    running: frozenset[tuple[str, str]] = frozenset()

    async def outputs(self) -> dict[Role, list[dict[str, Any]]]:
        """Return what is in the topics."""
        return self._less_running(await super().outputs())

    async def expected(self) -> dict[Role, list[dict[str, Any]]]:
        """Return what an undisturbed run writes."""
        return self._less_running(await super().expected())

    def _less_running(self, outputs: dict[Role, list[dict[str, Any]]]) -> dict[Role, list[dict[str, Any]]]:
        return {
            role: [each for each in messages if (each.get("stream"), each.get("sequence")) not in self.running]
            for role, messages in outputs.items()
        }

    async def input(self) -> dict[str, list[Record]]:
        """Return what was published, if set, else what the topic holds."""
        held = await super().input()
        if self.published is None:
            return held
        home = {record.value: (name, record.timestamp_us) for name, own in held.items() for record in own}
        once: dict[str, list[Record]] = {name: [] for name in held}
        for _, payload in self.published:
            name, time_us = home[payload.encode()]
            once[name].append(Record(len(once[name]), payload.encode(), time_us))
        return once


class Line:
    """All processes between the device and its verdicts, and the faults that hit them."""

    def __init__(self, folder: Path, broker: Broker, plant: PublishedPlant, mqtt: Mosquitto, seed: int) -> None:
        self._folder = folder
        self._broker, self._plant, self._mqtt = broker, plant, mqtt
        self._rng = random.Random(seed)
        self._forks = ForkServer("paho.mqtt.client", "streamad.commands.bridge")
        self._workers = [plant.start(f"w{number}") for number in range(N_WORKERS)]
        self._lives: dict[str, Worker] = {}
        self._n_lives = 0
        self.kills: Counter[str] = Counter()

    async def begin(self) -> None:
        """Start the bridge and, once it has a session, the publisher: what comes before is nobody's."""
        self._start("bridge")
        await self._lives["bridge"].until_logged("connected")
        self._start("publisher")

    def _start(self, who: str) -> None:
        self._n_lives += 1
        log = self._folder / f"{who}-{self._n_lives}.log"
        if who == "bridge":
            place = f"kafka://{self._plant.bootstrap}/{self._plant.topic}"
            arguments = ["-v", "bridge", f"mqtt://{self._mqtt.address}/plant/{{stream}}/samples", "--to", place]
            self._lives[who] = self._forks.start(who, arguments, self._folder, log)
            return
        call = f"from benchmarks.faults_on_mqtt import publish; publish({self._mqtt.address!r}, {str(self._folder)!r})"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with log.open("ab") as said:
            process = subprocess.Popen([sys.executable, "-c", call], stdout=said, stderr=said, env=environment)
        self._lives[who] = Worker(who, process, log)

    async def supervise(self) -> None:
        """Start again what ends by itself, until the publisher is done."""
        while True:
            for who, life in list(self._lives.items()):
                if not life.is_running and not (who == "publisher" and life.process.poll() == 0):
                    self.kills[f"{who}_ended_by_itself"] += life.process.poll() != -9
                    self._start(who)
            await asyncio.sleep(0.1)

    async def fault(self) -> None:
        """Let one of the faults happen; ``supervise`` starts again what was killed, but for brokers and workers."""
        kind = self._rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        if kind == "mosquitto":
            await asyncio.to_thread(self._mqtt.stop)
            await asyncio.to_thread(self._mqtt.start)
        elif kind == "kafka":
            await asyncio.to_thread(self._broker.kill)
            await asyncio.to_thread(self._broker.start)
        elif kind == "worker":
            number = self._rng.randrange(N_WORKERS)
            self._workers[number].kill()
            self._workers[number] = self._plant.start(f"w{number}")
        elif not self._lives[kind].is_running:
            return
        else:
            self._lives[kind].end()
        self.kills[kind] += 1

    @property
    def n_kills(self) -> int:
        """Kills so far; a restart of mosquitto in order is none."""
        return sum(self.kills[kind] for kind in FAULTS if kind != "mosquitto")

    async def finish(self) -> None:
        """Return once all is published."""
        async with asyncio.timeout(END_S):
            while self._lives["publisher"].process.poll() != 0:  # noqa: ASYNC110 - a process, not a task
                await asyncio.sleep(0.1)

    def close(self) -> None:
        """End the processes."""
        for life in self._lives.values():
            life.end()


async def _until_all_came(plant: KafkaPlant, payloads: set[bytes]) -> tuple[int, int]:
    """Return how many of ``payloads`` do not come to the topic, and how many records there are more than once."""
    n, news_s = 0, time.monotonic()
    while True:
        came = Counter(record.value for record in await read_committed(plant.bootstrap, plant.topic))
        lost = payloads - came.keys()
        if len(lost) != n:
            n, news_s = len(lost), time.monotonic()
        if not lost or time.monotonic() > news_s + SILENCE_S:
            return len(lost), came.total() - len(came)
        await asyncio.sleep(0.5)


def _verdicts(outputs: Mapping[Role, Sequence[Mapping[str, Any]]]) -> Outputs:
    """Return verdicts less what doubled messages change: offsets, and how many were merged or late."""
    apart = ("n_merged", "n_late", "verdict_id")
    kept = [{name: value for name, value in each.items() if name not in apart} for each in outputs["verdicts"]]
    return {"verdicts": [{**each, "verdict_id": each["sequence"]} for each in kept]}


async def measure(options: argparse.Namespace, model: dict[str, Any], broker: Broker, folder: Path) -> dict[str, Any]:
    """Return the figures that ``--json`` prints."""
    started_s = time.monotonic()
    preload = ("torch",) if options.detector == "neutral_ad" else ()
    is_exact = options.detector == "mean_square"
    sections: dict[str, Any] = {"model": model, "sequences": {"allowed_lateness": "0s"}}
    plant = PublishedPlant(folder / "plant", broker.bootstrap, partitions=PARTITIONS, preload=preload, **sections)
    await plant.create()
    messages = messages_of(options.seed, (options.kills + 4) * MESSAGES_PER_KILL)
    (folder / "messages.json").write_text(json.dumps(messages))
    plant.running = frozenset({stream: (stream, json.loads(text)["sequence"]) for stream, text in messages}.values())
    with mosquitto(folder / "mosquitto") as mqtt:
        line = Line(folder, broker, plant, mqtt, options.seed)
        supervisor = asyncio.create_task(line.supervise())
        try:
            await _hit(line, options)
            lost, doubled = await _until_all_came(plant, {payload.encode() for _, payload in messages})
            expected = await plant.expected()
            await plant.until_judged(expected, END_S)
            difference = await plant.difference(expected, numbers=is_exact)
            found = await plant.outputs()
            once = found
            if not lost:
                plant.published = messages
                once = await plant.expected()
            verdicts = difference_of(_verdicts(once), _verdicts(found), numbers=is_exact)
        finally:
            supervisor.cancel()
            line.close()
            plant.close()
    for name, each in (("the topic", difference), ("the messages, each once", verdicts)):
        if not each.is_none:
            print(f"not as an undisturbed run over {name}: {each}", file=sys.stderr)
    return {
        "detector": options.detector,
        "published": len(messages),
        "messages_lost": lost,
        "messages_doubled": doubled,
        "sequences": len(found["verdicts"]),
        **{name: n + verdicts.counts[name] for name, n in difference.counts.items()},
        "kills": line.n_kills,
        "faults": dict(sorted(line.kills.items())),
        "wall_s": round(time.monotonic() - started_s, 1),
    }


async def _hit(line: Line, options: argparse.Namespace) -> None:
    """Let faults happen while messages flow, and then the rest flow."""
    deadline_s = time.monotonic() + options.limit_s
    rng = random.Random(options.seed + 1)
    await line.begin()
    while line.n_kills < options.kills:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{line.n_kills} of {options.kills} kills in the time that there was: see --limit-s")
        await asyncio.sleep(BETWEEN_S * rng.random())
        await line.fault()
    print("publishing and judging the rest", file=sys.stderr)
    await line.finish()


def run(options: argparse.Namespace, model: dict[str, Any]) -> dict[str, Any]:
    """Measure with brokers and a folder of this run."""
    with new_broker() as broker, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measure(options, model, broker, Path(folder)))
