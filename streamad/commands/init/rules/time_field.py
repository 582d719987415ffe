"""A field that holds the event time of a sample, and how it is written."""

from __future__ import annotations

from dataclasses import dataclass

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.rules.dates import example
from streamad.settings.time_format import EPOCHS, NAMES, SERIALS, StepUnit, TimeFormat, TimeUnit


@dataclass(frozen=True, slots=True)
class StepField:
    """The field of the step from one sample of a list to the next, and its unit; hz: samples in a second."""

    path: str
    unit: StepUnit


@dataclass(frozen=True, slots=True)
class TimeField:
    """The fields of the event time and their form; ``counts``: a time without a date, such as seconds since a start."""

    path: str
    unit: TimeUnit = "s"
    counts: bool = False
    how: str = "RFC 3339"
    others: tuple[str, ...] = ()
    zone: str | None = None
    formats: tuple[str, ...] = ()
    """The formats that read its dates (``decode.time_format``): one of them, once chosen."""
    time_of_day: str | None = None
    """The field of the time of day, if ``path`` holds dates alone."""
    fraction: tuple[str, TimeUnit] | None = None
    """A field with the parts of a second that the time does not show, and their unit."""
    unused: tuple[str, ...] = ()
    """The fields of other dates and times of day."""
    step_us: int | None = None
    """The distance of the values of a counter with 32 bits."""
    is_elapsed: bool = False
    """Its texts, or numbers below 0, can only count from a start."""
    note: str | None = None
    """Why one of several readings was chosen."""
    row_period_us: int | None = None
    """The time from row to row, if no field holds a time (``decode.time: row``)."""

    step: StepField | None = None
    """Of lists with one time: ``path`` is that of the first sample."""

    @property
    def format(self) -> str | None:
        """Return the format of its dates, None for RFC 3339 and numbers."""
        return self.formats[0] if self.formats else None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return all its fields."""
        more = (
            self.time_of_day,
            None if self.fraction is None else self.fraction[0],
            None if self.step is None else self.step.path,
        )
        return tuple(path for path in (self.path, *more) if path)

    @property
    def title(self) -> str:
        """Return its fields for people."""
        return " and ".join(self.paths)


def by_rows(period_us: int, note: str) -> TimeField:
    """Return the time of samples that have none: their rows."""
    return TimeField("", counts=True, how="the place of the row", note=note, row_period_us=period_us)


def field_of(column: Column, formats: tuple[str, ...]) -> TimeField:
    """Return the field as times of these formats."""
    has_offset = formats[0] in EPOCHS or (formats[0] not in SERIALS and TimeFormat(formats[0]).has_offset)
    shown = column.cells[0] if formats[0] in NAMES else column.values[0]
    how = f"dates such as {column.values[0]} ({example(formats[0], shown)})"
    return TimeField(column.path, how=how, zone=None if has_offset else "UTC", formats=formats)
