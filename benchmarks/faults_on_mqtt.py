"""Faults on MQTT: SIGKILL hits ``streamad bridge`` and a publisher again and again while messages flow.

A real mosquitto stands between them, which now and then restarts in order, with ``persistence true``. The publisher
notes what the broker has acknowledged and goes on there after a kill, so it doubles some messages, as the bridge does.
At the end each message must be in the bridge's file, and the file's verdicts must be those of the messages themselves,
each once. With ``--kill-broker`` SIGKILL hits mosquitto instead, in half of the cases while the bridge is away: it
acknowledges before it saves, so what is lost then is a figure and no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamad.plugins import ConnectorContext
from streamad.system.clock import SystemClock
from streamad.testing import ListSource
from streamad.types import FeedRecord, Record
from streamad_connectors.mqtt import MqttFeed
from streamad_connectors.mqtt.options import MqttOptions
from tests.support.mosquitto import Mosquitto
from tests.support.runtime.pipeline import CHANNELS, START_US, run_pipeline, settings_of

STREAMS = 20
MESSAGES_PER_KILL = 500
PER_S = 150.0
_GROUP = 40  # messages that the publisher sends before it waits
_AT_START_SHARE = 0.2
_PUBLISHER_SHARE = 0.25
_RESTART_SHARE = 0.1
_END_S = 300.0


def messages_of(seed: int, n: int) -> list[tuple[str, str]]:
    """Return about ``n`` messages of single samples, each with its stream; sequences end by marker or by change."""
    rng = random.Random(seed)
    lanes: list[list[tuple[str, str]]] = []
    for number in range(STREAMS):
        stream, time_s, lane = f"r{number}", START_US / 1e6, []
        for sequence in range(max(1, round(n / STREAMS / 9))):
            size, has_end = rng.randrange(6, 13), rng.random() < 0.5
            level = 10.0 if rng.random() < 0.2 else 1.0
            for at in range(size):
                time_s += 1.0
                values = dict.fromkeys(CHANNELS, round(level + rng.random(), 3))
                end = {"end": True} if has_end and at == size - 1 else {}
                content = {"stream": stream, "sequence": f"b-{sequence}", "time": time_s, "values": values, **end}
                lane.append((stream, json.dumps(content)))
        lanes.append(lane)
    found = []
    while lanes := [lane for lane in lanes if lane]:
        found.append(rng.choice(lanes).pop(0))
    return found


def publish(address: str, folder: str) -> None:
    """Publish the messages in ``folder`` from the first that the broker has not acknowledged, and note each group."""
    asyncio.run(_publish(address, Path(folder)))


async def _publish(address: str, folder: Path) -> None:
    messages = json.loads((folder / "messages.json").read_text())
    done = folder / "done"
    at = int(done.read_text() or 0) if done.exists() else 0
    feed = MqttFeed(f"{address}/plant/{{stream}}/samples", MqttOptions(), ConnectorContext((), SystemClock(), folder))
    began_s, first = time.monotonic(), at
    while at < len(messages):
        group = messages[at : at + _GROUP]
        await feed.send([FeedRecord(text.encode(), stream.encode()) for stream, text in group])
        await feed.flush()
        at += len(group)
        (folder / "done.new").write_text(str(at))
        (folder / "done.new").rename(done)
        await asyncio.sleep(max(0.0, (at - first) / PER_S - (time.monotonic() - began_s)))
    await feed.close()


class Plant:
    """A mosquitto, a publisher and a bridge in ``folder``."""

    def __init__(self, folder: Path, seed: int, n_messages: int) -> None:
        self.folder = folder
        self.messages = messages_of(seed, n_messages)
        (folder / "messages.json").write_text(json.dumps(self.messages))
        self.broker = Mosquitto(folder / "broker")
        self.file = folder / "samples.jsonl"
        self._log = (folder / "log").open("ab")
        self._log_begins = 0
        self._lives: dict[str, subprocess.Popen[bytes]] = {}

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths}
        return subprocess.Popen(
            [sys.executable, *command], stdout=self._log, stderr=self._log, cwd=self.folder, env=environment
        )

    def begin(self, who: str) -> None:
        """Start the bridge or the publisher, or let it go on."""
        if who == "bridge":
            self._log_begins = (self.folder / "log").stat().st_size
        address, folder = self.broker.address, str(self.folder)
        call = f"from benchmarks.faults_on_mqtt import publish; publish({address!r}, {folder!r})"
        bridge = ("-m", "streamad", "-v", "bridge", f"mqtt://{address}/plant/+/samples", "--to", "samples.jsonl")
        self._lives[who] = self._spawn(*(bridge if who == "bridge" else ("-c", call)))

    def end(self, who: str, number: int = signal.SIGKILL) -> int:
        """End one of them by a signal; return its exit code."""
        self._lives[who].send_signal(number)
        return self._lives[who].wait(_END_S)

    @property
    def is_connected(self) -> bool:
        """Return whether the bridge that runs has said so."""
        return b'"connected"' in (self.folder / "log").read_bytes()[self._log_begins :]

    @property
    def n_published(self) -> int:
        """Return how many messages the broker has acknowledged at least."""
        done = self.folder / "done"
        return int(done.read_text()) if done.exists() else 0

    @property
    def size(self) -> int:
        """Return the size of the bridge's file."""
        return self.file.stat().st_size if self.file.exists() else 0

    def lines(self) -> tuple[Counter[str], int]:
        """Return how often each message is in the file, and how many lines are none, such as torn ones."""
        known = {text for _, text in self.messages}
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return Counter(line for line in lines if line in known), sum(line not in known for line in lines)

    def go_on(self, who: str) -> None:
        """Start it anew if it has ended before its end."""
        is_done = who == "publisher" and self.n_published == len(self.messages)
        if self._lives[who].poll() is not None and not is_done:
            self.begin(who)

    def until(self, is_so: Callable[[], bool], what: str, limit_s: float = _END_S) -> None:
        """Wait for something; the bridge and the publisher go on if the broker's restart has ended them."""
        end = time.monotonic() + limit_s
        while not is_so():
            for who in self._lives:
                self.go_on(who)
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {limit_s:g} s; {(self.folder / 'log').read_text()[-3000:]}")
            time.sleep(0.02)

    def close(self) -> None:
        """End what runs."""
        for who in self._lives:
            self.end(who)
        self.broker.kill()
        self._log.close()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure in a folder of this run."""
    with tempfile.TemporaryDirectory() as folder:
        plant = Plant(Path(folder), options.seed, (options.kills + 4) * MESSAGES_PER_KILL)
        try:
            return measure(plant, random.Random(options.seed), options.kills, kill_broker=options.kill_broker)
        finally:
            plant.close()


def measure(plant: Plant, rng: random.Random, n_kills: int, *, kill_broker: bool = False) -> dict[str, Any]:
    """Kill ``n_kills`` times, let all messages come, and return the figures."""
    began_s, counts = time.monotonic(), Counter[str]()
    plant.broker.start()
    plant.begin("bridge")
    plant.until(lambda: plant.is_connected, "the session begins")
    plant.begin("publisher")
    for done in range(n_kills):
        if done % 10 == 0:
            print(f"{done} of {n_kills} kills", file=sys.stderr)
        if not kill_broker and rng.random() < _RESTART_SHARE:
            plant.broker.stop()
            plant.broker.start()
            counts["mosquitto_restarts"] += 1
        _wait(plant, rng)
        if kill_broker:
            is_away = done % 2 == 1 and plant.n_published < len(plant.messages)
            if is_away:
                plant.end("bridge", signal.SIGTERM)
                counts["published_while_the_bridge_was_away"] += _published_meanwhile(plant)
            plant.broker.kill()
            plant.broker.start()
            if is_away:
                plant.begin("bridge")
            plant.until(lambda: plant.is_connected, "the bridge is back")
            continue
        is_publisher = rng.random() < _PUBLISHER_SHARE and plant.n_published < len(plant.messages)
        who = "publisher" if is_publisher else "bridge"
        plant.end(who)
        counts[f"kills_of_the_{who}"] += 1
        plant.begin(who)
    plant.until(lambda: plant.n_published == len(plant.messages), "all are published")
    _settle(plant)
    plant.until(lambda: plant.is_connected, "the last bridge is there")
    if code := plant.end("bridge", signal.SIGTERM):
        raise SystemExit(f"the bridge ended with {code}: {(plant.folder / 'log').read_text()[-3000:]}")
    found, foreign = plant.lines()
    lost = len(plant.messages) - len(found)
    figures = {
        "kills": n_kills,
        **counts,
        "messages": len(plant.messages),
        "lost_with_mosquitto" if kill_broker else "lost": lost,
        "doubled": found.total() - len(found),
        "torn_lines": foreign,
    }
    if not kill_broker:
        texts = [text for _, text in plant.messages]
        expected, judged = _verdicts(texts), _verdicts(plant.file.read_text().splitlines())
        figures |= {
            "verdicts": len(expected),
            "repeated": sum(n - 1 for n in Counter(key for key, _ in judged).values()),
            "foreign": len(set(judged) ^ set(expected)),
        }
    return {**figures, "wall_s": round(time.monotonic() - began_s, 1)}


def _wait(plant: Plant, rng: random.Random) -> None:
    """Wait for a moment amid the bridge's start, or after it has written some more."""
    if rng.random() < _AT_START_SHARE:
        time.sleep(rng.random())
        return
    more = plant.size + rng.randrange(1, 30_000)
    plant.until(
        lambda: plant.size >= more or plant.n_published == len(plant.messages), f"the file grows to {more} bytes"
    )
    time.sleep(rng.random() * 0.05)


