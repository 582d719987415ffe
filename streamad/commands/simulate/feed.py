"""``streamad simulate --to``: sends the messages of the simulated plant to a broker when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from streamad.commands.shared.console import (
    Bar,
    err,
    note,
    out,
    parse_speed,
    print_json,
    run_async,
    stop_on_signals,
    styled,
)
from streamad.commands.shared.plants import load_plant
from streamad.errors import OutputError, UsageError
from streamad.plugins import ConnectorContext, connect_feed, split_url
from streamad.ports import Clock, Feed, FeedRecord
from streamad.ranges import parse_time_us
from streamad.settings.fields import parse_duration_us
from streamad.simulation.faults import CHANNELS
from streamad.simulation.messages import PlantMessage, PlantTime, labels_csv, longest_us, plant_messages
from streamad.simulation.recordings import Recording
from streamad.system.clock import SystemClock, pause
from streamad.system.files import writing
from streamad.system.tasks import wait_for_either
from streamad.types import ChannelSpec, from_us

_MAX_SPEED = 1e6  # samples are ten minutes apart: at a higher speed their times would be nearly equal
_GROUP_MESSAGES = 500
_GRACE_S = 2.0
# Kafka's default of message.timestamp.after.max.ms (KIP-937).
_AHEAD_US = 3_600_000_000
_LATE_US = 1_000_000


@dataclass(frozen=True, slots=True)
class _Pace:
    """``time`` of the samples; ``rate``: microseconds of it in one of the clock's (None: at full speed)."""

    time: PlantTime
    rate: float | None

    def text(self) -> str:
        """Return the pace for a person."""
        begins = f"from {from_us(self.time.start_us):%Y-%m-%d %H:%M:%S} UTC on"
        if self.rate is None:
            return f"at full speed, {begins}"
        if self.time.shrink == 1:
            return f"{self.rate:g} times as fast as real, {begins}"
        return f"{self.time.shrink:g} times as fast as real, times are those of the clock"


def feed_plant(
    to: str,
    *,
    config: Path | None,
    speed: str,
    start: str | None,
    batches: int | None,
    duration: str | None,
    fault_share: float,
    chunk: int,
    labels: Path | None,
    first_index: int,
    seed: int,
    streams: int,
    as_json: bool,
) -> None:
    """Feed the simulated plant to its end, for the duration asked for or until Ctrl-C, and print a summary.

    The options are those of the command, as typed. Raises UsageError, ConfigError, PluginError, OutputError.
    """
    clock = SystemClock()
    for_us = None if duration is None else _duration_us(duration)
    pace = _pace(speed, start, batches, streams, clock.now_us())
    context = _context(to, config, clock)
    place = to.partition("?")[0]
    of_all = "" if batches is None else f" of {batches}"
    messages = plant_messages(
        pace.time,
        seed=seed,
        first_index=first_index,
        n_batches=batches,
        n_streams=streams,
        fault_share=fault_share,
        chunk_samples=chunk,
    )

    async def work() -> None:
        feed: Feed = connect_feed(to, {}, context, "--to")
        if not as_json:
            many = f"{streams} fermenters" if streams > 1 else "1 fermenter"
            err.print(f"feeding {place}: {many}, {pace.text()}; Ctrl-C ends")
        with Bar("simulating the first batches", quiet=as_json, is_endless=True) as bar:

            def show(report: FeedReport, message: PlantMessage) -> None:
                """Show what was fed so far, and print a line for a batch that is complete."""
                if message.batch is not None and pace.rate is not None and not as_json:
                    err.print(batch_line(message.batch))
                counted = f"{report.batches}{of_all} batches ({report.faulty} faulty), {report.samples:,} samples"
                behind = f", {report.behind_us / 1e6:.0f} s behind" if report.behind_us > _LATE_US else ""
                bar.show(f"{counted}, now {from_us(message.time_us):%Y-%m-%d %H:%M:%S}{behind}")

            feeder = PlantFeeder(
                feed,
                messages,
                clock,
                start_us=pace.time.start_us,
                rate=pace.rate,
                labels=labels,
                on_progress=show,
            )
            try:
                try:
                    with stop_on_signals(feeder.stop, "sending what is under way"):
                        report = await feeder.run(for_us)
                finally:
                    await feed.close()
            except OutputError as error:
                fed = f"fed {feeder.report.batches}{of_all} whole batches, {feeder.report.messages} messages"
                raise OutputError(f"{error}; {fed}") from error
        if as_json:
            print_json({"to": place, "labels": None if labels is None else str(labels), **report.as_dict()})
        else:
            _print_summary(report, place, labels)

    run_async(work())


