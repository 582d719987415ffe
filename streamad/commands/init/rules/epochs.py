"""The rules for numbers that count from a beginning: Unix times, .NET ticks, FILETIME, the seconds of Garmin's FIT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.words import last_part
from streamad.commands.init.rules.dates import example
from streamad.commands.init.rules.time_field import TimeField, field_of
from streamad.settings.time_format import EPOCHS, UNIX_UNITS, TimeUnit
from streamad.system.clock import SystemClock

# Unix times from 1990 to 2100, in each unit: the ranges do not overlap.
_UNITS: tuple[tuple[TimeUnit, float], ...] = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
_EPOCH_S = (631_152_000, 4_102_444_800)
_FIT = "garmin_fit"
_FEWEST_OF_FIT = 2
_FIT_FIELDS = frozenset({
    "position_lat", "position_long", "heart_rate", "cadence", "fractional_cadence", "enhanced_speed",
    "enhanced_altitude", "accumulated_power", "vertical_oscillation", "stance_time", "stance_time_balance",
})  # fmt: skip


def find_epoch(column: Column) -> TimeField | None:
    """Return the field as times of 1990 to 2100, if its numbers may be such; None if they are none."""
    lowest, highest = column.numbers.min(), column.numbers.max()
    for form in EPOCHS.keys() - {_FIT}:
        if _counts_since(form, column):
            return _since(column, form)
    for unit, factor in _UNITS:
        if _EPOCH_S[0] * factor <= lowest < highest <= _EPOCH_S[1] * factor:
            return TimeField(column.path, unit, how=f"Unix time in {unit}")
    return None


def of_epoch(column: Column, wanted: str) -> TimeField | None:
    """Return the field as times of 1990 to 2100 by the format ``wanted``; None if they are none."""
    if wanted in EPOCHS:
        return field_of(column, (wanted,)) if _counts_since(wanted, column) else None
    unit = UNIX_UNITS[wanted]
    low, high = (second * dict(_UNITS)[unit] for second in _EPOCH_S)
    is_one = low <= column.numbers.min() and column.numbers.max() <= high
    return TimeField(column.path, unit, how=f"Unix time in {unit}", formats=(wanted,)) if is_one else None


def _counts_since(form: str, column: Column) -> bool:
    """Return whether the numbers are times of 1990 to 2100 by a format of ``EPOCHS``."""
    epoch = EPOCHS[form]
    low, high = ((second - epoch.begin_s) * epoch.per_s for second in _EPOCH_S)
    return bool(low <= column.numbers.min() and column.numbers.max() <= high)


def _since(column: Column, form: str) -> TimeField:
    """Return the field as a count since the beginning that ``form`` names; of ticks the other reading is said."""
    field = field_of(column, (form,))
    if column.numbers.max() > _EPOCH_S[1] * 1e9 or column.numbers.min() < _EPOCH_S[0] * 1e9:
        return field
    note = f"{column.path} is read as {form}, as .NET counts; as Unix time in ns it lies in 1990: --time-format unix_ns"
    return replace(field, note=note)


def perhaps_fit(field: TimeField, columns: Mapping[str, Column]) -> TimeField:
    """Return the field with the other reading of Unix times that would be times of Garmin's FIT, until now.

    They are 20 years apart. Fields that FIT names so decide.
    """
    column = columns[field.path]
    if field.counts or field.format is not None or field.unit != "s" or not column.is_all_numbers:
        return field
    if column.numbers.max() + EPOCHS[_FIT].begin_s > SystemClock().now_us() / 1e6:
        return field
    is_fit = len({last_part(path) for path in columns} & _FIT_FIELDS) >= _FEWEST_OF_FIT
    shown = {form: example(form, column.numbers[0]) for form in ("unix_s", _FIT)}
    best, other = (_FIT, "unix_s") if is_fit else ("unix_s", _FIT)
    note = (
        f"{field.path} is read as {best}, {shown[best]}; as {other} it would be {shown[other]}: --time-format {other}"
    )
    return replace(field_of(column, (_FIT,)) if is_fit else field, note=note)
