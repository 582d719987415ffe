"""What a soak counts: what its lines sent, and what came of it in the topics, at the receivers and on the pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from benchmarks.soak_plant import TOKEN, Line, Part, SoakPlant
from tests.support.kafka.broker import admin_of
from tests.support.notify.hook import Conduct, Hook

SENT_FILE = "sent.jsonl"
PERIOD_S = 0.5
"""A line's time from sample to sample."""
OVERDUE_S = 120.0
"""A sequence that ended so long ago and has no verdict is overdue; longer than a restart of Kafka and a rebalance."""
EARLIER_S = -2.0
"""By the monotonic clock, the end of the runs before this one."""
ROLES = ("verdicts", "alerts", "warnings", "attributions")
PAGE_LIMIT_S = 30.0
PAGE_EVERY_S = 2.0
_IDS = {"verdicts": "verdict_id", "alerts": "alert_id", "warnings": "warning_id", "attributions": "alert_id"}
_SEND_S = 300


class Ledger:
    """The sequences that were begun, and the messages about them; the first ones lie in a file, for a later run."""

    def __init__(self, folder: Path) -> None:
        self.begun: dict[tuple[str, str], float | None] = {}
        """When each sequence's last sample was sent (Unix seconds), None for one that was broken off."""
        self.found: dict[str, Counter[str]] = {role: Counter() for role in ROLES}
        self.verdicts: Counter[tuple[str, str]] = Counter()
        self.anomalous: set[str] = set()
        self.named: set[str] = set()
        self.sent_s: dict[str, float] = {}
        self.unscorable: Counter[str] = Counter()
        self.n_messages = self.n_unsent = 0
        self._since_s = time.time()
        self._latency_s: defaultdict[str, list[float]] = defaultdict(list)
        path = folder / SENT_FILE
        for line in path.read_text().splitlines() if path.exists() else ():
            stream, sequence, ended_s = json.loads(line)
            self.begun[stream, sequence] = ended_s
        self._file: TextIO = path.open("a")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def first_number(self, stream: str) -> int:
        """Return the number of the next sequence of ``stream``."""
        return 1 + max((int(sequence[2:]) for name, sequence in self.begun if name == stream), default=-1)

    def sends(self, stream: str, sequence: str, *, is_first: bool, is_last: bool) -> None:
        """Note a sample before it is sent."""
        self.n_messages += 1
        if is_first or is_last:
            ended_s = time.time() if is_last else None
            self.begun[stream, sequence] = ended_s
            self._file.write(json.dumps([stream, sequence, ended_s]) + "\n")
            self._file.flush()

    def was_sent(self, sending: asyncio.Future[Any]) -> None:
        """Note whether Kafka has taken a message."""
        self.n_unsent += sending.cancelled() or sending.exception() is not None

    def saw(self, role: str, message: Mapping[str, Any], at_s: float, sent_s: float) -> None:
        """Note a committed message of ``role`` that was read at ``at_s``."""
        name = message[_IDS[role]]
        self.found[role][name] += 1
        self.sent_s.setdefault(name, sent_s)
        key = (message.get("stream", ""), message.get("sequence", ""))
        if role == "verdicts":
            self.verdicts[key] += 1
            if message["decision"] == "anomalous":
                self.anomalous.add(name)
            if message["decision"] == "unscorable":
                self.unscorable[str(message.get("detail"))[:60]] += 1
            if message.get("warning"):
                self.named.add(message["warning"]["warning_id"])
        if role in ("verdicts", "alerts") and (ended_s := self.begun.get(key) or 0.0) > self._since_s:
            self._latency_s[role].append(at_s - ended_s)

    def took(self, receiver: str, name: str) -> None:
        """Note an alert's notice."""
        if (sent_s := self.sent_s.get(name, 0.0)) > self._since_s:
            self._latency_s[receiver].append(time.time() - sent_s)

    def latencies(self) -> dict[str, dict[str, float]]:
        """Return the seconds that verdicts and alerts took since the last sample, and notices since the alert's commit.

        Each call begins a new interval.
        """
        taken, self._latency_s = self._latency_s, defaultdict(list)
        return {
            kind: {
                "n": len(values),
                "p50": round(float(np.percentile(values, 50)), 3),
                "p99": round(float(np.percentile(values, 99)), 3),
                "max": round(max(values), 3),
            }
            for kind, values in sorted(taken.items())
        }

    def waiting(self, longer_than_s: float = 0.0) -> int:
        """Return how many sequences ended longer ago than that, and have no verdict."""
        before_s = time.time() - longer_than_s
        return sum(
            key not in self.verdicts
            for key, ended_s in self.begun.items()
            if ended_s is not None and ended_s < before_s
        )

    def counts(self) -> dict[str, int]:
        """Return what was sent and found so far."""
        return {
            "messages": self.n_messages,
            "sequences_begun": len(self.begun),
            "sequences_ended": sum(ended_s is not None for ended_s in self.begun.values()),
            **{role: len(found) for role, found in self.found.items()},
            "verdicts_overdue": self.waiting(OVERDUE_S),
            **self._repeated(),
            "unscorable": self.unscorable.total(),
        }

    def _repeated(self) -> dict[str, int]:
        return {f"{role}_repeated": sum(n - 1 for n in found.values()) for role, found in self.found.items()}

    def wrong(self) -> dict[str, int]:
        """Return what must be 0 at the end, once all sequences have their verdicts."""
        alerts = self.found["alerts"].keys()
        explained = self.found["attributions"].keys()
        return {
            "messages_that_kafka_did_not_take": self.n_unsent,
            "verdicts_lost": len(self.begun.keys() - self.verdicts.keys()),
            "verdicts_of_no_sequence": len(self.verdicts.keys() - self.begun.keys()),
            "sequences_judged_twice": sum(n > 1 for n in self.verdicts.values()),
            **self._repeated(),
            "alerts_lost": len(self.anomalous - alerts),
            "alerts_of_no_verdict": len(alerts - self.anomalous),
            "attributions_lost": len(alerts - explained),
            "warnings_that_no_verdict_names": len(self.found["warnings"].keys() - self.named),
            "verdicts_that_name_no_warning": len(self.named - self.found["warnings"].keys()),
        }


