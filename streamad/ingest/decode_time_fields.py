"""Finds the event time of a message in its fields: in one, in several, or in none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.errors import DecodeError
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import ABSENT, FieldPath, check_own_time, fail, located, shown
from streamad.ingest.forms.steps import Steps
from streamad.settings.decode import DecodeSettings, FieldSettings
from streamad.settings.time_format import join_clock
from streamad.types import FILE_OFFSETS, MAX_TIME_US, BoolArray, IntArray, Record

_FRACTIONS_NS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
_S_NS = 1_000_000_000
_DIGITS = re.compile(r"\s*[0-9]{1,20}\s*", re.ASCII)


class TimeFields:
    """Finds the event time of a mapped message: in one field, in several, in none (that of the record, or its row).

    ``paths`` are the fields that are read.
    """

    def __init__(self, settings: DecodeSettings, fields: FieldSettings, times: TimeReader, *, native: bool) -> None:
        self._times = times
        self._form = settings.time_format
        self._row_period_us = settings.row_period if settings.time == "row" and not native else None
        is_mapped = settings.fields is not None and not native
        is_elsewhere = self._row_period_us is not None or (is_mapped and fields.is_of_record)
        names = () if is_elsewhere else fields.clock_fields
        self._time = FieldPath(names[0]) if names else None
        self._clock = FieldPath(names[1]) if len(names) > 1 else None
        fractions = () if is_elsewhere else fields.fractions
        self._fractions = [(FieldPath(part.field), part.unit) for part in fractions]
        self._parts = [path for path in (self._time, self._clock, *(path for path, _ in self._fractions)) if path]
        step = None if native else fields.step
        self.step = None if step is None else Steps(step, settings.unit, settings.numerals)
        self.paths = [*self._parts, *([self.step.path] if self.step and self.step.path else [])]

    def check_several(self) -> None:
        """Raise DecodeError (wrong_shape) if a record cannot have several samples."""
        if self._row_period_us is not None:
            fail("wrong_shape", "holds several samples, but decode.time is row: a record is one sample")

    def check_lists(self) -> None:
        """Raise DecodeError (wrong_shape) if a message cannot have a list of times."""
        self.check_several()
        if len(self._parts) > 1:
            names = ", ".join(path.name for path in self._parts)
            fail("wrong_shape", f"{names}: a time in several fields is for messages of one sample")

    def raw(self, message: dict[Any, Any]) -> Any:
        """Return what the field of the time holds; ABSENT if there is none."""
        return ABSENT if self._time is None else self._time.get(message)

    @property
    def path(self) -> FieldPath | None:
        """Return the field of the time, None if it is the record's or its row's."""
        return self._time

    def numbers(self, values: npt.NDArray[Any]) -> tuple[IntArray, BoolArray] | None:
        """Return the microseconds of numbers, int64 [n]: see ``TimeReader.numbers``."""
        return self._times.numbers(values)

    def read(self, message: dict[Any, Any], record: Record, index: int = 0) -> int:
        """Return the microseconds of a message of one sample, or of that at ``index`` of a list. Raises DecodeError."""
        if index and self.step is not None:
            return self.step.one(self.read(message, record), message, index)
        if self._time is None:
            return self._of_record(record)
        value = self._time.get(message)
        if value is ABSENT or value is None:
            fail("missing_field", f"{self._time.name}: is missing")
        where = self._time.name
        if self._clock is not None:
            value, where = self._with_clock(value, self._clock.get(message)), f"{where}, {self._clock.name}"
        try:
            time_us = self._times.one(value)
        except DecodeError as error:
            raise located(error, where) from None
        return self._with_fractions(time_us, message) if self._fractions else time_us

    def spread(self, message: dict[Any, Any], record: Record, n: int) -> IntArray:
        """Return the microseconds of ``n`` samples by their step, int64 [n]. Raises DecodeError."""
        assert self.step is not None
        return self.step.many(self.read(message, record), message, n)

    def many(self, values: list[Any], where: str) -> IntArray:
        """Return the microseconds of a list of times, int64 [n]. Raises DecodeError."""
        return np.array([self._element(value, where, index) for index, value in enumerate(values)], dtype=np.int64)

    def _element(self, value: object, where: str, index: int) -> int:
        try:
            return self._times.one(value)
        except DecodeError as error:
            raise located(error, f"{where}[{index}]") from None

    def _of_record(self, record: Record) -> int:
        if self._row_period_us is not None:
            time_us = record.offset % FILE_OFFSETS * self._row_period_us
            if time_us > MAX_TIME_US:
                fail("bad_time", f"row {record.offset % FILE_OFFSETS}: more than 230 years of decode.row_period")
            return time_us
        if record.timestamp_us is None:
            fail("missing_field", "decode.fields.time is record, but the record has no time of its own")
        check_own_time(record)
        return record.timestamp_us

    def _with_clock(self, date: object, clock: object) -> str:
        """Return a date and a time of day as one text."""
        assert self._clock is not None
        assert self._time is not None
        if clock is ABSENT or clock is None or clock == "":
            fail("missing_field", f"{self._clock.name}: is missing")
        if type(clock) is float and clock.is_integer():
            clock = int(clock)
        if not isinstance(clock, str) and type(clock) is not int:
            fail("wrong_type", f"{self._clock.name}: must be a time of day as text or digits, got {shown(clock)}")
        if not isinstance(date, (str, int)):
            fail("wrong_type", f"{self._time.name}: must be a date as text, got {shown(date)}")
        return join_clock(date, clock, self._form)

    def _with_fractions(self, time_us: int, message: dict[Any, Any]) -> int:
        """Return ``time_us`` with the numbers beside it, which fill in digits that it does not have."""
        room_ns = next(room for room in (_S_NS, 1_000_000, 1_000) if time_us * 1_000 % room == 0)
        total_ns = 0
        for path, unit in sorted(self._fractions, key=lambda part: -_FRACTIONS_NS[part[1]]):
            number = _whole(path.get(message), path.name)
            number_ns = number * _FRACTIONS_NS[unit]
            if number_ns >= room_ns:
                fail("bad_time", f"{path.name}: {number} {unit} does not fit between two of the times beside it")
            total_ns += number_ns
            if number:
                room_ns = min(room_ns, _FRACTIONS_NS[unit])
        if total_ns and time_us < 0:
            fail("bad_time", f"a time before the start has {', '.join(path.name for path, _ in self._fractions)}")
        return time_us + (total_ns + 500) // 1_000


def _whole(value: object, where: str) -> int:
    """Return a whole number from 0 on, also of digits as text. Raises DecodeError."""
    if value is ABSENT or value is None or value == "":
        fail("missing_field", f"{where}: is missing")
    if (isinstance(value, str) and _DIGITS.fullmatch(value)) or (type(value) is float and value.is_integer()):
        value = int(value)
    if type(value) is not int or value < 0:
        fail("bad_time", f"{where}: must be a whole number from 0 on, got {shown(value)}")
    return value
