"""A plant on a real broker: topics, a config, a model, workers as processes, and what an undisturbed run would write.

The law that tests of faults check with it: what is in the output topics under read_committed, once all is judged, is
what an undisturbed run over the same input writes, every message once, each stream's verdicts in order.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from streamad.judge.scoring import MicroBatcher
from streamad.learn.parts import versions_of
from streamad.learn.serving.models import explainer_for, looking_for
from streamad.messages import OutputRecord, Role
from streamad.plant import Plant
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from streamad.testing import ListSink, ListSource, ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch
from streamad_connectors.kafka.reading.reader import to_records
from tests.support.kafka.broker import Message, create_topics, read, read_committed, unique_name
from tests.support.kafka.child import PLUGINS
from tests.support.kafka.workers import ForkServer, Worker, spawn
from tests.support.runtime.pipeline import (
    CHANNELS,
    IN_LISTS,
    L,
    in_forms,
    line,
    messy_recordings,
)
from tests.support.waiting import LIMIT_S

ROLES: tuple[Role, ...] = ("alerts", "attributions", "verdicts", "windows", "dead_letters", "late")
_LAST_ROLES: tuple[Role, ...] = ("verdicts", "attributions")
Outputs = Mapping[Role, Sequence[dict[str, Any]]]
LOOKING = {"early": {"false_alarm_rate": 0.05}}
"""``alerts`` of a plant that looks at running sequences; its outputs have the role ``warnings`` as well."""
STEP_MS = 10
_STEPS_PER_S = 20
_PROGRESS_HEAD = b"p"
_LAST = "tock-"
# The files of registries by what they were trained on and for.
_trained: dict[str, dict[str, bytes]] = {}


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages for the input topic, in order of time; the last ones move every partition's clock on."""

    messages: list[Message]

    def __len__(self) -> int:
        return len(self.messages)