async def flow(plant: SoakPlant, ledger: Ledger, n_lines: int, seed: int, ending: asyncio.Event) -> None:
    """Let ``n_lines`` send a sample each period until ``ending``, then end the open sequences."""
    names = [f"line-{number:02d}" for number in range(n_lines)]
    lines = [Line(name, ledger.first_number(name), seed) for name in names]
    async with AIOKafkaProducer(
        bootstrap_servers=plant.bootstrap, enable_idempotence=True, request_timeout_ms=_SEND_S * 1000
    ) as producer:
        while lines := [line for line in lines if not (ending.is_set() and line.is_between)]:
            for line in lines:
                for one in line.messages(time.time()):
                    if one.sequence:
                        ledger.sends(line.name, one.sequence, is_first=one.is_first, is_last=one.is_last)
                    sending = await producer.send(plant.topic, one.value, one.key)
                    sending.add_done_callback(ledger.was_sent)
                await asyncio.sleep(PERIOD_S / len(lines))
        await producer.flush()


async def observe(plant: SoakPlant, ledger: Ledger) -> None:
    """Read what is committed to the outputs, from their beginning, until it is cancelled."""
    roles = {plant.output(role): role for role in ROLES}  # type: ignore[arg-type]
    consumer = AIOKafkaConsumer(
        *roles, bootstrap_servers=plant.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    )
    await consumer.start()
    try:
        async for record in consumer:
            message = json.loads(record.value)
            ledger.saw(roles[record.topic], message, time.time(), record.timestamp / 1000)
    finally:
        await consumer.stop()


