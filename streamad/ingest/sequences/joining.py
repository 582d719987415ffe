"""The short way of nearly all samples: they continue their open sequence and change nothing else.

It makes no ``Run``, looks for no end and changes no progress. What it does is what the long way would do
(tests/unit/ingest/test_joining.py).
"""

from __future__ import annotations

from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.runs import rises
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.types import SampleBlock


def joined(stream: StreamState, block: SampleBlock, clock_us: int, *, is_timed: bool, farthest_us: int) -> int | None:
    """Let the samples of ``block`` join their open sequence if they only continue it, and return the last one's time.

    Return None, with nothing done, if they may be late, wait, merge, end or begin anything, or if the last one lies
    more than ``farthest_us`` ahead. ``clock_us`` is the partition's clock; ``is_timed``: the record has its own time.
    """
    sequence = stream.open.by_key.get(block.sequence)
    if sequence is None or stream.max_time_us is None or stream.held is not None or block.offset < stream.done_below:
        return None
    times_us = block.times_us
    n, first_us = len(times_us), times_us.item(0)
    last_us = first_us if n == 1 else times_us.item(n - 1)
    if first_us <= sequence.last_us or not stream.max_time_us <= first_us or last_us - stream.max_time_us > farthest_us:
        return None
    if not _is_plain(block, n, sequence) or not _is_within(stream, block, n, last_us, sequence):
        return None
    settings = stream.settings
    if settings.gap is not None and (n > 1 or first_us - sequence.last_us > settings.gap):
        return None
    nbytes = sequence.nbytes
    sequence.extend(times_us, block.values, last_us)
    seen_us = max(clock_us, last_us)
    sequence.seen_us = max(sequence.seen_us, seen_us)
    stream.open.grew(sequence, nbytes)
    stream.max_time_us = last_us
    stream.last_record_us = clock_us if is_timed else seen_us
    return last_us


def _is_plain(block: SampleBlock, n: int, sequence: OpenSequence) -> bool:
    """Return whether the times of ``block`` rise, have one reading, and its route is that of ``sequence``."""
    if block.relative or block.later_us is not None or block.indexes is not None:
        return False
    if block.route is not None and (len(sequence.routes) != 1 or sequence.routes[0][1] != block.route):
        return False
    return n == 1 or rises(block.times_us)


def _is_within(stream: StreamState, block: SampleBlock, n: int, last_us: int, sequence: OpenSequence) -> bool:
    """Return whether no mode and no limit ends a sequence."""
    settings = stream.settings
    if settings.allowed_lateness or (block.end and "marker" in settings.end):
        return False
    n += sequence.n
    if n > settings.max_samples or (settings.length is not None and n >= settings.length):
        return False
    if last_us - sequence.start_us > settings.max_duration:
        return False
    return len(stream.open.by_key) == 1 or ("change" not in settings.end and last_us <= stream.open.limit_us(sequence))
