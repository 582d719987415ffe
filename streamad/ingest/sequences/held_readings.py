"""The newest readings of channels that hold: what a sequence begins with before it has readings of its own.

Law: a sequence begins, for each channel with ``fill: hold``, with the newest of all accepted readings that lie before
its first sample, by event time, then position. This depends on the set of readings alone. Progress therefore saves no
state at an offset, but the readings that undone sequences began with and those that later ones may begin with, less
those that rereading accepts again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

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
_Run: TypeAlias = tuple[int, int, int, IntArray, FloatArray]
"""The place of the first of some samples, and their times and values."""

_MOST_LOOKED_AT = 12
"""Channels of a sample that are looked at one by one; of more, the present ones are searched first."""


class HeldReadings:
    """The readings of one stream that hold; ``channels`` maps the indexes of the channels that hold to their names.

    They come in by ``take`` if they are the newest so far, by ``wait`` if older ones may follow, and by ``pass_by``
    from samples that move no clock of the stream: of these the newest one of each channel waits for the sequences
    behind.
    """

    __slots__ = (
        "_channels", "_farthest_us", "_has_lateness", "_names", "_newest", "_outside", "_runs", "_singles",
    )  # fmt: skip

    def __init__(self, channels: Mapping[int, str], settings: SequenceSettings) -> None:
        self._names = channels
        self._has_lateness = bool(settings.allowed_lateness)
        self._farthest_us = max(settings.gap or 0, settings.max_duration) + settings.allowed_lateness
        self._channels = tuple(channels.items())
        self._newest: Held = {}
        self._runs: deque[_Run] = deque()
        self._singles: deque[_Single] = deque()
        self._outside: Held = {}

    def __bool__(self) -> bool:
        return bool(self._newest or self._outside or self._singles or self._runs)

    # --- readings in ---

    def take(self, times_us: IntArray, values: FloatArray, offset: int, index: int = 0) -> None:
        """Take the newest samples of the stream: ``values`` float32 [n, C]; the first has ``index`` in its record."""
        last = len(times_us) - 1
        if last == 0 or not np.isnan(values[last]).any():
            self.take_one(times_us.item(last), values[last], offset, index + last)
        else:
            _join(self._newest, self._newest_of(times_us, values, offset, index))

    def take_one(self, time_us: int, row: FloatArray, offset: int, index: int = 0) -> None:
        """Take the newest sample of the stream, float32 [C]."""
        newest = self._newest
        for name, value in self._readings_of(row):
            newest[name] = (time_us, offset, index, value)

    def _readings_of(self, row: FloatArray) -> list[tuple[str, float]]:
        """Return the readings that hold in a sample [C], by channel."""
        if len(self._names) > _MOST_LOOKED_AT:
            names, values = self._names, row.item
            there = np.flatnonzero(row == row).tolist()  # noqa: PLR0124 - NaN is what differs from itself
            return [(names[channel], values(channel)) for channel in there if channel in names]
        values = row.tolist()
        return [(name, values[channel]) for channel, name in self._channels if values[channel] == values[channel]]

    def _join_row(self, held: Held, time_us: int, row: FloatArray, offset: int, index: int) -> None:
        """Let the readings of a sample replace older ones of ``held``."""
        _join(held, {name: (time_us, offset, index, value) for name, value in self._readings_of(row)})

    def come(self, times_us: IntArray, values: FloatArray, position: Position, *, begins: bool) -> bool:
        """Take accepted samples; only here the place of each is known, before any are merged.

        ``begins``: the stream begins with them. Return True, with none taken, if it is a single sample that is the
        newest one (``take_one``): it may begin a sequence itself.
        """
        if begins:
            self.begin_anew(times_us.item(0), position)
        if len(times_us) == 1 and not self._has_lateness:
            return True
        self.wait(times_us, values, position)
        return False

    def wait(self, times_us: IntArray, values: FloatArray, position: Position) -> None:
        """Take samples of rising times that others may still precede; ``position`` is that of the first."""
        if len(times_us) > 1:
            run = times_us.item(0), *position, times_us, values  # no two have one place: arrays are never compared
            self._runs.insert(bisect_left(self._runs, run), run)
            return
        time_us, (offset, index), singles = times_us.item(0), position, self._singles
        for name, value in self._readings_of(values[0]):
            single = time_us, offset, index, name, value
            if not singles or singles[-1] < single:
                singles.append(single)
            else:
                singles.insert(bisect_left(singles, single), single)

    def pass_by(self, block: SampleBlock) -> None:
        """Take samples that belong to no sequence and move no clock of the stream."""
        for at in range(len(block)):
            index = at if block.indexes is None else block.indexes.item(at)
            self._join_row(self._outside, block.times_us.item(at), block.values[at], block.offset, index)

    def begin_anew(self, time_us: int, position: Position) -> None:
        """Note that the stream, unknown or forgotten, begins with this sample: its clock may have gone back.

        Readings from before that are newer hide none of those to come. Samples outside of sequences may run ahead by
        the longest time that a sequence or a gap may take.
        """
        first = time_us, *position
        self._newest = {name: reading for name, reading in self._newest.items() if reading < first}
        self._singles = deque(single for single in self._singles if single < first)
        latest_us = time_us + self._farthest_us
        self._outside = {name: reading for name, reading in self._outside.items() if reading[0] <= latest_us}

    # --- what a sequence begins with ---

    def before(self, time_us: int, position: Position) -> Held:
        """Return the newest readings before the sample at ``time_us`` and ``position``; later calls ask for later ones.

        Every reading before it must have come.
        """
        first = time_us, *position
        self._settle(first)
        for name in [name for name, reading in self._outside.items() if reading < first]:
            _join(self._newest, {name: self._outside.pop(name)})
        return {name: reading for name, reading in self._newest.items() if reading < first}

    def settle(self, through_us: int) -> None:
        """Note that every sequence to come begins at ``through_us`` or later, behind all samples there."""
        singles, runs = self._singles, self._runs
        if (singles and singles[0][0] <= through_us) or (runs and runs[0][0] <= through_us):
            self._settle((through_us + 1, 0, 0))

    def row_of(self, held: Held, n_channels: int) -> FloatArray | None:
        """Return the readings ``held`` of channels, float32 [C] with NaN for none; None if no channel has one."""
        row = np.full(n_channels, np.nan, dtype=np.float32)
        found = False
        for channel, name in self._channels:
            if (reading := held.get(name)) is not None:
                row[channel] = reading[3]
                found = True
        return row if found else None

    def _settle(self, end: _Place) -> None:
        """Count the waiting readings before ``end`` as the newest."""
        newest, singles, runs = self._newest, self._singles, self._runs
        while singles and singles[0] < end:
            time_us, offset, index, name, value = singles.popleft()
            reading, known = (time_us, offset, index, value), newest.get(name)
            if known is None or reading > known:
                newest[name] = reading
        while runs and runs[0] < end:
            _, offset, index, times_us, values = runs.popleft()
            n = _count_before(end, times_us, offset, index)
            _join(newest, self._newest_of(times_us[:n], values[:n], offset, index))
            if n < len(times_us):
                self.wait(times_us[n:], values[n:], Position(offset, index + n))

    def _newest_of(self, times_us: IntArray, values: FloatArray, offset: int, index: int) -> Held:
        """Return the last readings of samples [n], at least one, of rising times."""
        channels = [channel for channel, _ in self._channels]
        present: BoolArray = ~np.isnan(values[:, channels])
        is_there: list[bool] = np.any(present, axis=0).tolist()
        rows = (len(times_us) - 1 - present[::-1].argmax(axis=0)).tolist()
        return {
            name: (times_us.item(row), offset, index + row, values.item(row, channel))
            for (channel, name), row, found in zip(self._channels, rows, is_there, strict=True)
            if found
        }

    # --- progress ---

    def saved(self, below: int, begun: Iterable[Held]) -> dict[str, tuple[HeldReading, ...]]:
        """Return what rereading from the offset ``below`` on needs; undone sequences have begun with ``begun``."""
        found: dict[str, set[Reading]] = {}
        waiting = [{name: (time_us, offset, index, value)} for time_us, offset, index, name, value in self._singles]
        for held in (self._newest, *begun, *waiting):
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
        for _, name in self._channels:
            for each in saved.get(name, ()):
                place = each.time_us, each.offset, each.index
                if each.outside:
                    self._outside[name] = *place, each.value
                else:
                    single = *place, name, each.value
                    self._singles.insert(bisect_left(self._singles, single), single)


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

    def get(self, stream: str) -> HeldReadings | None:
        """Return the held readings of ``stream``, None if it has none."""
        return self._by_stream.get(stream)

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
        lost = []
        if not self._of(stream):
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