async def lags(plant: SoakPlant, groups: Mapping[str, tuple[str, str]]) -> dict[str, int]:
    """Return how many records lie between the position of each group and the end of its topic."""
    topics = sorted({topic for _, topic in groups.values()})
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=plant.bootstrap)
    await consumer.start()
    try:
        ends = await consumer.end_offsets(consumer.assignment())
    finally:
        await consumer.stop()
    found = {}
    async with admin_of(plant.bootstrap) as admin:
        for name, (group, topic) in groups.items():
            held = await admin.list_consumer_group_offsets(group)
            own = [part for part in ends if part.topic == topic]
            found[name] = sum(ends[part] - (held[part].offset if part in held else 0) for part in own)
    return found


class CountingHook(Hook):
    """A receiver of notices that tells a ledger of each alert."""

    def __init__(self, name: str, ledger: Ledger, folder: Path) -> None:
        super().__init__()
        self._name, self._ledger = name, ledger
        self._path = folder / f"{name.replace(' ', '-')}.taken"
        earlier = set(self._path.read_text().split()) if self._path.exists() else ()
        self.taken: list[tuple[float, str]] = [(EARLIER_S - 1, each) for each in earlier]

    def took(self, name: str, headers: dict[str, str], body: bytes) -> Conduct:
        """Note a try; return what happens to it."""
        with self._changed:
            n = len(self.notices)
            conduct = super().took(name, headers, body)
            for notice in self.notices[n:]:
                alert_id = notice["data"]["alert"]["alert_id"]
                self.taken.append((time.monotonic(), alert_id))
                self._ledger.took(self._name, alert_id)
                with self._path.open("a") as file:
                    file.write(f"{alert_id}\n")
            self.notices.clear()  # the receiver's own memory is no part of the curves, but of the machine
            self.headers.clear()
            self.tries.clear()
        return conduct


class Pages:
    """Asks the pages of a plant in turn, as browsers do, in threads of the caller."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.taken_s: defaultdict[str, list[float]] = defaultdict(list)
        self.answers: dict[str, Counter[str]] = defaultdict(Counter)
        self._turn = 0

    async def read(self, parts: Sequence[Part]) -> None:
        """Ask one page of each part after the other until it is cancelled."""
        while True:
            for part in parts:
                paths = ["/", "/alerts", "/streams", "/stream?name=line-00", "/calibration", "/models", "/warnings"]
                if alerts := self._ledger.found["alerts"]:
                    paths.append(f"/s/{next(reversed(alerts))}")
                self._turn += 1
                path = paths[self._turn // len(parts) % len(paths)]
                began_s = time.monotonic()
                answer = await asyncio.to_thread(asked, f"http://{part.address}{path}")
                self.answers[part.name][answer] += 1
                if answer == "200":
                    self.taken_s[part.name].append(time.monotonic() - began_s)
                await asyncio.sleep(PAGE_EVERY_S / len(parts))

    def figures(self) -> dict[str, dict[str, float]]:
        """Return how long the pages took since the last call, and all answers so far."""
        taken_s, self.taken_s = self.taken_s, defaultdict(list)
        found: dict[str, dict[str, float]] = {}
        for name, answers in self.answers.items():
            times = taken_s.get(name)
            found[name] = (
                {"p50": round(float(np.percentile(times, 50)), 3), "max": round(max(times), 3)} if times else {}
            )
            found[name] |= answers
        return found


def asked(url: str) -> str:
    """Return the status of a page, "away" where nobody listens, as in a restart."""
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {TOKEN * 8}"})
    try:
        with urllib.request.urlopen(request, timeout=PAGE_LIMIT_S) as answer:
            answer.read()
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (OSError, HTTPException):
        return "away"


def verdicts_in(view: Path) -> int | None:
    """Return how many verdicts a page's view has, None while it is made."""
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"file:{view}?mode=ro", uri=True)) as own,
    ):
        return int(own.execute("SELECT count(decision) FROM sequences").fetchone()[0])
    return None
