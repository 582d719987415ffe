"""One stream's sequences: takes samples in event-time order and cuts them by the modes and limits of the config.

Limits are inclusive: a sample exactly ``gap`` after its predecessor, or exactly ``max_duration`` after the first one,
still belongs; one tick later it does not.

Every decision depends only on the stream's clocks and on samples of sequences that are not done yet, never on the
times of commits; rereading is therefore exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter

import numpy as np

from streamad.ingest.sequences.closed_ids import NEVER_US, ClosedIds
from streamad.ingest.sequences.late_entries import MAX_LATE_ENTRIES, LateEntry
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.open_sequences import OpenSequences
from streamad.ingest.sequences.runs import Clocks, ReorderBuffer, Run
from streamad.messages import EndReason
from streamad.partition_progress import ForcedEnd, StreamProgress
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import FinishedSequence, FloatArray, IntArray, Position

MAX_CLOSED_IDS = 100_000
MAX_FORCED_ENDS = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class LateSamples:
    """Samples in no sequence: theirs is closed, or they came beyond ``allowed_lateness``.

    ``merged`` counts the samples merged into them before.
    """

    stream: str
    sequence: str | None
    closed: bool
    offset: int
    times_us: IntArray
    values: FloatArray
    merged: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Closed:
    """A finished sequence with the state that its progress needs until the verdict is committed.

    ``at_us`` is the partition's clock at its end, ``through_us`` the event time up to which it is closed; ``offset`` is
    the lowest of its samples and the one that ended it, ``before`` holds the clocks before that record. ``unseen``: its
    beginning may lie before the first record read.
    """

    sequence: FinishedSequence
    key: str | None
    at_us: int
    through_us: int
    merged: int
    offset: int
    before: Clocks
    unseen: bool = False


@lru_cache(maxsize=10_000)
def id_hash(key: str) -> str:
    """Return the short hash under which a closed sequence id is remembered."""
    return blake2b(key.encode(), digest_size=9).hexdigest()


def hash_of(key: str | None) -> str:
    """Return ``id_hash`` of a sequence id, "" if there is none."""
    return "" if key is None else id_hash(key)


class StreamState:
    """The state of one stream in one partition; pure, driven by ``Assembler``."""

    __slots__ = (
        "closed", "closed_late", "closed_memory_us", "closed_through_us", "committed_through_us", "counted_bytes",
        "done_below", "entries", "finished", "floor_us", "forced", "held", "in_flight",
        "last_record_us", "late", "late_without_id", "max_time_us", "name", "open", "partial", "pending", "retired_at",
        "settings", "starts_us",
    )  # fmt: skip

    def __init__(self, name: str, settings: SequenceSettings, *, partial: bool) -> None:
        self.name = name
        self.settings = settings
        self.partial = partial
        self.closed_memory_us = (
            settings.closed_memory
            if settings.closed_memory is not None
            else settings.max_duration + settings.allowed_lateness
        )
        self.pending = ReorderBuffer()
        self.open = OpenSequences(settings)
        self.closed = ClosedIds(MAX_CLOSED_IDS)
        self.entries: dict[str | None, LateEntry] = {}
        self.closed_late = ClosedIds(MAX_LATE_ENTRIES)
        self.held: Run | None = None
        self.in_flight: dict[tuple[str | None, Position], Closed] = {}
        self.starts_us: dict[str | None, tuple[int, int]] = {}
        self.max_time_us: int | None = None
        self.floor_us: int | None = None
        self.last_record_us: int | None = None
        self.closed_through_us: int | None = None
        self.committed_through_us: int | None = None
        self.counted_bytes = 0
        self.done_below = 0
        self.retired_at: int | None = None
        self.forced: list[ForcedEnd] = []
        self.finished: list[Closed] = []
        self.late: list[LateSamples] = []
        self.late_without_id: list[LateEntry] = []

    # --- clocks ---

    @property
    def watermark_us(self) -> int | None:
        """Return the time below which a sample is late; None before the first one."""
        if self.max_time_us is None:
            return None
        watermark = self.max_time_us - self.settings.allowed_lateness
        return watermark if self.floor_us is None else max(watermark, self.floor_us)

    @property
    def is_waiting(self) -> bool:
        """Return whether late samples may still precede the newest one (known from the clocks alone)."""
        if not self.settings.allowed_lateness or self.max_time_us is None:
            return False
        return self.floor_us is None or self.floor_us < self.max_time_us

    @property
    def is_quiet(self) -> bool:
        """Return whether silence can end nothing more."""
        return not self.open and not self.entries and not self.is_waiting

    @property
    def nbytes(self) -> int:
        """Return the memory of waiting samples and open sequences."""
        return self.pending.nbytes + self.open.nbytes

    @property
    def n_buffered(self) -> int:
        """Return how many samples wait or are in open sequences, merged ones included."""
        waiting = sum(len(run) + run.merged for run in self.pending.runs)
        return waiting + sum(sequence.n + sequence.merged for sequence in self.open.values())

    @property
    def n_begun(self) -> int:
        """Return how many sequences have samples, perhaps waiting or late ones, and no end yet."""
        runs = self.pending.runs if self.held is None else [*self.pending.runs, self.held]
        waiting = {run.sequence for run in runs if not self._is_closed(run)}
        return len(waiting | self.open.keys() | {key for key in self.entries if key is not None})

    @property
    def forget_us(self) -> int:
        """Return the clock after which all has ended and no id is remembered."""
        if self.last_record_us is None or self.max_time_us is None:
            return NEVER_US
        newest = max(self.last_record_us, self.max_time_us)
        gap, max_duration = self.settings.gap, self.settings.max_duration
        longest_silence = max_duration if gap is None else min(gap, max_duration)
        return newest + longest_silence + self.settings.allowed_lateness + self.closed_memory_us

    @property
    def deadline_us(self) -> int:
        """Return the partition clock after which something ends by silence, or the stream may be forgotten."""
        if self.last_record_us is None:
            return NEVER_US
        if self.is_waiting:
            return self.last_record_us + self.settings.allowed_lateness
        if not self.open and not self.entries:
            return self.forget_us
        first_since_us = min((entry.since_us for entry in self.entries.values()), default=NEVER_US)
        return self._silence_end_us(min(first_since_us, self.open.first_since_us))

    def _silence_end_us(self, since_us: int) -> int:
        """Return the partition clock after which silence ends a sequence that began at the clock ``since_us``."""
        end_us = since_us + self.settings.max_duration
        if self.settings.gap is not None and self.last_record_us is not None:
            end_us = min(end_us, self.last_record_us + self.settings.gap)
        return end_us + self.settings.allowed_lateness

    # --- samples in event-time order ---

    def accept(self, run: Run) -> None:
        """Take the next run in the order of arrival: late samples go to ``late``, others wait for the watermark."""
        watermark_us = self.watermark_us
        if watermark_us is not None and run.first_us < watermark_us:
            late, accepted = run.split_at(watermark_us)
            self._drop_late(late, closed=False)
            self._enter_late(late)
            if accepted is None:
                return
            run = accepted
        self.max_time_us = run.last_us if self.max_time_us is None else max(self.max_time_us, run.last_us)
        watermark_us = self.watermark_us
        if watermark_us == run.last_us and not self.pending.runs:
            self._feed(run)
            return
        self.pending.add(run)
        for released in self.pending.release(watermark_us):
            self._feed(released)

    def _feed(self, run: Run) -> None:
        """Take the next run in event-time order."""
        rest: Run | None = run
        while rest is not None:
            n = self._fitting(rest)
            if n == len(rest) or len(rest) == 1:
                piece, rest = rest, None
            else:
                piece, rest = rest.split(max(n, 1))
            if n == 0:
                self._feed_single(piece)
            else:
                self._append(piece)

    def _fitting(self, run: Run) -> int:
        """Return how many of the first samples of ``run`` join their sequence without ending or merging anything."""
        settings = self.settings
        sequence = self.open.get(run.sequence)
        limit_us, n_left = run.first_us + settings.max_duration, min(settings.length or NEVER_US, settings.max_samples)
        if sequence is not None:
            limit_us, n_left = sequence.start_us + settings.max_duration, n_left - sequence.n
            if run.first_us == sequence.last_us:
                return 0
        elif self._is_closed(run):
            return 0
        if len(self.open) > (sequence is not None):
            if "change" in settings.end:
                return 0
            limit_us = min(limit_us, self.open.limit_us(sequence))
        n = min(len(run), n_left)
        if run.last_us > limit_us:
            n = min(n, int(np.searchsorted(run.times_us, limit_us, side="right")))
        if settings.gap is not None and n > 0:
            if sequence is not None and run.first_us - sequence.last_us > settings.gap:
                return 0
            gaps = np.diff(run.times_us[:n]) > settings.gap
            n = int(gaps.argmax()) + 1 if gaps.any() else n
        return n

    def _feed_single(self, run: Run) -> None:
        clock_us = max(run.arrived_us, run.first_us)
        for overdue in self.open.take_overdue(run.first_us):
            self.close(overdue, self._limit_reason(overdue), clock_us, by=run)
        sequence = self.open.get(run.sequence)
        if sequence is not None and run.first_us > sequence.last_us and sequence.n >= self.settings.max_samples:
            self.close(sequence, "max_samples", clock_us, by=run)
        if self._is_closed(run):
            self._drop_late(run, closed=True)
            return
        if "change" in self.settings.end:
            for other in [other for other in self.open.values() if other.key != run.sequence]:
                self.close(other, "change", clock_us, by=run)
        self._append(run)

    def _append(self, run: Run) -> None:
        sequence = self.open.get(run.sequence)
        if sequence is None:
            late = None if run.sequence is None else self.entries.pop(run.sequence, None)
            sequence = OpenSequence(run, partial=self.partial, late=late)
            self.open.add(sequence)
            self.partial = False
        nbytes, is_end = sequence.nbytes, run.end and "marker" in self.settings.end
        sequence.append(run)
        if is_end:
            sequence.drop_bare_marker()
        self.open.grew(sequence, nbytes)
        if is_end:
            self.close(sequence, "marker", through_us=run.last_us)
        elif self.settings.length is not None and sequence.n >= self.settings.length:
            self.close(sequence, "length")

    def _is_closed(self, run: Run) -> bool:
        if run.sequence in self.open:
            return False
        if run.sequence is None:
            return self.closed_through_us is not None and run.first_us <= self.closed_through_us
        return self.knows(run.sequence, max(run.arrived_us, run.first_us))

    def knows(self, key: str, clock_us: int) -> bool:
        """Return whether the sequence ``key`` has ended, and is remembered at the clock ``clock_us``."""
        if not self.closed.ended and not self.closed_late.ended:
            return False
        hashed = id_hash(key)
        at_us = max(self.closed.ended_us(hashed), self.closed_late.ended_us(hashed))
        return clock_us <= at_us + self.closed_memory_us

    # --- ends ---

    def _limit_reason(self, sequence: OpenSequence) -> EndReason:
        """Return which limit comes first in event time."""
        gap = self.settings.gap
        is_gap = gap is not None and sequence.last_us + gap <= sequence.start_us + self.settings.max_duration
        return "gap" if is_gap else "max_duration"

    def close(
        self,
        sequence: OpenSequence,
        reason: EndReason,
        clock_us: int = -NEVER_US,
        *,
        through_us: int | None = None,
        by: Run | None = None,
    ) -> None:
        """End ``sequence`` (because of the sample ``by``, if any)."""
        self.open.remove(sequence)
        through = sequence.last_us if through_us is None else max(sequence.last_us, through_us)
        finished = sequence.finish(self.name, reason)
        at_us = max(sequence.seen_us, clock_us)
        undone = sequence.undone_from
        if by is not None and by.position.offset < undone[0]:
            undone = by.position.offset, by.before
        closed = Closed(finished, sequence.key, at_us, through, sequence.merged, *undone, unseen=sequence.partial)
        self.enter(closed)
        self.finished.append(closed)

    def enter(self, closed: Closed) -> None:
        """Note the end of a sequence; it is in flight until its verdict is committed."""
        key, through_us = closed.key, closed.through_us
        if key is not None:
            self.closed.end(id_hash(key), closed.at_us)
        elif self.closed_through_us is None or through_us > self.closed_through_us:
            self.closed_through_us = through_us
        self.in_flight[key, closed.sequence.first_position] = closed

    def _drop_late(self, run: Run, *, closed: bool) -> None:
        offset = run.position.offset
        self.late.append(LateSamples(self.name, run.sequence, closed, offset, run.times_us, run.values, run.merged))

    # --- sequences of late samples ---

    def _enter_late(self, late: Run) -> None:
        """Note late samples whose sequence is neither open nor closed, or has no id: nothing else tells of them."""
        index = late.position.index
        for number in range(len(late)):
            run = late.part(number, number + 1, index + number)
            if run.sequence is not None and (run.sequence in self.open or self._is_closed(run)):
                continue
            entry = self.entries.get(run.sequence)
            if entry is None:
                entry = self.entries[run.sequence] = LateEntry(run)
            entry.add(run)
            if run.end and "marker" in self.settings.end:
                self.close_late(entry, max(run.arrived_us, run.first_us))
            elif len(self.entries) > MAX_LATE_ENTRIES:
                self.close_late(next(iter(self.entries.values())), max(run.arrived_us, run.first_us))

    def close_late(self, entry: LateEntry, clock_us: int = -NEVER_US) -> None:
        """End the sequence of late samples; without an id it gets no verdict."""
        del self.entries[entry.key]
        if entry.key is None:
            self.late_without_id.append(entry)
            return
        at_us = max(entry.since_us, clock_us)
        self.closed_late.end(id_hash(entry.key), at_us)
        self.closed_late.forget_ended()
        closed = Closed(
            entry.finish(self.name), entry.key, at_us, entry.last_us, 0, entry.position.offset, entry.before
        )
        self.in_flight[entry.key, entry.position] = closed
        self.finished.append(closed)

    def flush(self) -> None:
        """Release all waiting samples: nothing older is accepted any more."""
        self.floor_us = self.max_time_us
        for run in self.pending.release(None):
            self._feed(run)

    def expire(self, deadline_us: int) -> None:
        """Apply the next deadline, ``deadline_us``, which the partition's clock has passed."""
        if self.is_waiting:
            self.flush()
            return
        silent_us = deadline_us - self.settings.max_duration - self.settings.allowed_lateness
        if self._silence_end_us(NEVER_US) <= deadline_us:
            silent_us = NEVER_US
        for sequence in self.open.take_silent(silent_us):
            self.close(sequence, self._limit_reason(sequence), deadline_us)
        for entry in [entry for entry in self.entries.values() if entry.since_us <= silent_us]:
            self.close_late(entry, deadline_us)

    # --- forced ends ---

    def note(self, end: ForcedEnd) -> None:
        """Note a forced end for a restart; of the wall-clock times at one offset only the last one counts."""
        last = self.forced[-1] if self.forced else None
        if last is not None and None not in (last.clock_us, end.clock_us) and last.offset == end.offset:
            self.forced.pop()
        self.forced.append(end)
        del self.forced[:-MAX_FORCED_ENDS]

    def evict(self, offset: int, ended: str | None) -> None:
        """End the sequence whose id has the hash ``ended``, if any, because memory is short at ``offset``."""
        self.note(ForcedEnd(offset=offset, ended=ended))
        self.flush()
        for sequence in list(self.open.values()):
            if hash_of(sequence.key) == ended:
                self.close(sequence, "memory")

    def forget_closed(self, clock_us: int) -> None:
        """Forget the ids of sequences that were closed longer than ``closed_memory`` ago."""
        clock_us = min((run.arrived_us for run in self.pending.runs), default=clock_us)
        self.closed.forget_ended(clock_us - self.closed_memory_us)
        self.closed_late.forget_ended(clock_us - self.closed_memory_us)
        if self.starts_us:
            pending = {run.sequence for run in self.pending.runs}
            known = self.closed.ended.keys() | {id_hash(key) for key in (*self.open, *pending) if key is not None}
            self.starts_us = {key: start for key, start in self.starts_us.items() if key is None or key in known}

    # --- times relative to the sequence's start ---

    def start_of(self, key: str | None, clock_us: int) -> int | None:
        """Return the event time of second 0 of the sequence ``key``; None if it begins now."""
        hashed = None if key is None else id_hash(key)
        start_us, set_us = self.starts_us.get(hashed, (None, 0))
        closed_us = self.closed.ended.get(hashed or "")
        recurs = closed_us is not None and set_us <= closed_us < clock_us - self.closed_memory_us
        return None if recurs else start_us

    def begin_at(self, key: str | None, start_us: int, clock_us: int) -> None:
        """Note the event time of second 0 of the sequence ``key``, first seen at the partition's clock ``clock_us``."""
        self.starts_us[None if key is None else id_hash(key)] = start_us, clock_us

    def end_relative(self) -> None:
        """Forget the start of the sequence without id: the next sample begins another one."""
        self.starts_us.pop(None, None)

    # --- progress ---

    def committed(self, closed: Closed) -> bool:
        """Note that the verdict of ``closed`` is durable; return whether it was in flight here."""
        if self.in_flight.pop((closed.key, closed.sequence.first_position), None) is None:
            return False
        if closed.sequence.n_late and closed.key is not None:
            self.closed_late.commit(id_hash(closed.key), closed.at_us)
        elif closed.key is not None:
            self.closed.commit(id_hash(closed.key), closed.at_us)
        elif self.committed_through_us is None or closed.through_us > self.committed_through_us:
            self.committed_through_us = closed.through_us
        return True

    def oldest(self) -> tuple[int, Clocks] | None:
        """Return the lowest offset that holds an undone sample, with the clocks before it; None if all is done."""
        undone = [(run.position.offset, run.before) for run in self.pending.runs]
        if (of_open := self.open.undone_from) is not None:
            undone.append(of_open)
        undone += [(entry.position.offset, entry.before) for entry in self.entries.values() if entry.key is not None]
        undone += [] if self.held is None else [(self.held.position.offset, self.held.before)]
        undone += [(closed.offset, closed.before) for closed in self.in_flight.values()]
        return min(undone, key=itemgetter(0)) if undone else None

    def progress(self, read_below: int, clock_us: int | None) -> StreamProgress:
        """Return the state that a restart needs at the offset ``read_below`` and the partition clock ``clock_us``."""
        now = Clocks(self.max_time_us, self.floor_us, self.last_record_us, clock_us, clock_us)
        if self.retired_at is not None:
            read_below = min(read_below, self.retired_at)
        oldest = self.oldest()
        done_below, clocks = oldest or (max(read_below, self.done_below), now)
        # The clocks include an end forced at ``done_below``, except that it made the stream be forgotten.
        needed_from = done_below if oldest is None and self.retired_at is not None else done_below + 1
        self.forced = [end for end in self.forced if end.offset >= needed_from]
        if clocks.partition_us is not None:
            self.closed.forget_committed(clocks.partition_us - self.closed_memory_us)
            self.closed_late.forget_committed(clocks.partition_us - self.closed_memory_us)
        return StreamProgress(
            done_below=done_below,
            max_time_us=clocks.max_time_us,
            floor_us=clocks.floor_us,
            last_record_us=clocks.last_record_us,
            closed=dict(self.closed.committed),
            closed_through_us=self.committed_through_us,
            partial=self.partial
            or any(sequence.partial for sequence in self.open.values())
            or any(closed.unseen for closed in self.in_flight.values()),
            starts={hashed: start for hashed, start in self.starts_us.items() if hashed is not None},
            forced=tuple(self.forced),
            closed_late=dict(self.closed_late.committed),
        )

    def restore(self, progress: StreamProgress) -> None:
        """Set the state that ``progress`` holds."""
        self.done_below = progress.done_below
        self.max_time_us = progress.max_time_us
        self.floor_us = progress.floor_us
        self.last_record_us = progress.last_record_us
        self.closed.restore(progress.closed)
        self.closed_late.restore(progress.closed_late)
        self.closed_through_us = self.committed_through_us = progress.closed_through_us
        self.partial = progress.partial
        self.starts_us.update(progress.starts)