def _pace(speed: str, start: str | None, n_batches: int | None, n_streams: int, now_us: int) -> _Pace:
    start_us = None if start is None else parse_time_us(start, now_us, "--start")
    now_us -= now_us % 1000
    factor = parse_speed(speed, _MAX_SPEED)
    if factor is None:
        if start_us is None:
            if n_batches is None:
                raise UsageError("--speed max needs --batches or --start, for the times of the samples")
            # All samples are then in the past: a broker refuses records of the future.
            start_us = now_us - longest_us(n_batches, n_streams)
        return _Pace(PlantTime(start_us), None)
    if start_us is None:
        return _Pace(PlantTime(now_us, factor), 1.0)
    return _Pace(PlantTime(start_us), factor)


def _duration_us(text: str) -> int:
    try:
        return parse_duration_us(text)
    except ValueError as error:
        raise UsageError(f"--for {error}") from error


def _context(to: str, config: Path | None, clock: Clock) -> ConnectorContext:
    scheme = split_url(to)[0]
    if config is None and scheme != "file" and to.lower().startswith(f"{scheme}:///"):
        config = Path("plant.yaml")  # it names the host
        if not config.exists():
            text = f"write {scheme}://HOST:PORT/..., or name the plant's config: --config plant.yaml"
            raise UsageError(f"--to {to} names no host: {text}")
    if config is not None:
        return load_plant(config).context
    channels = tuple(ChannelSpec(name, unit) for name, unit in CHANNELS)
    return ConnectorContext(channels, clock, Path.cwd(), plant="fermenters")


def _print_summary(report: FeedReport, place: str, labels: Path | None) -> None:
    how = "interrupted after" if report.interrupted else "fed"
    out.print(
        f"{how} {report.batches} whole batches ({report.faulty} of them faulty): "
        f"{report.samples} samples in {report.messages} messages to {place}"
    )
    if report.behind_us > _LATE_US:
        late = f"{report.behind_us / 1e6:.0f} s behind at the end"
        err.print(note(f"{late}: a lower --speed, fewer --streams or a larger --chunk keeps up"))
    if labels is not None and report.batches:
        out.print(f"the truth about them: {labels}")


