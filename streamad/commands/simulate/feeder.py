"""Sends the messages of the simulated plant to a broker when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from streamad.commands.shared.console import styled
from streamad.errors import OutputError
from streamad.ports import Clock, Feed, FeedRecord
from streamad.simulation.messages import PlantMessage, labels_csv
from streamad.simulation.recordings import Recording
from streamad.system.clock import pause
from streamad.system.files import writing
from streamad.system.tasks import wait_for_either
from streamad.types import from_us

_GROUP_MESSAGES = 500
_GRACE_S = 2.0
# Kafka's default of message.timestamp.after.max.ms (KIP-937).
_AHEAD_US = 3_600_000_000


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
