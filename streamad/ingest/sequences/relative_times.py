"""Event times of samples whose times count from their sequence's start (``decode.time: relative``)."""

from __future__ import annotations

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.types import MAX_TIME_US, SampleBlock

TOO_LATE = "counted from the sequence's start, its time lies after the year 2200"
_PAUSE_US = 1_000_000


def check_times(stream: StreamState | None, block: SampleBlock, record_us: int | None, clock_us: int) -> None:
    """Raise DecodeError (bad_time) if a sample of ``block`` would lie after the year 2200; ``stream``: None if new."""
    start_us, _ = _start_of(stream, block, record_us, clock_us)
    if start_us + int(block.times_us[-1]) > MAX_TIME_US:
        raise DecodeError("bad_time", TOO_LATE)


def absolute(stream: StreamState, block: SampleBlock, record_us: int | None, clock_us: int) -> SampleBlock:
    """Turn times since the sequence's start into event times: its first sample has its first record's time.

    A sequence begins after the last sample of its stream, because whole sequences, each sent at once with its sending
    time, would overlap otherwise.
    """
    start_us, is_new = _start_of(stream, block, record_us, clock_us)
    if is_new:
        stream.begin_at(block.sequence, start_us, clock_us)
    return msgspec.structs.replace(block, times_us=block.times_us + start_us, relative=False)


def _start_of(stream: StreamState | None, block: SampleBlock, record_us: int | None, clock_us: int) -> tuple[int, bool]:
    """Return the event time of second 0 of the sequence, and whether it begins now."""
    start_us = None if stream is None else stream.start_of(block.sequence, clock_us)
    if start_us is not None:
        return start_us, False
    first_us = clock_us if record_us is None else record_us
    if stream is not None and stream.max_time_us is not None:
        first_us = max(first_us, stream.max_time_us + (_PAUSE_US if record_us is None else 1))
    return first_us - int(block.times_us[0]), True
