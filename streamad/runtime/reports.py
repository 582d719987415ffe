"""Writes the status of this worker beside its pipeline, which it can neither delay nor end.

Its place is a folder with a file for each worker, or a sink. Open sequences are read from the assemblers as they are at
the moment; nothing here changes them.
Shapes: n samples so far, m kept ones, C channels.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import heappush, heapreplace, nsmallest
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from streamad.errors import OutputError, StreamadError
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.judge.bank import Router
from streamad.judge.early.looking import Looking
from streamad.messages import Looked, ModelRef, OutputRecord, Running, WorkerStatus, packed_values
from streamad.messages import OpenSequence as OpenMessage
from streamad.plant import Plant
from streamad.plugins import failure_of
from streamad.ports import Sink
from streamad.runtime.partition import Partition
from streamad.runtime.pipeline import Pipeline
from streamad.runtime.status import worker_name
from streamad.runtime.wiring import sink_for
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.places import file_path
from streamad.system.files import write_atomically, writing
from streamad.system.opening import read_regular
from streamad.system.tasks import is_stop
from streamad.telemetry.logs import get_logger
from streamad.types import ChannelSpec, FloatArray, IntArray, from_us, to_us

SUFFIX = ".jsonl"
_FORGOTTEN_US = 86_400_000_000
_MOST_FILES = 1_000
_MOST_BYTES = 8 << 20


class StatusPlace(Protocol):
    """Takes the status of one worker; a write that failed may be tried again."""

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        """Replace what was there of the worker. Raises StreamadError."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


def status_place(plant: Plant) -> StatusPlace | None:
    """Return the place of the config, None if it has none."""
    url = plant.settings.sinks.status
    if url is None:
        return None
    folder = file_path(url)
    return _StatusSink(plant, url) if folder is None else StatusFolder(plant.base_dir / folder)


class StatusFolder:
    """A folder with one small file for each worker: its status, then a line for each open sequence with readings.

    The file is replaced, never appended to. The first write removes the files of workers that ended cleanly or have
    been silent for a day; files of others stay.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_cleared = False

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        """Replace the worker's file. Raises OutputError."""
        content = b"".join(msgspec.json.encode(message) + b"\n" for message in (status, *running))
        await asyncio.to_thread(self._write, status, content)

    def _write(self, status: WorkerStatus, content: bytes) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise OutputError(f"cannot write in {self._folder}: it is a file, and sinks.status names a folder")
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / file_name(status.instance), content)
        if not self._is_cleared:
            self._is_cleared = True
            self._clear(status)

    def _clear(self, ours: WorkerStatus) -> None:
        """Remove the files of workers that are gone."""
        for path in sorted(self._folder.glob(f"*{SUFFIX}"))[:_MOST_FILES]:
            with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
                line = read_regular(path, most_bytes=_MOST_BYTES, follows_links=False).partition(b"\n")[0]
                other = msgspec.json.decode(line, type=WorkerStatus)
                silent_us = to_us(ours.created_at) - to_us(other.created_at)
                is_another = other.instance != ours.instance and path.name == file_name(other.instance)
                if is_another and (other.stopped or silent_us > _FORGOTTEN_US):
                    path.unlink()

    async def close(self) -> None:
        """Do nothing: each file is closed once it is written."""


def file_name(instance: str) -> str:
    """Return the name of the file of a worker; an instance that is no file name is hashed."""
    if re.fullmatch(NAME_PATTERN, instance):
        return f"{instance}{SUFFIX}"
    return f"{hashlib.sha256(instance.encode()).hexdigest()[:32]}{SUFFIX}"


class _StatusSink:
    """A sink, outside of any transaction; after a failure it is connected anew."""

    def __init__(self, plant: Plant, url: str) -> None:
        self._plant, self._url = plant, url
        self._sink: Sink | None = None

    async def put(self, status: WorkerStatus, running: Sequence[Running]) -> None:
        records = [OutputRecord("status", status.instance, status)]
        records += [OutputRecord("status", f"{one.instance}/{one.stream}", one) for one in running]
        sink = self._sink = self._sink or sink_for(self._plant, "status", self._url)
        try:
            await sink.write(records)
            await sink.flush()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()


MOST_OPEN = 200
MOST_LOOKED = 20
MOST_POINTS = 64
MOST_BYTES = 100_000


class Open(NamedTuple):
    """An open sequence, its stream, and what looks have found at it."""

    stream: str
    sequence: OpenSequence
    looked: Looked | None = None

    def message(self) -> OpenMessage:
        """Return what the status says of it."""
        sequence = self.sequence
        start = from_us(sequence.start_us)
        return OpenMessage(
            stream=self.stream,
            sequence=sequence.name,
            start_time=start,
            n_samples=sequence.n,
            looked=self.looked,
        )