def _published_meanwhile(plant: Plant) -> int:
    """Wait until some more is published while the bridge is away; return how much."""
    first = plant.n_published
    wanted = min(first + 5 * _GROUP, len(plant.messages))
    end = time.monotonic() + _END_S
    while plant.n_published < wanted and time.monotonic() < end:
        plant.go_on("publisher")
        time.sleep(0.02)
    return plant.n_published - first


def _settle(plant: Plant) -> None:
    """Wait until all messages are there, or the file has not grown for long."""
    size, since_s = -1, time.monotonic()
    while len(plant.lines()[0]) < len(plant.messages):
        plant.until(lambda: True, "")  # begins again what has ended
        if plant.size != size:
            size, since_s = plant.size, time.monotonic()
        if time.monotonic() - since_s > 15.0:
            return
        time.sleep(0.3)


def _verdicts(lines: list[str]) -> list[tuple[str, str]]:
    """Return what sequences are judged, and how."""

    async def judged() -> list[tuple[str, str]]:
        records = [Record(offset, line.encode()) for offset, line in enumerate(lines)]
        plant = settings_of(source={"url": "samples.jsonl"})
        run = await run_pipeline(ListSource.of({"samples": records}), plant, explains=False)
        verdicts = [each.verdict for each in run.judged]
        fields = ("start_time", "end_time", "n_samples", "score", "decision", "reason")
        return [(f"{of.stream}/{of.sequence}", " ".join(str(getattr(of, name)) for name in fields)) for of in verdicts]

    return asyncio.run(judged())
