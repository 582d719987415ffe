"""The progress of a partition: which of its state is saved with each commit, and how a restart takes it up again.

Law (tests/unit/ingest/test_restart_laws.py): a restart from any progress, with the records from its low watermark on
read again, commits what the run without the restart would have committed: nothing twice, nothing lost. For this the
saved clocks are those before the first record that is read again, and of ended sequences only committed ones are saved.

Everything that records cause repeats by itself, because the clocks start as they were. Progress saves the rest: which
samples are done, and the ends that no record caused (the wall clock, the memory limit).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from streamad.ingest.sequences.clocks import Clocks
from streamad.ingest.sequences.closed_sequences import Closed, looks_key
from streamad.ingest.sequences.held_readings import HeldByStream
from streamad.ingest.sequences.open_sequences import Earliest
from streamad.ingest.sequences.sequence_ends import StreamState
from streamad.ingest.table.placing import Placing
from streamad.partition_progress import NOTHING_STANDS, ForcedEnd, Progress, ProgressUpdate, StreamProgress
from streamad.settings.boundaries import BoundaryRules
from streamad.settings.plant_yaml import SequenceSettings


class Rereading:
    """The second reading of a partition's records; over from the start if there was no first one.

    Records below ``below`` were read before. Law: each forced end of the first reading is repeated once, before the
    first record at or above its offset, in the order of the offsets.
    """

    def __init__(self, progress: Progress | None = None) -> None:
        saved: dict[str, StreamProgress] = {} if progress is None else progress.streams
        self.below = 0 if progress is None else progress.next_offset
        self._streams = frozenset(name for name, stream in saved.items() if not stream.forgotten)
        waiting = [(end.offset, name, end) for name, stream in saved.items() for end in stream.forced]
        self._waiting = sorted(waiting, key=itemgetter(0))[::-1]

    @property
    def is_repeating(self) -> bool:
        """Return whether forced ends are still to be repeated."""
        return bool(self._waiting)

    @property
    def waiting_streams(self) -> set[str]:
        """Return the streams with forced ends that are not repeated yet."""
        return {name for _, name, _ in self._waiting}

    def waiting_of(self, stream: str) -> tuple[ForcedEnd, ...]:
        """Return the forced ends of ``stream`` that are not repeated yet."""
        return tuple(end for _, name, end in reversed(self._waiting) if name == stream)

    def take_due(self, offset: int) -> Iterator[tuple[str, ForcedEnd]]:
        """Remove and yield the forced ends due before the record at ``offset``, with the names of their streams."""
        while self._waiting and self._waiting[-1][0] <= offset:
            _, name, end = self._waiting.pop()
            yield name, end

    def knew(self, stream: str, offset: int) -> bool:
        """Return whether the record at ``offset`` is read again, and the first reading admitted ``stream``."""
        return offset < self.below and stream in self._streams


class ProgressUpdates:
    """The changes to a partition's streams that the next commit must save.

    ``streams`` are the present ones, which their owner adds and removes. Every record below ``read_below`` was taken.
    ``changed`` names the streams that may differ from what was saved. A stream that is forgotten is new if it comes
    again: ``retire`` ends its life, and its former lives are kept, the oldest first, while rereading may need them. Its
    readings in ``held`` stay.
    ``n_judged`` and ``split_told`` are by stream, over all of its lives (see ``StreamProgress``).
    """

    def __init__(
        self,
        partition: str,
        streams: Mapping[str, StreamState],
        rereading: Rereading,
        read_below: int,
        held: HeldByStream,
    ) -> None:
        self._partition = partition
        self._streams = streams
        self._rereading = rereading
        self._held = held
        self.read_below = read_below
        self.changed: set[str] = set()
        self.n_judged: dict[str, int] = {}
        self.split_told: set[str] = set()
        self._former: dict[str, list[StreamState]] = {}
        self._undone = Earliest()

    def retire(self, stream: StreamState, at: int | None = None) -> None:
        """End the life of ``stream``, forgotten before the record at the offset ``at`` (None: the next one)."""
        name = stream.name
        stream.reread.retired_at = self.read_below if at is None else at
        self._former.setdefault(name, []).append(stream)
        self.changed.add(name)

    def committed(self, closed: Closed, *, is_split: bool = False) -> None:
        """Note that the verdict of ``closed`` is durable; call it in the order in which a stream's sequences ended.

        ``is_split``: it had no other one because its stream is split. Raises ValueError if it is not in flight.
        """
        name = closed.sequence.stream
        life = next((life for life in self._lives(name) if life.reread.committed(closed)), None)
        if life is None:
            raise ValueError(f"sequence {closed.sequence.sequence!r} of stream {name!r} is not in flight")
        life.closed.commit(closed)
        if not is_split:
            self.n_judged[name] = self.n_judged.get(name, 0) + 1
        self.changed.add(name)

    def tell_split(self, name: str) -> None:
        """Note that the next commit has the event about the split stream ``name``."""
        self.split_told.add(name)
        self.changed.add(name)

    def begin_anew(self, name: str) -> None:
        """Forget what was judged and told of the stream ``name``: its claim ends."""
        self.n_judged.pop(name, None)
        self.split_told.discard(name)
        self.changed.add(name)

    def restored(self, name: str, saved: StreamProgress) -> None:
        """Take up what ``saved`` says about all lives of the stream ``name``."""
        if saved.n_judged:
            self.n_judged[name] = saved.n_judged
        if saved.split_told:
            self.split_told.add(name)

    def take(self, next_offset: int, clock_us: int | None) -> ProgressUpdate:
        """Return what changed since the last call, once every record below ``next_offset`` was read.

        ``clock_us`` is the partition's clock. While records are read again, only those seen again count as read,
        whatever ``next_offset`` is.
        """
        reread_below = self._rereading.below
        read_below = self.read_below if next_offset == reread_below else next_offset
        # First the low watermark: it says which former lives are needed. Those that are not count as changed, so that
        # their saved progress is removed as well.
        low_watermark, clocks = self._low_watermark() or (read_below, None)
        before_us = clock_us if clocks is None else clocks.partition_us
        self._drop(low_watermark, before_us)
        changed = {name: self._saved(name, read_below, clock_us) for name in self.changed}
        self.changed.clear()
        return ProgressUpdate(
            partition=self._partition,
            next_offset=max(next_offset, reread_below),
            low_watermark=low_watermark,
            clock_us=before_us,
            low_watermark_us=clock_us if clocks is None else clocks.record_us,
            streams=changed,
        )

    def _lives(self, name: str) -> list[StreamState]:
        """Return all lives of a stream, the oldest first."""
        present, former = self._streams.get(name), self._former.get(name, [])
        return former if present is None else [*former, present]

    def _low_watermark(self) -> tuple[int, Clocks] | None:
        """Return the lowest offset of an undone sample, with the clocks before it; None if all is done."""
        for name in self.changed:
            undone = self._undone_of(name)
            if undone is None:
                self._undone.discard(name)
            else:
                self._undone.put(name, undone[0])
        first = self._undone.first()
        return None if first is None else self._undone_of(first[1])

    def _undone_of(self, name: str) -> tuple[int, Clocks] | None:
        lives = self._lives(name)
        return next((undone for life in lives if (undone := first_undone(life)) is not None), None)

    def _drop(self, low_watermark: int, clock_us: int | None) -> None:
        """Drop the lives that a restart at ``low_watermark``, where the clock is ``clock_us``, would forget at once."""
        repeating = self._rereading.waiting_streams

        def is_needed(life: StreamState) -> bool:
            at = life.reread.retired_at
            is_forgotten = (at is not None and at <= low_watermark) or (
                clock_us is not None and life.forget_us < clock_us
            )
            return bool(life.reread.in_flight) or life.name in repeating or not is_forgotten

        for name, lives in list(self._former.items()):
            needed = [life for life in lives if is_needed(life)]
            if len(needed) == len(lives):
                continue
            self.changed.add(name)
            if needed:
                self._former[name] = needed
            else:
                del self._former[name]

    def _saved(self, name: str, read_below: int, clock_us: int | None) -> StreamProgress | None:
        """Return what is saved of a stream; None if nothing is.

        There is one progress for all its lives: that of the first one with a sequence in flight, else of the last one,
        with the forced ends of the lives after it, which rereading begins anew.
        """
        lives = self._lives(name)
        if not lives:
            self.n_judged.pop(name, None)
            self.split_told.discard(name)
            held = self._held.saved(name, read_below, ()) if self._held else {}
            return StreamProgress(done_below=read_below, held=held, forgotten=True) if held else None
        first = next((i for i, life in enumerate(lives) if life.reread.in_flight), len(lives) - 1)
        told = name in self.split_told
        n_judged, reread_below = self.n_judged.get(name, 0), self._rereading.below
        saved = saved_stream(
            lives[first], read_below, clock_us, reread_below=reread_below, n_judged=n_judged, split_told=told
        )
        saved = with_looks(saved, lives, is_rereading=self.read_below < reread_below)
        later = tuple(end for life in lives[first + 1 :] for end in life.reread.forced)
        later += self._rereading.waiting_of(name)
        if self._held:
            begun = [sequence.held for life in lives for sequence in life.open.values()]
            begun += [closed.held for life in lives for closed in life.reread.in_flight.values()]
            saved = msgspec.structs.replace(saved, held=self._held.saved(name, saved.done_below, begun))
        return msgspec.structs.replace(saved, forced=saved.forced + later) if later else saved


def with_looks(saved: StreamProgress, lives: Sequence[StreamState], *, is_rereading: bool) -> StreamProgress:
    """Return ``saved`` with the looks that were taken at sequences without a committed verdict.

    While records are read again, those of sequences that have not begun again are kept as they are.
    """
    taken = {looks_key(each.key, each.start_us): each.looks for life in lives for each in life.open.values()}
    taken |= {
        looks_key(each.key, int(each.sequence.times_us[0])): each.looks
        for life in lives
        for each in life.reread.in_flight.values()
    }
    former = lives if is_rereading else ()
    looks = {key: found for life in former for key, found in life.reread.looks.items() if key not in taken}
    looks |= {key: found for key, found in taken.items() if found is not None}
    return msgspec.structs.replace(saved, looks=looks) if looks else saved


def first_undone(stream: StreamState) -> tuple[int, Clocks] | None:
    """Return the lowest offset that holds an undone sample, with the clocks before it; None if all is done.

    Undone is a sample that waits, is held, belongs to a sequence whose verdict is not committed, or may belong to a row
    that is added to the table; also a state without readings that waits.
    """
    carries = stream.bounds is not None and stream.bounds.carries  # a bare boundary that waits, then, is saved
    undone = [(run.position.offset, run.before) for run in stream.pending.runs if not (run.is_bare and carries)]
    if (of_open := stream.open.undone_from) is not None:
        undone.append(of_open)
    entries = stream.entries.values()
    undone += [(entry.position.offset, entry.before) for entry in entries if entry.key is not None]
    if stream.table is not None and (undecided := stream.table.undone_from) is not None:
        undone.append(undecided)
    undone += [] if stream.held is None else [(stream.held.position.offset, stream.held.before)]
    undone += [(closed.offset, closed.before) for closed in stream.reread.in_flight.values()]
    return min(undone, key=itemgetter(0)) if undone else None


def saved_stream(
    stream: StreamState,
    read_below: int,
    clock_us: int | None,
    *,
    reread_below: int,
    n_judged: int,
    split_told: bool,
) -> StreamProgress:
    """Return what a restart needs of ``stream``; every record below ``read_below`` was read, at the clock ``clock_us``.

    Records below ``reread_below`` were read before.
    It also forgets what no restart from here on can need: forced ends and ids before the first undone record.
    """
    reread, closed = stream.reread, stream.closed
    if reread.retired_at is not None:
        read_below = min(read_below, reread.retired_at)
    undone = first_undone(stream)
    now = stream.clocks.before(clock_us, clock_us)
    done_below, clocks = undone or (max(read_below, stream.done_below), now)
    # The clocks include an end forced at ``done_below``, except that it made the stream be forgotten.
    needed_from = done_below if undone is None and reread.retired_at is not None else done_below + 1
    reread.forced = [end for end in reread.forced if end.offset >= needed_from]
    if clocks.partition_us is not None:
        closed.forget_committed(clocks.partition_us)
    ids, late_ids, closed_through_us = closed.committed
    return StreamProgress(
        done_below=done_below,
        max_time_us=clocks.max_time_us,
        floor_us=clocks.floor_us,
        last_record_us=clocks.last_record_us,
        second_0_us=clocks.second_0_us,
        standing=None if clocks.standing is NOTHING_STANDS else clocks.standing.saved,
        closed=ids,
        closed_through_us=closed_through_us,
        partial=stream.partial
        or any(sequence.partial for sequence in stream.open.values())
        or any(ended.unseen for ended in reread.in_flight.values()),
        starts=stream.starts.saved,
        forced=tuple(reread.forced),
        closed_late=late_ids,
        table=None if stream.table is None else stream.table.saved(clocks.max_time_us, read_below, reread_below),
        n_judged=n_judged,
        split_told=split_told,
    )


def restored_stream(
    name: str,
    settings: SequenceSettings,
    saved: StreamProgress,
    table: Placing | None = None,
    rules: BoundaryRules | None = None,
) -> StreamState:
    """Return the stream ``name`` as it was before the record at ``saved.done_below``.

    Raises SourceError if ``table`` does not go on from the one that was used.
    """
    if table is not None:
        table.restore(saved.table, saved.max_time_us)
    stream = StreamState(name, settings, partial=saved.partial, table=table, rules=rules)
    stream.reread.looks = saved.looks
    stream.done_below = saved.done_below  # its forced ends are repeated by ``Rereading``
    stream.clocks.max_time_us = saved.max_time_us
    stream.clocks.floor_us = saved.floor_us
    stream.clocks.last_record_us = saved.last_record_us
    stream.clocks.second_0_us = saved.second_0_us
    stream.closed.restore(saved)
    stream.starts.restore(saved.starts)
    if stream.bounds is not None and saved.standing is not None:
        stream.clocks.standing = saved.standing
        for run in stream.bounds.restored():
            stream.pending.add(run)
    return stream
