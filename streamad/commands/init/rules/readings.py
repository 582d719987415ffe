"""Finds what means missing among a sample's readings, and the fields that hold their quality."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.units import with_unit
from streamad.commands.init.facts.words import BAD_FLAG, END, FLAG, LABEL, QUALITY, UNIT, VALUE, hints, without_unit
from streamad.settings.decode import is_numeral
from streamad.settings.numerals import MISSING_WORDS

_MOST_TEXTS = 12
_MOST_QUALITIES = 20
_LONGEST_TEXT = 40
# Numbers that systems write for "no value", besides those of nines such as -9999 and -999.25 (LAS files).
_FILLS = frozenset({-32768.0, 32767.0, 65535.0, 2147483647.0, -2147483648.0, 1e20, 1e30, -1e30, 1e36, 1e37})
_NINES = re.compile(r"-?9{3,}(\.(0|9+|25))?")
# Numbers with other marks than the sample's: they are no word for "missing", and stay unreadable values.
_NUMERAL_LIKE = re.compile(r"[+-]?[0-9][0-9.,' ]*")
_UNIT = re.compile(r"(?!\w+[ _-]?[0-9]+$).{1,16}")
_FLOAT32_END = 3.4e38
_SURELY_GOOD = frozenset({"192", "good"})
_GOOD = _SURELY_GOOD | {"ok", "gut", "valid", "g"}
_SURE = frozenset({"quality", "qual", "qualitaet", "guete"})
_TRUE = frozenset({"true", "1", "yes", "ja"})
_FALSE = frozenset({"false", "0", "no", "nein"})
_SWITCHES = tuple({on: 1, off: 0} for on, off in (("true", "false"), ("t", "f"), ("on", "off"), ("yes", "no")))
_CAMEL_END = re.compile(r"(?<=[a-z0-9])[A-Z][a-z]+$")
_QUALITY_END = re.compile(r"[\s._/:-]*[\[(]?([A-Za-z]+)[\])]?$")


@dataclass(frozen=True, slots=True)
class QualityField:
    """A field with the quality of readings, and its good values; ``is_guess``: by their number only."""

    path: str
    good: tuple[Any, ...]
    is_guess: bool = False

    @property
    def entry(self) -> dict[str, Any]:
        """Return the section of the config."""
        return {"field": self.path, "good": list(self.good)}


def missing_texts(columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the texts found instead of numbers, the most frequent ones first; () if they are too different."""
    found: Counter[str] = Counter()
    for column in columns:
        others = [column.values[at] for at in np.flatnonzero(np.isnan(column.cells)).tolist()]
        texts = [value.strip() for value in others if isinstance(value, str)]
        found.update(text for text in texts if text.lower() not in MISSING_WORDS)
    kept: dict[str, str] = {}
    for text, _ in found.most_common():
        if (
            len(text) <= _LONGEST_TEXT
            and text.isprintable()
            and not is_numeral(text)
            and not _NUMERAL_LIKE.fullmatch(text)
            and with_unit(text) is None
        ):
            kept.setdefault(text.lower(), text)
    return tuple(kept.values()) if len(kept) <= _MOST_TEXTS else ()


def switch(column: Column) -> Mapping[str, int]:
    """Return the numbers of the two words of a switch, such as t and f of a valve; {} for all else.

    Flags that tell of a quality, a label or an end are no readings.
    """
    words = {text.lower() for text in column.texts[:3]}
    found = next((numbers for numbers in _SWITCHES if words == set(numbers)), {})
    named = hints(column.path) & (QUALITY | FLAG | BAD_FLAG | END | LABEL)
    return {} if named or not all(isinstance(value, str | bool) for value in column.values) else found


def missing_number(column: Column) -> float | None:
    """Return the number that means missing in a channel: a usual one, far from all other readings."""
    numbers = column.numbers
    if not len(numbers):
        return None
    for fill in (float(numbers.min()), float(numbers.max())):
        others = numbers[numbers != fill]
        if not _is_fill(fill) or len(others) < 2:
            continue
        low, high = float(others.min()), float(others.max())
        if min(abs(fill - low), abs(fill - high)) > 3 * max(high - low, abs(high), abs(low)):
            return fill
    return None


def _is_fill(number: float) -> bool:
    return number in _FILLS or abs(number) >= _FLOAT32_END or _NINES.fullmatch(f"{number:.10g}") is not None


