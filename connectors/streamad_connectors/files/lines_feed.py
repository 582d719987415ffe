"""Appends raw records to a file of JSON lines that a source follows; a value is a line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from streamad.errors import OutputError
from streamad.plugins import ConnectorContext
from streamad.settings.fields import ConfigSection
from streamad.system.files import append_lines
from streamad.system.tasks import finished
from streamad.types import FeedRecord


class LinesFeedOptions(ConfigSection):
    """It has none; the URL names the file."""


class LinesFeed:
    """Appends the values of records as lines; keys, times and labels are not kept. Makes missing folders.

    The file may be renamed at any time (logrotate): the next ``flush`` begins a new one. A line that a crash cut off
    gets its end, so a reader finds it unreadable; its record was not flushed.
    """

    options_model: type[BaseModel] = LinesFeedOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self.path = Path(context.base_dir, rest)
        self._lines = bytearray()
        self._lock = asyncio.Lock()

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Take ``records`` for the next ``flush``. Raises OutputError if a value is no line."""
        for record in records:
            if b"\n" in record.value:
                raise OutputError(f"{self.path}: a value of several lines cannot be a line")
            self._lines += record.value + b"\n"

    async def flush(self) -> None:
        """Return once all taken records are on the disk. Raises OutputError."""
        async with self._lock:
            lines, self._lines = bytes(self._lines), bytearray()
            if lines:
                busy = "another bridge writes there: name a file for each"
                await finished(asyncio.to_thread(append_lines, self.path, lines, busy=busy))

    async def close(self) -> None:
        """Do nothing: records that were not flushed are dropped."""
