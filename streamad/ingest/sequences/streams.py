"""The streams of one partition on its record clock: samples in, and the ends that no sample of a stream causes.

Nothing here calls back into ``Assembler``, which feeds it record by record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from streamad.ingest.sequences.clocks import NEVER_US
from streamad.ingest.sequences.closed_sequences import Closed, hash_of
from streamad.ingest.sequences.held_readings import HeldByStream
from streamad.ingest.sequences.joining import join_singles, joined, whole
from streamad.ingest.sequences.open_sequence import LateEntry, LateSamples
from streamad.ingest.sequences.open_sequences import Earliest
from streamad.ingest.sequences.progress import ProgressUpdates
from streamad.ingest.sequences.runs import Run
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.ingest.sequences.time_jumps import TimeJumps
from streamad.partition_progress import ForcedEnd, HeldReading
from streamad.settings.plant_yaml import SequenceSettings
from streamad.tables import Singles
from streamad.types import IntArray, SampleBlock


class PartitionStreams:
    """The streams by name, the partition's clock, and what the streams have given since it was taken last.

    Law: the clock never goes back. As soon as it has passed a stream's deadline, silence ends what is due, and the
    stream has its next deadline; behind the last one the stream is forgotten.

    ``unconfirmed`` are the ends by the wall clock since the last record. ``_deadlines`` holds for each stream a time no
    later than its deadline: samples postpone deadlines, and nobody puts them anew but where one becomes earlier.
    """

    def __init__(
        self,
        by_name: dict[str, StreamState],
        settings: SequenceSettings,
        jumps: TimeJumps,
        progress: ProgressUpdates,
        clock_us: int | None,
        *,
        held: HeldByStream,
    ) -> None:
        self.by_name = by_name
        self.held = held
        self.clock_us = clock_us
        self.buffered_bytes = 0
        self.finished: list[Closed] = []
        self.unconfirmed: list[tuple[StreamState, ForcedEnd]] = []
        self._settings = settings
        self._jumps = jumps
        self._progress = progress
        self._deadlines = Earliest()
        self._overdue: list[str] | None = None
        self._new: list[str] = []
        self._odd: Counter[str] = Counter()
        self._late: list[LateSamples] = []
        self._late_without_id: list[tuple[str, LateEntry]] = []

    def add(self, stream: StreamState) -> None:
        """Add a stream that is new, or known from a progress."""
        self.by_name[stream.name] = stream
        stream.readings = self.held.of_known(stream.name) if self.held else None
        self._new.append(stream.name)
        self._deadlines.put(stream.name, stream.deadline_us)

    # --- readings that hold ---

    def restore_held(self, name: str, saved: Mapping[str, tuple[HeldReading, ...]]) -> None:
        """Set what a progress says that the stream ``name`` holds, whether it is known or forgotten."""
        if self.held and saved:
            self.held.of_known(name).restore(saved)
            if name not in self.by_name:
                self._progress.changed.update(self.held.forget(name))

    def pass_by(self, block: SampleBlock) -> None:
        """Let the readings of samples hold that are left out; they move no clock of the stream."""
        if self.held and not block.relative:  # relative times count from the start of a sequence
            self.held.of_known(block.stream).pass_by(block)
            self._progress.changed.add(block.stream)
            if block.stream not in self.by_name:
                self._progress.changed.update(self.held.forget(block.stream))

    # --- samples in ---

    def join(self, singles: Singles, start: int) -> int:
        """Let records that hold one sample each join their sequences: see ``Assembler.join``."""
        clock_us, jumps = self.clock_us, self._jumps
        if clock_us is None or self._settings.allowed_lateness or self.unconfirmed or jumps.held or jumps.moves:
            return start
        due_us = NEVER_US if (first := self._deadlines.first()) is None else first[0]
        at, self.clock_us, nbytes = join_singles(
            self.by_name, singles, start, self._settings, clock_us=clock_us, deadline_us=due_us
        )
        if at > start:
            self.buffered_bytes += nbytes
            jumps.n_records += at - start
            self._progress.read_below = singles.offsets[at - 1] + 1
        return at

    def take_joining(self, stream: StreamState, block: SampleBlock, record_us: int | None) -> bool:
        """Let the samples of ``block`` join their open sequence, if they only continue it; return whether they do."""
        clock_us = self.clock_us
        if clock_us is None or joined(stream, block, clock_us, is_timed=record_us is not None) is None:
            return False
        nbytes = stream.nbytes
        self.buffered_bytes += nbytes - stream.counted_bytes
        stream.counted_bytes = nbytes
        if record_us is None:
            self._move_by(block.times_us)
        return True

    def take_short(
        self, stream: StreamState, block: SampleBlock, record_us: int | None, partition_before: int | None
    ) -> bool:
        """Take the samples of ``block`` a short way, if there is one for them; return whether there is.

        ``partition_before`` is the clock before the record.
        """
        clock_us, is_timed = self.clock_us, record_us is not None
        if clock_us is None:
            return False
        if self.take_joining(stream, block, record_us):
            return True
        farthest_us = self._jumps.farthest_us
        closed = whole(stream, block, partition_before, clock_us, is_timed=is_timed, farthest_us=farthest_us)
        if closed is None:
            return False
        if record_us is None:
            self._move_by(block.times_us)
        self._progress.changed.add(stream.name)
        self.finished.append(closed)
        stream.forget_closed(self.clock_us or 0)
        return True

    def take(self, stream: StreamState, run: Run, record_us: int | None, *, moves: bool = True) -> None:
        """Take samples the long way, and collect what they gave.

        If their record has no time of its own (``record_us`` None), their times move the clock, unless ``moves`` is
        False: times that come twice, read again when they are done, would be taken for the first ones.
        """
        if record_us is not None:
            stream.clocks.last_record_us = self.clock_us
            self._accept(stream, run)
            return
        run.arrived_us = self.clock_us if self.clock_us is not None else run.first_us
        stream.clocks.last_record_us = max(run.arrived_us, run.last_us)
        # First the samples, then the clock: event time must cut this stream before it is silence that ends something.
        # Otherwise a chunk would end sequences that the same samples in single records would not.
        self._accept(stream, run)
        if moves:
            self._move_by(run.times_us)

    def _accept(self, stream: StreamState, run: Run) -> None:
        was_waiting, was_open, n_late = stream.clocks.is_waiting, bool(stream.open), len(stream.entries)
        stream.accept(run)
        # Only these can make the deadline earlier. If samples waited before, the deadline is early enough.
        if not was_waiting and (stream.clocks.is_waiting or not was_open or len(stream.entries) > n_late):
            self._schedule(stream)

    # --- samples far ahead ---

    def resolve(self, stream: StreamState, time_us: int, offset: int | None) -> None:
        """Decide on the held sample of ``stream`` by its next sample, at ``time_us`` in the record at ``offset``.

        If the stream would be forgotten now, the partition's clock stands for its next sample (``offset`` None).
        """
        newest_us = stream.clocks.max_time_us or 0
        if self._jumps.is_right(stream.name, time_us, newest_us):
            self.accept_held(stream, offset)
            return
        self._jumps.reject(stream.name, newest_us)
        if stream.held is not None and stream.held.is_bare:
            self._odd["samples"] += 1  # its dead letter counts as one
        stream.held = None
        self._progress.changed.add(stream.name)

    def accept_held(self, stream: StreamState, offset: int | None) -> None:
        """Take the held sample of ``stream``; without ``offset`` it may be wrong, and moves no other stream's clock."""
        held = self._jumps.accept(stream.name, offset)
        stream.held = None
        held.run.arrived_us = self.clock_us if self.clock_us is not None else held.run.first_us
        if offset is None:
            # It counts as coming now, for silence as well: else the stream could be forgotten before the id of a
            # sequence that ends with this sample, and the id would begin a second sequence within closed_memory.
            clocks = stream.clocks
            clocks.last_record_us = max(held.run.arrived_us, clocks.last_record_us or held.run.arrived_us)
            self._accept(stream, held.run)
        else:
            self.take(stream, held.run, held.record_us)
        self.collect(stream)

    # --- the clock, and silence ---

    def move(self, record_us: int) -> None:
        """Move the clock to ``record_us`` if that is later, and apply the deadlines that it passes."""
        if self.clock_us is None or record_us > self.clock_us:
            self.clock_us = record_us
            self._run_deadlines(record_us)

    def _move_by(self, times_us: IntArray) -> None:
        """Move the clock by the rising times [n] of a record without its own.

        While samples are held, it stops at each time: where it decides on one must not depend on the packing.
        """
        for time_us in times_us.tolist() if self._jumps.held else (times_us.item(-1),):
            self.move(time_us)

    def expire(self, now_us: int) -> None:
        """Apply the deadlines before ``now_us``, a time of the wall clock on the partition's clock, which stays."""
        if self.clock_us is not None and now_us > self.clock_us:
            self._run_deadlines(now_us, ForcedEnd(offset=self._progress.read_below, clock_us=now_us))

    def repeat(self, stream: StreamState, end: ForcedEnd) -> None:
        """Repeat a forced end of the first reading."""
        if end.clock_us is None:
            stream.evict(end.offset, end.ended)
            self.collect(stream)
            return
        self._run_deadlines_of(stream, end.clock_us, end)
        if stream.held is not None:
            self._schedule(stream)

    def confirm(self, record_us: int | None) -> None:
        """Forget the ends by the wall clock that the next record's own time causes as well: rereading repeats those."""
        for stream, end in self.unconfirmed:
            if record_us is not None and end.clock_us is not None and record_us >= end.clock_us:
                stream.reread.take_back(end)
        self.unconfirmed.clear()

    def _run_deadlines(self, now_us: int, forced: ForcedEnd | None = None) -> None:
        """Apply the deadlines before ``now_us``, the earliest first, and those of each stream in order."""
        while (first := self._deadlines.first()) is not None and first[0] < now_us:
            self._run_deadlines_of(self.by_name[first[1]], now_us, forced)
        # No wall clock decides on a held sample, so these streams have no deadline in the queue now; the next record
        # decides, and must find them.
        for name in self._jumps.held if forced is not None else ():
            self._schedule(self.by_name[name])

    def _run_deadlines_of(self, stream: StreamState, now_us: int, forced: ForcedEnd | None) -> None:
        """Apply the due deadlines of one stream; ``forced``, if no record moved the clock, is noted if it ended any."""
        deadline_us = stream.deadline_us
        # Noted first: once the loop has run, nothing tells whether it ended anything.
        if forced is not None and deadline_us < now_us and not (stream.is_quiet and stream.held is not None):
            stream.reread.force(forced)
            self.unconfirmed.append((stream, forced))
        # One deadline at a time: each end, or a held sample that is accepted, sets the next one.
        while deadline_us < now_us and not (stream.is_quiet and stream.held is None):
            if not stream.is_quiet:
                stream.expire(deadline_us)
            elif forced is None:
                self.resolve(stream, now_us, None)
            else:
                break  # only a record decides on a held sample
            deadline_us = stream.deadline_us
        # Collected before it is forgotten: its last sequences are handed out like all others.
        self.collect(stream)
        if deadline_us < now_us and stream.held is None and self._overdue is None:
            self._forget(stream)
        else:
            if deadline_us < now_us and self._overdue is not None:
                self._overdue.append(stream.name)
            self._deadlines.put(stream.name, NEVER_US if deadline_us < now_us else deadline_us)

    def hold_lives(self) -> None:
        """Forget no stream before ``release_lives``."""
        self._overdue = []

    def release_lives(self) -> None:
        """Forget the streams that would have been forgotten since ``hold_lives``, unless they went on."""
        names, self._overdue = self._overdue or (), None
        for name in names:
            self._run_deadlines_of(self.by_name[name], self.clock_us or 0, None)

    def _forget(self, stream: StreamState) -> None:
        """Forget a stream, which is new if it comes again. Its progress stays while rereading may need it."""
        del self.by_name[stream.name]
        self._deadlines.discard(stream.name)
        self._progress.retire(stream)
        if self.held:
            self._progress.changed.update(self.held.forget(stream.name))

    def _schedule(self, stream: StreamState) -> None:
        """Put the deadline of ``stream`` into the queue if it is earlier than the one there."""
        deadline_us, due_us = stream.deadline_us, self._deadlines.get(stream.name)
        if due_us is None or deadline_us < due_us:
            self._deadlines.put(stream.name, deadline_us)

    # --- ends from outside ---

    def end_of_input(self) -> None:
        """End the open sequences: see ``StreamState.end_with_input``."""
        # Held samples first, since they may join what is open.
        for name in list(self._jumps.held):
            self.accept_held(self.by_name[name], None)
        for stream in self.by_name.values():
            stream.end_with_input(self._progress.read_below)
            self.collect(stream)

    def evict_largest(self) -> None:
        """End the largest open sequence, if any, with reason ``memory``."""
        held = [stream for stream in self.by_name.values() if stream.open or stream.pending.runs]
        if held:
            stream = max(held, key=lambda stream: (stream.nbytes, stream.name))
            # Released first: waiting samples count for the sequences that they join, and may be all that there is.
            stream.flush()
            largest = max(stream.open.values(), key=lambda sequence: (sequence.nbytes, sequence.position), default=None)
            stream.evict(self._progress.read_below, None if largest is None else hash_of(largest.key))
            self.collect(stream)

    def end_late_without_id(self) -> None:
        """End the late samples without a sequence id: the next run would not know them."""
        for stream in self.by_name.values():
            if (entry := stream.entries.get(None)) is not None:
                stream.close_late(entry)
                self.collect(stream)

    # --- what the streams gave ---

    def collect(self, stream: StreamState) -> None:
        """Take over what ``stream`` gave, and note that it has changed."""
        self._progress.changed.add(stream.name)
        held = stream.nbytes
        self.buffered_bytes += held - stream.counted_bytes
        stream.counted_bytes = held
        if not held and not stream.starts.by_restart:
            stream.starts.end_without_id()
        if stream.late:
            self._late += stream.late
            stream.late = []
        if stream.late_without_id:
            self._late_without_id += [(stream.name, entry) for entry in stream.late_without_id]
            stream.late_without_id = []
        if stream.odd:
            self._odd.update(stream.odd)
            stream.odd.clear()
        if stream.finished:
            self.finished += stream.finished
            stream.finished = []
            stream.forget_closed(self.clock_us or 0)  # last, by the clock at which these sequences ended

    def take_finished(self) -> list[Closed]:
        """Return the sequences that ended since the last call."""
        finished, self.finished = self.finished, []
        return finished

    def take_late(self) -> list[LateSamples]:
        """Return the samples found late since the last call."""
        late, self._late = self._late, []
        return late

    def take_late_without_id(self) -> list[tuple[str, LateEntry]]:
        """Return the ended late samples without a sequence id since the last call, with their streams."""
        late, self._late_without_id = self._late_without_id, []
        return late

    def take_odd(self) -> Counter[str]:
        """Return the counts of samples in no sequence, and of odd words and tags, since the last call."""
        odd = self._odd
        if odd:
            self._odd = Counter()
        return odd

    def take_new(self) -> list[str]:
        """Return the streams first seen since the last call."""
        new, self._new = self._new, []
        return new