@dataclass(slots=True)
class FeedReport:
    """Counts of what the broker has; ``behind_us`` is the delay of the latest messages."""

    batches: int = 0
    faulty: int = 0
    samples: int = 0
    messages: int = 0
    first_us: int | None = None
    last_us: int | None = None
    behind_us: int = 0
    interrupted: bool = False

    def add(self, message: PlantMessage) -> None:
        """Count one message."""
        self.messages += 1
        self.samples += message.n_samples
        self.first_us = message.time_us if self.first_us is None else self.first_us
        self.last_us = message.time_us
        if message.batch is not None:
            self.batches += 1
            self.faulty += bool(message.batch.fault)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines; times are those of the samples."""
        return {
            "batches": self.batches,
            "faulty": self.faulty,
            "samples": self.samples,
            "messages": self.messages,
            "first_time": None if self.first_us is None else from_us(self.first_us),
            "last_time": None if self.last_us is None else from_us(self.last_us),
            "behind_s": round(self.behind_us / 1e6, 3),
            "interrupted": self.interrupted,
        }


class PlantFeeder:
    """Sends ``messages`` to ``feed`` when they are due; ``rate``: microseconds of theirs in one of the clock's.

    ``rate`` None: at once. The label of a batch is appended to ``labels`` before its last message is sent, so it
    precedes any verdict. A slow broker delays messages and does not change them.
    """

    def __init__(
        self,
        feed: Feed,
        messages: Iterator[PlantMessage],
        clock: Clock,
        *,
        start_us: int,
        rate: float | None,
        labels: Path | None = None,
        on_progress: Callable[[FeedReport, PlantMessage], None] | None = None,
    ) -> None:
        self._feed = feed
        self._messages = messages
        self._head: PlantMessage | None = None
        self._clock = clock
        self._start_us = start_us
        self._rate = rate
        self._labels = labels
        self._on_progress = on_progress
        self._stop = asyncio.Event()
        self.report = FeedReport()

    def stop(self) -> None:
        """Send nothing more; ``run`` returns after the delivery that is under way."""
        self._stop.set()

    async def run(self, for_us: int | None = None) -> FeedReport:
        """Send until all is sent, ``for_us`` has passed or ``stop`` was called. Raises OutputError."""
        began_us = self._clock.monotonic_us()
        # This simulates the first batches, in a thread so that other tasks go on.
        self._head = await asyncio.to_thread(next, self._messages, None)
        if for_us is not None:
            for_us += self._clock.monotonic_us() - began_us
        while self._head is not None and not self._stop.is_set():
            elapsed_us = self._clock.monotonic_us() - began_us
            if for_us is not None and elapsed_us >= for_us:
                break
            wait_us = self._due_us(self._head) - elapsed_us
            if wait_us > 0:
                wait_us = wait_us if for_us is None else min(wait_us, for_us - elapsed_us)
                await pause(wait_us / 1e6, self._clock, self._stop)
                continue
            self.report.behind_us = 0 if self._rate is None else -wait_us
            await self._send(await asyncio.to_thread(self._take, elapsed_us))
        self.report.interrupted = self._stop.is_set()
        return self.report

    def _due_us(self, message: PlantMessage) -> int:
        return 0 if self._rate is None else int((message.time_us - self._start_us) / self._rate)

    def _take(self, elapsed_us: int) -> list[PlantMessage]:
        group: list[PlantMessage] = []
        while self._head is not None and len(group) < _GROUP_MESSAGES and self._due_us(self._head) <= elapsed_us:
            group.append(self._head)
            self._head = next(self._messages, None)
        return group

    async def _send(self, group: list[PlantMessage]) -> None:
        if self._labels is not None:
            _append_labels(self._labels, [message.batch for message in group if message.batch is not None])
        try:
            await self._deliver([_record(message) for message in group])
        except OutputError as error:
            ahead_us = group[-1].time_us - self._clock.now_us()
            if ahead_us < _AHEAD_US:
                raise
            raise OutputError(
                f"{error}; these samples lie {ahead_us / _AHEAD_US:.0f} h ahead of the clock, and brokers refuse more "
                "than one: choose an earlier --start, or leave it out"
            ) from error
        for message in group:
            self.report.add(message)
            if self._on_progress is not None:
                self._on_progress(self.report, message)

    async def _deliver(self, records: list[FeedRecord]) -> None:
        """Return once the broker has ``records``; after a stop, close the feed if that takes longer than 2 s."""
        delivering = asyncio.ensure_future(self._sent(records))
        await wait_for_either(self._stop, delivering)
        _, pending = await asyncio.wait({delivering}, timeout=_GRACE_S)
        if pending:
            await asyncio.gather(self._feed.close(), delivering)
        await delivering

    async def _sent(self, records: list[FeedRecord]) -> None:
        await self._feed.send(records)
        await self._feed.flush()


def _record(message: PlantMessage) -> FeedRecord:
    # Brokers store milliseconds: rounded up, so that no sample is ahead of its record.
    return FeedRecord(message.text.encode(), message.stream.encode(), -(-message.time_us // 1000) * 1000)


def _append_labels(path: Path, batches: list[Recording]) -> None:
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(labels_csv(batches, with_header=file.tell() == 0))


def batch_line(batch: Recording) -> Text:
    """Return one line for a person about a batch that was sent."""
    truth = (batch.fault, "yellow") if batch.fault else "normal"
    return styled(f"{batch.stream} {batch.sequence}  {len(batch.times_us)} samples, ", truth)
