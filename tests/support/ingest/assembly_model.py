"""A second assembler, as plain as the semantics in ``docs/guide/sequences.md``: one sample, one tick at a time.

It keeps lists and walks the clock tick by tick, so it shares no structure with the one that it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np

from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.open_sequence import LateSamples
from streamad.ingest.sequences.runs import is_tag
from streamad.ingest.table.rows import Row as TableRow
from streamad.settings.boundaries import BoundaryRules
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import Boundary, SampleBlock

Row = tuple[float | None, ...]
Reading = tuple[int, tuple[int, int], float]
"""Event time, position and value."""


@dataclass(frozen=True)
class Record:
    """One message: the samples of one stream and sequence in the order in which it holds them.

    It may be a part of a record of several blocks, whose samples have the places from ``first`` on.
    """

    stream: str
    sequence: str | None
    times: tuple[int, ...]
    rows: tuple[Row, ...]
    end: bool = False
    record_us: int | None = None
    route: str | None = None
    first: int = 0
    boundaries: tuple[Boundary | None, ...] | None = None

    def block(self, offset: int, *, relative: bool = False) -> SampleBlock:
        """Return the record as the decoder would: in time order, with the places in the record if those differ."""
        order = sorted(range(len(self.times)), key=lambda i: self.times[i])
        in_order = order == list(range(len(self.times)))
        rows = [[np.nan if value is None else value for value in self.rows[i]] for i in order]
        return SampleBlock(
            self.stream,
            self.sequence,
            offset,
            np.array([self.times[i] for i in order], dtype=np.int64),
            np.array(rows, dtype=np.float32).reshape(len(order), -1),
            self.end,
            None if in_order and not self.first else np.array(order, dtype=np.int64) + self.first,
            relative=relative,
            route=self.route,
            boundaries=None if self.boundaries is None else tuple(self.boundaries[i] for i in order),
        )

    @property
    def end_at(self) -> int | None:
        """Return the place of the sample that carries the end mark: the latest in time."""
        return max(range(len(self.times)), key=lambda i: (self.times[i], i)) if self.end else None


def singles_of(records: list[Record]) -> list[Record]:
    """Return one record per sample, in the same order."""
    return [
        replace(record, times=(time,), rows=(row,), end=index == record.end_at)
        for record in records
        for index, (time, row) in enumerate(zip(record.times, record.rows, strict=True))
    ]


@dataclass(frozen=True)
class Cut:
    """A finished sequence in a form that can be compared and counted."""

    stream: str
    sequence: str
    reason: str
    times: tuple[int, ...]
    rows: tuple[Row, ...]
    first_position: tuple[int, int]
    displaced: int
    partial: bool = False
    routes: tuple[str, ...] = ()
    n_late: int = 0
    carried: Row = ()
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Late:
    """One late sample."""

    stream: str
    sequence: str | None
    closed: bool
    offset: int
    time: int
    row: Row


def cut_of(closed: Closed) -> Cut:
    """Return what the assembler finished, comparable."""
    sequence = closed.sequence
    return Cut(
        sequence.stream,
        sequence.sequence,
        sequence.reason,
        tuple(sequence.times_us.tolist()),
        tuple(_row(row) for row in sequence.values.tolist()),
        (sequence.first_position.offset, sequence.first_position.index),
        sequence.displaced,
        sequence.partial,
        sequence.routes,
        sequence.n_late,
        () if sequence.carried is None else _row(sequence.carried.tolist()),
        None if sequence.begun_us == sequence.ended_us is None else (sequence.start_us, sequence.end_us),
    )


def all_of(closed: Closed) -> tuple[Any, ...]:
    """Return all that is known of an ended sequence, comparable."""
    return (
        cut_of(closed),
        closed.at_us,
        closed.through_us,
        closed.sequence.merged,
        closed.offset,
        closed.before,
        closed.unseen,
        closed.held,
    )


def lates_of(lates: Iterable[LateSamples]) -> list[Late]:
    """Return the late samples one by one, comparable."""
    return [
        Late(late.stream, late.sequence, late.closed, late.offset, time, _row(row))
        for late in lates
        for time, row in zip(late.times_us.tolist(), late.values.tolist(), strict=True)
    ]


def _row(row: list[float]) -> Row:
    return tuple(None if value != value else value for value in row)  # noqa: PLR0124 - NaN is what differs from itself


@dataclass
class _Sample:
    sequence: str | None
    time: int
    row: Row
    end: bool
    position: tuple[int, int]
    clock: int
    routes: tuple[tuple[tuple[int, int], str], ...] = ()
    boundary: Boundary | None = None
    order: tuple[int, int] = (0, 0)
    is_torn: bool = False


@dataclass
class _Said:
    """What a boundary has said: a state, the id of what comes (``routes`` choose its model), or that this ends."""

    kind: Literal["state", "name", "end"]
    time: int
    state: bool = False
    key: str | None = None
    is_again: bool = False
    routes: tuple[tuple[tuple[int, int], str], ...] = ()
    is_late: bool = False


@dataclass
class _Open:
    samples: list[_Sample]
    since: int
    merged: int = 0
    displaced: int = 0
    n_late: int = 0
    first_position: tuple[int, int] = (0, 0)
    routes: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    partial: bool = False
    carried: Row = ()

    @property
    def times(self) -> list[int]:
        return [sample.time for sample in self.samples]


@dataclass
class _Entry:
    """The late samples of a sequence neither open nor closed; ``since`` and ``seen``: first and newest clock."""

    since: int
    seen: int
    first_position: tuple[int, int]
    n_channels: int
    times: list[int] = field(default_factory=list)


@dataclass
class _Stream:
    entries: dict[str | None, _Entry] = field(default_factory=dict)
    held: _Sample | None = None
    pending: list[_Sample] = field(default_factory=list)
    open: dict[str | None, _Open] = field(default_factory=dict)
    closed_at: dict[str | None, int] = field(default_factory=dict)
    closed_through: int | None = None
    newest: int | None = None
    floor: int | None = None
    last_record: int = 0
    said: list[_Said] = field(default_factory=list)


class Model:
    """Cuts sequences sample by sample and keeps what it found in ``cuts``, ``late``, ``merged`` and ``odd``.

    ``holds`` are the channels whose values hold. ``readings`` has all accepted ones of each stream and channel; of a
    forgotten stream the newest one of each. ``rules``: how states, words and tags say where sequences begin.
    """

    def __init__(
        self,
        settings: SequenceSettings,
        table: Sequence[TableRow] | None = None,
        holds: Iterable[int] = (),
        rules: BoundaryRules | None = None,
    ) -> None:
        self.settings = settings
        self.table = table
        self.outside = 0
        self.holds = tuple(holds)
        self.readings: dict[str, dict[int, list[Reading]]] = {}
        self.rules = rules
        self.odd: Counter[str] = Counter()
        self.memory = settings.closed_memory
        if self.memory is None:
            self.memory = settings.max_duration + settings.allowed_lateness
        self.streams: dict[str, _Stream] = {}
        self.clock: int | None = None
        self.cuts: list[Cut] = []
        self.late: list[Late] = []
        self.jumped: list[tuple[int, int]] = []
        self.merged = 0
        self.holds_lives = False

    def push_together(self, parts: list[Record], offset: int) -> None:
        """Take a record of several blocks: held samples come before it, and no stream is forgotten within it."""
        for part in parts:
            self._resolve(part.stream, part.times[0])
        self.holds_lives = len(parts) > 1
        if parts[0].record_us is not None:
            self.holds_lives = False
            self.tick_to(parts[0].record_us)
        for part in parts:
            self.push(part, offset)
        if self.holds_lives:
            self.holds_lives = False
            for name, stream in list(self.streams.items()):
                self._tick(name, stream, self.clock or 0, self.clock or 0)

    def push(self, record: Record, offset: int) -> None:
        self._resolve(record.stream, record.times[0])
        if record.record_us is not None:
            self.tick_to(record.record_us)
        for rank, index in enumerate(tags_first(record)):
            time, row = record.times[index], record.rows[index]
            self._resolve(record.stream, time)
            stream = self.streams.setdefault(record.stream, _Stream())
            position = (offset, record.first + index)
            routes = () if record.route is None else ((position, record.route),)
            key = record.sequence if self.table is None else self._id_at(record.stream, time)
            boundary = None if record.boundaries is None else record.boundaries[index]
            sample = _Sample(key, time, row, index == record.end_at, position, 0, routes, boundary, (offset, rank))
            if record.record_us is None and stream.newest is not None and self._is_ahead(time - stream.newest):
                stream.held = sample
                continue
            clock = time if self.clock is None else self.clock
            stream.last_record = clock if record.record_us is not None else max(clock, time)
            sample.clock = max(clock, time)
            self._arrive(record.stream, stream, sample)
            if record.record_us is None:
                self.tick_to(time)

    def _id_at(self, stream: str, time: int) -> str | None:
        for row in self.table or ():
            if row.stream == stream and row.begin_us <= time and (row.end_us is None or time < row.end_us):
                return row.sequence
        return None

    def _row(self, stream: str, key: str | None) -> TableRow | None:
        return next((row for row in self.table or () if (row.stream, row.sequence) == (stream, key)), None)

    def _runs_still(self, stream: str, key: str | None) -> bool:
        row = self._row(stream, key)
        return row is not None and row.end_us is None

    def _is_ahead(self, ahead: int) -> bool:
        return ahead > max(self.settings.gap or 0, self.settings.max_duration) + self.settings.allowed_lateness

    def _resolve(self, name: str, time: int) -> None:
        """Take or drop the stream's held sample, by the time of the next one."""
        stream = self.streams.get(name)
        if stream is None or stream.held is None:
            return
        assert stream.newest is not None
        held, stream.held = stream.held, None
        if abs(time - held.time) > max(abs(time - stream.newest), self.settings.allowed_lateness):
            self.jumped.append(held.position)
            return
        assert self.clock is not None
        stream.last_record = held.clock = max(self.clock, held.time)
        self._arrive(name, stream, held)
        self.tick_to(held.time)

    def tick_to(self, now: int) -> None:
        if self.clock is None:
            self.clock = now
        while self.clock < now:
            self.clock += 1
            for name, stream in list(self.streams.items()):
                self._tick(name, stream, self.clock, now)

    def end_of_input(self) -> None:
        for name, stream in self.streams.items():
            if stream.held is not None:
                stream.held.clock = max(self.clock or 0, stream.held.time)
                self._arrive(name, stream, stream.held)
            self._flush(name, stream)
            for key in [key for key in stream.open if not self._runs_still(name, key)]:
                self._close(name, stream, key, "end_of_input" if self.table is None else "table")
            for key in [key for key in stream.entries if not self._runs_still(name, key)]:
                self._close_late(name, stream, key, 0)

    # --- one stream ---

    def _watermark(self, stream: _Stream) -> int | None:
        if stream.newest is None:
            return None
        watermark = stream.newest - self.settings.allowed_lateness
        return watermark if stream.floor is None else max(watermark, stream.floor)

    def _is_waiting(self, stream: _Stream) -> bool:
        watermark = self._watermark(stream)
        return watermark is not None and stream.newest is not None and watermark < stream.newest

    def _tick(self, name: str, stream: _Stream, now: int, record: int) -> None:
        lateness, gap = self.settings.allowed_lateness, self.settings.gap
        if self._is_waiting(stream):
            if now <= stream.last_record + lateness:
                return
            self._flush(name, stream)
        for key, sequence in list(stream.open.items()):
            limit = sequence.since + self.settings.max_duration
            if gap is not None:
                limit = min(limit, stream.last_record + gap)
            if now > limit + lateness:
                row = self._row(name, key)
                is_over = row is not None and row.end_us is not None and row.end_us <= limit + lateness
                reason = "table" if is_over else self._limit_reason(sequence)
                self._close(name, stream, key, reason, limit + lateness)
        for key, entry in list(stream.entries.items()):
            limit = entry.since + self.settings.max_duration
            if gap is not None:
                limit = min(limit, stream.last_record + gap)
            if now > limit + lateness:
                self._close_late(name, stream, key, limit + lateness)
        silence = self.settings.max_duration if gap is None else min(gap, self.settings.max_duration)
        assert stream.newest is not None
        assert self.memory is not None
        if (
            self._is_kept(stream)
            or stream.open
            or now <= max(stream.last_record, stream.newest) + silence + lateness + self.memory
        ):
            return
        held, stream.held = stream.held, None
        is_right = held is not None and abs(record - held.time) <= max(abs(record - stream.newest), lateness)
        if held is None or not is_right:
            if held is not None:
                self.jumped.append(held.position)
            if not self.holds_lives:
                self._forget(name)
            return
        held.clock = max(record, held.time)
        stream.last_record = max(stream.last_record, record)  # it counts as coming now: silence begins anew
        self._arrive(name, stream, held)

    def _forget(self, name: str) -> None:
        del self.streams[name]
        for channel, readings in self.readings.get(name, {}).items():
            self.readings[name][channel] = [max(readings)] if readings else []

    def _hold(self, name: str, stream: _Stream, sample: _Sample) -> None:
        """Keep the readings of an accepted sample; those of a former life that are newer than the first one go."""
        known = self.readings.setdefault(name, {channel: [] for channel in self.holds})
        for channel, readings in known.items():
            if stream.newest is None:
                readings[:] = [reading for reading in readings if reading[:2] < (sample.time, sample.position)]
            if (value := sample.row[channel]) is not None:
                readings.append((sample.time, sample.position, value))

    def _carried(self, name: str, first: _Sample) -> Row:
        """Return the newest readings before the first sample of a sequence."""
        row: list[float | None] = [None] * len(first.row)
        for channel, readings in self.readings.get(name, {}).items():
            before = [reading for reading in readings if reading[:2] < (first.time, first.position)]
            row[channel] = max(before)[2] if before else None
        return () if all(value is None for value in row) else tuple(row)

    def _is_kept(self, stream: _Stream) -> bool:
        """Return whether the stream is not forgotten, however silent it is."""
        holds = self.rules is not None and (self.rules.by_tag or self.rules.by_id_tag)
        has_said = bool(stream.said) or any(sample.boundary is not None for sample in stream.pending)
        return self.table is not None or (holds and has_said)

    def _arrive(self, name: str, stream: _Stream, sample: _Sample) -> None:
        watermark = self._watermark(stream)
        if watermark is not None and sample.time < watermark:
            if self.table is not None and sample.sequence is None:
                self.outside += 1
            elif self.rules is None:
                self._take_late(name, stream, sample)
            else:
                self._take_late_within(name, stream, sample, self.rules)
            return
        self._hold(name, stream, sample)
        stream.newest = sample.time if stream.newest is None else max(stream.newest, sample.time)
        stream.pending.append(sample)
        self._drain(name, stream, self._watermark(stream))

    def _flush(self, name: str, stream: _Stream) -> None:
        stream.floor = stream.newest
        self._drain(name, stream, None)

    def _drain(self, name: str, stream: _Stream, through: int | None) -> None:
        while True:
            ripe = [sample for sample in stream.pending if through is None or sample.time <= through]
            if not ripe:
                return
            first = min(ripe, key=lambda sample: (sample.time, sample.order))
            twins = [first] if first.boundary is not None else self._twins(stream, first)
            stream.pending = [sample for sample in stream.pending if sample not in twins]
            self._feed(name, stream, sorted(twins, key=lambda sample: sample.position))

    @staticmethod
    def _twins(stream: _Stream, first: _Sample) -> list[_Sample]:
        """Return the samples that merge with ``first``: those of its time and id, up to a boundary of that time."""
        of_time = [s for s in stream.pending if s.time == first.time]
        stop = min((s.order for s in of_time if s.boundary is not None), default=(1 << 62, 0))
        return [s for s in of_time if s.sequence == first.sequence and s.order < stop]

    def _feed(self, name: str, stream: _Stream, twins: list[_Sample]) -> None:
        time, clock = twins[0].time, max(sample.clock for sample in twins)
        is_torn = False
        if self.rules is not None:
            inside = self._within(name, stream, twins, clock, self.rules)
            if inside is None:
                return
            twins, is_torn = inside, inside[0].is_torn
        key = twins[0].sequence
        if self.table is not None and self._is_outside(name, stream, twins, clock):
            return
        self._end_overdue(name, stream, time, clock)
        own = stream.open.get(key)
        if own is not None and own.times[-1] != time and len(own.samples) == self.settings.max_samples:
            self._close(name, stream, key, "max_samples", clock)
        if self._is_closed(stream, key, time, clock):
            merged, _ = _merged(twins)
            self.merged += len(twins) - 1
            self._drop(name, merged, closed=True)
            return
        if "change" in self.settings.end:
            for other in [other for other in stream.open if other != key]:
                self._close(name, stream, other, "change", clock)
        if key not in stream.open:
            entry = None if key is None else stream.entries.pop(key, None)
            is_partial = entry is not None or is_torn
            stream.open[key] = _Open([], clock, first_position=twins[0].position, partial=is_partial)
            stream.open[key].n_late = 0 if entry is None else len(entry.times)
            stream.open[key].carried = self._carried(name, twins[0])
        sequence = stream.open[key]
        known = [sequence.samples.pop()] if sequence.samples and sequence.times[-1] == time else []
        # Samples without an id merge before it is known which sequence they are in.
        alone, n_alone = _merged(twins) if self.rules is not None else (None, 0)
        merged, displaced = _merged(known + (twins if alone is None else [alone]))
        displaced += n_alone
        sequence.samples.append(merged)
        sequence.routes += [route for sample in twins for route in sample.routes]
        sequence.merged += len(known) + len(twins) - 1
        sequence.displaced += displaced
        sequence.first_position = min(sequence.first_position, merged.position)
        if merged.end and "marker" in self.settings.end:
            if len(sequence.samples) > 1 and all(value is None for value in merged.row):
                sequence.samples.pop()
                sequence.merged += 1
            self._close(name, stream, key, "marker", clock, through=time)
        elif self.settings.length is not None and len(sequence.samples) == self.settings.length:
            self._close(name, stream, key, "length", clock)

    def _is_outside(self, name: str, stream: _Stream, twins: list[_Sample], clock: int) -> bool:
        """End the rows of the table that are over; return whether the samples lie in none."""
        key = twins[0].sequence
        for other in [other for other in stream.open if other != key]:
            self._close(name, stream, other, "table", clock)
        self.outside += len(twins) if key is None else 0
        return key is None

    # --- states, words and tags ---

    def _within(
        self, name: str, stream: _Stream, twins: list[_Sample], clock: int, rules: BoundaryRules
    ) -> list[_Sample] | None:
        """Apply what the first sample says; return the samples with their id, None if they lie in no sequence."""
        first = twins[0]
        boundary = first.boundary
        if boundary is not None:
            self._end_overdue(name, stream, first.time, clock)
            self._enter(name, stream, first, boundary, rules)
        is_bare = boundary is not None and boundary.is_bare
        inside = None if is_bare else self._belonging(stream, twins, rules)
        newest = next((said for said in reversed(stream.said) if not said.is_again), None)
        if inside and newest is not None and newest.is_late and (first.sequence is None or rules.by_tag):
            newest.is_late = False
            inside = [replace(inside[0], is_torn=True), *inside[1:]]
        if boundary is not None and boundary.ends:
            self._leave(name, stream, first, is_bare=is_bare)
        if inside is None and not is_bare:
            self._pass(name, stream, twins, clock, rules)
        return inside

    def _pass(self, name: str, stream: _Stream, samples: list[_Sample], clock: int, rules: BoundaryRules) -> None:
        is_inside = self._belonging(stream, samples, rules, skips=False) is not None
        self.odd["without_id" if is_inside else "outside"] += len(samples)
        if (rules.by_tag and _state(stream) is None) or (rules.by_id_tag and not _named(stream)[0]):
            self.odd["before_tag"] += len(samples)
        self._end_overdue(name, stream, samples[0].time, clock)

    def _enter(self, name: str, stream: _Stream, sample: _Sample, boundary: Boundary, rules: BoundaryRules) -> None:
        if boundary.state is False:
            for key in list(stream.open):
                self._close(name, stream, key, "while", sample.clock, said_at=sample.time)
        if boundary.state is not None and rules.by_tag:
            is_again = _state(stream) is boundary.state
            stream.said.append(_Said("state", sample.time, state=boundary.state, is_again=is_again))
        if boundary.names or boundary.begins:
            key = boundary.sequence if boundary.names else sample.sequence
            is_named, known, _ = _named(stream)
            is_again = is_named and known == key and (boundary.names or key is not None)
            if is_named and not is_again and known in stream.open:
                self._close(
                    name, stream, known, "change" if boundary.names else "begin", sample.clock, said_at=sample.time
                )
            stream.said.append(_Said("name", sample.time, key=key, is_again=is_again, routes=sample.routes))

    def _leave(self, name: str, stream: _Stream, sample: _Sample, *, is_bare: bool) -> None:
        is_named, key, _ = _named(stream)
        is_ours = is_named and sample.sequence in (None, key)
        key = key if sample.sequence is None else sample.sequence
        if is_ours:
            stream.said.append(_Said("end", sample.time))
        is_known = key in stream.open or key in stream.entries
        is_known = is_known or self._is_closed(stream, key, sample.time, sample.clock)
        is_begun = is_ours or (sample.sequence is not None and (not is_bare or is_known))
        if is_bare and is_begun and key in stream.open:
            stream.open[key].routes += sample.routes
            self._close(name, stream, key, "marker", sample.clock, said_at=sample.time)
        elif not is_begun:
            self.odd["unbegun_ends"] += 1

    def _belonging(
        self, stream: _Stream, samples: list[_Sample], rules: BoundaryRules, *, skips: bool | None = None
    ) -> list[_Sample] | None:
        first = samples[0]
        if rules.by_tag and not _state(stream):
            return None
        if not rules.by_tag and first.boundary is not None and first.boundary.state is False:
            return None
        if first.sequence is not None:
            return samples
        key, routes = None, ()
        if rules.by_begin or rules.by_id_tag:
            is_named, key, routes = _named(stream)
            if not is_named:
                return None
        if key is None and (self.settings.without_id == "skip" if skips is None else skips):
            return None
        return [replace(first, sequence=key, routes=(*routes, *first.routes))] + [
            replace(sample, sequence=key) for sample in samples[1:]
        ]

    def _take_late_within(self, name: str, stream: _Stream, sample: _Sample, rules: BoundaryRules) -> None:
        boundary = sample.boundary
        if boundary is not None and rules.stand:
            self.odd["late_boundaries"] += 1
            kinds = ("state",) if boundary.state is not None else ("name", "end")
            newest = next((said.time for said in reversed(stream.said) if said.kind in kinds), None)
            if newest is None or sample.time >= newest:
                n_said = len(stream.said)
                inside = self._within(name, stream, [sample], sample.clock, rules)
                for said in stream.said[n_said:]:
                    said.is_late = not said.is_again
                if inside is not None:
                    self._take_late(name, stream, inside[0])
                    if boundary.ends and inside[0].sequence in stream.open:
                        self._close(name, stream, inside[0].sequence, "marker", sample.clock, said_at=sample.time)
                return
        if boundary is not None and boundary.is_bare:
            return
        since = next((said.time for said in reversed(stream.said) if not said.is_again), None)
        if sample.sequence is None and rules.stand and since is not None and sample.time < since:
            self._take_late(name, stream, sample)
            return
        placed = self._belonging(stream, [sample], rules)
        if placed is None:
            torn = [] if rules.stand else [each for each in stream.open.values() if each.times[0] <= sample.time]
            for sequence in torn:
                sequence.partial = True
            self.odd["late_boundaries"] += bool(torn)
            self._pass(name, stream, [sample], sample.clock, rules)
        else:
            self._take_late(name, stream, placed[0])

    def _take_late(self, name: str, stream: _Stream, sample: _Sample) -> None:
        sequence = stream.open.get(sample.sequence)
        known = [] if sequence is None else [one.row for one in sequence.samples if one.time == sample.time]
        pairs = [(there, value) for row in known for there, value in zip(row, sample.row, strict=True)]
        if sequence is not None and known and all(value in (None, there) for there, value in pairs):
            sequence.merged += 1  # it came again
            return
        self._drop(name, sample, closed=False)
        self._enter_late(name, stream, sample)

    # --- ends ---

    def _is_closed(self, stream: _Stream, key: str | None, time: int, clock: int) -> bool:
        if key in stream.open:
            return False
        if key is None:
            return stream.closed_through is not None and time <= stream.closed_through
        assert self.memory is not None
        return key in stream.closed_at and clock <= stream.closed_at[key] + self.memory

    def _end_overdue(self, name: str, stream: _Stream, time: int, clock: int) -> None:
        gap = self.settings.gap
        for key, sequence in list(stream.open.items()):
            over_gap = gap is not None and time - sequence.times[-1] > gap
            if over_gap or time - sequence.times[0] > self.settings.max_duration:
                self._close(name, stream, key, self._limit_reason(sequence), clock)

    def _limit_reason(self, sequence: _Open) -> str:
        gap, limit = self.settings.gap, sequence.times[0] + self.settings.max_duration
        return "gap" if gap is not None and sequence.times[-1] + gap <= limit else "max_duration"

    def _close(
        self,
        name: str,
        stream: _Stream,
        key: str | None,
        reason: str,
        at: int = 0,
        *,
        through: int | None = None,
        said_at: int | None = None,
    ) -> None:
        sequence = stream.open.pop(key)
        sequence.partial = sequence.partial or (said_at is not None and sequence.times[-1] > said_at)
        last = sequence.times[-1] if through is None else through
        if key is None:
            stream.closed_through = last if stream.closed_through is None else max(stream.closed_through, last)
        else:
            stream.closed_at[key] = max(at, *(sample.clock for sample in sequence.samples))
        self.merged += sequence.merged
        start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=sequence.times[0])
        self.cuts.append(
            Cut(
                name,
                start.isoformat() if key is None else key,
                reason,
                tuple(sequence.times),
                tuple(sample.row for sample in sequence.samples),
                sequence.first_position,
                sequence.displaced,
                sequence.partial,
                routes=_different([value for _, value in sorted(sequence.routes)]),
                n_late=sequence.n_late,
                carried=sequence.carried,
            )
        )

    def _enter_late(self, name: str, stream: _Stream, sample: _Sample) -> None:
        """Note a late sample of a sequence that is neither open nor closed."""
        key = sample.sequence
        if key in stream.open and (key is not None or sample.time >= stream.open[key].times[0]):
            stream.open[key].n_late += 1
        if key is not None and (key in stream.open or self._is_closed(stream, key, sample.time, sample.clock)):
            return
        if key not in stream.entries:
            stream.entries[key] = _Entry(sample.clock, sample.clock, sample.position, len(sample.row))
        stream.entries[key].times.append(sample.time)
        stream.entries[key].seen = max(stream.entries[key].seen, sample.clock)
        if sample.end and "marker" in self.settings.end:
            self._close_late(name, stream, key, sample.clock)

    def _close_late(self, name: str, stream: _Stream, key: str | None, at: int) -> None:
        entry = stream.entries.pop(key)
        if key is None:
            return
        stream.closed_at[key] = max(at, entry.seen)
        times = tuple(sorted({min(entry.times), max(entry.times)}))
        rows = ((None,) * entry.n_channels,) * len(times)
        n_late = len(entry.times)
        self.cuts.append(Cut(name, key, "late", times, rows, entry.first_position, 0, n_late=n_late))

    def _drop(self, name: str, sample: _Sample, *, closed: bool) -> None:
        self.late.append(Late(name, sample.sequence, closed, sample.position[0], sample.time, sample.row))


