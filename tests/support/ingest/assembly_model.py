"""A second assembler, as plain as the semantics in ``docs/guide/sequences.md``: one sample, one tick at a time.

It keeps lists and walks the clock tick by tick, so it shares no structure with the one that it checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.sequences.late_entries import LateSamples
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import SampleBlock

Row = tuple[float | None, ...]


@dataclass(frozen=True)
class Record:
    """One message: the samples of one stream and sequence in the order in which it holds them."""

    stream: str
    sequence: str | None
    times: tuple[int, ...]
    rows: tuple[Row, ...]
    end: bool = False
    record_us: int | None = None
    route: str | None = None

    def block(self, offset: int) -> SampleBlock:
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
            None if in_order else np.array(order, dtype=np.int64),
            route=self.route,
        )

    @property
    def end_at(self) -> int | None:
        """Return the place of the sample that carries the end mark: the latest in time."""
        return max(range(len(self.times)), key=lambda i: (self.times[i], i)) if self.end else None


@dataclass(frozen=True)
class Cut:
    """A finished sequence in a form that can be compared and counted."""

    stream: str
    sequence: str
    reason: str
    times: tuple[int, ...]
    rows: tuple[Row, ...]
    first_position: tuple[int, int]
    duplicates: int
    partial: bool = False
    routes: tuple[str, ...] = ()
    n_late: int = 0


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
        sequence.duplicates,
        sequence.partial,
        sequence.routes,
        sequence.n_late,
    )


def all_of(closed: Closed) -> tuple[Any, ...]:
    """Return all that is known of an ended sequence, comparable."""
    return cut_of(closed), closed.at_us, closed.through_us, closed.merged, closed.offset, closed.before, closed.unseen


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


@dataclass
class _Open:
    samples: list[_Sample]
    since: int
    merged: int = 0
    duplicates: int = 0
    first_position: tuple[int, int] = (0, 0)
    routes: list[tuple[tuple[int, int], str]] = field(default_factory=list)
    partial: bool = False

    @property
    def times(self) -> list[int]:
        return [sample.time for sample in self.samples]


@dataclass
class _Entry:
    """The late samples of a sequence that is neither open nor closed."""

    since: int
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


class Model:
    """Cuts sequences sample by sample and keeps what it found in ``cuts``, ``late`` and ``merged``."""

    def __init__(self, settings: SequenceSettings) -> None:
        self.settings = settings
        self.memory = settings.closed_memory
        if self.memory is None:
            self.memory = settings.max_duration + settings.allowed_lateness
        self.streams: dict[str, _Stream] = {}
        self.clock: int | None = None
        self.cuts: list[Cut] = []
        self.late: list[Late] = []
        self.jumped: list[tuple[int, int]] = []
        self.merged = 0

    def push(self, record: Record, offset: int) -> None:
        self._resolve(record.stream, record.times[0])
        if record.record_us is not None:
            self.tick_to(record.record_us)
        for index, (time, row) in enumerate(zip(record.times, record.rows, strict=True)):
            self._resolve(record.stream, time)
            stream = self.streams.setdefault(record.stream, _Stream())
            position = (offset, index)
            routes = () if record.route is None else ((position, record.route),)
            sample = _Sample(record.sequence, time, row, index == record.end_at, position, 0, routes)
            if record.record_us is None and stream.newest is not None and self._is_ahead(time - stream.newest):
                stream.held = sample
                continue
            clock = time if self.clock is None else self.clock
            stream.last_record = clock if record.record_us is not None else max(clock, time)
            sample.clock = max(clock, time)
            self._arrive(record.stream, stream, sample)
            if record.record_us is None:
                self.tick_to(time)

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
            for key in list(stream.open):
                self._close(name, stream, key, "end_of_input")
            for key in list(stream.entries):
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
                self._close(name, stream, key, self._limit_reason(sequence), limit + lateness)
        for key, entry in list(stream.entries.items()):
            limit = entry.since + self.settings.max_duration
            if gap is not None:
                limit = min(limit, stream.last_record + gap)
            if now > limit + lateness:
                self._close_late(name, stream, key, limit + lateness)
        silence = self.settings.max_duration if gap is None else min(gap, self.settings.max_duration)
        assert stream.newest is not None
        assert self.memory is not None
        if stream.open or now <= max(stream.last_record, stream.newest) + silence + lateness + self.memory:
            return
        if stream.held is None:
            del self.streams[name]
            return
        held, stream.held = stream.held, None
        if abs(record - held.time) > max(abs(record - stream.newest), lateness):
            self.jumped.append(held.position)
            del self.streams[name]
            return
        held.clock = max(record, held.time)
        self._arrive(name, stream, held)

    def _arrive(self, name: str, stream: _Stream, sample: _Sample) -> None:
        watermark = self._watermark(stream)
        if watermark is not None and sample.time < watermark:
            self._drop(name, sample, closed=False)
            self._enter_late(name, stream, sample)
            return
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
            first = min(ripe, key=lambda sample: (sample.time, sample.position))
            twins = [s for s in stream.pending if (s.time, s.sequence) == (first.time, first.sequence)]
            stream.pending = [sample for sample in stream.pending if sample not in twins]
            self._feed(name, stream, sorted(twins, key=lambda sample: sample.position))

    def _feed(self, name: str, stream: _Stream, twins: list[_Sample]) -> None:
        time, key, clock = twins[0].time, twins[0].sequence, max(sample.clock for sample in twins)
        self._end_overdue(name, stream, time, clock)
        own = stream.open.get(key)
        if own is not None and own.times[-1] != time and len(own.samples) == self.settings.max_samples:
            self._close(name, stream, key, "max_samples", clock)
        if self._is_closed(stream, key, time, clock):
            merged, duplicates = _merged(twins)
            self.merged += len(twins) - 1
            self._drop(name, merged, closed=True)
            return
        if "change" in self.settings.end:
            for other in [other for other in stream.open if other != key]:
                self._close(name, stream, other, "change", clock)
        if key not in stream.open:
            entry = None if key is None else stream.entries.pop(key, None)
            stream.open[key] = _Open([], clock, first_position=twins[0].position, partial=entry is not None)
        sequence = stream.open[key]
        known = [sequence.samples.pop()] if sequence.samples and sequence.times[-1] == time else []
        merged, duplicates = _merged(known + twins)
        sequence.samples.append(merged)
        sequence.routes += [route for sample in twins for route in sample.routes]
        sequence.merged += len(known) + len(twins) - 1
        sequence.duplicates += duplicates
        sequence.first_position = min(sequence.first_position, merged.position)
        if merged.end and "marker" in self.settings.end:
            if len(sequence.samples) > 1 and all(value is None for value in merged.row):
                sequence.samples.pop()
                sequence.merged += 1
            self._close(name, stream, key, "marker", clock, through=time)
        elif self.settings.length is not None and len(sequence.samples) == self.settings.length:
            self._close(name, stream, key, "length", clock)

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
        self, name: str, stream: _Stream, key: str | None, reason: str, at: int = 0, *, through: int | None = None
    ) -> None:
        sequence = stream.open.pop(key)
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
                sequence.duplicates,
                sequence.partial,
                routes=_different([value for _, value in sorted(sequence.routes)]),
            )
        )

    def _enter_late(self, name: str, stream: _Stream, sample: _Sample) -> None:
        """Note a late sample of a sequence that is neither open nor closed."""
        key = sample.sequence
        if key is not None and (key in stream.open or self._is_closed(stream, key, sample.time, sample.clock)):
            return
        if key not in stream.entries:
            stream.entries[key] = _Entry(sample.clock, sample.position, len(sample.row))
        stream.entries[key].times.append(sample.time)
        if sample.end and "marker" in self.settings.end:
            self._close_late(name, stream, key, sample.clock)

    def _close_late(self, name: str, stream: _Stream, key: str | None, at: int) -> None:
        entry = stream.entries.pop(key)
        if key is None:
            return
        stream.closed_at[key] = max(at, entry.since)
        times = tuple(sorted({min(entry.times), max(entry.times)}))
        rows = ((None,) * entry.n_channels,) * len(times)
        n_late = len(entry.times)
        self.cuts.append(Cut(name, key, "late", times, rows, entry.first_position, 0, n_late=n_late))

    def _drop(self, name: str, sample: _Sample, *, closed: bool) -> None:
        self.late.append(Late(name, sample.sequence, closed, sample.position[0], sample.time, sample.row))


def _different(values: list[str]) -> tuple[str, ...]:
    """Return the first three different values."""
    return tuple(value for i, value in enumerate(values) if value not in values[:i])[:3]


def _merged(samples: list[_Sample]) -> tuple[_Sample, int]:
    """Return samples of equal time as one, each channel's last reading winning, and how many readings lost."""
    channels = [[row[c] for row in (s.row for s in samples) if row[c] is not None] for c in range(len(samples[0].row))]
    merged = _Sample(
        samples[0].sequence,
        samples[0].time,
        tuple(readings[-1] if readings else None for readings in channels),
        any(sample.end for sample in samples),
        min(sample.position for sample in samples),
        max(sample.clock for sample in samples),
    )
    return merged, sum(max(0, len(readings) - 1) for readings in channels)


def model_outcome(
    settings: SequenceSettings, records: list[Record]
) -> tuple[Counter[Cut], Counter[Late], Counter[int]]:
    """Return what the model makes of ``records`` to their end: sequences, late samples, records with a wrong time."""
    model = Model(settings)
    for offset, record in enumerate(records):
        model.push(record, offset)
    model.end_of_input()
    return Counter(model.cuts), Counter(model.late), Counter(offset for offset, _ in model.jumped)
