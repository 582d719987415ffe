"""One stream's sequences: takes samples in event-time order and cuts them by the modes and limits of the config.

Limits are inclusive: a sample exactly ``gap`` after its predecessor, or exactly ``max_duration`` after the first one,
still belongs; one tick later it does not.

Every decision depends only on the stream's clocks and on samples of sequences that are not done yet, never on the
times of commits; rereading is therefore exact.
"""

from __future__ import annotations

import numpy as np

from streamad.ingest.sequences.clocks import NEVER_US, StreamClocks
from streamad.ingest.sequences.closed_sequences import Closed, ClosedSequences, hash_of
from streamad.ingest.sequences.late_entries import MAX_LATE_ENTRIES, LateEntry, LateSamples
from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.ingest.sequences.open_sequences import OpenSequences
from streamad.ingest.sequences.relative_times import RelativeStarts
from streamad.ingest.sequences.rereading import StreamRereading
from streamad.ingest.sequences.runs import ReorderBuffer, Run
from streamad.messages import EndReason
from streamad.partition_progress import ForcedEnd
from streamad.settings.plant_yaml import SequenceSettings


class StreamState:
    """The state of one stream in one partition; pure, driven by ``PartitionStreams``.

    Samples come in by ``accept`` (or a short way, joining.py). ``expire`` and ``evict`` end what no sample ends. What
    comes of it waits in ``finished``, ``late`` and ``late_without_id`` until it is collected.

    Where a sample is: ``held`` if it lies far ahead, ``pending`` while an earlier one may still come, then in one of
    ``open``; if it came too late it counts in one of ``entries``. ``closed`` and ``reread`` know what has ended.
    Samples of records below ``done_below`` are done: rereading drops them. (It stands here, not in ``reread``, as each
    sample asks for it. ``counted_bytes`` is the memory that the owner has counted: its sum needs no look at others.)
    """

    __slots__ = (
        "clocks", "closed", "counted_bytes", "done_below", "entries", "finished", "held", "late", "late_without_id",
        "name", "open", "partial", "pending", "reread", "settings", "starts",
    )  # fmt: skip

    def __init__(self, name: str, settings: SequenceSettings, *, partial: bool) -> None:
        self.name = name
        self.settings = settings
        self.partial = partial
        self.done_below = 0
        self.clocks = StreamClocks(settings)
        self.held: Run | None = None
        self.pending = ReorderBuffer()
        self.open = OpenSequences(settings)
        self.entries: dict[str | None, LateEntry] = {}
        self.closed = ClosedSequences(settings)
        self.reread = StreamRereading()
        self.starts = RelativeStarts(self.clocks, self.closed)
        self.finished: list[Closed] = []
        self.late: list[LateSamples] = []
        self.late_without_id: list[LateEntry] = []
        self.counted_bytes = 0

    # --- what its owner asks ---

    @property
    def is_quiet(self) -> bool:
        """Return whether silence can end nothing more."""
        return not self.open and not self.entries and not self.clocks.is_waiting

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
        """Return the partition clock after which all has ended and no id is remembered."""
        return self.clocks.forget_us(self.closed.memory_us)

    @property
    def deadline_us(self) -> int:
        """Return the partition clock after which something ends by silence, or the stream may be forgotten."""
        if self.clocks.last_record_us is None:
            return NEVER_US
        # Waiting samples come first: they may begin a sequence, or go on with one, that silence then ends (``expire``).
        if self.clocks.is_waiting:
            return self.clocks.wait_end_us()
        if not self.open and not self.entries:
            return self.forget_us
        first_since_us = min((entry.since_us for entry in self.entries.values()), default=NEVER_US)
        return self.clocks.silence_end_us(min(first_since_us, self.open.first_since_us))

    # --- samples in event-time order ---

    def accept(self, run: Run) -> None:
        """Take the next run in the order of arrival: late samples go to ``late``, others wait for the watermark."""
        clocks = self.clocks
        # Judged by the watermark before these samples: a chunk does not make its own first samples late.
        watermark_us = clocks.watermark_us
        if watermark_us is not None and run.first_us < watermark_us:
            late, accepted = run.split_at(watermark_us)
            self._drop_late(late, closed=False)
            self._enter_late(late)
            if accepted is None:
                return
            run = accepted
        clocks.max_time_us = run.last_us if clocks.max_time_us is None else max(clocks.max_time_us, run.last_us)
        watermark_us = clocks.watermark_us
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
        """Take a sample that ends something, merges, or is late."""
        clock_us = max(run.arrived_us, run.first_us)
        # First the limits, since they lie before this sample in event time. They may end its own sequence as well.
        for overdue in self.open.take_overdue(run.first_us):
            self.close(overdue, self._limit_reason(overdue), clock_us, by=run)
        # A sample of equal time merges: it is not one too many.
        sequence = self.open.get(run.sequence)
        if sequence is not None and run.first_us > sequence.last_us and sequence.n >= self.settings.max_samples:
            self.close(sequence, "max_samples", clock_us, by=run)
        # Before the change of ids: a late sample of an ended sequence ends no other one.
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
            # Its late samples belong to it from now on, so they get no verdict of their own.
            late = None if run.sequence is None else self.entries.pop(run.sequence, None)
            sequence = OpenSequence(run, partial=self.partial, late=late)
            self.open.add(sequence)
            self.partial = False  # only the first sequence may lack its beginning
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
        return run.sequence not in self.open and self.closed.holds(run)

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
        # Rereading must meet the samples and the one that ended them, whichever record comes first.
        undone = sequence.undone_from
        if by is not None and by.position.offset < undone[0]:
            undone = by.position.offset, by.before
        closed = Closed(finished, sequence.key, at_us, through, sequence.merged, *undone, unseen=sequence.partial)
        self.closed.end(closed)
        self.reread.ended(closed)
        self.finished.append(closed)

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
        self.closed.end_late(entry.key, at_us)
        closed = Closed(
            entry.finish(self.name), entry.key, at_us, entry.last_us, 0, entry.position.offset, entry.before
        )
        self.reread.ended(closed)
        self.finished.append(closed)

    def flush(self) -> None:
        """Release all waiting samples: nothing older is accepted any more."""
        self.clocks.floor_us = self.clocks.max_time_us
        for run in self.pending.release(None):
            self._feed(run)

    def expire(self, deadline_us: int) -> None:
        """Apply the next deadline, ``deadline_us``, which the partition's clock has passed."""
        # One step at a time, as ``deadline_us`` names them: what is released now may end at the next deadline.
        if self.clocks.is_waiting:
            self.flush()
            return
        silent_us = deadline_us - self.settings.max_duration - self.settings.allowed_lateness
        if self.clocks.silence_end_us(NEVER_US) <= deadline_us:
            silent_us = NEVER_US
        for sequence in self.open.take_silent(silent_us):
            self.close(sequence, self._limit_reason(sequence), deadline_us)
        for entry in [entry for entry in self.entries.values() if entry.since_us <= silent_us]:
            self.close_late(entry, deadline_us)

    def evict(self, offset: int, ended: str | None) -> None:
        """End the sequence whose id has the hash ``ended``, if any, because memory is short at ``offset``."""
        self.reread.force(ForcedEnd(offset=offset, ended=ended))
        self.flush()
        for sequence in list(self.open.values()):
            if hash_of(sequence.key) == ended:
                self.close(sequence, "memory")

    def forget_closed(self, clock_us: int) -> None:
        """Forget the ids of sequences that were closed longer than ``closed_memory`` ago."""
        # A waiting sample is judged by the clock of its arrival: what was remembered then must be remembered still.
        self.closed.forget(min((run.arrived_us for run in self.pending.runs), default=clock_us))
        if self.starts:
            self.starts.keep((*self.open, *(run.sequence for run in self.pending.runs)))