def open_sequences(partitions: Collection[Partition], looking: Looking | None = None) -> list[Open]:
    """Return open sequences of ``partitions``, ``MOST_OPEN`` at most.

    First come those whose looks have found the lowest p-values, ``MOST_LOOKED`` at most: of each version those with the
    largest deviations.
    """
    first = [] if looking is None else _least_usual(partitions, looking)
    known = {id(one.sequence) for one in first}
    return [
        *first,
        *islice((one for one in _every(partitions) if id(one.sequence) not in known), MOST_OPEN - len(first)),
    ]


def _every(partitions: Iterable[Partition]) -> Iterator[Open]:
    streams = chain.from_iterable(partition.intake.streams.values() for partition in partitions)
    return (Open(stream.name, sequence) for stream in streams for sequence in stream.open.values())


def _least_usual(partitions: Iterable[Partition], looking: Looking) -> list[Open]:
    """Return those that ``open_sequences`` names first. It passes over all open sequences: 0.03 s for 100,000."""
    by_model: dict[ModelRef, list[tuple[float, int, Open]]] = {}
    number = 0
    for stream in chain.from_iterable(partition.intake.streams.values() for partition in partitions):
        for sequence in stream.open.values():
            if (looks := sequence.looks) is None:
                continue
            number += 1  # so that no two are equal
            heap = by_model.setdefault(looks.model, [])
            if len(heap) < MOST_LOOKED:
                heappush(heap, (looks.largest, number, Open(stream.name, sequence)))
            elif looks.largest > heap[0][0]:
                heapreplace(heap, (looks.largest, number, Open(stream.name, sequence)))
    ours = (one for heap in by_model.values() for _, _, one in sorted(heap, reverse=True))
    looked = [one._replace(looked=found) for one in ours if (found := looking.looked(one.sequence))]
    return nsmallest(MOST_LOOKED, looked, key=lambda one: 0.0 if one.looked is None else one.looked.p_value)


def newest_of_each(found: Iterable[Open]) -> list[Open]:
    """Return of each stream the open sequence that began last."""
    newest: dict[str, Open] = {}
    for one in found:
        known = newest.get(one.stream)
        if known is None or one.sequence.start_us >= known.sequence.start_us:
            newest[one.stream] = one
    return list(newest.values())


