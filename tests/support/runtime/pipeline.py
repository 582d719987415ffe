"""A small plant for tests of the runtime: settings, a real scorer without torch, recordings full of trouble."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamad.errors import RegistryError
from streamad.ingest.table.rows import BatchTable
from streamad.judge.attribution import Reference
from streamad.judge.bank import Batchers
from streamad.judge.calibration import Calibration
from streamad.judge.early.looking import Looking
from streamad.judge.explainer import Explainer
from streamad.judge.judging import JudgedSequence
from streamad.judge.scoring import MicroBatcher, ModelInService
from streamad.messages import Attribution, EarlyWarning, Event, ModelRef, Role, Verdict
from streamad.ports import Clock, Committer, Scorer, Source
from streamad.runtime.checkpoint import UnsavedCommitter
from streamad.runtime.pipeline import Pipeline
from streamad.schemas.fetching import Fetcher
from streamad.settings.plant_yaml import Settings
from streamad.system.output_files import output_files
from streamad.telemetry.events import EventLog
from streamad.testing import ListSink, ManualClock
from streamad.types import FloatArray, IntArray, Record
from tests.support.waiting import LIMIT_S

CHANNELS = ("temp", "pressure", "flow")
L = 16
START_US = 1_767_225_600_000_000
ROLES: tuple[Role, ...] = ("alerts", "attributions", "verdicts", "windows", "dead_letters", "late", "events")


class SquareScorer:
    """Terms are the mean squares of the channels: 0 for a quiet sequence, 100 for one at 10. Fails where told to."""

    def __init__(self, window_shape: tuple[int, int] = (len(CHANNELS), L)) -> None:
        self.window_shape = window_shape
        self.n_windows = 0
        self.failure: Exception | None = None
        self.batches: list[int] = []

    @property
    def n_terms(self) -> int:
        return self.window_shape[0]

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        if self.failure is not None:
            raise self.failure
        self.n_windows += len(windows)
        self.batches.append(len(windows))
        terms = (windows.astype(np.float64) ** 2).sum(axis=2) / lengths[:, None]
        with np.errstate(over="ignore"):
            return np.asarray(terms, dtype=np.float32)


def model_of(scorer: Scorer | None = None, *, explains: bool = True) -> ModelInService:
    """A model whose calibration knows quiet sequences: values around 1 are normal, those around 10 are not."""
    scorer = scorer or SquareScorer()
    n_channels, length = scorer.window_shape
    terms = np.random.default_rng(0).uniform(0.5, 2.0, (200, n_channels)).astype(np.float32)
    reference = Reference(np.ones((4, n_channels, length), dtype=np.float32), np.full(4, length, dtype=np.int64))
    calibration = Calibration.from_terms(terms, 0.02)
    return ModelInService(ModelRef("test", "0001"), scorer, calibration, reference if explains else None)


def explainer_of(
    settings: Settings | None = None, clock: Clock | None = None, model: ModelInService | None = None
) -> Explainer:
    """Return an explainer that uses ``model`` for every version."""
    return Explainer(settings or settings_of(), clock or ManualClock(START_US), lambda _: model or model_of())


def settings_of(**sections: Any) -> Settings:
    """Settings of the plant; ``sections`` are merged into its own."""
    content: dict[str, Any] = {
        "channels": [{"name": name} for name in CHANNELS],
        "source": {"url": "recordings"},
        "sequences": {"end": ["marker", "change"]},
        "window": {"length": L, "min_samples": 1},
        "run": {"batch_wait": 0, "commit_interval": "1s"},
    }
    for name, section in sections.items():
        content[name] = {**content.get(name, {}), **section} if isinstance(section, dict) else section
    return Settings(**content)


class TickingClock(ManualClock):
    """Every look at the monotonic clock finds it ``step_s`` later: time passes without anybody waiting."""

    def __init__(self, step_s: float, start_us: int = START_US) -> None:
        super().__init__(start_us)
        self._step_s = step_s

    def monotonic_us(self) -> int:
        self.advance(self._step_s)
        return super().monotonic_us()


# --- running ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """A pipeline and what came out of it; ``told``: warnings and verdicts as an onlooker heard of them."""

    pipeline: Pipeline
    sinks: dict[Role, ListSink]
    judged: list[JudgedSequence] = field(default_factory=list)
    latencies_us: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    explained: list[Attribution] = field(default_factory=list)
    told: list[EarlyWarning | Verdict] = field(default_factory=list)

    def messages(self, role: Role) -> list[Any]:
        """The flushed messages of a role."""
        return [record.message for record in self.sinks[role].records]

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for verdict in self.messages("verdicts") if isinstance(verdict, Verdict)]


async def run_pipeline(
    source: Source,
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    model: ModelInService | None = None,
    batchers: Batchers | None = None,
    committer: Callable[[Mapping[Role, ListSink]], Committer] = UnsavedCommitter,
    with_verdicts: bool = True,
    with_windows: bool = True,
    explains: bool = True,
    explainer: Explainer | None = None,
    table: BatchTable | None = None,
    versions: Mapping[str, ModelInService] | None = None,
    while_running: Callable[[Run, asyncio.Task[None]], Any] | None = None,
    fetcher: Callable[[Clock, EventLog], Fetcher] | None = None,
) -> Run:
    """Run a pipeline to its end; ``while_running`` (a coroutine function) may act beside it.

    ``versions`` are loaded for looks at sequences that began by another version than the one in service.
    """
    settings = settings or settings_of()
    clock = clock or TickingClock(0.001)
    sinks: dict[Role, ListSink] = {role: ListSink() for role in ROLES}
    batcher = batchers or MicroBatcher(model or model_of(), clock, settings.run)
    judged: list[JudgedSequence] = []
    latencies_us: list[int] = []
    events: list[Event] = []

    explained: list[Attribution] = []
    told: list[EarlyWarning | Verdict] = []

    def on_judged(sequence: JudgedSequence, latency_us: int) -> None:
        judged.append(sequence)
        told.append(sequence.verdict)
        latencies_us.append(latency_us)

    explainer = (explainer or explainer_of(settings, clock, model)) if explains else None
    log = EventLog(settings.name, clock, events.append)
    looking = None
    if settings.alerts.early is not None:

        def load(ref: ModelRef) -> ModelInService:
            if ref.version not in (versions or {}):
                raise RegistryError(f"no version {ref.version}")
            return (versions or {})[ref.version]

        looking = Looking(settings, batcher, clock, load=load, explainer=explainer, emit=log.emit)
    fetches = None if fetcher is None else fetcher(clock, log)
    pipeline = Pipeline(
        settings,
        source,
        committer(sinks),
        batcher,
        clock,
        explainer=explainer,
        with_verdicts=with_verdicts,
        with_windows=with_windows,
        on_judged=on_judged,
        on_explained=explained.append,
        events=log,
        table=table,
        looking=looking,
        on_warned=lambda warning, _: told.append(warning),
        fetcher=fetches,
    )
    run = Run(pipeline, sinks, judged, latencies_us, events, explained, told)
    task = asyncio.create_task(pipeline.run())
    try:
        if while_running is not None:
            await while_running(run, task)
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await batcher.close()
        if fetches is not None:
            await fetches.close()
    return run


async def steps(n: int = 50) -> None:
    """Let other tasks and the scoring thread take their turns."""
    for _ in range(n):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    """Let the others take their turns until ``is_so``."""
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110 - any of many things may make it so
            await asyncio.sleep(0)


def outputs(folder: Path) -> dict[str, list[str]]:
    """Everything that was written, in the order of its streams, without what depends on the wall clock."""
    result = {}
    for role in ROLES:
        files = output_files(folder / "out" / f"{role}.jsonl")
        lines = [json.loads(text) for file in files for text in file.path.read_text().splitlines()]
        for message in lines:
            del message["created_at"]
        # Partitions may interleave otherwise; a stream's messages may not. The sort is stable.
        lines.sort(key=lambda message: message.get("stream") or message["origin"]["partition"])
        result[role] = [json.dumps(message) for message in lines]
    return result


# --- messages --------------------------------------------------------------------------------------------------------


def line(
    stream: str, sequence: str | None, times_s: Sequence[float], value: float = 1.0, *, end: bool = False
) -> bytes:
    """A chunked message with ``value`` in every channel; times count from START_US."""
    message: dict[str, Any] = {
        "stream": stream,
        "times": [START_US / 1e6 + time_s for time_s in times_s],
        "values": [[value] * len(CHANNELS) for _ in times_s],
    }
    if sequence is not None:
        message["sequence"] = sequence
    if end:
        message["end"] = True
    return json.dumps(message).encode()


def records_of(messages: Sequence[bytes], *, timestamps_s: Sequence[float] | None = None) -> list[Record]:
    """Records at offsets 0, 1, ...; ``timestamps_s`` are the records' own times, counted from START_US."""
    if timestamps_s is None:
        return [Record(offset, message) for offset, message in enumerate(messages)]
    times_us = [START_US + round(time_s * 1e6) for time_s in timestamps_s]
    pairs = enumerate(zip(messages, times_us, strict=True))
    return [Record(offset, message, time_us) for offset, (message, time_us) in pairs]


