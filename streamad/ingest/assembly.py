"""The assembler: samples of one partition in, finished sequences out. Pure: it knows no clock but what it is told.

Laws (tests/unit/ingest/test_assembly_laws.py): every sample ends in exactly one sequence, is merged with one of equal
time, or is late; neither chunking nor, for distinct times, arrival order within ``allowed_lateness`` changes the result;
rereading from a progress record repeats nothing that was committed and loses nothing that was not.
"""

from __future__ import annotations

__all__ = ["Assembler", "Closed", "LateSamples"]

from heapq import heappop, heappush

import numpy as np

from streamad.errors import DecodeError
from streamad.ingest._runs import Clocks, Run, runs_of
from streamad.ingest._stream import Closed, LateSamples, StreamState
from streamad.progress import Progress, ProgressUpdate, StreamProgress
from streamad.settings import SequenceSettings
from streamad.types import SampleBlock

_RELATIVE_PAUSE_US = 1_000_000


class Assembler:
    """Cuts the sequences of one partition.

    ``seen_from_start`` False: the first sequence of each stream is ``partial`` (its beginning may have gone unseen).
    Records are pushed in the order of their offsets; each first moves the partition's record clock and so ends what has
    fallen silent, which is why a replay cuts exactly as live did. Records that hold no samples are told to ``observe``.
    """

    def __init__(
        self,
        partition: str,
        settings: SequenceSettings,
        *,
        relative: bool = False,
        seen_from_start: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.partition = partition
        self._settings = settings
        self._relative = relative
        self._seen_from_start = seen_from_start
        self._closed_memory_us = (
            settings.closed_memory
            if settings.closed_memory is not None
            else settings.max_duration + settings.allowed_lateness
        )
        self._streams: dict[str, StreamState] = {}
        self._deadlines: list[tuple[int, str]] = []
        self._due_us: dict[str, int] = {}
        self._changed: set[str] = set()
        self._late: list[LateSamples] = []
        self._new_streams: list[str] = []
        self._bytes: dict[str, int] = {}
        self._partial_until_us: int | None = None
        self.clock_us: int | None = None
        self.buffered_bytes = 0
        self.merged = 0
        self.duplicates = 0
        if progress is not None:
            self._restore(progress)

    # --- samples in ---

    def push(self, block: SampleBlock, record_us: int | None = None) -> list[Closed]:
        """Take the samples of one record and return the sequences that they ended.

        ``record_us`` is the record's own time; None: the last event time stands in. Raises DecodeError where the block
        would open one stream too many.
        """
        record_us = self._record_time(block, record_us)
        partition_before = self.clock_us
        finished = self.observe(record_us)
        stream = self._stream(block.stream, record_us)
        if block.offset < stream.done_below:
            return finished
        before = Clocks(stream.max_time_us, stream.floor_us, stream.last_record_us, partition_before)
        if self._relative:
            block = self._absolute(stream, block, record_us)
        was_idle, had_pending = not stream.open, bool(stream.pending.runs)
        stream.clock_us = stream.last_record_us = self.clock_us or 0
        if block.indexes is None:
            self._take_sorted(stream, runs_of(block, before))
        else:
            self._take_unsorted(stream, block, before)
        self._release(stream)
        if (was_idle and stream.open) or (stream.pending.runs and not had_pending):
            self._schedule(stream)
        return finished + self._collect(stream)

    def observe(self, record_us: int) -> list[Closed]:
        """Move the partition's record clock to ``record_us`` if that is later; return what this ended."""
        self.clock_us = record_us if self.clock_us is None else max(self.clock_us, record_us)
        return self.expire(self.clock_us)

    @staticmethod
    def _release(stream: StreamState) -> None:
        watermark_us = stream.watermark_us
        if stream.pending.runs and watermark_us is not None:
            for run in stream.pending.release(watermark_us):
                stream.feed(run)

    def _schedule(self, stream: StreamState, not_before_us: int = -(1 << 62)) -> None:
        """Look at ``stream`` again at its deadline; an earlier entry of the heap is void from now on."""
        due_us = max(stream.deadline_us(self._closed_memory_us), not_before_us)
        self._due_us[stream.name] = due_us
        heappush(self._deadlines, (due_us, stream.name))

    def _record_time(self, block: SampleBlock, record_us: int | None) -> int:
        if record_us is not None:
            return record_us
        if not self._relative:
            return int(block.times_us[-1])
        known = self._streams.get(block.stream)
        if known is None or known.max_time_us is None:
            return self.clock_us or 0
        base = known.base_us.get(block.sequence)
        return known.max_time_us + _RELATIVE_PAUSE_US if base is None else base + int(block.times_us[-1])

    def _stream(self, name: str, record_us: int) -> StreamState:
        stream = self._streams.get(name)
        if stream is not None:
            return stream
        if len(self._streams) >= self._settings.max_streams:
            raise DecodeError("too_many_streams", f"stream {name[:80]!r} would be one more than max_streams")
        stream = StreamState(name, self._settings, partial=self._may_be_partial(record_us))
        self._streams[name] = stream
        self._new_streams.append(name)
        self._bytes[name] = 0
        stream.clock_us = record_us
        self._schedule(stream)
        return stream

    def _may_be_partial(self, record_us: int) -> bool:
        if self._seen_from_start:
            return False
        if self._partial_until_us is None:
            self._partial_until_us = record_us + self._settings.max_duration
        return record_us <= self._partial_until_us

    @staticmethod
    def _absolute(stream: StreamState, block: SampleBlock, record_us: int) -> SampleBlock:
        """Turn seconds since the sequence's start into event time: its first record's own time is its first sample's."""
        base = stream.base_us.get(block.sequence)
        if base is None:
            base = record_us - int(block.times_us[0])
            stream.base_us[block.sequence] = base
        return SampleBlock(
            block.stream, block.sequence, block.offset, block.times_us + base, block.values, block.end, block.indexes
        )

    @staticmethod
    def _take_sorted(stream: StreamState, runs: list[Run]) -> None:
        for run in runs:
            watermark_us = stream.watermark_us
            accepted = run
            if watermark_us is not None and run.first_us < watermark_us:
                if run.last_us < watermark_us:
                    stream.drop_late(run, closed=False)
                    continue
                late, accepted = run.split(int(np.searchsorted(run.times_us, watermark_us)))
                stream.drop_late(late, closed=False)
            stream.max_time_us = max(accepted.last_us, stream.max_time_us or accepted.last_us)
            stream.pending.add(accepted)

    @staticmethod
    def _take_unsorted(stream: StreamState, block: SampleBlock, before: Clocks) -> None:
        """Take samples in the order in which the record holds them, as if each had come alone."""
        for run in sorted(runs_of(block, before), key=lambda run: run.position):
            Assembler._take_sorted(stream, [run])

    # --- ends that no sample of the stream brings ---

    def expire(self, now_us: int) -> list[Closed]:
        """Return the sequences that silence or a limit has ended when the partition's clock says ``now_us``."""
        finished: list[Closed] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] < now_us:
            due_us, name = heappop(deadlines)
            if self._due_us.get(name) != due_us:
                continue
            stream = self._streams[name]
            if stream.deadline_us(self._closed_memory_us) < now_us:
                stream.clock_us = now_us
                stream.expire(now_us, self._closed_memory_us)
                finished += self._collect(stream)
                if stream.is_forgettable and stream.deadline_us(self._closed_memory_us) < now_us:
                    self._forget(name)
                    continue
            self._schedule(stream, now_us)
        return finished

    def end_of_input(self) -> list[Closed]:
        """Return all that is open, ended by the input's end."""
        finished: list[Closed] = []
        for stream in self._streams.values():
            stream.flush()
            for sequence in list(stream.open.values()):
                stream.close(sequence, "end_of_input")
            finished += self._collect(stream)
        return finished

    def evict_largest(self) -> list[Closed]:
        """End the largest open sequence with reason ``memory``; returns nothing where none is open."""
        held = [name for name, stream in self._streams.items() if stream.open or stream.pending.runs]
        if not held:
            return []
        stream = self._streams[max(held, key=self._bytes.__getitem__)]
        stream.flush()
        if stream.open:
            stream.close(max(stream.open.values(), key=lambda sequence: sequence.nbytes), "memory")
        return self._collect(stream)

    def _collect(self, stream: StreamState) -> list[Closed]:
        self._changed.add(stream.name)
        held = stream.pending.nbytes + sum(sequence.nbytes for sequence in stream.open.values())
        self.buffered_bytes += held - self._bytes[stream.name]
        self._bytes[stream.name] = held
        if stream.late:
            self._late += stream.late
            stream.late = []
        finished, stream.finished = stream.finished, []
        for closed in finished:
            self.merged += closed.merged
            self.duplicates += closed.sequence.duplicates
        return finished

    def _forget(self, name: str) -> None:
        del self._streams[name]
        del self._due_us[name]
        self.buffered_bytes -= self._bytes.pop(name)
        self._changed.add(name)

    def take_late(self) -> list[LateSamples]:
        """Return the samples found late since the last call."""
        late, self._late = self._late, []
        return late

    def take_new_streams(self) -> list[str]:
        """Return the streams first seen since the last call."""
        new, self._new_streams = self._new_streams, []
        return new

    # --- progress ---

    @property
    def open_sequences(self) -> int:
        return sum(len(stream.open) for stream in self._streams.values())

    @property
    def pending_samples(self) -> int:
        """Return how many samples are held and not yet in a finished sequence."""
        return sum(
            sum(len(run) + run.merged for run in stream.pending.runs)
            + sum(sequence.n + sequence.merged for sequence in stream.open.values())
            for stream in self._streams.values()
        )

    def committed(self, closed: Closed) -> None:
        """Note that the verdict of ``closed`` is durable; a stream's verdicts commit in the order its sequences ended."""
        stream = self._streams[closed.sequence.stream]
        stream.committed(closed)
        self._changed.add(stream.name)

    def progress(self, next_offset: int) -> ProgressUpdate:
        """Return what changed since the last call, as of having read every record below ``next_offset``."""
        oldest = [found for stream in self._streams.values() if (found := stream.oldest()) is not None]
        low_watermark, clocks = min(oldest, key=lambda found: found[0], default=(next_offset, None))
        changed: dict[str, StreamProgress | None] = {}
        for name in self._changed:
            stream = self._streams.get(name)
            changed[name] = None if stream is None else stream.progress(next_offset)
        self._changed.clear()
        return ProgressUpdate(
            partition=self.partition,
            next_offset=next_offset,
            low_watermark=low_watermark,
            clock_us=self.clock_us if clocks is None else clocks.partition_us,
            partial_until_us=self._partial_until_us,
            streams=changed,
        )

    def _restore(self, progress: Progress) -> None:
        self.clock_us = progress.clock_us
        self._partial_until_us = progress.partial_until_us
        for name, saved in progress.streams.items():
            stream = StreamState(name, self._settings, partial=saved.partial)
            stream.restore(saved)
            self._streams[name] = stream
            self._new_streams.append(name)
            self._bytes[name] = 0
            self._schedule(stream)
