"""The short ways of nearly all samples: they continue their open sequence, or are a whole sequence in one message.

They make no ``Run`` and look for no end. The long way would give the same (tests/unit/ingest/test_joining.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from streamad.ingest.sequences.clocks import NEVER_US
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.held_readings import Held
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.runs import rises
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.settings.plant_yaml import SequenceSettings
from streamad.tables import Singles
from streamad.types import FinishedSequence, IntArray, Position, SampleBlock

_FEWEST_TOGETHER = 4
"""Fewer records of one stretch are taken one by one: that is quicker."""


def joined(stream: StreamState, block: SampleBlock, clock_us: int, *, is_timed: bool) -> int | None:
    """Let the samples of ``block`` join their open sequence if they only continue it, and return the last one's time.

    Return None, with nothing done, if they may be late, wait, merge, end or begin anything; what ends nothing is not
    far ahead, either. ``clock_us`` is the partition's clock; ``is_timed``: the record has its own time.
    """
    clocks = stream.clocks
    sequence, newest_us = stream.open.by_key.get(block.sequence), clocks.max_time_us
    if sequence is None or newest_us is None or stream.held is not None or block.offset < stream.done_below:
        return None
    times_us = block.times_us
    n, first_us = len(times_us), times_us.item(0)
    last_us = first_us if n == 1 else times_us.item(n - 1)
    if first_us <= sequence.last_us or first_us < newest_us:
        return None
    if not _is_plain(block, sequence) or not _is_within(stream, block, last_us, sequence):
        return None
    nbytes = sequence.nbytes
    sequence.extend(times_us, block.values, last_us)
    seen_us = max(clock_us, last_us)
    sequence.seen_us = max(sequence.seen_us, seen_us)
    stream.open.grew(sequence, nbytes)
    clocks.max_time_us = last_us
    clocks.last_record_us = clock_us if is_timed else seen_us
    if stream.readings is not None:
        stream.readings.take(times_us, block.values, block.offset, block.first_index)
    return last_us


def join_singles(
    streams: Mapping[str, StreamState],
    singles: Singles,
    start: int,
    settings: SequenceSettings,
    *,
    clock_us: int,
    deadline_us: int,
) -> tuple[int, int, int]:
    """Let ``singles`` from the index ``start`` on join their open sequences, up to one that does more than that.

    Return the index behind the last one, the partition's clock there, and the memory that this took. ``clock_us`` is
    the partition's clock; none may move it beyond ``deadline_us``. Each does what ``joined`` does, or is not taken.
    Sequences have no ``allowed_lateness``, and no stream holds a sample back.
    """
    gap, longest, by_change = settings.gap, settings.max_duration, "change" in settings.end
    most = min(settings.max_samples, NEVER_US if settings.length is None else settings.length - 1)
    ends = singles.ends if "marker" in settings.end else [False] * len(singles.ends)
    routes, together = singles.routes, singles.together
    nbytes = 0
    at, n = start, len(singles.offsets)
    while at < n:
        stream = streams.get(singles.streams[at])
        if stream is None or ends[at] or singles.offsets[at] < stream.done_below:
            break
        opened, clocks, time_us = stream.open, stream.clocks, singles.times_us[at]
        sequence, newest_us = opened.by_key.get(singles.sequences[at]), clocks.max_time_us
        if sequence is None or newest_us is None or time_us <= sequence.last_us or time_us < newest_us:
            break
        if sequence.n >= most or time_us - sequence.start_us > longest:
            break
        if gap is not None and time_us - sequence.last_us > gap:
            break
        if len(opened.by_key) > 1 and (by_change or time_us > opened.limit_us(sequence)):
            break
        if routes is not None and not _has_route(sequence, routes[at]):
            break
        record_us = singles.records_us[at]
        now_us = max(clock_us, time_us if record_us is None else record_us)
        if now_us > deadline_us:
            break
        before, behind = sequence.nbytes, at + 1
        if together is not None and together[1][at] - at >= _FEWEST_TOGETHER and stream.readings is None:
            limit_us = min(sequence.start_us + longest, deadline_us)
            if len(opened.by_key) > 1:
                limit_us = min(limit_us, opened.limit_us(sequence))
            times_us = _leading(together[0][at : min(together[1][at], at + most - sequence.n)], limit_us, gap)
            behind, time_us = at + len(times_us), times_us.item(-1)
            now_us = max(clock_us, time_us)
            sequence.extend(times_us.copy(), singles.values[at:behind].copy(), time_us)  # the others may be gone sooner
        else:
            sequence.extend_by_one(time_us, singles.values[at])
        clock_us = now_us
        taken = sequence.nbytes - before
        opened.grew(sequence, before)
        stream.counted_bytes += taken
        nbytes += taken
        sequence.seen_us = max(sequence.seen_us, clock_us, time_us)
        clocks.max_time_us, clocks.last_record_us = time_us, clock_us
        if stream.readings is not None:
            stream.readings.take_one(time_us, singles.values[at], singles.offsets[at])
        at = behind
    return at, clock_us, nbytes


def _leading(times_us: IntArray, limit_us: int, gap: int | None) -> IntArray:
    """Return the first of rising times, at least one: those up to ``limit_us`` before a longer pause than ``gap``."""
    if times_us.item(-1) > limit_us:
        times_us = times_us[: np.searchsorted(times_us, limit_us, side="right")]
    if gap is not None and (is_pause := np.diff(times_us) > gap).any():
        times_us = times_us[: is_pause.argmax() + 1]
    return times_us


def _is_plain(block: SampleBlock, sequence: OpenSequence) -> bool:
    """Return whether the times of ``block`` rise, have one reading, and its route is that of ``sequence``."""
    return _has_route(sequence, block.route) and _has_plain_times(block)


def _has_route(sequence: OpenSequence, route: str | None) -> bool:
    """Return whether samples of ``route`` change nothing in the routes of ``sequence``."""
    return route is None or (len(sequence.routes) == 1 and sequence.routes[0][1] == route)


def _has_plain_times(block: SampleBlock) -> bool:
    """Return whether the times of ``block`` rise, as do its places in its record, and have one reading."""
    if block.relative or block.later_us is not None or block.boundaries is not None:
        return False
    return rises(block.times_us) and block.is_consecutive


def _is_within(stream: StreamState, block: SampleBlock, last_us: int, sequence: OpenSequence) -> bool:
    """Return whether no mode and no limit ends a sequence."""
    settings, n = stream.settings, len(block.times_us)
    if settings.allowed_lateness or (block.end and "marker" in settings.end):
        return False
    n_together = n + sequence.n
    if n_together > settings.max_samples or (settings.length is not None and n_together >= settings.length):
        return False
    if last_us - sequence.start_us > settings.max_duration:
        return False
    if settings.gap is not None and (n > 1 or last_us - sequence.last_us > settings.gap):
        return False
    return len(stream.open.by_key) == 1 or ("change" not in settings.end and last_us <= stream.open.limit_us(sequence))


def whole(
    stream: StreamState,
    block: SampleBlock,
    partition_before: int | None,
    clock_us: int,
    *,
    is_timed: bool,
    farthest_us: int,
) -> Closed | None:
    """Return the sequence that ``block`` is as a whole, with its end mark, as ended.

    Return None, with nothing done, if another one is open, or if it may be late, wait or be cut by a limit, lack its
    beginning or lie more than ``farthest_us`` ahead; also if sequences have a length or a gap. ``partition_before`` is
    the partition's clock before the record; for the others see ``joined``.
    """
    key, clocks, times_us = block.sequence, stream.clocks, block.times_us
    newest_us = clocks.max_time_us
    if key is None or newest_us is None or not _may_be_whole(stream, block):
        return None
    first_us, last_us = times_us.item(0), times_us.item(len(times_us) - 1)
    if first_us < newest_us or last_us - newest_us > farthest_us or last_us - first_us > stream.settings.max_duration:
        return None
    if not _has_plain_times(block) or stream.closed.knows(key, max(clock_us, first_us)):
        return None
    seen_us, position = max(clock_us, last_us), Position(block.offset, block.first_index)
    before = clocks.before(partition_before, clock_us)
    routes = () if block.route is None else (block.route,)
    held: Held = {}
    carried = None
    if stream.readings is not None:
        held = stream.readings.before(first_us, position)
        carried = stream.readings.row_of(held, block.values.shape[1])
        stream.readings.take(times_us, block.values, block.offset, block.first_index)
    finished = FinishedSequence(
        stream.name,
        key,
        "marker",
        times_us,
        block.values,
        position,
        routes=routes,
        carried=carried,
        batch=stream.batch_of(key),
    )
    closed = Closed(finished, key, seen_us, last_us, block.offset, before, held=held)
    clocks.max_time_us = last_us
    clocks.last_record_us = clock_us if is_timed else seen_us
    stream.closed.end(closed)
    stream.reread.ended(closed)
    return closed


def _may_be_whole(stream: StreamState, block: SampleBlock) -> bool:
    """Return whether ``block`` has an end mark with readings, and nothing in its stream waits or is open."""
    settings, first_reading = stream.settings, block.values[-1, 0]
    if not block.end or "marker" not in settings.end or stream.open.by_key or math.isnan(first_reading):
        return False
    if settings.allowed_lateness or settings.length is not None or settings.gap is not None:
        return False
    if stream.held is not None or stream.entries or stream.partial or block.offset < stream.done_below:
        return False
    if stream.bounds is not None:
        return False
    return len(block) <= settings.max_samples