def common_quality(columns: Mapping[str, Column]) -> QualityField | None:
    """Return the field with the quality of the whole message, if one has its name and its values."""
    for path, column in columns.items():
        found = _quality(column, hints(path))
        if found is not None:
            return found
    return None


def own_qualities(columns: Mapping[str, Column], channels: Sequence[str]) -> dict[str, QualityField]:
    """Return the quality of each channel that has a field of its own for it, by channel.

    TI-101_Q of TI-101, TI.ok of TI.value: a text or number, or a flag that is true (or false, as TI_bad) for good.
    """
    found = {}
    for path, channel in _beside(columns, channels, QUALITY | FLAG | BAD_FLAG):
        quality = _quality(columns[path], hints(path)) or _flag(columns[path], hints(path))
        if quality is not None:
            found[channel] = quality
    return found


def own_units(columns: Mapping[str, Column], channels: Sequence[str]) -> dict[str, Column]:
    """Return the field of each channel that holds its unit in all messages, by channel.

    TI.unit of TI.value, temp_unit of temp; a press_unit that is P1 names a machine.
    """
    pairs = [(columns[path], channel) for path, channel in _beside(columns, channels, UNIT)]
    return {
        channel: column
        for column, channel in pairs
        if len(column.counts) == 1 and not column.is_numeric and _UNIT.fullmatch(column.texts[0])
    }


def _beside(columns: Iterable[str], channels: Sequence[str], words: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the fields whose names are those of channels with a last word of ``words``, and the channels."""
    by_base = {_bare(_base(path, VALUE)): path for path in channels} | {_bare(path): path for path in channels}
    for path in columns:
        beside = _base(path, words)
        if beside != path and by_base.get(_bare(beside), path) != path:
            yield path, by_base[_bare(beside)]


def _flag(column: Column, words: frozenset[str]) -> QualityField | None:
    """Return the good value of a flag beside a reading; None if it is none."""
    wanted = _FALSE if words & BAD_FLAG else _TRUE
    values = dict.fromkeys(value for value in column.values if isinstance(value, (str, int, float)))
    if (
        not values
        or not words & (FLAG | BAD_FLAG | QUALITY)
        or not {_plain(value) for value in values} <= _TRUE | _FALSE
    ):
        return None
    is_logical = all(isinstance(value, bool) or column.number(value) is None for value in values)
    if not words & (FLAG | BAD_FLAG) and not is_logical:
        return None  # numbers such as 0 and 1 of a quality may mean anything
    seen = tuple(_written(column, value) for value in values if _plain(value) in wanted)
    return QualityField(column.path, seen) if seen else None


def _bare(path: str) -> str:
    """Return ``path`` without its unit, in lower case: temp of Temp [F]."""
    return without_unit(path).strip().lower()


def _base(path: str, words: frozenset[str]) -> str:
    """Return ``path`` without a last word of ``words``: TI-101 of TI-101_Q and TI-101.value, temp of tempOk."""
    match = _QUALITY_END.search(path)
    if match is not None and match[1].lower() in words:
        return path[: match.start()]
    match = _CAMEL_END.search(path)
    return path[: match.start()] if match is not None and match[0].lower() in words else path


def _quality(column: Column, words: frozenset[str]) -> QualityField | None:
    """Return the good values: known ones, else the one that most readings have; None if it is no quality.

    A field named status may be that of a machine: then ok is no quality.
    """
    if not words & QUALITY or not column.values or len(column.counts) > _MOST_QUALITIES:
        return None
    is_named = bool(words & _SURE)
    values = dict.fromkeys(value for value in column.values if isinstance(value, (str, int, float)))
    good = tuple(_written(column, value) for value in values if _plain(value) in (_GOOD if is_named else _SURELY_GOOD))
    if good:
        return QualityField(column.path, good)
    text, count = column.counts.most_common(1)[0]
    if not is_named or len(column.counts) < 2 or 2 * count < len(column.values):
        return None
    return QualityField(column.path, tuple(_written(column, value) for value in values if str(value) == text)[:1], True)


def _written(column: Column, value: Any) -> Any:
    """Return a good value as the config writes it: whole numbers of a table as such."""
    number = column.number(value) if isinstance(value, str) else None
    return int(number) if number is not None and number.is_integer() else value


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).strip().lower()
