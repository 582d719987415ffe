"""The assembler: samples of one partition in, finished sequences out. Pure: every time is an argument.

Laws (tests/unit/ingest/test_assembly_laws.py): every sample ends in exactly one sequence, is merged with one of equal
time, or is late; neither chunking nor, for distinct times, arrival order within ``allowed_lateness`` changes the
result; rereading from a progress record repeats nothing that was committed and loses nothing that was not.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.sequences.closed_ids import NEVER_US
from streamad.ingest.sequences.earliest import Earliest
from streamad.ingest.sequences.forced_ends import Repeats
from streamad.ingest.sequences.joining import join_singles, joined, whole
from streamad.ingest.sequences.late_entries import LateEntry
from streamad.ingest.sequences.relative_times import absolute, check_times
from streamad.ingest.sequences.retired_streams import RetiredStreams
from streamad.ingest.sequences.runs import Clocks, Run, runs_of
from streamad.ingest.sequences.sequence_ends import Closed, LateSamples, StreamState, hash_of
from streamad.ingest.sequences.time_jumps import Jump, TimeJumps
from streamad.partition_progress import ForcedEnd, Progress, ProgressUpdate, StreamProgress
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import SampleBlock, Singles


class Assembler:
    """Cuts the sequences of one partition.

    If ``seen_from_start`` is False, the first sequence of each stream is ``partial`` (its beginning may be missing).
    Records are pushed in the order of their offsets. Each first moves the partition's record clock and so ends silent
    sequences; a replay therefore cuts exactly as the live run did. Records without samples go to ``observe``.
    """

    def __init__(
        self,
        partition: str,
        settings: SequenceSettings,
        *,
        seen_from_start: bool = True,
        progress: Progress | None = None,
        max_clock_skew_us: int = 3_600_000_000,
    ) -> None:
        self.partition = partition
        self._settings = settings
        past = [] if progress is None else [Jump(*jump) for jump in progress.jumps]
        self.jumps = TimeJumps(settings, max_clock_skew_us, past, 0 if progress is None else progress.low_watermark)
        self.late_without_id: list[tuple[str, LateEntry]] = []
        self._seen_from_start = seen_from_start
        self._streams: dict[str, StreamState] = {}
        self._retired = RetiredStreams()
        self._deadlines = Earliest()
        self._changed: set[str] = set()
        self._oldest = Earliest()
        self._finished: list[Closed] = []
        self._late: list[LateSamples] = []
        self._new_streams: list[str] = []
        self._partial_until_us: int | None = None
        self._read_below = self._reread_below = 0
        self._reread_streams: frozenset[str] = frozenset()
        self._repeats = Repeats({})
        self._unconfirmed: list[tuple[StreamState, ForcedEnd]] = []
        self.clock_us: int | None = None
        self.buffered_bytes = self.merged = self.duplicates = 0
        if progress is not None:
            self._restore(progress)

    # --- samples in ---

    def push(self, block: SampleBlock, record_us: int | None = None) -> list[Closed]:
        """Take the samples of one record and return the sequences that they ended.

        ``record_us`` is the record's own time; if None, the last event time is used. Raises DecodeError if the block
        would exceed ``max_streams``, or its times the year 2200.
        """
        self._read_below = block.offset + 1
        if self._unconfirmed:
            self._confirm(record_us)
        self.jumps.n_records += 1
        if self.jumps.held or self.jumps.moves:
            self._resolve_held(block)
        partition_before = self.clock_us
        if record_us is not None:
            self._move(record_us)
        stream = self._streams.get(block.stream)
        if stream is None or not self._goes_short(stream, block, record_us, partition_before):
            self._take_block(stream, block, record_us, partition_before)
        return self._take_finished() if self._finished else []

    def join(self, singles: Singles, start: int) -> int:
        """Let the records ``singles`` from the index ``start`` on join open sequences, as ``push`` would one by one.

        Return the index behind the last one: the record there does more, so it must be pushed.
        """
        clock_us, jumps = self.clock_us, self.jumps
        if clock_us is None or self._settings.allowed_lateness or self._unconfirmed or jumps.held or jumps.moves:
            return start
        due_us = NEVER_US if (first := self._deadlines.first()) is None else first[0]
        streams, settings = self._streams, self._settings
        at, self.clock_us, nbytes = join_singles(
            streams, singles, start, settings, clock_us=clock_us, deadline_us=due_us
        )
        self.buffered_bytes += nbytes
        jumps.n_records += at - start
        self._read_below = singles.offsets[at - 1] + 1 if at > start else self._read_below
        return at

    def _take_block(
        self, known: StreamState | None, block: SampleBlock, record_us: int | None, partition_before: int | None
    ) -> None:
        """Take the samples of one record; ``partition_before`` is the clock before it, ``known`` its stream if any."""
        if block.relative:
            check_times(known, block, record_us, self.clock_us or 0)
        stream = known or self._admit(block, record_us)
        if block.offset < stream.done_below:
            if record_us is None and not block.relative:
                for time_us in self.jumps.moves_of(block.offset, block.times_once):  # as its first reading did
                    self._move(time_us)
            return
        before = Clocks(stream.max_time_us, stream.floor_us, stream.last_record_us, partition_before, self.clock_us)
        if block.relative:
            block = absolute(stream, block, record_us, self.clock_us or 0)
        clock_us = int(block.times_us[0]) if self.clock_us is None else self.clock_us
        for found in runs_of(block, before, clock_us):
            if stream.held is not None:
                self._resolve(stream, found.in_time(block, stream.watermark_us).first_us, block.offset)
            run = found.in_time(block, stream.watermark_us)
            if block.relative or not self.jumps.is_ahead(run, stream.max_time_us, record_us):
                self._take_run(stream, run, record_us, moves=not block.comes_twice(found.position.index))
                continue
            if len(run) > 1:
                head, run = run.split(len(run) - 1)
                self._take_run(stream, head, record_us)
            stream.held = run
            self.jumps.hold(stream.name, run, record_us)
        if block.relative and block.end and block.sequence is None and "marker" in self._settings.end:
            stream.end_relative()
        self._collect(stream)

    def _goes_short(
        self, stream: StreamState, block: SampleBlock, record_us: int | None, partition_before: int | None
    ) -> bool:
        """Take the samples of ``block`` a short way, if there is one for them; return whether there is."""
        clock_us, is_timed = self.clock_us, record_us is not None
        if clock_us is None:
            return False
        last_us = joined(stream, block, clock_us, is_timed=is_timed)
        if last_us is not None:
            nbytes = stream.nbytes
            self.buffered_bytes += nbytes - stream.counted_bytes
            stream.counted_bytes = nbytes
            if record_us is None:
                self._move(last_us)
            return True
        farthest_us = self.jumps.farthest_us
        closed = whole(stream, block, partition_before, clock_us, is_timed=is_timed, farthest_us=farthest_us)
        if closed is None:
            return False
        if record_us is None:
            self._move(closed.through_us)
        self._changed.add(stream.name)
        self._finished.append(closed)
        stream.forget_closed(self.clock_us or 0)
        return True

    def _take_run(self, stream: StreamState, run: Run, record_us: int | None, *, moves: bool = True) -> None:
        if record_us is None:
            self._take_untimed(stream, run, moves=moves)
        else:
            stream.last_record_us = self.clock_us
            self._take(stream, run)

    # --- samples far ahead ---

    def _resolve_held(self, block: SampleBlock) -> None:
        """Decide on held samples before the record of ``block``, whose clocks must include them."""
        for moved_us in self.jumps.moves_before(block.offset):
            self._move(moved_us)
        for name in self.jumps.overdue():
            self._accept_held(self._streams[name], None)  # it may be wrong: it moves no other stream's clock
        stream = self._streams.get(block.stream) if self.jumps.held else None
        if stream is not None and stream.held is not None and block.offset >= stream.done_below:
            first = 0 if block.indexes is None else int(block.indexes.argmin())
            time_us = (self.clock_us or 0) if block.relative else block.time_of(first, stream.watermark_us)
            self._resolve(stream, time_us, block.offset)

    def _resolve(self, stream: StreamState, time_us: int, offset: int | None) -> None:
        """Decide on the held sample of ``stream`` by its next sample, at ``time_us`` in the record at ``offset``.

        If the stream would be forgotten now, the partition's clock stands for its next sample (``offset`` None).
        """
        newest_us = stream.max_time_us or 0
        if self.jumps.is_right(stream.name, time_us, newest_us):
            self._accept_held(stream, offset)
            return
        self.jumps.reject(stream.name, newest_us)
        stream.held = None
        self._changed.add(stream.name)

    def _accept_held(self, stream: StreamState, offset: int | None) -> None:
        held = self.jumps.accept(stream.name, offset)
        stream.held = None
        held.run.arrived_us = self.clock_us if self.clock_us is not None else held.run.first_us
        if offset is None:
            self._take(stream, held.run)
        else:
            self._take_run(stream, held.run, held.record_us)
        self._collect(stream)

    def observe(self, record_us: int) -> list[Closed]:
        """Move the partition's record clock to ``record_us`` if that is later; return the sequences that this ended."""
        if self._unconfirmed:
            self._confirm(record_us)
        self._move(record_us)
        return self._take_finished()

    def _move(self, record_us: int) -> None:
        if self.clock_us is None or record_us > self.clock_us:
            self.clock_us = record_us
            self._run_deadlines(record_us)

    def _take_untimed(self, stream: StreamState, run: Run, *, moves: bool) -> None:
        """Take samples whose record has no time of its own; ``moves``: their times move the clock.

        Event time cuts this stream before it moves the clock; otherwise a chunk would end sequences that the same
        samples in single records would not. Times that come twice move no clock: read again, done, they would be
        taken for the first ones.
        """
        run.arrived_us = self.clock_us if self.clock_us is not None else run.first_us
        stream.last_record_us = max(run.arrived_us, run.last_us)
        self._take(stream, run)
        if moves:
            self._move(run.last_us)

    def _take(self, stream: StreamState, run: Run) -> None:
        was_waiting, was_open, n_late = stream.is_waiting, bool(stream.open), len(stream.entries)
        stream.accept(run)
        if not was_waiting and (stream.is_waiting or not was_open or len(stream.entries) > n_late):
            self._schedule(stream)

    def _admit(self, block: SampleBlock, record_us: int | None) -> StreamState:
        """Open the stream of ``block``, its first one."""
        name = block.stream
        is_reread = block.offset < self._reread_below and name in self._reread_streams
        if len(self._streams) >= self._settings.max_streams and not is_reread:
            raise DecodeError("too_many_streams", f"stream {name[:80]!r} would be one more than max_streams")
        if record_us is None:
            is_by_clock = block.relative and self.clock_us is not None
            record_us = (self.clock_us or 0) if is_by_clock else int(block.times_us[0 if block.relative else -1])
        stream = StreamState(name, self._settings, partial=self._may_be_partial(record_us))
        self._add(stream)
        return stream

    def _add(self, stream: StreamState) -> None:
        self._streams[stream.name] = stream
        self._new_streams.append(stream.name)
        self._deadlines.put(stream.name, stream.deadline_us)

    def _may_be_partial(self, record_us: int) -> bool:
        if self._seen_from_start:
            return False
        if self._partial_until_us is None:
            self._partial_until_us = record_us + self._settings.max_duration
        return record_us <= self._partial_until_us

    # --- ends that no sample of the stream causes ---

    def expire(self, now_us: int) -> list[Closed]:
        """Return the sequences that silence or a limit has ended at the partition clock ``now_us``."""
        if self.clock_us is not None and now_us > self.clock_us:
            self._run_deadlines(now_us, ForcedEnd(offset=self._read_below, clock_us=now_us))
        return self._take_finished()

    def _run_deadlines(self, now_us: int, forced: ForcedEnd | None = None) -> None:
        """Apply the deadlines before ``now_us``, those of each stream in order."""
        while (first := self._deadlines.first()) is not None and first[0] < now_us:
            self._run_deadlines_of(self._streams[first[1]], now_us, forced)
        for name in self.jumps.held if forced is not None else ():
            self._schedule(self._streams[name])  # the next record decides

    def _run_deadlines_of(self, stream: StreamState, now_us: int, forced: ForcedEnd | None) -> None:
        """Apply the due deadlines of one stream; ``forced``, if no record moved the clock, is noted if it ended any."""
        deadline_us = stream.deadline_us
        if forced is not None and deadline_us < now_us and not (stream.is_quiet and stream.held is not None):
            stream.note(forced)
            self._unconfirmed.append((stream, forced))
        while deadline_us < now_us and not (stream.is_quiet and stream.held is None):
            if not stream.is_quiet:
                stream.expire(deadline_us)
            elif forced is None:
                self._resolve(stream, now_us, None)
            else:
                break  # only a record decides on a held sample
            deadline_us = stream.deadline_us
        self._collect(stream)
        if deadline_us < now_us and stream.held is None:
            self._retire(stream)
        else:
            self._deadlines.put(stream.name, NEVER_US if deadline_us < now_us else deadline_us)

    def _confirm(self, record_us: int | None) -> None:
        """Forget the ends by the wall clock that the next record's own time would cause as well."""
        for stream, end in self._unconfirmed:
            is_repeated = record_us is not None and end.clock_us is not None and record_us >= end.clock_us
            if is_repeated and stream.forced and stream.forced[-1] is end:
                stream.forced.pop()
        self._unconfirmed.clear()

    def _schedule(self, stream: StreamState) -> None:
        """Put the deadline of ``stream`` into the queue if it is earlier than the one there."""
        deadline_us, due_us = stream.deadline_us, self._deadlines.get(stream.name)
        if due_us is None or deadline_us < due_us:
            self._deadlines.put(stream.name, deadline_us)

    def end_of_input(self) -> list[Closed]:
        """End all open sequences with reason ``end_of_input`` and return them."""
        for name in list(self.jumps.held):
            self._accept_held(self._streams[name], None)
        for stream in self._streams.values():
            stream.flush()
            for sequence in list(stream.open.values()):
                stream.close(sequence, "end_of_input")
            for entry in list(stream.entries.values()):
                stream.close_late(entry)
            self._collect(stream)
        return self._take_finished()

    def evict_largest(self) -> list[Closed]:
        """End the largest open sequence, if any, with reason ``memory``."""
        held = [stream for stream in self._streams.values() if stream.open or stream.pending.runs]
        if held:
            stream = max(held, key=lambda stream: (stream.nbytes, stream.name))
            stream.flush()
            largest = max(stream.open.values(), key=lambda sequence: (sequence.nbytes, sequence.position), default=None)
            stream.evict(self._read_below, None if largest is None else hash_of(largest.key))
            self._collect(stream)
        return self._take_finished()

    @property
    def is_repeating(self) -> bool:
        """Return whether forced ends of the first reading are still to be repeated."""
        return bool(self._repeats)

    def reach(self, offset: int) -> list[Closed]:
        """Note that every record below ``offset`` was taken; repeat the forced ends due there and return them.

        While records are read again, call it before each of them and after the last one.
        """
        for name, end in self._repeats.take_due(offset):
            stream = self._streams.get(name)
            if stream is None:
                continue
            if end.clock_us is not None:
                self._run_deadlines_of(stream, end.clock_us, end)
                if stream.held is not None:
                    self._schedule(stream)
            else:
                stream.evict(end.offset, end.ended)
                self._collect(stream)
        self._read_below = max(self._read_below, offset)
        return self._take_finished()

    def _collect(self, stream: StreamState) -> None:
        self._changed.add(stream.name)
        held = stream.nbytes
        self.buffered_bytes += held - stream.counted_bytes
        stream.counted_bytes = held
        if not held:
            stream.end_relative()
        if stream.late:
            self.merged += sum(late.merged for late in stream.late)
            self._late += stream.late
            stream.late = []
        if stream.late_without_id:
            self.late_without_id += [(stream.name, entry) for entry in stream.late_without_id]
            stream.late_without_id = []
        if stream.finished:
            for closed in stream.finished:
                self.merged += closed.merged
                self.duplicates += closed.sequence.duplicates
            self._finished += stream.finished
            stream.finished = []
            stream.forget_closed(self.clock_us or 0)

    def _take_finished(self) -> list[Closed]:
        finished, self._finished = self._finished, []
        return finished

    def _retire(self, stream: StreamState) -> None:
        """Forget a stream, which is new if it comes again. Its progress stays while rereading may need it."""
        name = stream.name
        del self._streams[name]
        self._deadlines.discard(name)
        self._retired.add(stream, self._read_below)
        self._changed.add(name)

    def take_late(self) -> list[LateSamples]:
        """Return the samples found late since the last call."""
        late, self._late = self._late, []
        return late

    def end_late_without_id(self) -> None:
        """End the late samples without a sequence id: the next run would not know them."""
        for stream in self._streams.values():
            if (entry := stream.entries.get(None)) is not None:
                stream.close_late(entry)
                self._collect(stream)

    def take_new_streams(self) -> list[str]:
        """Return the streams first seen since the last call."""
        new, self._new_streams = self._new_streams, []
        return new

    # --- progress ---

    @property
    def streams(self) -> Mapping[str, StreamState]:
        """Return the streams, to look at: nobody else may change them."""
        return self._streams

    @property
    def open_sequences(self) -> int:
        """Return how many sequences have begun and not ended."""
        return sum(stream.n_begun for stream in self._streams.values())

    @property
    def pending_samples(self) -> int:
        """Return how many samples are buffered and not yet in a finished sequence, those of ``jumps`` apart."""
        return sum(stream.n_buffered for stream in self._streams.values())

    def committed(self, closed: Closed) -> None:
        """Note that the verdict of ``closed`` is durable; call it in the order in which a stream's sequences ended.

        Raises ValueError if it is not in flight.
        """
        name = closed.sequence.stream
        if not any(life.committed(closed) for life in self._retired.lives(name, self._streams.get(name))):
            raise ValueError(f"sequence {closed.sequence.sequence!r} of stream {name!r} is not in flight")
        self._changed.add(name)

    def progress(self, next_offset: int) -> ProgressUpdate:
        """Return what changed since the last call, once every record below ``next_offset`` was read.

        While records are read again, only those seen again count as read, whatever ``next_offset`` is.
        """
        read_below = self._read_below if next_offset == self._reread_below else next_offset
        for name in self._changed:
            oldest = self._retired.oldest(name, self._streams.get(name))
            if oldest is None:
                self._oldest.discard(name)
            else:
                self._oldest.put(name, oldest[0])
        low_watermark, clock_us, low_watermark_us = read_below, self.clock_us, self.clock_us
        first = self._oldest.first()
        if first is not None and (oldest := self._retired.oldest(first[1], self._streams.get(first[1]))) is not None:
            low_watermark, clocks = oldest
            clock_us, low_watermark_us = clocks.partition_us, clocks.record_us
        self._changed.update(self._retired.drop(low_watermark, clock_us, self._repeats.streams))
        changed = {name: self._stream_progress(name, read_below) for name in self._changed}
        self._changed.clear()
        return ProgressUpdate(
            partition=self.partition,
            next_offset=max(next_offset, self._reread_below),
            low_watermark=low_watermark,
            clock_us=clock_us,
            low_watermark_us=low_watermark_us,
            partial_until_us=self._partial_until_us,
            unseen=not self._seen_from_start and self._partial_until_us is None,
            streams=changed,
            jumps=self.jumps.past(low_watermark),
        )

    def _stream_progress(self, name: str, read_below: int) -> StreamProgress | None:
        lives = self._retired.lives(name, self._streams.get(name))
        if not lives:
            return None
        first = next((i for i, life in enumerate(lives) if life.in_flight), len(lives) - 1)
        progress = lives[first].progress(read_below, self.clock_us)
        later = tuple(end for life in lives[first + 1 :] for end in life.forced) + self._repeats.of(name)
        return msgspec.structs.replace(progress, forced=progress.forced + later) if later else progress

    def _restore(self, progress: Progress) -> None:
        self.clock_us = progress.clock_us
        self._partial_until_us = progress.partial_until_us
        self._seen_from_start = not progress.unseen and progress.partial_until_us is None
        self._read_below = progress.low_watermark
        self._reread_below = progress.next_offset
        self._reread_streams = frozenset(progress.streams)
        self._repeats = Repeats(progress.streams)
        for name, saved in progress.streams.items():
            stream = StreamState(name, self._settings, partial=saved.partial)
            stream.restore(saved)
            if progress.clock_us is not None and stream.forget_us < progress.clock_us:
                self._retired.add(stream, saved.done_below)
                self._changed.add(name)
            else:
                self._add(stream)
