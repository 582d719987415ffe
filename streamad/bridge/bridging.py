"""Copies messages from an inlet to a feed.

The law (tests/integration/mqtt, tests/unit/runtime/test_doubled.py): no message is acknowledged before it is on the
disk or at the brokers in sync, so a kill of the bridge, of the feed's broker or of a publisher loses none. A kill may
double messages. A doubled record is the same readings at the same times, which the assembler makes one: with a time in
the payload each message is in a verdict once. Without one a doubled message has two times of receipt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamad.bridge.inlet import Inlet
from streamad.bridge.lines import line_of
from streamad.errors import OutputError
from streamad.ports import Feed, FeedRecord
from streamad.system.tasks import Arrived, wait_for_either
from streamad.telemetry.logs import get_logger

STOP_S = 10.0
"""How long a stop waits for what is in flight; the broker keeps the rest."""
_MOST_BYTES = 900_000  # with key, header and envelope it fits into what feeds and sources take: 1 MB


@dataclass(slots=True)
class BridgeCounts:
    """Messages that are safe, and those that are too large to be kept."""

    safe: int = 0
    too_large: int = 0


class Bridge:
    """Copies until ``stop``; ``as_lines``: the feed is a file of lines. ``on_progress`` is called after each flush."""

    def __init__(
        self, inlet: Inlet, feed: Feed, *, as_lines: bool, on_progress: Callable[[BridgeCounts], None] | None = None
    ) -> None:
        self._inlet, self._feed = inlet, feed
        self._as_lines = as_lines
        self._on_progress = on_progress
        self._stop = asyncio.Event()
        self.counts = BridgeCounts()

    def stop(self) -> None:
        """Take no more; ``run`` returns once what came is safe. For signal handlers of the loop."""
        self._stop.set()
        self._inlet.stop()

    async def run(self) -> None:
        """Copy until ``stop``. Raises SourceError, OutputError; what was not acknowledged comes again."""
        copying = asyncio.ensure_future(self._copy())
        try:
            await wait_for_either(self._stop, copying)
            await asyncio.wait({copying}, timeout=STOP_S)
        finally:
            if not copying.done():
                copying.cancel()
                await asyncio.wait({copying})
            await self._inlet.close()
            try:
                await self._feed.close()
            except OutputError as error:  # what it had not written is not acknowledged
                get_logger().info("the output was away at the end", why=str(error))
        if copying.cancelled():
            get_logger().warning("stopped while the output was away: the broker keeps what is not acknowledged")
        else:
            copying.result()

    async def _copy(self) -> None:
        messages = self._inlet.messages()
        async with Arrived(messages, lambda record: len(record.value)) as arrived:
            while batch := await arrived.take():
                kept = self._kept(batch)
                await self._feed.send(self._lines(kept) if self._as_lines else kept)
                await self._feed.flush()
                self._inlet.release(len(batch))
                self.counts.safe += len(kept)
                if self._on_progress is not None:
                    self._on_progress(self.counts)

    def _kept(self, batch: Sequence[FeedRecord]) -> list[FeedRecord]:
        """Return ``batch`` without messages that no output takes."""
        kept = [record for record in batch if len(record.value) <= _MOST_BYTES]
        for record in batch if len(kept) < len(batch) else ():
            if len(record.value) > _MOST_BYTES:
                self.counts.too_large += 1
                size, most = len(record.value), _MOST_BYTES
                get_logger().warning("a message is too large and left out", topic=record.label, bytes=size, most=most)
        return kept

    def _lines(self, records: Sequence[FeedRecord]) -> list[FeedRecord]:
        with_topic = self._inlet.names_parts
        return [record._replace(value=line_of(record, with_topic=with_topic)) for record in records]
