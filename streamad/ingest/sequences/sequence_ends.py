"""One stream's sequences: takes samples in event-time order and cuts them by the modes and limits of the config.

Limits are inclusive: a sample exactly ``gap`` after its predecessor, or exactly ``max_duration`` after the first one,
still belongs; one tick later it does not.

Every decision depends only on the stream's clocks and on samples of sequences that are not done yet, never on the
times of commits; rereading is therefore exact.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from streamad.ingest.boundaries.standing import StreamBoundaries
from streamad.ingest.sequences.clocks import NEVER_US, StreamClocks
from streamad.ingest.sequences.closed_sequences import Closed, ClosedSequences, StreamRereading, hash_of
from streamad.ingest.sequences.held_readings import HeldReadings
from streamad.ingest.sequences.open_sequence import MAX_LATE_ENTRIES, LateEntry, LateSamples, OpenSequence
from streamad.ingest.sequences.open_sequences import OpenSequences
from streamad.ingest.sequences.relative_times import RelativeStarts
from streamad.ingest.sequences.runs import ReorderBuffer, Run, joined_routes
from streamad.ingest.table.placing import Placing
from streamad.messages import EndReason
from streamad.partition_progress import ForcedEnd
from streamad.settings.boundaries import BoundaryRules
from streamad.settings.plant_yaml import SequenceSettings


class StreamState:
    """The state of one stream in one partition; pure, driven by ``PartitionStreams``.

    Samples come in by ``accept`` (or a short way, joining.py). ``expire`` and ``evict`` end sequences that no sample
    ends. The results wait in ``finished``, ``late`` and ``late_without_id`` until they are collected.

    A sample far ahead is ``held``; one is ``pending`` while an earlier one may still come, then lies in one of
    ``open``; if it came too late it counts in one of ``entries``. ``closed`` and ``reread`` know what has ended.
    ``readings`` are those that hold, None without tags that hold.
    Samples of records below ``done_below`` are done: rereading drops them. (It stands here, not in ``reread``, as each
    sample asks for it. ``counted_bytes`` is the memory that the owner has counted: its sum needs no look at others.)
    ``table`` places the samples if a table of batches cuts the stream: a run without an id is then in no row.
    ``bounds``: how states, words or tags say where samples belong. ``odd`` counts what lies in no sequence.
    """

    __slots__ = (
        "bounds", "clocks", "closed", "counted_bytes", "done_below", "entries", "finished", "held", "late",
        "late_without_id", "name", "odd", "open", "partial", "pending", "readings", "reread", "settings", "starts",
        "table",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        settings: SequenceSettings,
        *,
        partial: bool,
        table: Placing | None = None,
        rules: BoundaryRules | None = None,
    ) -> None:
        # Above 15 attributes: the root of a stream, which joins the parts that hold its samples; an end changes most.
        self.name = name
        self.settings = settings
        self.table = table
        self.partial = partial
        self.done_below = 0
        self.clocks = StreamClocks(settings)
        self.held: Run | None = None
        self.pending = ReorderBuffer()
        self.open = OpenSequences(settings)
        self.entries: dict[str | None, LateEntry] = {}
        self.closed = ClosedSequences(settings)
        self.reread = StreamRereading()
        self.readings: HeldReadings | None = None
        self.starts = RelativeStarts(self.clocks, self.closed, by_restart="restart" in settings.end)
        self.finished: list[Closed] = []
        self.late: list[LateSamples] = []
        self.late_without_id: list[LateEntry] = []
        self.counted_bytes = 0
        skips = settings.without_id == "skip"
        self.bounds = None if rules is None else StreamBoundaries(rules, self.clocks, skips=skips)
        self.odd: Counter[str] = Counter() if table is None else table.odd

    # --- what its owner asks ---

    @property
    def is_quiet(self) -> bool:
        """Return whether silence can end nothing more."""
        is_done = self.table is None or self.table.undone_from is None
        return not self.open and not self.entries and not self.clocks.is_waiting and is_done

    @property
    def nbytes(self) -> int:
        """Return the memory of waiting samples and open sequences."""
        return self.pending.nbytes + self.open.nbytes

    @property
    def n_begun(self) -> int:
        """Return how many sequences have samples, perhaps waiting or late ones, and no end yet."""
        runs = self.pending.runs if self.held is None else [*self.pending.runs, self.held]
        if self.bounds is not None:
            runs = [own for run in runs if not run.is_bare and (own := self.bounds.belonging(run)) is not None]
        waiting = {run.sequence for run in runs if not self._is_outside(run) and not self._is_closed(run)}
        return len(waiting | self.open.keys() | {key for key in self.entries if key is not None})

    @property
    def forget_us(self) -> int:
        """Return the partition clock after which all has ended and no id is remembered.

        Never with a table, as what is known of the stream then tells whether a later table agrees with this one, and
        never if a tag was read, as its reading holds.
        """
        if self.table is not None or (self.bounds is not None and self.bounds.outlives_silence):
            return NEVER_US
        return self.clocks.forget_us(self.closed.memory_us)

    @property
    def deadline_us(self) -> int:
        """Return the partition clock after which something ends by silence, or the stream may be forgotten."""
        if self.clocks.last_record_us is None:
            return NEVER_US
        # Waiting samples come first: they may begin a sequence, or go on with one, that silence then ends (``expire``).
        if self.clocks.is_waiting:
            return self.clocks.wait_end_us()
        if self.is_quiet:
            return self.forget_us
        first_since_us = min((entry.since_us for entry in self.entries.values()), default=NEVER_US)
        if self.table is not None:
            first_since_us = min(first_since_us, self.table.first_since_us)
        return self.clocks.silence_end_us(min(first_since_us, self.open.first_since_us))

    # --- samples in event-time order ---

    def accept(self, run: Run) -> None:
        """Take the next run in the order of arrival: late samples go to ``late``, others wait for the watermark."""
        if self.table is None:
            self._arrive(run)
            return
        for part in self.table.rows.parts_of(run):
            self._arrive(part)

    def _arrive(self, run: Run) -> None:
        clocks = self.clocks
        # Judged by the watermark before these samples: a chunk does not make its own first samples late.
        watermark_us = clocks.watermark_us
        if watermark_us is not None and run.first_us < watermark_us:
            late, accepted = run.split_at(watermark_us)
            if self.table is not None and self._is_outside(late):
                self.table.leave_out(late)
            elif self.bounds is not None:
                self._take_late_within(late, self.bounds)
            else:
                self._take_late(late)
            if accepted is None:
                return
            run = accepted
        if self.readings is not None:
            self.readings.come(run.times_us, run.values, run.position, begins=clocks.max_time_us is None)
        clocks.max_time_us = run.last_us if clocks.max_time_us is None else max(clocks.max_time_us, run.last_us)
        watermark_us = clocks.watermark_us
        if watermark_us == run.last_us and not self.pending.runs:
            self._feed(run)
        else:
            if self.bounds is not None:
                self.bounds.wait(run)
            self.pending.add(run)
            for released in self.pending.release(watermark_us):
                self._feed(released)
        if self.readings is not None and watermark_us is not None:
            self.readings.settle(watermark_us)

    def _feed(self, run: Run) -> None:
        """Take the next run in event-time order."""
        if self.table is not None and self._is_outside(run):
            self._end_others(run, "table")
            self.table.leave_out(run)
            return
        rest = run if self.bounds is None else self._within(run, self.bounds)
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
        if run.restarts and self.open:
            return 0
        sequence = self.open.get(run.sequence)
        limit_us, n_left = run.first_us + settings.max_duration, min(settings.length or NEVER_US, settings.max_samples)
        if sequence is not None:
            limit_us, n_left = sequence.start_us + settings.max_duration, n_left - sequence.n
            if run.first_us == sequence.last_us:
                return 0
        elif self._is_closed(run):
            return 0
        if len(self.open) > (sequence is not None):
            if "change" in settings.end or self.table is not None:
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
        # Before the limits: what lies between the old time and the new one is our own pause.
        if run.restarts:
            self._restart(run, clock_us)
        # Rows do not overlap: those of all other open sequences are over, and hold no more samples.
        if self.table is not None:
            self._end_others(run, "table")
        # Then the limits, since they lie before this sample in event time. They may end its own sequence as well.
        for overdue in self.open.take_overdue(run.first_us):
            self.close(overdue, overdue.limit_reason(self.settings), clock_us, by=run)
        # A sample of equal time merges: it is not one too many.
        sequence = self.open.get(run.sequence)
        if sequence is not None and run.first_us > sequence.last_us and sequence.n >= self.settings.max_samples:
            self.close(sequence, "max_samples", clock_us, by=run)
        # Before the change of ids: a late sample of an ended sequence ends no other one.
        if self._is_closed(run):
            if self.table is None or not self.table.is_done(run):
                self._drop_late(run, closed=True)
            return
        if "change" in self.settings.end:
            self._end_others(run, "change")
        self._append(run)

    def _end_others(self, run: Run, reason: EndReason) -> None:
        """End the sequences that ``run`` does not belong to."""
        clock_us = max(run.arrived_us, run.first_us)
        for other in [other for other in self.open.values() if other.key != run.sequence]:
            self.close(other, reason, clock_us, by=run)

    def _restart(self, run: Run, clock_us: int) -> None:
        """End all sequences: the time of ``run`` begins anew."""
        for other in list(self.open.values()):
            is_change = other.key != run.sequence and "change" in self.settings.end
            self.close(other, "change" if is_change else "restart", clock_us, by=run)

    def _append(self, run: Run) -> None:
        sequence = self.open.get(run.sequence)
        if sequence is None:
            # Its late samples belong to it from now on: no verdict of their own.
            late = None if run.sequence is None else self.entries.pop(run.sequence, None)
            held = {} if self.readings is None else self.readings.before(run.first_us, run.position)
            self.open.add(sequence := OpenSequence(run, partial=self.partial, late=late, held=held))
            sequence.begun_us, sequence.looks = self.closed.begun_us(run), self.reread.looks_of(run)
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

    def batch_of(self, key: str | None) -> tuple[tuple[str, str], ...]:
        """Return what the verdict of the sequence ``key`` shows of its row in the table."""
        return () if self.table is None else self.table.further_of(key)

    def _is_outside(self, run: Run) -> bool:
        """Return whether the samples of ``run`` are in no row of the table."""
        return self.table is not None and run.sequence is None

    def _is_closed(self, run: Run) -> bool:
        return run.sequence not in self.open and self.closed.holds(run)

    # --- where words and tags say that sequences begin and end ---

    def _within(self, run: Run, bounds: StreamBoundaries) -> Run | None:
        """Apply what the next run says; return its samples with their id, None if they lie in no sequence."""
        bounds.turn(run)
        boundary = run.boundary
        if boundary is not None:
            by = None if bounds.carries else run
            self._end_overdue(run, run.first_us, by=by)
            ended = bounds.enter(run)
            if ended is not None:
                self._end_at(run, *ended, by=by)
            if boundary.begins or boundary.state is False or ended is not None:
                self.partial = False  # whatever begins now is seen from its beginning
        own = None if run.is_bare else bounds.taken(run)
        if own is not None and self.readings is not None and own.sequence not in self.open:
            own = bounds.begun(run, own)
        if boundary is not None and boundary.ends:
            self._end_by_word(run, bounds)
        if own is None and not run.is_bare:
            self._pass(run, bounds)
        return own

    def _end_overdue(self, run: Run, time_us: int, *, by: Run | None) -> None:
        """End what a limit has ended before ``time_us``, a time of ``run``."""
        for overdue in self.open.take_overdue(time_us):
            self.close(overdue, overdue.limit_reason(self.settings), max(run.arrived_us, time_us), by=by)

    def _end_at(self, run: Run, reason: EndReason, key: str | None, is_all: bool, *, by: Run | None = None) -> None:
        """End the sequence ``key``, or all, at ``run``; one with later samples is torn."""
        for sequence in [each for each in self.open.values() if is_all or each.key == key]:
            sequence.is_torn = sequence.is_torn or sequence.last_us > run.first_us
            if self.readings is not None and self.bounds is not None and self.bounds.carries:  # they hold until here
                sequence.ended_us = max(sequence.last_us, run.first_us)
            self.close(sequence, reason, max(run.arrived_us, run.first_us), by=by)

    def _end_by_word(self, run: Run, bounds: StreamBoundaries) -> None:
        """Let an end word stand; a bare one ends the sequence now, the others as any end mark does."""
        is_ours, key = bounds.leave(run)
        is_named = is_ours or run.sequence is not None
        sequence = self.open.get(key) if is_named else None
        if sequence is not None and run.is_bare:
            sequence.routes = joined_routes(sequence.routes, run.routes)
            self._end_at(run, "marker", key, is_all=False)
        elif not is_named or (run.is_bare and not (is_ours or key in self.entries or self._is_closed(run))):
            self.odd["unbegun_ends"] += 1

    def _pass(self, run: Run, bounds: StreamBoundaries) -> None:
        """Count samples in no sequence, or left out, and so no samples; their times end what a limit ends."""
        n = len(run) + run.merged
        self.odd.update({"without_id": n, "samples": -n} if bounds.is_inside(run) else {"outside": n})
        if bounds.lacks_tag:
            self.odd["before_tag"] += n
        while self.open and run.last_us > (limit_us := self.open.limit_us()):
            at = int(np.searchsorted(run.times_us, limit_us, side="right"))
            self._end_overdue(run, int(run.times_us[at]), by=run)

    def _take_late_within(self, late: Run, bounds: StreamBoundaries) -> None:
        """Take late samples; a word or a tag's reading that is newer than all before it holds from now on."""
        boundary = late.boundary
        if boundary is not None and bounds.carries:
            self.odd["late_boundaries"] += 1
            if bounds.is_newer(late):
                own = self._within(late, bounds)
                bounds.came_late()
                if own is not None:
                    self._take_late(own)
                    if boundary.ends:
                        self._end_at(own, "marker", own.sequence, is_all=False)
                return
        if late.is_bare:
            return
        unplaced, rest = bounds.late(late)
        if unplaced is not None:
            self._take_late(unplaced)
        if rest is not None:
            own = bounds.belonging(rest)
            if own is None:
                if not bounds.carries:  # its own state
                    self.odd["late_boundaries"] += self.open.tear(rest.times_us)
                self._pass(rest, bounds)
            else:
                self._take_late(own)

    # --- ends ---

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
        if self.table is not None:
            self.table.ended(sequence.key)
        through = sequence.last_us if through_us is None else max(sequence.last_us, through_us)
        carried = None if self.readings is None else self.readings.row_of(sequence.held, sequence.n_channels)
        finished = sequence.finish(self.name, reason, carried, self.batch_of(sequence.key))
        at_us = max(sequence.seen_us, clock_us)
        # Rereading must meet the samples and the one that ended them, whichever record comes first.
        undone = sequence.undone_from
        if by is not None and by.position.offset < undone[0]:
            undone = by.position.offset, by.before
        closed = Closed(
            finished, sequence.key, at_us, through, *undone, sequence.partial, sequence.held, sequence.looks
        )
        self.closed.end(closed)
        self.reread.ended(closed)
        self.finished.append(closed)

    def _take_late(self, late: Run) -> None:
        sequence = self.open.get(late.sequence)
        for run in [late] if sequence is None else sequence.less_again(late):
            self._drop_late(run, closed=False)
            self._enter_late(run)

    def _drop_late(self, run: Run, *, closed: bool) -> None:
        offset = run.position.offset
        self.late.append(LateSamples(self.name, run.sequence, closed, offset, run.times_us, run.values, run.merged))

    def _enter_late(self, late: Run) -> None:
        """Count late samples in their open sequence; note those whose sequence is neither open nor closed.

        Without an id those since its start count in the open one, and all are noted: nothing else tells of them.
        """
        index = late.position.index
        for number in range(len(late)):
            run = late.part(number, number + 1, index + number)
            sequence = self.open.get(run.sequence)
            if sequence is not None and (run.sequence is not None or run.first_us >= sequence.start_us):
                sequence.n_late += 1
            if run.sequence is not None and (sequence is not None or self._is_closed(run)):
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
        at_us = max(entry.seen_us, clock_us)
        self.closed.end_late(entry.key, at_us)
        finished = entry.finish(self.name, self.batch_of(entry.key))
        closed = Closed(finished, entry.key, at_us, entry.last_us, entry.position.offset, entry.before)
        self.reread.ended(closed)
        self.finished.append(closed)

    def flush(self) -> None:
        """Release all waiting samples: nothing older is accepted any more."""
        self.clocks.floor_us = self.clocks.max_time_us
        for run in self.pending.release(None):
            self._feed(run)
        if self.readings is not None and self.clocks.floor_us is not None:
            self.readings.settle(self.clocks.floor_us)

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
            is_over = self.table is not None and self.table.is_over(sequence.key, deadline_us)
            self.close(sequence, "table" if is_over else sequence.limit_reason(self.settings), deadline_us)
        if self.table is not None:
            self.table.pass_silent(silent_us)
        for entry in [entry for entry in self.entries.values() if entry.since_us <= silent_us]:
            self.close_late(entry, deadline_us)

    def end_with_input(self, read_below: int) -> None:
        """End all open sequences, except that of a row which runs still: the next run may bring the rest.

        The input ended before the offset ``read_below``. Waiting samples are released first, as they may begin a
        sequence. Late entries end last, as a released sample may have turned one of them into an ordinary sequence.
        """
        self.flush()
        table = self.table
        if table is not None:
            table.input_ended(read_below)
        for sequence in list(self.open.values()):
            if table is None:
                self.close(sequence, "end_of_input")
            elif not table.runs_still(sequence.key):
                self.close(sequence, "table")
        for entry in list(self.entries.values()):
            if table is None or not table.runs_still(entry.key):
                self.close_late(entry)

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
