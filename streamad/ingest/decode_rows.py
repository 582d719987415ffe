"""Rows of readings: Python floats to arrays, and the values that cannot be used, each missing in its channel alone."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.decode_values import ABSENT, FieldPath, shown
from streamad.settings.readings import QualitySettings
from streamad.types import BAD_REASONS, BadValues, FloatArray

WRONG_TYPE, INFINITE, QUALITY = range(1, len(BAD_REASONS))
_TEXTS = {
    WRONG_TYPE: "must be a number or null, got {}",
    INFINITE: "{} is infinite or beyond 32-bit floats",
    QUALITY: "its quality is {}",
}


class BadCells:
    """The values of one message that cannot be used, in 13 bytes each; ``row`` is the index of the row being read."""

    # Not set by a constructor: there is one object for each message.
    row = 0
    cells: tuple[array[int], array[int], array[int]] | None = None
    _first: dict[tuple[int, int], str]

    def add(self, column: int, code: int, value: object) -> None:
        """Note that ``value`` of the row, or its reading of that quality, cannot be used."""
        if self.cells is None:
            self.cells, self._first = (array("q"), array("i"), array("b")), {}
        for cells, number in zip(self.cells, (self.row, column, code), strict=True):
            cells.append(number)
        if (column, code) not in self._first:
            text = str(value) if isinstance(value, DecodeError) else _TEXTS[code].format(shown(value))
            self._first[column, code] = text

    def values(self, n_rows: int, n_channels: int) -> BadValues | None:
        """Return them for a block of this size; None if there are none."""
        if self.cells is None:
            return None
        rows, columns, codes = (np.asarray(cells) for cells in self.cells)
        found = np.zeros((n_rows, n_channels), dtype=np.uint8)
        found[rows, columns] = codes
        return BadValues(found, self._first)


class ValueReader:
    """Turns rows of Python floats into float32 [n, C]; ``missing`` holds the numbers that mean missing, by channel."""

    def __init__(self, n_channels: int, missing: Mapping[int, Collection[float]] = MappingProxyType({})) -> None:
        self._n_channels = n_channels
        self._pack = struct.Struct(f"={n_channels}f").pack  # "=": only standard packing checks for overflow
        self._missing = {column: frozenset(numbers) for column, numbers in missing.items() if numbers}
        with np.errstate(over="ignore"):
            self._sentinels = [(column, np.float32(number)) for column, of in self._missing.items() for number in of]

    def packed(self, row: Sequence[float | None]) -> bytes:
        """Return the bytes of a row of all channels, NaN for None. Raises OverflowError; infinite values pass."""
        try:
            return self._pack(*row)
        except struct.error:
            return self._pack(*[math.nan if value is None else value for value in row])

    def finite(self, rows: list[Any]) -> FloatArray | None:
        """Return float32 [n, C] of rows of float or None; None if a value is infinite or overflows.

        The rows may be narrower, and numbers that mean missing are still there (see ``without_sentinels``).
        """
        try:  # twice as quick as an array call, for one row several times
            if len(rows) == 1:
                return self._row(rows[0])
            packed = bytearray().join([self._pack(*row) for row in rows])
        except OverflowError:
            return None
        except struct.error:  # a missing value, or some channels only
            with np.errstate(over="ignore"):  # an overflow becomes infinite
                values = np.array(rows, dtype=np.float32)
        else:
            values = np.ndarray((len(rows), self._n_channels), np.float32, packed)
        return None if np.isinf(values).any() else values

    def _row(self, row: Sequence[float]) -> FloatArray | None:
        """Return float32 [1, C]; None if a value is infinite. Raises OverflowError; struct.error if one is missing."""
        packed = bytearray(self._pack(*row))
        total = sum(row)
        if total - total != 0.0 and (math.inf in row or -math.inf in row):  # the total of finite ones is finite
            return None
        return np.ndarray((1, self._n_channels), np.float32, packed)

    def read(self, rows: list[list[float]], bad: BadCells) -> FloatArray:
        """Return float32 [n, C] without sentinels; infinite values are missing there and added to ``bad``."""
        values = self.finite(rows)
        if values is not None:
            return self.without_sentinels(values) if self._sentinels else values
        with np.errstate(over="ignore"):
            values = np.array(rows, dtype=np.float32)
        for bad.row, column in np.argwhere(np.isinf(values)).tolist():
            value = rows[bad.row][column]
            if value not in self._missing.get(column, ()):
                bad.add(column, INFINITE, value)
            values[bad.row, column] = math.nan
        return self.without_sentinels(values)

    def without_sentinels(self, values: FloatArray) -> FloatArray:
        """Return ``values``, float32 [n, C], changed: numbers that mean missing are NaN."""
        for column, number in self._sentinels:
            of_channel = values[:, column]
            of_channel[of_channel == number] = math.nan
        return values


class Quality:
    """Tells from a message whether a reading's quality is good."""

    def __init__(self, settings: QualitySettings) -> None:
        self.path = FieldPath(settings.field)
        self._good = {_plain(code) for code in settings.good}

    def of(self, message: dict[Any, Any], index: int) -> object:
        """Return the quality of the message, or in a list of them that of the row ``index``; None if there is none."""
        try:
            found = self.path.get(message)
        except DecodeError as error:
            return error
        if isinstance(found, list):
            return found[index] if index < len(found) else None
        return None if found is ABSENT else found

    def is_good(self, quality: object) -> bool:
        """Return whether readings of this quality are used."""
        return _plain(quality) in self._good


def _plain(quality: object) -> str | None:
    """Return a quality for comparison: 192, 192.0 and "192" are the same, "Good" and "good" too; "" is none."""
    if quality is None:
        return None
    if isinstance(quality, str):
        return quality.strip().lower() or None
    return shown(int(quality) if type(quality) is float and quality.is_integer() else quality)


class Qualities:
    """The qualities of a plant's readings: each channel's own, else that of the whole message."""

    def __init__(self, common: QualitySettings | None, own: Sequence[QualitySettings | None]) -> None:
        self._common = None if common is None else Quality(common)
        self._own = [None if one is None else Quality(one) for one in own]

    @property
    def paths(self) -> list[FieldPath]:
        """Return the fields of the channels' own qualities."""
        return [one.path for one in self._own if one is not None]

    @property
    def common(self) -> list[FieldPath]:
        """Return the field of the message's quality, if there is one."""
        return [] if self._common is None else [self._common.path]

    @property
    def are_given(self) -> bool:
        """Return whether any reading has a quality."""
        return self._common is not None or any(self._own)

    def apply(self, row: list[float], message: dict[Any, Any], beside: dict[Any, Any], bad: BadCells) -> None:
        """Make readings of ``row`` missing whose quality is not good; ``beside`` has the channels' own qualities."""
        common = None if self._common is None else self._common.of(message, bad.row)
        is_good = self._common is None or self._common.is_good(common)
        for column, (value, own) in enumerate(zip(row, self._own, strict=True)):
            if math.isnan(value) or (own is None and is_good):
                continue
            quality = common if own is None else own.of(beside, bad.row)
            if own is None or not own.is_good(quality):
                bad.add(column, QUALITY, quality)
                row[column] = math.nan
