"""Times of samples that have one time together, and the step from each to the next (``decode.fields.step``).

Law (tests/unit/ingest/test_decode_steps.py): a message with a step equals the same message with a list of times.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from streamad.ingest.decode_elapsed import read_elapsed
from streamad.ingest.decode_values import ABSENT, FieldPath, fail, shown
from streamad.settings.decode import StepSettings, is_duration
from streamad.settings.fields import parse_duration_us
from streamad.settings.numerals import Numerals
from streamad.settings.time_format import UNITS_US, StepUnit, TimeUnit
from streamad.types import MAX_TIME_US, IntArray

_TICK = timedelta(microseconds=1)
Number = TypeVar("Number", float, npt.NDArray[np.float64])


def step_us(value: Number, unit: StepUnit) -> Number:
    """Return the microseconds of steps in ``unit``; in hz they are samples in a second. Raises OverflowError."""
    return 1e6 / value if unit == "hz" else value * UNITS_US[unit]


class Steps:
    """Spreads a time over the samples of a list; ``path`` is the field of the step, None for a fixed one.

    A number is in ``unit``, or in the unit that ``step`` names (hz: samples in a second).
    """

    def __init__(self, step: str | StepSettings, unit: TimeUnit, numerals: Numerals) -> None:
        self._numerals = numerals
        self._unit = unit if isinstance(step, str) else step.unit
        name = step if isinstance(step, str) else step.field
        is_fixed = isinstance(step, str) and is_duration(step)
        self._fixed_us = float(parse_duration_us(step)) if is_fixed else 0.0
        self.path = None if is_fixed else FieldPath(name)

    def many(self, start_us: int, message: dict[Any, Any], n: int) -> IntArray:
        """Return the times of ``n`` samples, int64 [n], rounded to the microsecond. Raises DecodeError."""
        if n == 1:
            return np.array([start_us], dtype=np.int64)
        one_us = self._step_us(message, n - 1, start_us)
        times_us: IntArray = start_us + np.rint(np.arange(n) * one_us).astype(np.int64)
        return times_us

    def one(self, start_us: int, message: dict[Any, Any], index: int) -> int:
        """Return the time of the sample at ``index``, as ``many`` does. Raises DecodeError."""
        return start_us if index == 0 else start_us + round(index * self._step_us(message, index, start_us))

    def _step_us(self, message: dict[Any, Any], last: int, start_us: int) -> float:
        one_us = self._fixed_us if self.path is None else self._read(self.path, message)
        if start_us + last * one_us > MAX_TIME_US:
            fail("bad_time", f"{last} steps of {one_us / 1e6:.6g} s lead beyond the year 2200")
        return one_us

    def _read(self, path: FieldPath, message: dict[Any, Any]) -> float:
        value = path.get(message)
        if value is ABSENT or value is None or value == "":
            fail("missing_field", f"{path.name}: is missing")
        one_us = self._value_us(value)
        if one_us is None:
            what = "a number of samples in a second" if self._unit == "hz" else "a time such as 0.1 or 10 ms"
            fail("bad_time", f"{path.name}: must be {what}, got {shown(value)}")
        if not 1 <= one_us <= MAX_TIME_US:
            fail("bad_time", f"{path.name}: {shown(value)} is no step from one microsecond on")
        return one_us

    def _value_us(self, value: object) -> float | None:
        """Return the microseconds of a step; None if it is none."""
        if isinstance(value, str):
            elapsed = None if self._unit == "hz" else read_elapsed(value.strip(), self._numerals)
            if elapsed is not None:
                return float(elapsed // _TICK)
            try:
                value = self._numerals.number(value)
            except ValueError:
                return None
        if (type(value) is not int and type(value) is not float) or not 0 < value < math.inf:
            return None
        try:
            return step_us(value, self._unit)
        except OverflowError:  # an integer beyond all floats
            return math.inf
