"""One stream's sequences: takes samples in event-time order and cuts them where a mode or a limit says so.

Limits are inclusive: a sample exactly ``gap`` after its predecessor, or exactly ``max_duration`` after the first one,
still belongs; one tick later it does not.
"""

from __future__ import annotations

__all__ = ["Closed", "LateSamples", "OpenSequence", "StreamState"]

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from streamad.ingest._runs import Clocks, ReorderBuffer, Run
from streamad.progress import StreamProgress
from streamad.settings import SequenceSettings
from streamad.types import EndReason, FinishedSequence, FloatArray, IntArray, Position, from_us

MAX_CLOSED_IDS = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class LateSamples:
    """Samples that no verdict will hold: their sequence is closed, or they came beyond ``allowed_lateness``."""

    stream: str
    sequence: str | None
    closed: bool
    offset: int
    times_us: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A finished sequence and what its progress needs until the verdict is committed."""

    sequence: FinishedSequence
    key: str | None
    through_us: int
    merged: int
    before: Clocks


def id_hash(key: str) -> str:
    """Return the short hash under which a closed sequence id is remembered."""
    return blake2b(key.encode(), digest_size=9).hexdigest()


class OpenSequence:
    """The samples of one sequence so far."""

    __slots__ = (
        "before",
        "duplicates",
        "key",
        "last_us",
        "merged",
        "n",
        "nbytes",
        "partial",
        "position",
        "runs",
        "since_us",
        "start_us",
    )

    def __init__(self, run: Run, since_us: int, *, partial: bool) -> None:
        self.key = run.sequence
        self.start_us = run.first_us
        self.since_us = since_us
        self.partial = partial
        self.position = run.position
        self.before = run.before
        self.runs: list[Run] = []
        self.n = 0
        self.nbytes = 0
        self.duplicates = 0
        self.merged = 0
        self.last_us = run.first_us - 1

    def append(self, run: Run) -> None:
        """Add a run that lies wholly after what is here, or a single sample of the same time as the last one."""
        if run.position < self.position:
            self.position, self.before = run.position, run.before
        self.duplicates += run.duplicates
        self.merged += run.merged
        if run.first_us == self.last_us:
            self._merge(run)
            return
        self.runs.append(run)
        self.n += len(run)
        self.nbytes += run.nbytes
        self.last_us = run.last_us

    def _merge(self, run: Run) -> None:
        last = self.runs[-1]
        if len(last) > 1:
            self.runs[-1:] = last.split(len(last) - 1)
            last = self.runs[-1]
        merged, duplicates = last.merged, last.duplicates
        last.absorb(run)
        self.merged += last.merged - merged - run.merged
        self.duplicates += last.duplicates - duplicates - run.duplicates

    def finish(self, stream: str, reason: EndReason) -> FinishedSequence:
        times_us = np.concatenate([run.times_us for run in self.runs])
        values = np.concatenate([run.values for run in self.runs])
        name = self.key if self.key is not None else from_us(self.start_us).isoformat()
        return FinishedSequence(stream, name, reason, times_us, values, self.position, self.partial, self.duplicates)


class StreamState:
    """Everything known of one stream in one partition; pure, driven by ``Assembler``."""

    __slots__ = (
        "base_us", "clock_us", "closed", "closed_through_us", "committed_through_us", "done_below", "finished", "floor_us",
        "in_flight", "last_record_us", "late", "max_time_us", "name", "open", "partial", "pending", "settings",
    )  # fmt: skip

    def __init__(self, name: str, settings: SequenceSettings, *, partial: bool) -> None:
        self.name = name
        self.settings = settings
        self.partial = partial
        self.pending = ReorderBuffer()
        self.open: dict[str | None, OpenSequence] = {}
        self.closed: dict[str, int] = {}
        self.in_flight: dict[tuple[str | None, Position], Closed] = {}
        self.base_us: dict[str | None, int] = {}
        self.max_time_us: int | None = None
        self.floor_us: int | None = None
        self.last_record_us: int | None = None
        self.closed_through_us: int | None = None
        self.committed_through_us: int | None = None
        self.done_below = 0
        self.clock_us = 0
        self.finished: list[Closed] = []
        self.late: list[LateSamples] = []

    # --- clocks ---

    @property
    def watermark_us(self) -> int | None:
        """Return the time below which a sample is late; None before the first one."""
        if self.max_time_us is None:
            return self.floor_us
        watermark = self.max_time_us - self.settings.allowed_lateness
        return watermark if self.floor_us is None else max(watermark, self.floor_us)

    def deadline_us(self, closed_memory_us: int) -> int:
        """Return the partition clock after which something ends by silence, or memory of it may go."""
        lateness = self.settings.allowed_lateness
        last = self.last_record_us if self.last_record_us is not None else self.clock_us
        if self.pending.runs:
            return last + lateness
        limits = [sequence.since_us + self.settings.max_duration + lateness for sequence in self.open.values()]
        if self.open and self.settings.gap is not None:
            limits.append(last + self.settings.gap + lateness)
        return min(limits) if limits else last + closed_memory_us

    # --- samples in event-time order ---

    def feed(self, run: Run) -> None:
        """Take the next run in event-time order."""
        if self._fits_whole(run):
            sequence = self.open.get(run.sequence) or self._begin(run)
            sequence.append(run)
            self._end_if_done(sequence, run)
            return
        for single in run.singles():
            self._feed_single(single)

    def _fits_whole(self, run: Run) -> bool:
        settings = self.settings
        sequence = self.open.get(run.sequence)
        if len(self.open) > (sequence is not None) and self._disturbs_others(run):
            return False
        if self._is_closed(run):
            return False
        start_us = run.first_us if sequence is None else sequence.start_us
        count = len(run) + (0 if sequence is None else sequence.n)
        if run.last_us - start_us > settings.max_duration or count > min(
            settings.length or settings.max_samples, settings.max_samples
        ):
            return False
        if sequence is not None and run.first_us == sequence.last_us:
            return False
        if settings.gap is None:
            return True
        if sequence is not None and run.first_us - sequence.last_us > settings.gap:
            return False
        return len(run) == 1 or int(np.diff(run.times_us).max()) <= settings.gap

    def _disturbs_others(self, run: Run) -> bool:
        if "change" in self.settings.end:
            return True
        gap, max_duration = self.settings.gap, self.settings.max_duration
        return any(
            run.last_us - other.start_us > max_duration or (gap is not None and run.last_us - other.last_us > gap)
            for other in self.open.values()
            if other.key != run.sequence
        )

    def _feed_single(self, run: Run) -> None:
        self._end_overdue(run.first_us)
        if self._is_closed(run):
            self.drop_late(run, closed=True)
            return
        if "change" in self.settings.end:
            for key in [key for key in self.open if key != run.sequence]:
                self.close(self.open[key], "change")
        sequence = self.open.get(run.sequence)
        is_new_time = sequence is not None and run.first_us > sequence.last_us
        if sequence is not None and is_new_time and sequence.n >= self.settings.max_samples:
            self.close(sequence, "max_samples")
            if self._is_closed(run):
                self.drop_late(run, closed=True)
                return
            sequence = None
        if sequence is None:
            sequence = self._begin(run)
        sequence.append(run)
        self._end_if_done(sequence, run)

    def _begin(self, run: Run) -> OpenSequence:
        sequence = OpenSequence(run, self.clock_us, partial=self.partial)
        self.partial = False
        self.open[run.sequence] = sequence
        return sequence

    def _is_closed(self, run: Run) -> bool:
        if run.sequence is None:
            return self.closed_through_us is not None and run.first_us <= self.closed_through_us
        return bool(self.closed) and id_hash(run.sequence) in self.closed

    def _end_overdue(self, time_us: int) -> None:
        for sequence in list(self.open.values()):
            gap_end = sequence.last_us + (self.settings.gap if self.settings.gap is not None else 1 << 62)
            duration_end = sequence.start_us + self.settings.max_duration
            if time_us > min(gap_end, duration_end):
                self.close(sequence, "gap" if gap_end <= duration_end else "max_duration")

    def _end_if_done(self, sequence: OpenSequence, run: Run) -> None:
        if run.end and "marker" in self.settings.end:
            self._drop_bare_marker(sequence)
            self.close(sequence, "marker", through_us=run.last_us)
        elif self.settings.length is not None and sequence.n >= self.settings.length:
            self.close(sequence, "length")

    @staticmethod
    def _drop_bare_marker(sequence: OpenSequence) -> None:
        """Take an end mark without readings out of the samples; it said only that the sequence is over."""
        last = sequence.runs[-1]
        if sequence.n == 1 or not np.isnan(last.values[-1]).all():
            return
        sequence.runs.pop()
        if len(last) > 1:
            sequence.runs.append(last.split(len(last) - 1)[0])
        sequence.n -= 1
        sequence.merged += 1

    # --- ends ---

    def close(self, sequence: OpenSequence, reason: EndReason, *, through_us: int | None = None) -> None:
        """End ``sequence``; it stays in flight until its verdict is committed."""
        del self.open[sequence.key]
        self.base_us.pop(sequence.key, None)
        through = max(sequence.last_us, through_us if through_us is not None else sequence.last_us)
        finished = sequence.finish(self.name, reason)
        closed = Closed(finished, sequence.key, through, sequence.merged, sequence.before)
        if sequence.key is None:
            self.closed_through_us = max(through, self.closed_through_us or through)
        else:
            self.closed[id_hash(sequence.key)] = self.clock_us
            if len(self.closed) > MAX_CLOSED_IDS:
                del self.closed[next(iter(self.closed))]
        self.in_flight[sequence.key, sequence.position] = closed
        self.finished.append(closed)

    def drop_late(self, run: Run, *, closed: bool) -> None:
        """Hand ``run`` to the late samples."""
        self.late.append(LateSamples(self.name, run.sequence, closed, run.position.offset, run.times_us, run.values))

    def flush(self) -> None:
        """Release all that waits for late-comers: nothing older is accepted any more."""
        for run in self.pending.release(None):
            self.feed(run)
        if self.max_time_us is not None:
            self.floor_us = self.max_time_us

    def expire(self, now_us: int, closed_memory_us: int) -> None:
        """End what silence or a limit has ended when the partition's clock says ``now_us``."""
        lateness = self.settings.allowed_lateness
        last = self.last_record_us if self.last_record_us is not None else now_us
        if self.pending.runs and now_us > last + lateness:
            self.flush()
        gap_end = last + self.settings.gap if self.settings.gap is not None else 1 << 62
        for sequence in list(self.open.values()):
            duration_end = sequence.since_us + self.settings.max_duration
            if now_us > min(gap_end, duration_end) + lateness:
                self.close(sequence, "gap" if gap_end <= duration_end else "max_duration")
        while self.closed:
            oldest = next(iter(self.closed))
            if now_us <= self.closed[oldest] + closed_memory_us:
                break
            del self.closed[oldest]

    @property
    def is_forgettable(self) -> bool:
        return not (self.open or self.pending.runs or self.in_flight or self.closed)

    # --- progress ---

    def committed(self, closed: Closed) -> None:
        """Note that the verdict of ``closed`` is durable."""
        del self.in_flight[closed.key, closed.sequence.first_position]
        if closed.key is None:
            self.committed_through_us = max(closed.through_us, self.committed_through_us or closed.through_us)

    def oldest(self) -> tuple[int, Clocks] | None:
        """Return the lowest offset that holds an undone sample, with the clocks before it; None if all is done."""
        undone = [(run.position.offset, run.before) for run in self.pending.runs]
        undone += [(sequence.position.offset, sequence.before) for sequence in self.open.values()]
        undone += [(closed.sequence.first_position.offset, closed.before) for closed in self.in_flight.values()]
        return min(undone, key=lambda entry: entry[0]) if undone else None

    def progress(self, next_offset: int) -> StreamProgress:
        """Return what a restart at ``next_offset`` must know of this stream."""
        oldest = self.oldest()
        done_below, clocks = oldest or (next_offset, Clocks(self.max_time_us, self.floor_us, self.last_record_us, None))
        in_flight = {id_hash(closed.key) for closed in self.in_flight.values() if closed.key is not None}
        return StreamProgress(
            done_below=done_below,
            max_time_us=clocks.max_time_us,
            floor_us=clocks.floor_us,
            last_record_us=clocks.last_record_us,
            closed={key: at for key, at in self.closed.items() if key not in in_flight},
            closed_through_us=self.committed_through_us,
            partial=self.partial
            or any(sequence.partial for sequence in self.open.values())
            or any(closed.sequence.partial for closed in self.in_flight.values()),
        )

    def restore(self, progress: StreamProgress) -> None:
        """Take over what ``progress`` says."""
        self.done_below = progress.done_below
        self.max_time_us = progress.max_time_us
        self.floor_us = progress.floor_us
        self.last_record_us = progress.last_record_us
        self.closed = dict(progress.closed)
        self.closed_through_us = self.committed_through_us = progress.closed_through_us
        self.partial = progress.partial