def running(one: Open, instance: str, channels: Sequence[ChannelSpec], now_us: int, router: Router) -> Running | None:
    """Return the readings so far of an open sequence; None if even two points take more than ``MOST_BYTES``."""
    model = router.name_for(tuple(value for _, value in one.sequence.routes))
    times_us, values = _thinned(one.sequence)
    while True:
        message = Running(
            instance=instance,
            stream=one.stream,
            sequence=one.sequence.name,
            start_time=from_us(one.sequence.start_us),
            n_samples=one.sequence.n,
            channels=[channel.name for channel in channels],
            units=[channel.unit for channel in channels],
            seconds=((times_us - one.sequence.start_us) / 1e6).tolist(),
            values=packed_values(values.T),
            created_at=from_us(now_us),
            model=model if isinstance(model, str) else None,
        )
        if len(msgspec.json.encode(message)) <= MOST_BYTES:
            return message
        if len(times_us) <= 2:
            return None
        kept = _evenly(len(times_us), max(2, len(times_us) // 2))
        times_us, values = times_us[kept], values[kept]


def _thinned(sequence: OpenSequence) -> tuple[IntArray, FloatArray]:
    """Return times int64 [m] and values float32 [m, C] of evenly spread samples, the first and the last among them.

    Of many parts one sample each is looked at, so that the time does not grow with the number of parts.
    """
    n_parts = len(sequence.times_us)
    if n_parts > MOST_POINTS:
        chosen = [(number, 0) for number in _evenly(n_parts, MOST_POINTS)[:-1].tolist()]
        chosen.append((n_parts - 1, -1))
    else:
        ends = np.cumsum([len(times_us) for times_us in sequence.times_us])
        chosen = []
        for at in _evenly(int(ends[-1]), MOST_POINTS).tolist():
            number = int(np.searchsorted(ends, at, side="right"))
            chosen.append((number, at - int(ends[number])))
    times_us = np.array([sequence.times_us[number][at] for number, at in chosen], np.int64)
    with np.errstate(over="ignore"):
        return times_us, np.array([sequence.values[number][at] for number, at in chosen], np.float32)


def _evenly(n: int, most: int) -> IntArray:
    """Return at most ``most`` (2 or more) of n places, evenly spread, the first and the last among them."""
    if n <= most:
        return np.arange(n, dtype=np.int64)
    return np.linspace(0, n - 1, most).round().astype(np.int64)


_WRITE_S = 30.0
_LAST_S = 2.0
_MOST_CURVES_BYTES = 4_000_000
_AT_ONCE = 8
"""So many curves are taken before other tasks get a turn."""


class Reporter:
    """Writes a status when it begins, then every ``display.status_interval``, and a last one at a clean end.

    An outage is one warning; the next interval tries again. ``models`` returns those in service.
    """

    def __init__(
        self,
        plant: Plant,
        pipeline: Pipeline,
        models: Callable[[], Sequence[ModelRef]],
        place: StatusPlace | None = None,
    ) -> None:
        self._plant, self._pipeline, self._models = plant, pipeline, models
        self._place = place or status_place(plant)
        self._instance = worker_name(plant.settings)
        self._router = Router.of(plant.settings)
        self._started_us = plant.clock.now_us()
        self._is_warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if the config has a place for it."""
        if self._place is not None:
            self._task = asyncio.create_task(self._run())

    async def close(self, *, is_clean: bool) -> None:
        """End, after a last status if ``is_clean``; takes a few seconds at most, and raises nothing but a stop."""
        task, self._task = self._task, None
        if task is None or self._place is None:
            return
        task.cancel()
        await asyncio.wait([task], timeout=_LAST_S)
        if is_clean:
            await self._tell(_LAST_S, stopped=True)
        with suppress(StreamadError, TimeoutError, OSError):
            async with asyncio.timeout(_LAST_S):
                await self._place.close()

    async def _run(self) -> None:
        while True:
            await self._tell(_WRITE_S)
            await self._plant.clock.sleep(self._plant.settings.display.status_interval / 1e6)

    async def _tell(self, limit_s: float, *, stopped: bool = False) -> None:
        """Write the status; whatever fails is reported once, until a status is written again."""
        assert self._place is not None
        try:
            async with asyncio.timeout(limit_s):
                partitions = list(self._pipeline.status.partitions.values())
                found = [] if stopped else open_sequences(partitions, self._pipeline.looking)
                curves = await self._curves_of(found)
                await self._place.put(self._status(found, stopped=stopped), curves)
            self._is_warned = False
        except BaseException as error:  # sinks are foreign code, and the run must go on
            if is_stop(error):
                raise
            if not self._is_warned:
                why = f"no answer in {limit_s:g} s" if isinstance(error, TimeoutError) else _text(error)
                get_logger().warning("the status of this worker is not written", why=why)
            self._is_warned = True

    def _status(self, found: Sequence[Open], *, stopped: bool) -> WorkerStatus:
        pipeline, settings = self._pipeline, self._plant.settings
        counters, gauges = pipeline.counters, pipeline.status.gauges()
        p50_ms, p99_ms = pipeline.status.latencies_told.take_ms()
        return WorkerStatus(
            instance=self._instance,
            started_at=from_us(self._started_us),
            interval_s=settings.display.status_interval / 1e6,
            stopped=stopped,
            partitions=gauges.partitions,
            lag=gauges.lag,
            records=counters.records,
            samples=counters.samples,
            verdicts=dict(counters.verdicts),
            alerts=counters.alerts,
            dead_letters=sum(counters.dead_letters.values()),
            waiting_verdicts=gauges.waiting_verdicts,
            waiting_attributions=gauges.waiting_attributions,
            latency_p50_ms=p50_ms,
            latency_p99_ms=p99_ms,
            models=list(self._models()),
            n_open=gauges.open_sequences,
            open=[one.message() for one in found],
            created_at=from_us(self._plant.clock.now_us()),
        )

    async def _curves_of(self, found: Sequence[Open]) -> Sequence[Running]:
        """Return the readings so far, of each stream's newest open sequence."""
        settings, clock = self._plant.settings, self._plant.clock
        if not settings.display.open or not found:
            return []
        curves: list[Running] = []
        n_bytes = 0
        for number, one in enumerate(newest_of_each(found)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            curve = running(one, self._instance, settings.channel_specs, clock.now_us(), self._router)
            if curve is not None:
                n_bytes += len(curve.values)
                if n_bytes > _MOST_CURVES_BYTES:
                    break
                curves.append(curve)
        return curves


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, StreamadError) else failure_of(error)
