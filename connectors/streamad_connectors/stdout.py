"""Writes messages as JSON lines to standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import msgspec
from pydantic import BaseModel

from streamad.errors import OutputError
from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad.settings.fields import ConfigSection


class StdoutOptions(ConfigSection):
    """Standard output has no options."""


class StdoutSink:
    """Prints each message as one JSON line; it cannot be cut back, so a restart may repeat lines."""

    options_model: type[BaseModel] = StdoutOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        if rest:
            raise OutputError(f"stdout:{rest}: standard output takes no path; write stdout: alone")
        self._encoder = msgspec.json.Encoder()

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Print ``records`` in order. Raises OutputError if the reader has ended."""
        lines = b"".join(self._encoder.encode(record.message) + b"\n" for record in records)
        try:
            _write(lines)
        except OSError as error:
            raise _gone(error) from error

    async def flush(self) -> None:
        """Return once the operating system has the lines. Raises OutputError."""
        try:
            sys.stdout.flush()
        except OSError as error:
            raise _gone(error) from error

    async def close(self) -> None:
        """Flush; standard output stays open for others."""
        await self.flush()


def _write(lines: bytes) -> None:
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:  # replaced by a notebook or a test, which takes text only
        sys.stdout.write(lines.decode())
    else:
        sys.stdout.flush()  # text printed before must appear before
        buffer.write(lines)


def _gone(error: OSError) -> OutputError:
    if isinstance(error, BrokenPipeError):
        # Python flushes stdout once more at exit and would complain about the same pipe again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return OutputError("standard output: the program that read it has ended")
    return OutputError(f"standard output: cannot be written ({error.strerror or error})")