def tags_first(record: Record) -> list[int]:
    """Return the places of a record's rows in their order, a tag's reading before those of its time and later."""
    boundaries = record.boundaries or (None,) * len(record.times)
    are_tags = [is_tag(boundary) for boundary in boundaries]
    order = [at for at in range(len(record.times)) if not are_tags[at]]
    for tag in sorted((at for at in range(len(record.times)) if are_tags[at]), key=lambda at: record.times[at]):
        is_before = {at for at in order if are_tags[at]}
        later = [at for at in order if record.times[at] >= record.times[tag] and at not in is_before]
        order.insert(order.index(later[0]) if later else len(order), tag)
    return order


def _state(stream: _Stream) -> bool | None:
    return next((said.state for said in reversed(stream.said) if said.kind == "state"), None)


def _named(stream: _Stream) -> tuple[bool, str | None, tuple[tuple[tuple[int, int], str], ...]]:
    """Return whether samples without an id have a sequence now, its id, and what chooses its model."""
    is_named, key, routes = False, None, ()
    for said in stream.said:
        if said.kind == "end":
            is_named, key, routes = False, None, ()
        elif said.kind == "name":
            routes = (*routes, *said.routes) if said.is_again else said.routes
            is_named, key = True, said.key
    return is_named, key, routes


