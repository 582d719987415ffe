"""The assembler: samples of one partition in, finished sequences out. Pure: every time is an argument.

Laws (tests/unit/ingest/test_assembly_laws.py): every sample ends in exactly one sequence, is merged with one of equal
time, or is late; neither chunking nor, for distinct times, arrival order within ``allowed_lateness`` changes the
result; rereading from a progress record repeats nothing that was committed and loses nothing that was not.

This module follows one record, step by step. ``sequences/streams.py`` has the clock and silence;
``sequences/sequence_ends.py``, one stream's sequences; ``sequences/progress.py``, what is saved and what a restart
repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.sequences.clocks import Clocks, StreamClocks
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.held_readings import HeldByStream
from streamad.ingest.sequences.open_sequence import LateEntry, LateSamples
from streamad.ingest.sequences.progress import ProgressUpdates, Rereading, restored_stream
from streamad.ingest.sequences.runs import runs_of
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.ingest.sequences.streams import PartitionStreams
from streamad.ingest.sequences.time_jumps import Jump, TimeJumps
from streamad.ingest.table.placing import Placing
from streamad.ingest.table.rows import BatchTable
from streamad.partition_progress import Progress, ProgressUpdate
from streamad.settings.boundaries import BoundaryRules
from streamad.settings.plant_yaml import SequenceSettings
from streamad.tables import Singles
from streamad.types import SampleBlock


class Assembler:
    """Cuts the sequences of one partition.

    If ``seen_from_start`` is False, the first sequence of each stream is ``partial`` (its beginning may be missing).
    Records are pushed in the order of their offsets. Each first moves the partition's record clock and so ends silent
    sequences; a replay therefore cuts exactly as the live run did. Records without samples go to ``observe``.

    ``rules``: how states, words and tags say where sequences begin, if they do.

    Its only caller is ``Intake``. ``jumps`` tells it which samples are held because they lie far ahead, and what became
    of them. ``holds`` maps the indexes of the channels whose values hold to their names. ``of_streams`` has what the
    next commit saves of each stream, and takes what was committed.
    """

    def __init__(
        self,
        partition: str,
        settings: SequenceSettings,
        *,
        seen_from_start: bool = True,
        progress: Progress | None = None,
        max_clock_skew_us: int = 3_600_000_000,
        table: BatchTable | None = None,
        holds: Mapping[int, str] | None = None,
        rules: BoundaryRules | None = None,
    ) -> None:
        if ("table" in settings.end) != (table is not None):
            raise ValueError("a table of batches and the end mode table go together")
        self._settings = settings
        self._table = table
        self._rules = rules
        self._seen_from_start = seen_from_start
        self._partial_until_us: int | None = None
        self._before: dict[str, Clocks] | None = None
        past = [] if progress is None else [Jump(*jump) for jump in progress.jumps]
        low_watermark = 0 if progress is None else progress.low_watermark
        self.jumps = TimeJumps(settings, max_clock_skew_us, past, low_watermark)
        self._rereading = Rereading(progress)
        by_name: dict[str, StreamState] = {}
        held = HeldByStream(holds or {}, settings)
        self.of_streams = ProgressUpdates(partition, by_name, self._rereading, low_watermark, held)
        clock_us = None if progress is None else progress.clock_us
        self._streams = PartitionStreams(by_name, settings, self.jumps, self.of_streams, clock_us, held=held)
        if progress is not None:
            self._restore(progress)

    def _restore(self, progress: Progress) -> None:
        """Take up the streams of ``progress``; those that are forgotten at its clock only stay in the next progress."""
        self._partial_until_us = progress.partial_until_us
        self._seen_from_start = not progress.unseen and progress.partial_until_us is None
        for name, saved in progress.streams.items():
            stream = restored_stream(name, self._settings, saved, self._placing(name), self._rules)
            self.of_streams.restored(name, saved)
            if progress.clock_us is not None and stream.forget_us < progress.clock_us:
                self.of_streams.retire(stream, saved.done_below)
            elif not saved.forgotten:
                self._streams.add(stream)
            self._streams.restore_held(name, saved.held)

    def _placing(self, stream: str) -> Placing | None:
        table = self._table
        if table is None:
            return None
        return Placing(table.name, stream, table.of(stream), self._settings.max_duration)

    # --- records in ---

    def push(self, block: SampleBlock, record_us: int | None = None) -> list[Closed]:
        """Take the samples of one record and return the sequences that they ended.

        ``record_us`` is the record's own time; if None, the last event time is used. A record of several blocks is
        begun with ``begin``. Raises DecodeError if the block would exceed ``max_streams``, or its times the year 2200.
        """
        streams = self._streams
        if self._table is not None:
            block = self._table.of(block.stream).placed(block)
        if self._before is None:
            partition_before = self._reach_record((block,), record_us)
            # Looked up only now: the clock may have made the stream be forgotten.
            stream = streams.by_name.get(block.stream)
            if stream is None or not streams.take_short(stream, block, record_us, partition_before):
                clocks = StreamClocks(self._settings) if stream is None else stream.clocks
                self._take_block(stream, block, record_us, clocks.before(partition_before, streams.clock_us))
        else:
            stream, before = streams.by_name.get(block.stream), self._before[block.stream]
            if stream is None or not streams.take_joining(stream, block, record_us):
                self._take_block(stream, block, record_us, before)
        return streams.take_finished() if streams.finished else []

    def begin(self, blocks: Sequence[SampleBlock], record_us: int | None) -> list[Closed]:
        """Begin a record of several blocks, which ``push`` then takes one by one; return the sequences that it ended.

        Rereading takes the whole record again, so the clocks before it count for each of its blocks. ``end`` it: no
        stream is forgotten within it, since the progress does not tell the lives of a stream within a record apart.
        """
        streams = self._streams
        partition_before = self._reach_record(blocks, record_us)
        none = StreamClocks(self._settings)
        self._before = {}
        for name in {block.stream for block in blocks}:
            stream = streams.by_name.get(name)
            clocks = none if stream is None else stream.clocks
            self._before[name] = clocks.before(partition_before, streams.clock_us)
        streams.hold_lives()
        return streams.take_finished()

    def end(self) -> list[Closed]:
        """End a record of several blocks, and return the sequences that this ended."""
        self._before = None
        self._streams.release_lives()
        return self._streams.take_finished()

    def _reach_record(self, blocks: Sequence[SampleBlock], record_us: int | None) -> int | None:
        """Move on to the record of ``blocks``, and return the partition's clock before it."""
        streams, jumps = self._streams, self.jumps
        # From here on this record counts as taken: what its time ends or makes us forget lies behind it.
        self.of_streams.read_below = blocks[0].offset + 1
        if streams.unconfirmed:
            streams.confirm(record_us)
        jumps.n_records += 1
        # Held samples came before this record: they are decided on first, and their times count as before it.
        if jumps.held or jumps.moves:
            for block in blocks:
                self._resolve_held(block, record_us)
        partition_before = streams.clock_us
        # The clock moves before the samples are taken: none of them goes on with a sequence that silence has ended.
        if record_us is not None:
            streams.move(record_us)
        return partition_before

    def join(self, singles: Singles, start: int) -> int:
        """Let the records ``singles`` from the index ``start`` on join open sequences, as ``push`` would one by one.

        Return the index behind the last one: the record there does more, so it must be pushed.
        """
        return self._streams.join(singles, start)

    def observe(self, record_us: int) -> list[Closed]:
        """Move the partition's record clock to ``record_us`` if that is later; return the sequences that this ended."""
        if self._streams.unconfirmed:
            self._streams.confirm(record_us)
        self._streams.move(record_us)
        return self._streams.take_finished()

    def pass_by(self, block: SampleBlock) -> None:
        """Leave the samples of ``block`` out, but let their readings hold; their record goes to ``observe``."""
        self._streams.pass_by(block)

    def _take_block(self, known: StreamState | None, block: SampleBlock, record_us: int | None, before: Clocks) -> None:
        """Take the samples of one block; ``before`` are the clocks before its record, ``known`` its stream if any."""
        streams = self._streams
        stream = known
        if stream is None:
            table = self._placing(block.stream)
            stream = StreamState(block.stream, self._settings, partial=False, table=table, rules=self._rules)
        # A record that is refused must change nothing, so its times are checked before it may add a stream.
        if block.relative:
            stream.starts.check(block, record_us, streams.clock_us or 0)
        if known is None:
            self._admit(stream, block, record_us)
        if block.offset < stream.done_below:
            self._pass_done(block, record_us)
            return
        if not block.relative:
            self._take_samples(stream, block, before, record_us)
            return
        for part in stream.starts.parts(block):
            if stream.held is not None:
                time_us = stream.starts.first_time_us(part, record_us, streams.clock_us or 0)
                streams.resolve(stream, time_us, block.offset)
            was_known = stream.clocks.second_0_us is not None
            absolute, begins = stream.starts.absolute(part, record_us, streams.clock_us or 0)
            restarts = begins and was_known and stream.starts.by_restart
            self._take_samples(stream, absolute, before, record_us, begins=begins, restarts=restarts)
        if block.end and block.sequence is None and "marker" in self._settings.end:
            stream.starts.end_without_id()

    def _take_samples(
        self,
        stream: StreamState,
        block: SampleBlock,
        before: Clocks,
        record_us: int | None,
        *,
        begins: bool = False,
        restarts: bool = False,
    ) -> None:
        """Take samples with event times; ``begins``: that of the first one follows from those before it."""
        streams = self._streams
        clock_us = int(block.times_us[0]) if streams.clock_us is None else streams.clock_us
        runs = runs_of(block, before, clock_us)
        runs[0].restarts = restarts
        ours = runs[0] if begins and len(runs[0]) == 1 else None
        for found in runs:
            # A held sample is decided on by the next one, before that is taken: the watermark may be another one then.
            if stream.held is not None:
                streams.resolve(stream, found.in_time(block, stream.clocks.watermark_us).first_us, block.offset)
            run = found.in_time(block, stream.clocks.watermark_us)
            if run is ours or not self.jumps.is_ahead(run, stream.clocks.max_time_us, record_us):
                streams.take(stream, run, record_us, moves=not block.comes_twice(found.position.index))
                continue
            # Only the last sample can be far ahead of all others; those before it are taken.
            if len(run) > 1:
                head, run = run.split(len(run) - 1)
                streams.take(stream, head, record_us)
            stream.held = run if stream.table is None else next(stream.table.rows.parts_of(run))
            self.jumps.hold(stream.name, run, record_us)
        streams.collect(stream)

    def _admit(self, stream: StreamState, block: SampleBlock, record_us: int | None) -> None:
        """Open ``stream``, whose first samples are those of ``block``."""
        name, clock_us = block.stream, self._streams.clock_us
        is_full = len(self._streams.by_name) >= self._settings.max_streams
        if is_full and not self._rereading.knew(name, block.offset):
            raise DecodeError("too_many_streams", f"stream {name[:80]!r} would be one more than max_streams")
        if record_us is None:
            is_by_clock = block.relative and clock_us is not None
            record_us = (clock_us or 0) if is_by_clock else int(block.times_us[0 if block.relative else -1])
        stream.partial = self._may_be_partial(record_us)
        self._streams.add(stream)

    def _may_be_partial(self, record_us: int) -> bool:
        if self._seen_from_start:
            return False
        if self._partial_until_us is None:
            self._partial_until_us = record_us + self._settings.max_duration
        return record_us <= self._partial_until_us

    def _resolve_held(self, block: SampleBlock, record_us: int | None) -> None:
        """Decide on held samples before the record of ``block``, whose clocks must include them."""
        streams = self._streams
        for moved_us in self.jumps.moves_before(block.offset):
            streams.move(moved_us)
        for name in self.jumps.overdue():
            streams.accept_held(streams.by_name[name], None)  # it may be wrong: it moves no other stream's clock
        stream = streams.by_name.get(block.stream) if self.jumps.held else None
        if stream is not None and stream.held is not None and block.offset >= stream.done_below:
            if block.relative:
                first_part = stream.starts.parts(block)[0]
                time_us = stream.starts.first_time_us(first_part, record_us, streams.clock_us or 0)
            else:
                first = 0 if block.indexes is None else int(block.indexes.argmin())
                time_us = block.time_of(first, stream.clocks.watermark_us)
            streams.resolve(stream, time_us, block.offset)

    # --- records that are read again ---

    @property
    def is_repeating(self) -> bool:
        """Return whether forced ends of the first reading are still to be repeated."""
        return self._rereading.is_repeating

    def reach(self, offset: int) -> list[Closed]:
        """Note that every record below ``offset`` was taken; repeat the forced ends due there and return them.

        While records are read again, call it before each of them and after the last one.
        """
        for name, end in self._rereading.take_due(offset):
            stream = self._streams.by_name.get(name)
            if stream is not None:
                self._streams.repeat(stream, end)
        self.of_streams.read_below = max(self.of_streams.read_below, offset)
        return self._streams.take_finished()

    def _pass_done(self, block: SampleBlock, record_us: int | None) -> None:
        """Drop the samples of a record whose stream is done with it; its times move the clock as they did at first."""
        if record_us is None and not block.relative:
            for time_us in self.jumps.moves_of(block.offset, block.times_once):
                self._streams.move(time_us)

    # --- ends from outside ---

    def expire(self, now_us: int) -> list[Closed]:
        """Return the sequences that silence or a limit has ended at the partition clock ``now_us``."""
        self._streams.expire(now_us)
        return self._streams.take_finished()

    def end_of_input(self) -> list[Closed]:
        """End the open sequences with reason ``end_of_input``, or ``table`` if one cuts them, and return them.

        Those whose row has no end stay open.
        """
        self._streams.end_of_input()
        return self._streams.take_finished()

    def evict_largest(self) -> list[Closed]:
        """End the largest open sequence, if any, with reason ``memory``, and return it."""
        self._streams.evict_largest()
        return self._streams.take_finished()

    def end_late_without_id(self) -> None:
        """End the late samples without a sequence id: the next run would not know them."""
        self._streams.end_late_without_id()

    # --- beside the finished sequences ---

    def take_late(self) -> list[LateSamples]:
        """Return the samples found late since the last call."""
        return self._streams.take_late()

    def is_untold(self, late: LateSamples, offset: int) -> bool:
        """Return whether samples that the record at ``offset``, read again, shows to be late were in no row before.

        Nothing has told of them then.
        """
        stream = self._streams.by_name.get(late.stream)
        if stream is None or stream.table is None:
            return False
        return stream.table.is_untold(offset, int(late.times_us[0]))

    def take_late_without_id(self) -> list[tuple[str, LateEntry]]:
        """Return the late samples without a sequence id that have ended since the last call, with their streams."""
        return self._streams.take_late_without_id()

    def take_odd(self) -> Counter[str]:
        """Return counts since the last call: samples in no sequence (``outside``), and odd words and tags."""
        return self._streams.take_odd()

    def take_new_streams(self) -> list[str]:
        """Return the streams first seen since the last call."""
        return self._streams.take_new()

    @property
    def lost_held(self) -> str | None:
        """Return the first forgotten stream that lost its held readings, as there were too many; None so far."""
        return self._streams.held.first_lost

    @property
    def clock_us(self) -> int | None:
        """Return the partition's record clock, None before the first record."""
        return self._streams.clock_us

    @property
    def streams(self) -> Mapping[str, StreamState]:
        """Return the streams, to look at: nobody else may change them."""
        return self._streams.by_name

    @property
    def buffered_bytes(self) -> int:
        """Return the memory of samples that wait and of open sequences."""
        return self._streams.buffered_bytes

    @property
    def open_sequences(self) -> int:
        """Return how many sequences have begun and not ended."""
        return sum(stream.n_begun for stream in self.streams.values())

    # --- progress ---

    def committed(self, closed: Closed, *, is_split: bool = False) -> None:
        """Note that the verdict of ``closed`` is durable: see ``ProgressUpdates.committed``. Raises ValueError."""
        self.of_streams.committed(closed, is_split=is_split)

    def progress(self, next_offset: int) -> ProgressUpdate:
        """Return what changed since the last call, once every record below ``next_offset`` was read.

        While records are read again, only those seen again count as read, whatever ``next_offset`` is.
        """
        update = self.of_streams.take(next_offset, self._streams.clock_us)
        return msgspec.structs.replace(
            update,
            partial_until_us=self._partial_until_us,
            unseen=not self._seen_from_start and self._partial_until_us is None,
            jumps=self.jumps.past(update.low_watermark),
        )
