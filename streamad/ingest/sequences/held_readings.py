"""The newest readings of channels that hold: what a sequence begins with before it has readings of its own.

Law: a sequence begins, for each channel with ``fill: hold``, with the newest of all accepted readings that lie before
its first sample, by event time, then position. Of a forgotten stream one reading of each channel counts: the newest.
This depends on the set of readings alone. Progress therefore saves no state at an offset, but the readings that undone
sequences began with and those that later ones may begin with, less those that rereading accepts again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from streamad.ingest.sequences.clocks import NEVER_US
from streamad.partition_progress import HeldReading
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import BoolArray, FloatArray, IntArray, Position, SampleBlock

Reading: TypeAlias = tuple[int, int, int, float]
"""Event time, offset, index in its record, and value: the newest reading is the greatest."""
Held: TypeAlias = dict[str, Reading]
"""Readings by channel."""
_Place: TypeAlias = tuple[int, int, int]
"""Event time and position."""
_Single: TypeAlias = tuple[int, int, int, str, float]
"""The place of a reading, its channel and its value."""
_Samples: TypeAlias = tuple[int, int, int, IntArray | None, FloatArray]
"""The place of the first of some samples, their times [n] and values [n, C]; of a single one no times, and [C]."""

_MOST_WAITING = 32
"""Samples beyond those that may still be preceded: one look at many costs little more than at one."""


class HeldReadings:
    """The readings of one stream that hold; ``channels`` maps the indexes of the channels that hold to their names.

    Samples come in by ``take`` if they are the newest so far, by ``come`` if older ones may follow, and by ``pass_by``
    if they move no clock of the stream: of these the newest reading of each channel waits for the sequences behind.
    They wait as they are, and are looked at together: when a sequence begins, a progress is saved, or many wait.
    """

    __slots__ = (
        "_columns", "_farthest_us", "_hidden", "_most", "_n_waiting", "_names", "_newest", "_outside", "_passed",
        "_restored", "_through_us", "_waiting",
    )  # fmt: skip

    def __init__(self, channels: Mapping[int, str], settings: SequenceSettings) -> None:
        self._farthest_us = max(settings.gap or 0, settings.max_duration) + settings.allowed_lateness
        self._columns, self._names = np.array([*channels], dtype=np.int64), list(channels.values())
        self._newest: Held = {}
        self._hidden: list[tuple[int, Held]] = []
        self._restored: deque[_Single] = deque()
        self._waiting: list[_Samples] = []
        self._n_waiting, self._most = 0, _MOST_WAITING
        self._through_us: int | None = None
        self._passed: list[_Samples] = []
        self._outside: Held = {}

    def __bool__(self) -> bool:
        self._settle_due()
        return bool(self._newest or self._hidden or self._outside or self._restored or self._waiting)

    # --- readings in ---

    def take(self, times_us: IntArray, values: FloatArray, offset: int, index: int = 0) -> None:
        """Take the newest samples of the stream: ``values`` float32 [n, C]; the first has ``index`` in its record."""
        if len(times_us) == 1:
            self.take_one(times_us.item(0), values[0], offset, index)
        else:
            self._waiting.append((times_us.item(0), offset, index, times_us, values))
            self._n_waiting += len(times_us)
            self.settle(times_us.item(len(times_us) - 1))

    def take_one(self, time_us: int, row: FloatArray, offset: int, index: int = 0) -> None:
        """Take the newest sample of the stream, float32 [C]."""
        self._waiting.append((time_us, offset, index, None, row))
        self._n_waiting += 1
        self._through_us = time_us
        if self._n_waiting > self._most:
            self._settle_due()

    def come(self, times_us: IntArray, values: FloatArray, position: Position, *, begins: bool) -> None:
        """Take accepted samples of rising times that others may still precede; ``position`` is that of the first.

        Only here the place of each is known, before any are merged. ``begins``: the stream begins with them.
        """
        (offset, index), n, waiting = position, len(times_us), self._waiting
        time_us = times_us.item(0)
        if begins:
            self._begin_anew((time_us, offset, index))
        samples = (time_us, offset, index, None, values[0]) if n == 1 else (time_us, offset, index, times_us, values)
        if not waiting or waiting[-1] < samples:  # no two have one place: arrays are never compared
            waiting.append(samples)
        else:
            insort(waiting, samples)
        self._n_waiting += n

    def pass_by(self, block: SampleBlock) -> None:
        """Take samples that belong to no sequence and move no clock of the stream."""
        indexes = range(len(block)) if block.indexes is None else block.indexes.tolist()
        times_us = block.times_us.tolist()
        for at, index in enumerate(indexes):
            self._passed.append((times_us[at], block.offset, index, None, block.values[at]))
        if len(self._passed) > _MOST_WAITING:
            self._settle_passed()

    def _begin_anew(self, first: _Place) -> None:
        """Note that the stream, unknown or forgotten, begins with this sample: its clock may have gone back.

        Readings from before that are newer hide none of those to come; rereading hides them again. Samples outside of
        sequences may run ahead by the longest time that a sequence or a gap may take.
        """
        self.end_life()
        self._through_us = None
        hidden = {name: self._newest.pop(name) for name, reading in [*self._newest.items()] if reading >= first}
        self._hidden += [(first[1], hidden)] if hidden else []
        latest_us = first[0] + self._farthest_us
        self._outside = {name: reading for name, reading in self._outside.items() if reading[0] <= latest_us}

    def end_life(self) -> None:
        """Leave one reading of each channel, the newest of all: the stream is forgotten."""
        self._settle((NEVER_US, 0, 0))

    # --- what a sequence begins with ---

    def before(self, time_us: int, position: Position) -> Held:
        """Return the newest readings before the sample at ``time_us`` and ``position``; later calls ask for later ones.

        Every reading before it must have come.
        """
        first = time_us, *position
        self._settle(first)
        self._settle_passed()
        for name in [name for name, reading in self._outside.items() if reading < first]:
            _join(self._newest, {name: self._outside.pop(name)})
        return {name: reading for name, reading in self._newest.items() if reading < first}

    def settle(self, through_us: int) -> None:
        """Note that every sequence to come begins at ``through_us`` or later, behind all samples there."""
        self._through_us = through_us
        if self._n_waiting > self._most:
            self._settle_due()

    def row_of(self, held: Held, n_channels: int) -> FloatArray | None:
        """Return the readings ``held`` of channels, float32 [C] with NaN for none; None if no channel has one."""
        row = np.full(n_channels, np.nan, dtype=np.float32)
        found = False
        for channel, name in zip(self._columns.tolist(), self._names, strict=True):
            if (reading := held.get(name)) is not None:
                row[channel] = reading[3]
                found = True
        return row if found else None

    # --- the samples that wait ---

    def _settle_due(self) -> None:
        """Count those that none can precede any more."""
        self._settle_passed()
        if self._through_us is not None:
            self._settle((self._through_us + 1, 0, 0))
        self._most = self._n_waiting + _MOST_WAITING

    def _settle(self, end: _Place) -> None:
        """Count the waiting readings before ``end`` as the newest."""
        restored, waiting = self._restored, self._waiting
        while restored and restored[0] < end:
            time_us, offset, index, name, value = restored.popleft()
            _join(self._newest, {name: (time_us, offset, index, value)})
        n_due = bisect_left(waiting, end)
        due = waiting[:n_due]
        del waiting[:n_due]
        for _, offset, index, times_us, values in due:
            if times_us is None:
                continue
            n = _count_before(end, times_us, offset, index)
            self._n_waiting -= n
            last = self._last(values[:n])
            _join(self._newest, {name: (times_us.item(at), offset, index + at, value) for name, at, value in last})
            if n < len(times_us):
                insort(waiting, (times_us.item(n), offset, index + n, times_us[n:], values[n:]))
        singles = [samples for samples in due if samples[3] is None]
        self._n_waiting -= len(singles)
        _join(self._newest, self._last_of(singles))

    def _settle_passed(self) -> None:
        """Look at the samples that belong to no sequence."""
        if self._passed:
            _join(self._outside, self._last_of(sorted(self._passed, key=lambda sample: sample[:3])))
            self._passed.clear()

    def _last_of(self, singles: Sequence[_Samples]) -> Held:
        """Return the newest readings of single samples, in the order of their places."""
        if not singles:
            return {}
        rows = [sample[4] for sample in singles]
        if not np.isnan(rows[-1].take(self._columns)).any():
            singles, rows = singles[-1:], rows[-1:]
        last = self._last(np.concatenate(rows).reshape(len(rows), -1))
        return {name: (*singles[at][:3], value) for name, at, value in last}

    def _last(self, values: FloatArray) -> list[tuple[str, int, float]]:
        """Return the last reading of each channel that has any in samples [n, C], and which sample has it."""
        held = values.take(self._columns, axis=1)
        present: BoolArray = held == held  # noqa: PLR0124 - NaN is what differs from itself
        rows = len(held) - 1 - present[::-1].argmax(axis=0)
        found = held[rows, np.arange(len(rows))].tolist()
        return [each for each in zip(self._names, rows.tolist(), found, strict=True) if each[2] == each[2]]

    # --- progress ---

    def saved(self, below: int, begun: Iterable[Held]) -> dict[str, tuple[HeldReading, ...]]:
        """Return what rereading from the offset ``below`` on needs; undone sequences have begun with ``begun``."""
        self._settle_due()
        found: dict[str, set[Reading]] = {}
        restored = [{name: (time_us, offset, index, value)} for time_us, offset, index, name, value in self._restored]
        self._hidden = [(offset, held) for offset, held in self._hidden if offset >= below]
        for held in (self._newest, *begun, *restored, *(held for _, held in self._hidden)):
            for name, reading in held.items():
                if reading[1] < below:
                    found.setdefault(name, set()).add(reading)
        saved = {name: [_saved(reading) for reading in sorted(readings)] for name, readings in sorted(found.items())}
        for name, reading in sorted(self._outside.items()):
            if reading[1] < below:
                saved.setdefault(name, []).append(_saved(reading, outside=True))
        return {name: tuple(readings) for name, readings in saved.items()}

    def restore(self, saved: Mapping[str, tuple[HeldReading, ...]]) -> None:
        """Set what a progress holds; channels that hold no more are dropped."""
        for name in self._names:
            for each in saved.get(name, ()):
                place = each.time_us, each.offset, each.index
                if each.outside:
                    self._outside[name] = *place, each.value
                else:
                    insort(self._restored, (*place, name, each.value))


class HeldByStream:
    """The held readings of all streams of a partition; those of ``max_streams`` forgotten streams are kept.

    Beyond that the stream that was forgotten first loses its own; ``first_lost`` names the first such stream.
    """

    def __init__(self, channels: Mapping[int, str], settings: SequenceSettings) -> None:
        self._channels = channels
        self._settings = settings
        self._by_stream: dict[str, HeldReadings] = {}
        self._forgotten: dict[str, None] = {}
        self.first_lost: str | None = None

    def __bool__(self) -> bool:
        return bool(self._channels)

    def saved(self, stream: str, below: int, begun: Iterable[Held]) -> dict[str, tuple[HeldReading, ...]]:
        """Return what ``HeldReadings.saved`` does; a stream may have lost all but what sequences began with."""
        readings = self._by_stream.get(stream)
        if readings is None:
            return HeldReadings(self._channels, self._settings).saved(below, begun)
        saved = readings.saved(below, begun)
        if not readings and stream in self._forgotten:
            del self._by_stream[stream], self._forgotten[stream]
        return saved

    def of_known(self, stream: str) -> HeldReadings:
        """Return the held readings of a stream that is known from now on."""
        self._forgotten.pop(stream, None)
        return self._of(stream)

    def _of(self, stream: str) -> HeldReadings:
        if stream not in self._by_stream:
            self._by_stream[stream] = HeldReadings(self._channels, self._settings)
        return self._by_stream[stream]

    def forget(self, stream: str) -> list[str]:
        """Keep the held readings of a stream that is not known (any more); return the streams that lose theirs."""
        self._forgotten.setdefault(stream)
        readings = self._of(stream)
        readings.end_life()
        lost = []
        if not readings:
            lost.append(stream)
        elif len(self._forgotten) > self._settings.max_streams:
            lost.append(next(iter(self._forgotten)))
            self.first_lost = self.first_lost or lost[0]
        for name in lost:
            del self._by_stream[name], self._forgotten[name]
        return lost


def _count_before(end: _Place, times_us: IntArray, offset: int, index: int) -> int:
    """Return how many of the samples lie before ``end``."""
    n = int(np.searchsorted(times_us, end[0]))
    if n < len(times_us) and (times_us.item(n), offset, index + n) < end:
        n += 1
    return n


def _join(held: Held, more: Held) -> None:
    """Let the newer readings of ``more`` replace those of ``held``."""
    for name, reading in more.items():
        if name not in held or reading > held[name]:
            held[name] = reading


def _saved(reading: Reading, *, outside: bool = False) -> HeldReading:
    time_us, offset, index, value = reading
    return HeldReading(value=value, time_us=time_us, offset=offset, index=index, outside=outside)