def _different(values: list[str]) -> tuple[str, ...]:
    """Return the first three different values."""
    return tuple(value for i, value in enumerate(values) if value not in values[:i])[:3]


def _merged(samples: list[_Sample]) -> tuple[_Sample, int]:
    """Return samples of equal time as one, each channel's last reading winning, and how many replaced another value."""
    channels = [[row[c] for row in (s.row for s in samples) if row[c] is not None] for c in range(len(samples[0].row))]
    merged = _Sample(
        samples[0].sequence,
        samples[0].time,
        tuple(readings[-1] if readings else None for readings in channels),
        any(sample.end for sample in samples),
        min(sample.position for sample in samples),
        max(sample.clock for sample in samples),
    )
    displaced = 0
    for number, sample in enumerate(samples):
        before = [[s.row[c] for s in samples[:number] if s.row[c] is not None] for c in range(len(sample.row))]
        displaced += any(
            value is not None and readings and readings[-1] != value
            for value, readings in zip(sample.row, before, strict=True)
        )
    return merged, displaced


def model_of(
    settings: SequenceSettings,
    records: list[Record] | list[list[Record]],
    rules: BoundaryRules | None = None,
    holds: Iterable[int] = (),
) -> Model:
    """Return the model after ``records`` to their end; of records of several blocks each is a list."""
    model = Model(settings, rules=rules, holds=holds)
    for offset, record in enumerate(records):
        if isinstance(record, list):
            model.push_together(record, offset)
        else:
            model.push(record, offset)
    model.end_of_input()
    return model


def model_outcome(
    settings: SequenceSettings, records: list[Record] | list[list[Record]], holds: Iterable[int] = ()
) -> tuple[Counter[Cut], Counter[Late], Counter[int]]:
    """Return what the model makes of ``records`` to their end: sequences, late samples, records with a wrong time.

    Of records of several blocks each is a list.
    """
    model = model_of(settings, records, holds=holds)
    return Counter(model.cuts), Counter(model.late), Counter(offset for offset, _ in model.jumped)
