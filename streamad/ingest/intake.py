"""The intake of one partition: records to finished sequences, dead letters and late records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.assembly import Assembler
from streamad.ingest.boundaries.reading import n_samples
from streamad.ingest.columns.reading import ColumnReader
from streamad.ingest.dead_letters import (
    BAD_VALUE,
    TOO_MANY_STREAMS,
    BadValueWatch,
    HeldLetters,
    Notice,
    RefusedStreams,
    by_bad_sample,
    dead_letter,
    element_letters,
    late_records,
    late_text,
)
from streamad.ingest.decode import NOTHING, Decoded, Decoder, block_of
from streamad.ingest.decode_values import own_time_us
from streamad.ingest.record_times import FirstTimes
from streamad.ingest.schemas.used import by_partition
from streamad.ingest.sequences.closed_sequences import Closed, hash_of
from streamad.ingest.sequences.open_sequence import LateSamples
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.ingest.table.rows import BatchTable
from streamad.messages import DeadLetter, OutputRecord
from streamad.partition_progress import Progress, ProgressUpdate
from streamad.settings.plant_yaml import Settings
from streamad.tables import ColumnBatch, Singles
from streamad.telemetry.metrics import Counters
from streamad.types import Record, RecordBatch, SampleBlock

_FEWEST_TOGETHER = 16
"""Fewer records are taken one by one: that is quicker."""
_LONGEST_PAUSE = 1_024
_ROWS_TOGETHER = 512


class Intake:
    """Decodes and assembles the records of one partition: the one way in to ``Assembler``, and out of it.

    After a restart, records come again from the low watermark on. Below ``next_offset`` of the progress no dead letter
    and no late record is emitted: they were emitted before.
    """

    def __init__(
        self,
        partition: str,
        settings: Settings,
        decoder: Decoder,
        counters: Counters,
        *,
        seen_from_start: bool = True,
        progress: Progress | None = None,
        table: BatchTable | None = None,
        columns: ColumnReader | None = None,
    ) -> None:
        # Above 15 attributes: the root of a partition's way in, which makes its parts (decoder, assembler, watches of
        # times, values and streams); each part holds its own state, the rest says how far was read.
        self.partition = partition
        self.next_offset = progress.low_watermark if progress is not None else 0
        self._assembler = Assembler(
            partition,
            settings.sequences,
            seen_from_start=seen_from_start,
            progress=progress,
            max_clock_skew_us=settings.decode.max_clock_skew,
            table=table,
            holds=settings.holds,
            rules=settings.boundaries,
        )
        self._table = table
        self._columns = columns
        self._rows: ColumnBatch | None = None
        self._skips = settings.sequences.without_id == "skip" and settings.boundaries is None
        self._settings = settings
        self.schemas, self._decoder = by_partition(decoder, partition, progress)
        self._counters = counters
        self._cursor = progress.cursor if progress is not None else None
        self._n_alone, self._next_pause = 0, _FEWEST_TOGETHER
        self._resume_at = progress.next_offset if progress is not None else 0
        self._aside: list[OutputRecord] = []
        self._held = HeldLetters(partition, settings.decode)
        is_new = progress is None or (progress.clock_us is None and not progress.streams)
        self._times = FirstTimes(partition, 0 if progress is None else progress.next_offset, is_new=is_new)
        channels = [channel.name for channel in settings.channels]
        self._channels = channels
        self._bad_values = BadValueWatch(channels, {} if progress is None else progress.bad_values)
        self._refused = RefusedStreams(settings.sequences.max_streams)
        self._told_lost_held = False
        self._untold = {(stream, hashed): begin for stream, hashed, begin in progress.untold} if progress else {}

    # --- what its owner sees of the sequences ---

    @property
    def clock_us(self) -> int | None:
        """Return the partition's record clock, None before the first record."""
        return self._assembler.clock_us

    @property
    def buffered_bytes(self) -> int:
        """Return the memory of samples that wait and of open sequences."""
        return self._assembler.buffered_bytes

    @property
    def open_sequences(self) -> int:
        """Return how many sequences have begun and not ended."""
        return self._assembler.open_sequences

    @property
    def streams(self) -> Mapping[str, StreamState]:
        """Return the streams, to look at: nobody else may change them."""
        return self._assembler.streams

    def take_new_streams(self) -> list[str]:
        """Return the streams first seen since the last call."""
        return self._assembler.take_new_streams()

    def committed(self, closed: Closed, *, is_split: bool = False) -> None:
        """Note that the verdict of ``closed`` is durable: see ``Assembler.committed``. Raises ValueError."""
        self._assembler.committed(closed, is_split=is_split)

    def n_judged(self, stream: str) -> int:
        """Return how many verdicts of ``stream`` were committed before it was known to be split."""
        return self._assembler.of_streams.n_judged.get(stream, 0)

    def has_told_split(self, stream: str) -> bool:
        """Return whether the event about the split stream is in a commit."""
        return stream in self._assembler.of_streams.split_told

    def last_seen_us(self, stream: str) -> int | None:
        """Return the record clock at the last record of ``stream``, None if it is not known."""
        state = self.streams.get(stream)
        return None if state is None else state.clocks.last_record_us

    def is_done(self, stream: str) -> bool:
        """Return whether no sequence of ``stream``, which is known, is open or without its verdict."""
        state = self.streams[stream]
        return not (state.n_begun or state.reread.in_flight)

    def leave(self, stream: str) -> None:
        """Forget what was judged and told of ``stream``: its claim ends with the next commit."""
        self._assembler.of_streams.begin_anew(stream)

    def looked_at(self, stream: str) -> None:
        """Note that looks were taken at a sequence of ``stream``: the next commit saves them."""
        self._assembler.of_streams.changed.add(stream)

    def tell_split(self, stream: str) -> None:
        """Note that the next commit has the event about the split stream."""
        self._assembler.of_streams.tell_split(stream)

    # --- records in ---

    @property
    def is_recovering(self) -> bool:
        """Return whether records are being read again."""
        return self.next_offset < self._resume_at

    @property
    def may_commit(self) -> bool:
        """Return whether progress may be committed; not while the times of all records so far are wrong."""
        return not self._times.are_all_wrong

    def take(self, batch: RecordBatch | ColumnBatch, now_us: int) -> list[Closed]:
        """Take a batch and return the sequences that it ended; unreadable records become dead letters.

        Raises SourceError if the times of the first records all lie after those records were written.
        """
        if isinstance(batch, ColumnBatch):
            return self._take_columns(batch, now_us)
        finished: list[Closed] = []
        self._rows = None
        records, at = batch.records, 0
        while at < len(records):
            is_long = self._n_alone <= 0 and len(records) - at >= _FEWEST_TOGETHER
            if is_long and self._may_join(records[0].offset, records[-1].offset):
                behind = self._take_singles(batch, at, now_us, finished)
                self._pause(behind - at)
                at = behind
            if at < len(records):
                finished += self._take(records[at], batch, now_us)
                at += 1
                self._n_alone -= 1
        self.next_offset = max(self.next_offset, batch.next_offset)
        if batch.cursor is not None and self.next_offset >= self._resume_at:
            self._cursor = batch.cursor
        return self._counted(finished + self._reach(self.next_offset, now_us))

    def _take_columns(self, batch: ColumnBatch, now_us: int) -> list[Closed]:
        """Take rows by column, as ``take`` would take their records, and so those that are not plain. Raises as it."""
        singles, finished = None, list[Closed]()
        if self._columns is not None and not self.is_recovering and not self._assembler.is_repeating:
            singles = self._columns.read(batch)
        if singles is None:
            at = 0
            while at < batch.n:
                records = batch.rows(at, min(at + _ROWS_TOGETHER, batch.n))
                at += len(records)
                of_rows = RecordBatch(batch.partition, records, batch.offset + at, written=batch.written)
                finished += self.take(of_rows, now_us)
            return finished
        self._rows = batch
        self._counters.by_columns += batch.n
        self._take_known(singles, batch, now_us, finished)
        self.next_offset = max(self.next_offset, batch.next_offset)
        return self._counted(finished)

    def _reach(self, offset: int, now_us: int) -> list[Closed]:
        """Repeat the forced ends before ``offset``; their late samples were emitted at the first reading."""
        finished = self._assembler.reach(offset)
        self._set_late_aside(offset - 1, is_new=False, now_us=now_us)
        return finished

    def _pause(self, n_together: int) -> None:
        """Take the next records one by one if few were taken together, twice as many each time: they may be chunks."""
        if n_together >= _FEWEST_TOGETHER:
            self._next_pause = _FEWEST_TOGETHER
        else:
            self._n_alone = self._next_pause
            self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)

    def _may_join(self, first: int, last: int) -> bool:
        """Return whether records of these offsets that only continue their sequences may be taken together."""
        if first < self._resume_at or self._assembler.is_repeating:
            return False
        return self._times.is_settled(last) and not self._settings.sequences.allowed_lateness

    def _take_singles(self, batch: RecordBatch, start: int, now_us: int, finished: list[Closed]) -> int:
        """Take the records from the index ``start`` on that hold one sample each; return the index behind them.

        Most of them join their open sequence, many at once; the others are taken one by one, and what they end is added
        to ``finished``. The result is that of ``_take`` for each.
        """
        singles = self._decoder.singles(batch, start)
        if singles is None:
            return start
        self._take_known(singles, batch, now_us, finished, start)
        return start + len(singles.offsets)

    def _take_known(
        self, singles: Singles, batch: RecordBatch | ColumnBatch, now_us: int, finished: list[Closed], start: int = 0
    ) -> None:
        """Take records of which ``singles`` says what they hold; the first has the index ``start`` in ``batch``."""
        if self._table is not None:
            singles = self._table.placed(singles)
        at, n = 0, len(singles.offsets)
        while at < n:
            if not self._bad_values.open and self._may_join(singles.offsets[at], batch.next_offset - 1):
                behind = self._assembler.join(singles, at)
                self._counters.records += behind - at
                self._counters.samples += behind - at
                at = behind
            if at < n:
                block = block_of(singles, at)
                finished += self._take(self._record(batch, start + at, block), batch, now_us, block)
                at += 1

    @staticmethod
    def _record(batch: RecordBatch | ColumnBatch, at: int, block: SampleBlock | None) -> Record:
        """Return the record of ``batch`` at the index ``at``; without its bytes if columns say what it holds."""
        if isinstance(batch, RecordBatch):
            return batch.records[at]
        return batch.rows(at, at + 1)[0] if block is None else Record(batch.offset + at, b"", sequence=batch.sequence)

    def _whole(self, record: Record) -> Record:
        """Return ``record`` with its bytes."""
        if self._rows is None or record.value:
            return record
        at = record.offset - self._rows.offset
        return self._rows.rows(at, at + 1)[0]

    def _take(
        self, record: Record, batch: RecordBatch | ColumnBatch, now_us: int, block: SampleBlock | None = None
    ) -> list[Closed]:
        """Take one record; ``block`` is what it holds, if that is known."""
        is_new = record.offset >= self._resume_at
        # Before this record, since that is where the ends that no record caused lay at the first reading.
        repeated = self._reach(record.offset, now_us) if self._assembler.is_repeating else []
        written_us = batch.written_us(record.offset) if record.timestamp_us is None else None
        try:
            decoded = self._decoder.decode(record, written_us) if block is None else Decoded((block,))
        except DecodeError as error:
            self._times.found(record, written_us, error)
            decoded = NOTHING
            if is_new:
                self._set_letter_aside(record, error, now_us)
        else:
            if decoded.unreadable:
                self._note_unreadable(record, decoded, written_us, is_new=is_new, now_us=now_us)
            elif decoded.blocks:
                self._times.found(record, written_us, None)
            elif is_new:
                self._counters.tombstones += not record.value
                self._counters.ignored += bool(record.value)
        finished = self._take_blocks(record, decoded.blocks, is_new=is_new, now_us=now_us)
        self._counters.records += is_new
        self._set_late_aside(record.offset, is_new=is_new, now_us=now_us)
        return repeated + finished if repeated else finished

    def _take_blocks(
        self, record: Record, blocks: tuple[SampleBlock, ...], *, is_new: bool, now_us: int
    ) -> list[Closed]:
        """Take what a record holds; its own time passes for all streams, whatever becomes of its blocks."""
        record_us = own_time_us(record)
        skips = self._skips
        taken = tuple(block for block in blocks if block.sequence is not None) if skips else blocks
        finished = self._assembler.begin(taken, record_us) if len(taken) > 1 else []
        for block in blocks:
            if skips and block.sequence is None:
                self._counters.without_id += len(block) * is_new
                self._assembler.pass_by(block)
                continue
            try:
                finished += self._assembler.push(block, record_us)
            except DecodeError as error:
                finished += self._observe(record)
                if is_new:  # counted as dead letters alone
                    self._refuse(record, block, error, now_us)
            else:
                if is_new:
                    self._count(record, block, now_us)
            self._hold(record, block.stream, is_new=is_new, now_us=now_us)
        if not taken:
            finished += self._observe(record)
            self._hold(record, "", is_new=is_new, now_us=now_us)
        return finished + self._assembler.end() if len(taken) > 1 else finished

    def _note_unreadable(
        self, record: Record, decoded: Decoded, written_us: int | None, *, is_new: bool, now_us: int
    ) -> None:
        """Make a dead letter of each element of ``record`` that cannot be read."""
        errors = decoded.unreadable
        self._times.found(record, written_us, None if decoded.blocks else errors[0])
        if is_new:
            self._set_letters_aside(record, [(error.index, error) for error in errors], now_us)

    def _refuse(self, record: Record, block: SampleBlock, error: DecodeError, now_us: int) -> None:
        """Make a dead letter of each message that ``block`` is made of: of ``record``, or of each of its elements."""
        indexes = range(len(block)) if block.indexes is None else sorted(block.indexes.tolist())
        self._set_letters_aside(record, [(index, error) for index in indexes], now_us)

    def expire(self, idle_us: int, now_us: int) -> list[Closed]:
        """Return the sequences that end because a caught-up partition was silent for ``idle_us`` of wall-clock time."""
        if self._assembler.clock_us is None or self.is_recovering:
            return []
        finished = self._assembler.expire(self._assembler.clock_us + idle_us)
        self._set_late_aside(self.next_offset - 1, is_new=True, now_us=now_us)
        return self._counted(finished)

    def end_of_input(self, now_us: int) -> list[Closed]:
        """End and return all open sequences: the partition has ended. Raises SourceError as ``take``."""
        self._times.check()
        finished = self._assembler.end_of_input()
        self._assembler.jumps.take_resolved()  # all accepted
        self._held.clear()
        self._set_late_aside(self.next_offset - 1, is_new=True, now_us=now_us)
        return self._counted(finished)

    def hold_open(self) -> None:
        """Leave the sequences open: the partition has ended. Raises SourceError as ``take``."""
        self._times.check()
        self._assembler.end_late_without_id()

    def evict_largest(self, now_us: int) -> list[Closed]:
        """End and return the largest open sequence, if any, because memory is short.

        While records are read again this is a new end: the rest of that sequence was not late at the first reading, so
        it is emitted now.
        """
        finished = self._assembler.evict_largest()
        if self.is_recovering:
            cut = [closed for closed in finished if closed.sequence.reason == "memory"]
            self._untold |= {(closed.sequence.stream, hash_of(closed.key)): self.next_offset for closed in cut}
        self._set_late_aside(self.next_offset - 1, is_new=not self.is_recovering, now_us=now_us)
        return self._counted(finished)

    def take_notices(self, now_us: int) -> list[Notice]:
        """Return what operators should know of since the last call."""
        ended = self._assembler.take_late_without_id()
        notices = [Notice("late_samples", late_text(late), stream) for stream, late in ended]
        notices += [Notice("bad_values", text) for text in self._bad_values.take_over()]
        if (refused := self._refused.take(now_us)) is not None:
            notices.append(Notice("too_many_streams", refused))
        if (lost := self._assembler.lost_held) is not None and not self._told_lost_held:
            self._told_lost_held = True
            most = self._settings.sequences.max_streams
            text = f"more than {most} silent streams have values that hold: those of {lost!r} were forgotten first"
            notices.append(Notice("held_forgotten", f"{text} (sequences.max_streams)", lost))
        return notices

    def take_aside(self) -> list[OutputRecord]:
        """Return the dead letters and late records since the last call."""
        aside, self._aside = self._aside, []
        return aside

    def progress(self, *, ended: bool = False) -> ProgressUpdate:
        """Return what changed since the last call; ``ended``: a finite partition was read to its end."""
        update = self._assembler.progress(max(self.next_offset, self._resume_at))
        cuts = self._untold.items() if self.is_recovering else ()
        return msgspec.structs.replace(
            update,
            ended=ended,
            cursor=self._cursor,
            untold=tuple((*cut, max(begin, self.next_offset)) for cut, begin in cuts),
            bad_values=self._bad_values.saved,
            schemas={} if self.schemas is None else self.schemas.saved(update.low_watermark),
        )

    def _counted(self, finished: list[Closed]) -> list[Closed]:
        for closed in finished:
            self._counters.sequences[closed.sequence.reason] += 1
            self._counters.sequence_samples += 0 if closed.sequence.is_late else closed.sequence.n_samples
            self._counters.merged += closed.sequence.merged
            self._counters.displaced += closed.sequence.displaced
        return finished

    def _observe(self, record: Record) -> list[Closed]:
        time_us = own_time_us(record)
        return [] if time_us is None else self._assembler.observe(time_us)

    def _count(self, record: Record, block: SampleBlock, now_us: int) -> None:
        self._counters.samples += n_samples(block)
        if block.bad is not None or self._bad_values.open:
            self._note_bad_values(record, block, now_us)

    def _note_bad_values(self, record: Record, block: SampleBlock, now_us: int) -> None:
        if block.bad is not None:
            self._counters.count_bad_values(block.bad, self._channels)
        # Left out are samples far ahead, whose times may be wrong; without elements, all of the message.
        jumps = self._assembler.jumps
        parts = [block]
        if self._decoder.reads_elements(record):
            parts = by_bad_sample(block, jumps.ahead_in(record.offset))
        elif jumps.held_index(block.stream, record.offset) is not None:
            return
        own_us = own_time_us(record)
        for part in parts:
            error = self._bad_values.note(part, int(part.times_us[-1]) if own_us is None else own_us)
            if error is not None:
                self._set_letters_aside(record, [(part.first_index, DecodeError(BAD_VALUE, error))], now_us)

    def _set_letter_aside(self, record: Record, error: DecodeError, now_us: int) -> None:
        self._put_aside(dead_letter(self._whole(record), self.partition, error, self._settings.decode, now_us))

    def _set_letters_aside(self, record: Record, found: Sequence[tuple[int, DecodeError]], now_us: int) -> None:
        """Make a dead letter for each error about a sample of ``record``, which may be an element of its list."""
        if not self._decoder.reads_elements(record):
            self._set_letter_aside(record, found[0][1], now_us)
            return
        values = self._decoder.elements(record, [index for index, _ in found])
        errors = ((self._decoder.at_element(error, index), values) for index, error in found)
        for letter in element_letters(record, self.partition, errors, self._settings.decode, now_us):
            self._put_aside(letter)

    def _put_aside(self, letter: DeadLetter) -> None:
        if letter.kind == TOO_MANY_STREAMS:
            self._refused.note(letter.error)
        self._counters.dead_letters[letter.kind] += 1
        self._aside.append(OutputRecord("dead_letters", self.partition, letter))

    def _hold(self, record: Record, stream: str, *, is_new: bool, now_us: int) -> None:
        """Emit the dead letters of held samples whose time proved wrong, and keep that of ``record`` if its is held."""
        jumps = self._assembler.jumps
        resolved, index = jumps.take_resolved(), jumps.held_index(stream, record.offset)
        if resolved or index is not None:
            record = self._whole(record)
        for letter in self._held.take(resolved, record, now_us) if resolved else ():
            if is_new:
                self._put_aside(letter)
        if index is not None:
            self._held.hold(record, index, now_us)

    def _set_late_aside(self, offset: int, *, is_new: bool, now_us: int) -> None:
        """Emit the late samples that the record at ``offset``, or what came after it, showed to be late."""
        odd = self._assembler.take_odd()
        if odd and is_new:
            self._counters.count_odd(odd)
        found = self._assembler.take_late()
        if not found:
            return
        if not is_new:
            found = [late for late in found if self._is_untold(late, offset)]
        self._counters.merged += sum(late.merged for late in found)
        self._counters.late_samples += sum(len(late.times_us) for late in found)
        for record in late_records(found, self.partition, now_us):
            self._aside.append(OutputRecord("late", record.stream, record))

    def _is_untold(self, late: LateSamples, offset: int) -> bool:
        begin = self._untold.get((late.stream, hash_of(late.sequence))) if late.closed else None
        return (begin is not None and late.offset >= begin) or self._assembler.is_untold(late, offset)