def traffic(
    seed: int,
    *,
    partitions: int,
    streams: int,
    sequences: int,
    start_ms: int | None = None,
    step_ms: int = STEP_MS,
    holds: bool = False,
    lists: bool = False,
    states: bool = False,
) -> Traffic:
    """Interleaved streams of messy sequences (order lost, late, closed, unreadable, open at their boundaries).

    Record times advance by ``step_ms`` a message; a last message per partition, a minute later, ends what is waiting
    for late-comers, so that live run and replay decide all by the records' times. A live run that waits for records for
    long decides otherwise: the wall clock's silence then counts, as it should. ``holds``: by exception (``HOLDING``).
    ``lists``: as lists of samples (``IN_LISTS``).
    ``states``: with states in place of ids (``WHILE``).
    """
    rng = random.Random(seed)
    lanes = []
    for partition in range(partitions):
        names = [f"s{partition}-{i}" for i in range(streams // partitions)]
        texts = messy_recordings(rng.randrange(1 << 30), streams=names, sequences=sequences)
        texts = in_forms(texts, seed, holds=holds, lists=lists, states=states)
        lanes.append([(partition, text) for text in texts])
    merged: list[tuple[int, bytes]] = []
    while any(lanes):
        lane = rng.choice([lane for lane in lanes if lane])
        merged.append(lane.pop(0))
    start_ms = int(time.time() * 1000) - step_ms * len(merged) if start_ms is None else start_ms
    messages = [
        Message(text, key=_key(text), partition=partition, timestamp_ms=start_ms + step_ms * i)
        for i, (partition, text) in enumerate(merged)
    ]
    end_ms = start_ms + step_ms * len(merged) + 60_000
    for partition in range(partitions):
        last = line(f"tick-{partition}", f"tick-{partition}-{seed}", [1e6, 1e6 + 1], end=True)
        [last] = in_forms([last], seed, lists=lists, states=states)
        messages.append(Message(last, key=b"tick", partition=partition, timestamp_ms=end_ms))
    for partition in range(partitions):
        last = line(f"{_LAST}{partition}", f"{_LAST}{partition}-{seed}", [1e6, 1e6 + 1], end=True)
        [last] = in_forms([last], seed, lists=lists, states=states)
        messages.append(Message(last, key=b"tock", partition=partition, timestamp_ms=end_ms + 60_000))
    return Traffic(messages)


def _key(text: bytes) -> bytes | None:
    try:
        return str(json.loads(text)["stream"]).encode()
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class Difference:
    """How outputs differ from the expected ones: messages that are missing, twice, or should not be."""

    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.lost or self.repeated or self.foreign or self.disordered)

    @property
    def counts(self) -> dict[str, int]:
        """The number of messages of each kind."""
        return {name: len(getattr(self, name)) for name in ("lost", "repeated", "foreign", "disordered")}

    def __str__(self) -> str:
        parts = {name: getattr(self, name) for name in self.counts}
        return (
            "; ".join(f"{len(found)} {name}, such as {found[:2]}" for name, found in parts.items() if found) or "none"
        )


class Flow:
    """Messages on their way into a plant's topic, in small steps; the last ``n_last`` move all clocks on.

    ``per_s`` may be changed while it flows. The second half flows ever more slowly, so that on a slow machine the
    messages outlast a test that will ``cut`` them.
    """

    def __init__(self, plant: KafkaPlant, messages: Iterable[Message], *, per_s: float | None, n_last: int = 0) -> None:
        self._plant = plant
        self._waiting = deque(messages)
        self.per_s = per_s
        self._n_last = n_last
        self._half = max(1, self.left // 2)
        self._slows = True
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    @property
    def left(self) -> int:
        """How many messages still wait, less the last ones."""
        return max(0, len(self._waiting) - self._n_last)

    def start(self) -> None:
        self._task = asyncio.create_task(self._feed(self._n_last), name="flow")

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def cut(self) -> None:
        """End it here, with the last messages; what has not flowed yet never does. It must not have run dry."""
        assert self._task is not None
        assert self.left, "the records no longer flowed: give it more"
        self._stopped = True
        await self._task
        self._stopped = False
        while self.left:
            self._waiting.popleft()
        await self._feed(0)

    async def finish(self) -> None:
        """Let all that is left flow, the last messages, too, and wait for it."""
        assert self._task is not None
        self._slows = False
        await self._task
        await self._feed(0)

    async def feed_all(self) -> None:
        await self._feed(0)

    async def _feed(self, leave: int) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._plant.bootstrap, enable_idempotence=True) as producer:
            while len(self._waiting) > leave and not self._stopped:
                per_s = self._now_per_s(leave)
                step = len(self._waiting) if per_s is None else max(1, round(per_s / _STEPS_PER_S))
                n = min(step, len(self._waiting) - leave)
                await self._send(producer, [self._waiting.popleft() for _ in range(n)])
                if per_s is not None:
                    await asyncio.sleep(step / per_s)

    def _now_per_s(self, leave: int) -> float | None:
        if self.per_s is None or not leave or not self._slows:
            return self.per_s
        return max(1.0, self.per_s * min(1.0, self.left / self._half))

    async def _send(self, producer: AIOKafkaProducer, messages: Sequence[Message]) -> None:
        topic = self._plant.topic
        sent = [await producer.send(topic, one.value, one.key, one.partition, one.timestamp_ms) for one in messages]
        await asyncio.gather(*sent)


class KafkaPlant:
    """One input topic, the output topics, plant.yaml and a model; ``close`` ends the workers that still run."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        partitions: int = 4,
        options: Mapping[str, Any] | None = None,
        preload: Sequence[str] = (),
        with_events: bool = False,
        **sections: Mapping[str, Any] | Sequence[Any],
    ) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.name = unique_name("plant")
        self.topic = f"{self.name}.samples"
        self.group = f"{self.name}.group"
        self.workers: list[Worker] = []
        self.options = {
            "group": self.group,
            "session_timeout": "3s",
            "heartbeat_interval": "500ms",
            "request_timeout": "5s",
            "transaction_timeout": "5s",
            **(options or {}),
        }
        self.sections = sections
        self._with_events = with_events
        self._forks = ForkServer(*preload)
        self._flows: list[Flow] = []

    @property
    def config(self) -> Path:
        return self.folder / "plant.yaml"

    @property
    def progress(self) -> str:
        """The name of the progress topic."""
        return f"{self.group}.{self.topic}.progress"

    @property
    def roles(self) -> tuple[Role, ...]:
        return (*self._compared, "events") if self._with_events else self._compared

    @property
    def _compared(self) -> tuple[Role, ...]:
        return ("warnings", *ROLES) if "early" in self.sections.get("alerts", {}) else ROLES

    @property
    def events(self) -> str:
        """The name of the topic of events."""
        return self.output("events")

    @property
    def claims(self) -> str:
        """The name of the topic of claims."""
        return f"{self.group}.claims"

    def output(self, role: Role) -> str:
        return f"{self.name}.{role.replace('_', '-')}"

    def write_config(self) -> None:
        content: dict[str, Any] = {
            "name": self.name,
            "channels": [{"name": name} for name in CHANNELS],
            "source": {"url": f"kafka://{self.bootstrap}/{self.topic}", "options": self.options},
            "sequences": {"end": ["marker", "change"], "allowed_lateness": "20s"},
            "window": {"length": L, "min_samples": 1},
            "model": {"recordings": "normal", "detector": "mean_square", "folds": 2, "device": "cpu"},
            "sinks": {role: f"kafka:///{self.output(role)}" for role in self.roles},
            "run": {"commit_interval": "100ms", "batch_wait": "5ms", "batch_windows": 8, "stop_timeout": "5s"},
        }
        for name, section in self.sections.items():
            content[name] = {**content.get(name, {}), **section} if isinstance(section, Mapping) else list(section)
        self.config.write_text(yaml.safe_dump(content))

    async def create(self) -> None:
        """Make folder, config, model and topics."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_config()
        self.write_recordings()
        await self._train()
        await self.make_topics()

    async def make_topics(self) -> None:
        """Create the input, and whatever topics a worker needs; nothing is deleted by age."""
        keep = {"retention.ms": "-1"}
        await create_topics(
            self.bootstrap,
            {self.topic: NewTopic(self.topic, self.partitions, 1, topic_configs=keep)}
            | {self.progress: NewTopic(self.progress, self.partitions, 1, topic_configs={"cleanup.policy": "compact"})}
            | {self.claims: NewTopic(self.claims, 1, 1, topic_configs={"cleanup.policy": "compact"})}
            | {self.output(role): NewTopic(self.output(role), 2, 1, topic_configs=keep) for role in self.roles},
        )

    def write_recordings(self) -> None:
        """Write the normal recordings, which the model trains on."""
        rng = random.Random(0)
        (self.folder / "normal").mkdir()
        forms = {
            "lists": self.sections.get("decode") == IN_LISTS,
            "states": "while" in self.sections.get("sequences", {}),
        }
        with (self.folder / "normal" / "all.jsonl").open("wb") as file:
            for i in range(60):
                times = [10.0 * i + j for j in range(6)]
                quiet = line("n", f"n-{i}", times, rng.uniform(0.7, 1.3), end=True)
                file.write(in_forms([quiet], 0, **forms)[0] + b"\n")

    async def _train(self) -> None:
        """Train, or take the model of an earlier plant that differs from this one in nothing that training sees."""
        content = yaml.safe_load(self.config.read_text())
        same = json.dumps([content["channels"], content["window"], content["model"], content.get("alerts")])
        registry = self.folder / "registry"
        if same in _trained:
            for name, data in _trained[same].items():
                (registry / name).parent.mkdir(parents=True, exist_ok=True)
                (registry / name).write_bytes(data)
            return
        done = await asyncio.to_thread(self.streamad, "train", "--config", "plant.yaml", timeout_s=600.0)
        assert done.returncode == 0, done.stderr
        files = [path for path in registry.rglob("*") if path.is_file()]
        _trained[same] = {str(path.relative_to(registry)): path.read_bytes() for path in files}

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path, "COLUMNS": "200"}

    def streamad(self, *arguments: str, timeout_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run a command of streamad in the plant's folder to its end."""
        return subprocess.run(
            [sys.executable, "-m", "streamad", *arguments],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def start(
        self, name: str = "w1", *arguments: str, static: bool = True, fork: bool = True, **environment: str
    ) -> Worker:
        """Start a worker, under the instance name ``name`` if ``static``; each life has a log of its own."""
        command = ["-vv", "run", "--config", "plant.yaml", "--quiet", *arguments]
        command += ["--instance", name] if static else []
        log = self.folder / f"{name}-{len(self.workers)}.log"
        if fork:
            worker = self._forks.start(name, command, self.folder, log, **environment)
        else:
            worker = spawn(name, command, self.folder, log, {**self.environment(), **environment})
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """End what still flows, and the workers that still run, each by its id."""
        for flow in self._flows:
            flow.cancel()
        for worker in self.workers:
            worker.end()

    # --- in and out ---

    async def feed(self, messages: Iterable[Message], *, per_s: float | None = None) -> None:
        """Produce ``messages``; at most ``per_s`` in a second."""
        await Flow(self, messages, per_s=per_s).feed_all()

    def flow(self, traffic: Traffic, *, per_s: float) -> Flow:
        """Let records flow in the background."""
        flow = Flow(self, traffic.messages, per_s=per_s, n_last=2 * self.partitions)
        flow.start()
        self._flows.append(flow)
        return flow

    async def outputs(self) -> dict[Role, list[dict[str, Any]]]:
        """Everything in the output topics under read_committed, in the order of each stream, less the wall clock.

        Less what comes of the last message of ``traffic`` too: on a slow machine silence ends its sequence.
        """
        return {role: await self._outputs_of(role) for role in self._compared}

    async def _outputs_of(self, role: Role) -> list[dict[str, Any]]:
        records = await read_committed(self.bootstrap, self.output(role))
        messages = [_plain(json.loads(record.value or b"null")) for record in records]
        return [message for message in messages if not _is_last(message)]

    async def committed(self, role: Role) -> list[dict[str, Any]]:
        """Return all committed messages of ``role``, also those that come of the last message of ``traffic``."""
        records = await read_committed(self.bootstrap, self.output(role))
        return [json.loads(record.value or b"null") for record in records]

    async def sent_s(
        self, role: Role, name_of: Callable[[Mapping[str, Any]], str | None] = lambda message: message.get("alert_id")
    ) -> list[tuple[str, float]]:
        """Return the name of each committed message of ``role`` that has one, and when it was sent (Unix seconds).

        The clock is the producer's: an attribution that is sent after its alert's commit has the later time.
        """
        records = await read_committed(self.bootstrap, self.output(role))
        named = [(name_of(json.loads(record.value or b"{}")), record.timestamp / 1000) for record in records]
        return [(name, sent_s) for name, sent_s in named if name is not None]

    async def input(self) -> dict[str, list[Record]]:
        """What the input topic holds, as a source would give it."""
        held: dict[str, list[Record]] = {f"{self.topic}-{number}": [] for number in range(self.partitions)}
        for record in await read_committed(self.bootstrap, self.topic):
            own = held[f"{self.topic}-{record.partition}"]
            own += to_records([record])
        return held

    async def expected(self) -> dict[Role, list[dict[str, Any]]]:
        """What an undisturbed run writes: this process's own pipeline over the same records, without a broker."""
        settings = load_settings(self.config)
        clock = ManualClock(SystemClock().now_us())
        sinks: dict[Role, ListSink] = {role: ListSink() for role in (*self._compared, "events")}
        script: list[Any] = []
        for partition, records in (await self.input()).items():
            script.append(PartitionAssigned(partition))
            script += [
                RecordBatch(partition, tuple(records[i : i + 100]), records[min(i + 99, len(records) - 1)].offset + 1)
                for i in range(0, len(records), 100)
            ]
        own = Plant(settings, self.folder, SystemClock())
        batcher = MicroBatcher(versions_of(own).load(), SystemClock(), settings.run)
        explainer = explainer_for(own)
        pipeline = Pipeline(
            settings,
            ListSource(script),
            UnsavedCommitter(sinks),
            batcher,
            clock,
            explainer=explainer,
            with_verdicts=True,
            with_windows=True,
            looking=looking_for(own, batcher, explainer, lambda *_, **__: None),
        )
        try:
            await pipeline.run()
        finally:
            await batcher.close()
        return {role: [_message(record) for record in sinks[role].records] for role in self._compared}

    async def aborted_among(self, lost: Sequence[str]) -> int:
        """Return how many of the ``lost`` messages of a difference are in their topics, in aborted transactions."""
        there = set()
        for role in self._compared:
            for record in await read(self.bootstrap, self.output(role), isolation_level="read_uncommitted"):
                there.add(f"{role}: {_text(_plain(json.loads(record.value or b'null')))}")
        return sum(text in there for text in lost)

    async def aborted_s(self) -> list[float]:
        """When (Unix seconds) the transactions wrote their progress that were then never committed."""
        committed = {
            (record.partition, record.offset) for record in await read_committed(self.bootstrap, self.progress)
        }
        return [
            record.timestamp / 1000
            for record in await read(self.bootstrap, self.progress, isolation_level="read_uncommitted")
            if record.key == _PROGRESS_HEAD and (record.partition, record.offset) not in committed
        ]

    async def until_judged(self, expected: Mapping[Role, Sequence[Any]], timeout_s: float = LIMIT_S) -> None:
        """Return when as many verdicts and attributions as expected are there.

        Raises TimeoutError naming what the workers said.
        """
        wanted = {role: len(expected[role]) for role in _LAST_ROLES}
        found = dict.fromkeys(_LAST_ROLES, 0)
        try:
            async with asyncio.timeout(timeout_s):
                while any(found[role] < wanted[role] for role in _LAST_ROLES):
                    await asyncio.sleep(0.3)
                    found = {role: len(await self._outputs_of(role)) for role in _LAST_ROLES}
        except TimeoutError as error:
            said = "\n".join(f"--- {worker.name}\n{worker.said()[-3000:]}" for worker in self.workers[-3:])
            raise TimeoutError(f"{found} of {wanted} after {timeout_s} s\n{said}") from error

    async def difference(
        self, expected: Mapping[Role, Sequence[dict[str, Any]]], *, numbers: bool = True
    ) -> Difference:
        """Compare what is there with what an undisturbed run writes; less their fractional ``numbers`` if not wanted.

        A real model's scores differ in their last digits with the company that a window has in its batch.
        """
        return difference_of(expected, await self.outputs(), numbers=numbers)


def difference_of(expected: Outputs, found: Outputs, *, numbers: bool) -> Difference:
    """Compare messages with the expected ones; less their fractional ``numbers`` if not wanted.

    Attributions of warnings are left out: there is none if the sequence ends before the look. So are warnings of
    sequences that still run, because a run that ends there has not looked at all of them.
    """
    expected, found = _comparable(expected), _comparable(found)
    if not numbers:
        expected, found = _less_floats(expected), _less_floats(found)
    difference = Difference()
    for role in expected:
        want, have = Counter(map(_text, expected[role])), Counter(map(_text, found[role]))
        difference.lost.extend(f"{role}: {text}" for text in (want - have).elements())
        for text, n in (have - want).items():
            (difference.repeated if want[text] else difference.foreign).extend([f"{role}: {text}"] * n)
    orders = [_by_stream(outputs["verdicts"]) for outputs in (expected, found)]
    if not (difference.lost or difference.repeated or difference.foreign):
        difference.disordered.extend(stream for stream, ids in orders[0].items() if ids != orders[1][stream])
    return difference


def judged_and_running(outputs: Outputs) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the warnings of sequences with a verdict, and the others."""
    judged = {(verdict["stream"], verdict["sequence"]) for verdict in outputs["verdicts"]}
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for warning in outputs.get("warnings", ()):
        found[(warning["stream"], warning["sequence"]) not in judged].append(warning)
    return found


def _comparable(outputs: Outputs) -> Outputs:
    if "warnings" not in outputs:
        return outputs
    warned = {each["warning_id"] for each in outputs["warnings"]}
    reasons = [each for each in outputs["attributions"] if each["alert_id"] not in warned]
    return {**outputs, "attributions": reasons, "warnings": judged_and_running(outputs)[0]}


def _message(record: OutputRecord) -> dict[str, Any]:
    return _plain(json.loads(msgspec.json.encode(record.message)))


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    message.pop("created_at", None)
    return message


def _less_floats(value: Any) -> Any:
    if isinstance(value, Mapping):  # what is sorted by a number keeps no order without it
        if value.get("type") == "attribution":
            value = {**value, "channels": sorted(value["channels"], key=lambda share: str(share["channel"]))}
        return {key: _less_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_less_floats(each) for each in value]
    return None if isinstance(value, float) else value


def _is_last(message: Mapping[str, Any]) -> bool:
    return str(message.get("stream", "")).startswith(_LAST)


def _text(message: Mapping[str, Any]) -> str:
    return json.dumps(message, sort_keys=True)


def _by_stream(verdicts: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    streams: defaultdict[str, list[str]] = defaultdict(list)
    for verdict in verdicts:
        streams[verdict["stream"]].append(verdict["verdict_id"])
    return streams
