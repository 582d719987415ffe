"""What the ways through a message share: its samples, rows of numbers as arrays, and the paths to its fields."""

from __future__ import annotations

__all__ = ["ABSENT", "FieldPath", "Samples", "ValueReader"]

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from streamad.ingest._decode_scalars import fail, shown
from streamad.types import FloatArray, IntArray

ABSENT: Any = msgspec.UNSET
"""Stands for a field that a message does not have (null is a value)."""


class Samples(NamedTuple):
    """What a message holds, in its own order: ``times_us`` int64 [n]; ``values`` float32 [n, C], finite or NaN.

    ``route`` is the value of the field that chooses the model, None without one.
    """

    stream: str
    sequence: str | None
    times_us: IntArray
    values: FloatArray
    end: bool
    indexes: IntArray | None = None
    route: str | None = None


class ValueReader:
    """Turns rows of Python floats into float32 [n, C]."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._row = struct.Struct(f"={len(names)}f")  # "=": only standard packing checks for overflow

    def finite(self, rows: list[Any]) -> FloatArray | None:
        """Return float32 [n, C] of rows of float or None; None where a value is infinite or overflows."""
        if len(rows) == 1:
            try:  # several times quicker than an array call and its check
                packed = self._row.pack(*rows[0])
            except OverflowError:
                return None
            except struct.error:  # a missing value, or columns of a part of the channels
                pass
            else:
                row = rows[0]
                infinite = math.inf in row or -math.inf in row
                return None if infinite else np.frombuffer(bytearray(packed), dtype=np.float32).reshape(1, -1)
        with np.errstate(over="ignore"):  # what overflows becomes infinite
            values = np.array(rows, dtype=np.float32)
        return None if np.isinf(values).any() else values

    def read(self, rows: list[list[float]], where: str | None) -> FloatArray:
        """Return float32 [n, C]. Raises DecodeError (infinite) naming the row (of ``where``) and the channel."""
        values = self.finite(rows)
        if values is not None:
            return values
        with np.errstate(over="ignore"):
            index, column = np.argwhere(np.isinf(np.array(rows, dtype=np.float32)))[0]
        place = "" if where is None else f"{where}[{index}], "
        value = f"{place}channel {self._names[column]}: {shown(rows[index][column])}"
        fail("infinite", f"{value} is infinite or beyond 32-bit floats; write null for a missing value")


class FieldPath:
    """A field's name: a literal key, or a dotted path into nested objects (the literal key wins)."""

    __slots__ = ("first", "name", "rest")

    def __init__(self, name: str) -> None:
        self.name = name
        self.first, *rest = name.split(".")
        self.rest = tuple(rest)

    def get(self, message: dict[Any, Any]) -> Any:
        """Return the field's value, UNSET where it is absent. Raises DecodeError where the path meets no object."""
        value = message.get(self.name, ABSENT)
        if value is not ABSENT or not self.rest:
            return value
        value = message.get(self.first, ABSENT)
        for key in self.rest:
            if value is None or value is ABSENT:
                return ABSENT
            if not isinstance(value, dict):
                fail("wrong_type", f"{self.name}: {shown(value)} stands where an object should be")
            value = value.get(key, ABSENT)
        return value