def messy_recordings(seed: int, *, streams: Sequence[str], sequences: int = 5) -> list[bytes]:
    """Messages of several streams, interleaved; one of each kind of trouble, among them:

    order lost within 3 s, samples for closed sequences, samples out of bounds, equal times, unreadable messages,
    sequences that end by marker, by change, or not at all; about one in five anomalous.
    """
    rng = random.Random(seed)
    lanes = [_lane(rng, stream, sequences) for stream in streams]
    messages: list[bytes] = []
    while any(lanes):
        lane = rng.choice([lane for lane in lanes if lane])
        messages.append(lane.pop(0))
        if rng.random() < 0.08:
            messages.append(
                rng.choice([b"{", b'{"stream": 3}', b"\xff\xfe", line(rng.choice(list(streams)), "x", [1e10])])
            )
    return messages


def routed(messages: Sequence[bytes], seed: int) -> list[bytes]:
    """``messages`` with a recipe in about half of those that can be read: that of their sequence, seldom another."""
    rng = random.Random(seed)
    found = []
    for message in messages:
        try:
            content = json.loads(message)
            recipe = "AB"[int(content["sequence"][-1]) % 2]
        except (ValueError, KeyError):
            found.append(message)
            continue
        if rng.random() < 0.5:
            content["recipe"] = rng.choice("ABC") if rng.random() < 0.1 else recipe
        found.append(json.dumps(content).encode())
    return found


HOLDING = [{"name": name, "fill": "hold" if name != CHANNELS[0] else "linear"} for name in CHANNELS]
"""The channels of a plant that reports all but the first one by exception."""


def by_exception(messages: Sequence[bytes], seed: int) -> list[bytes]:
    """``messages`` with most readings left out of all channels but the first one, as where values hold."""
    rng = random.Random(seed)
    found = []
    for message in messages:
        try:
            content = json.loads(message)
            rows = content["values"]
        except (ValueError, KeyError):
            found.append(message)
            continue
        content["values"] = [[row[0], *(None if rng.random() < 0.7 else value for value in row[1:])] for row in rows]
        found.append(json.dumps(content).encode())
    return found


IN_LISTS = {"fields": {"each": "list"}}
"""``decode`` of a plant whose messages are lists of samples."""


def in_lists(messages: Sequence[bytes], seed: int) -> list[bytes]:
    """``messages`` as lists of their samples, up to four of them together; what is no JSON stays as it is."""
    rng = random.Random(seed)
    found: list[bytes] = []
    elements: list[Any] = []
    for message in (*messages, b""):
        try:
            content = json.loads(message)
        except ValueError:
            content = None
        if elements and (content is None or rng.random() < 0.4):
            found.append(json.dumps({"gateway": "g1", "list": elements}).encode())
            elements = []
        if content is not None:
            elements += _samples_of(content)
        elif message:
            found.append(message)
    return found


def _samples_of(content: dict[str, Any]) -> list[dict[str, Any]]:
    if "times" not in content:
        return [content]
    ids = {name: content[name] for name in ("stream", "sequence", "state") if name in content}
    rows = zip(content["times"], content["values"], strict=True)
    samples = [{**ids, "time": time, "values": dict(zip(CHANNELS, row, strict=True))} for time, row in rows]
    samples[-1]["end"] = content.get("end", False)
    return samples


WHILE = {"while": {"field": "state", "in": ["RUN"]}}
"""Of the section ``sequences`` of a plant whose machines say whether they run."""


def by_state(messages: Sequence[bytes]) -> list[bytes]:
    """``messages`` without ids, with the state RUN, and one of the state IDLE where the id of a stream changes."""
    found: list[bytes] = []
    last: dict[str, str] = {}
    for message in messages:
        try:
            content = json.loads(message)
            stream, key, time_s = content["stream"], content.pop("sequence"), min(content["times"])
        except (ValueError, KeyError, TypeError):
            found.append(message)
            continue
        if last.setdefault(stream, key) != key:
            idle = {**content, "times": [time_s - 0.5], "values": content["values"][:1], "end": False, "state": "IDLE"}
            found.append(json.dumps(idle).encode())
            last[stream] = key
        found.append(json.dumps({**content, "state": "RUN"}).encode())
    return found


def in_forms(
    messages: Sequence[bytes], seed: int, *, holds: bool = False, lists: bool = False, states: bool = False
) -> list[bytes]:
    """``messages`` as those of plants with ``HOLDING``, ``IN_LISTS`` and ``WHILE``, or some of them."""
    found = by_exception(messages, seed) if holds else list(messages)
    found = by_state(found) if states else found
    return in_lists(found, seed) if lists else found


def _lane(rng: random.Random, stream: str, sequences: int) -> list[bytes]:
    lane: list[bytes] = []
    time_s = 0.0
    for number in range(sequences):
        name = f"{stream}-{number}"
        value = rng.choice([1.0, 1.0, 1.0, 1.0, 10.0])
        chunks = []
        for _ in range(rng.randrange(2, 6)):
            n = rng.randrange(1, 4)
            chunks.append([time_s + i for i in range(n)])
            time_s += n
        ends = rng.random() < 0.6
        own = [line(stream, name, chunk, value, end=ends and chunk is chunks[-1]) for chunk in chunks]
        if len(own) > 2 and rng.random() < 0.5:
            own[0], own[1] = own[1], own[0]
        if rng.random() < 0.3:
            own.insert(1, own[0])
        lane += own
        if number and rng.random() < 0.5:
            lane.append(line(stream, f"{stream}-{number - 1}", [time_s - 0.5], value))
        if number and rng.random() < 0.3:
            lane.append(line(stream, name, [time_s - 50.0], value))
    return lane
