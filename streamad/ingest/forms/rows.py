"""The readings of rows: a number for each channel, by the fields of a message, by names or by places in a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from streamad.ingest.decode_values import (
    ABSENT,
    WRONG_TYPE,
    BadCells,
    FieldPath,
    ValueReader,
    fail,
    inner_value,
    paths_inside,
    plain_unit,
    read_id,
    read_number,
    read_quantity,
    shown,
)
from streamad.ingest.forms.qualities import Qualities
from streamad.settings.boundaries import plain
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import FloatArray

_FLOATS, _FLOATS_OR_NULL = {float}, {float, type(None)}


class RowReader:
    """Reads the readings of one sample as a row: a number for each channel, NaN for one that is missing.

    ``container`` is the field with the object or the rows of all channels (None: they are fields of the message);
    ``channel`` and ``value`` those of messages with one channel each.
    """

    def __init__(
        self,
        settings: DecodeSettings,
        fields: FieldSettings,
        channels: Sequence[ChannelSettings],
        *,
        channel: FieldPath | None,
        is_own: bool,
        native: bool,
    ) -> None:
        # Above 15 attributes: where the channels are, how their texts are read, and which keys are known beside them.
        self._fields = fields
        in_text = float if settings.numerals.are_usual else settings.numerals.number
        self._in_text = None if is_own else in_text
        numbers = {column: each.missing for column, each in enumerate(channels)}
        self._value_reader = ValueReader(len(channels), numbers)
        self._words = [{plain(word): number for word, number in each.values.items()} for each in channels]
        self._units = [plain_unit(each.unit) for each in channels]
        self._missing_texts = frozenset(text.strip().lower() for text in settings.missing)
        common = None if native else settings.quality
        self.qualities = Qualities(common, [None if native else each.quality for each in channels])
        self._has_qualities = self.qualities.are_given
        self.channels = [FieldPath(each.field or each.name) for each in channels]
        self._pick = itemgetter(*[path.name for path in self.channels]) if len(self.channels) > 1 else None
        self._columns = {path.name: column for column, path in enumerate(self.channels)}
        self.container = FieldPath(fields.values) if fields.values else None
        self.channel = channel
        self.value = FieldPath(fields.value) if fields.value else None
        self._known_keys: set[str] = set()
        self._keys_of_values: set[str] = set()

    def know(self, others: Sequence[FieldPath], route: FieldPath | None) -> None:
        """Take note of the other fields that messages have: ``others`` outside of rows, and the route."""
        qualities = (*self.qualities.paths, *self.qualities.common)
        known = (*self.channels, *others, *qualities)
        self._known_keys = {key for path in known for key in (path.name, *path.outer)}
        common_paths = [*self.qualities.common, *([] if route is None else [route])]
        inside = [*self.channels, *self.qualities.paths, *paths_inside(self.container, common_paths)]
        self._keys_of_values = {key for path in inside for key in (path.name, *path.outer)}

    @property
    def paths(self) -> Sequence[FieldPath]:
        """Return the fields of the readings themselves."""
        if self.channel is not None:
            return ()
        return self.channels if self.container is None else (self.container,)

    @property
    def nothing(self) -> list[float]:
        """Return a row without readings."""
        return [math.nan] * len(self.channels)

    def of(self, message: dict[Any, Any], end: bool, bad: BadCells) -> list[float] | None:
        """Return one value per channel; None if the message holds no channel and no end mark."""
        missing = self.nothing if end else None
        if self.channel is not None and self.value is not None:
            return self._row_of_one_channel(message, missing, bad)
        if self.container is None:
            if not self._fields.ignore_unknown:
                self._refuse_unknown(message, self._known_keys)
            return self._row_of_object(message, message, bad) or missing
        values = self.container.get(message)
        if values is ABSENT or values is None:
            return missing or fail("missing_field", f"{self.container.name}: is missing")
        if not isinstance(values, dict):
            fail("wrong_type", f"{self.container.name}: must be an object of channels, got {shown(values)}")
        self._refuse_unknown(values, self._keys_of_values)
        return self._row_of_object(values, message, bad) or self.nothing

    def _row_of_object(self, values: dict[Any, Any], message: dict[Any, Any], bad: BadCells) -> list[float] | None:
        """Return one value per channel; None if the object ``values`` of ``message`` has none of them."""
        row = self._usual_row(values)
        if row is not None:
            if self._has_qualities:
                self.qualities.apply(row, message, values, bad)
            return row
        row = []
        found = False
        for path in self.channels:
            value = values.get(path.name, ABSENT)
            if value is ABSENT and path.outer:
                value = inner_value(path, values)
            found = found or value is not ABSENT
            row.append(value if type(value) is float else self.number(value, bad, len(row)))
        if not found:
            return None
        if self._has_qualities:
            self.qualities.apply(row, message, values, bad)
        return row

    def _usual_row(self, values: dict[Any, Any]) -> list[float] | None:
        """Return the row of an object with a number or null for each channel, soon; None for others."""
        if self._pick is None or len(values) < len(self.channels):
            return None
        try:
            picked = self._pick(values)
        except KeyError:
            return None
        kinds = {*map(type, picked)}
        if kinds == _FLOATS:
            return list(picked)
        return [math.nan if value is None else value for value in picked] if kinds <= _FLOATS_OR_NULL else None

    def _row_of_one_channel(
        self, message: dict[Any, Any], missing: list[float] | None, bad: BadCells
    ) -> list[float] | None:
        assert self.channel is not None
        assert self.value is not None
        name = self.channel.get(message)
        if name is ABSENT or name is None:
            return missing or fail("missing_field", f"{self.channel.name}: is missing")
        column = self._columns.get(read_id(name, self.channel.name))
        if column is None:
            if not self._fields.ignore_unknown:
                fail("unknown_channel", f"{shown(name)} is not among the channels")
            return missing
        value = inner_value(self.value, message)
        if value is ABSENT:
            fail("missing_field", f"{self.value.name}: is missing")
        row = self.nothing
        row[column] = self.number(value, bad, column)
        if self._has_qualities:
            self.qualities.apply(row, message, message, bad)
        return row

    def number(self, value: Any, bad: BadCells, column: int) -> float:
        """Return a reading; NaN for one that is missing, or that cannot be read and is added to ``bad``."""
        if value is ABSENT:
            return math.nan
        number = read_number(value, self._in_text, self._missing_texts)
        if number is None and (number := self._words[column].get(plain(value))) is None:
            number = read_quantity(value, self._units[column], self._in_text)
        if number is None:
            bad.add(column, WRONG_TYPE, value)
            bad.n_lists += type(value) is list
            return math.nan
        return number

    def _refuse_unknown(self, values: dict[Any, Any], known: set[str]) -> None:
        for key in values:
            if key not in known:
                fail("unknown_channel", f"{shown(key)} is not among the channels")

    def array(self, rows: list[list[float]], bad: BadCells) -> FloatArray:
        """Return rows of readings as float32 [n, C]; infinite ones are missing there and added to ``bad``."""
        return self._value_reader.read(rows, bad)

    def without_sentinels(self, values: FloatArray) -> FloatArray:
        """Return ``values``, float32 [n, C], changed: numbers that mean missing are NaN."""
        return self._value_reader.without_sentinels(values)

    def named_columns(self, message: dict[Any, Any]) -> list[int]:
        """Return the channels of the places in the rows of a chunk, in order. Raises DecodeError."""
        names = message.get("channels")
        if names is None:
            return list(range(len(self.channels)))
        if not isinstance(names, list):
            fail("wrong_type", f"channels: must be a list of names, got {shown(names)}")
        columns: list[int] = []
        for name in names:
            column = self._columns.get(name) if isinstance(name, str) else None
            if column is None:
                fail("unknown_channel", f"{shown(name)} is not among the channels")
            if column in columns:
                fail("wrong_shape", f"channels: {shown(name)} is named twice")
            columns.append(column)
        return columns

    def of_list(self, row: Any, index: int, columns: list[int], message: dict[Any, Any], bad: BadCells) -> list[float]:
        """Return the row of a chunk at ``index``, whose places are ``columns``. Raises DecodeError."""
        where = f"{self._fields.values}[{index}]"
        if not isinstance(row, list):
            fail("wrong_type", f"{where}: must be a list of numbers, got {shown(row)}")
        if len(row) != len(columns):
            fail("wrong_shape", f"{where}: has {len(row)} values for {len(columns)} channels")
        full = self.nothing
        bad.row = index
        for column, value in zip(columns, row, strict=True):
            full[column] = self.number(value, bad, column)
        self.apply_qualities(full, message, message, bad)
        return full

    def apply_qualities(self, row: list[float], message: dict[Any, Any], beside: dict[Any, Any], bad: BadCells) -> None:
        """Make readings of ``row`` missing whose quality is not good: see ``Qualities.apply``."""
        if self._has_qualities:
            self.qualities.apply(row, message, beside, bad)

    @staticmethod
    def list_of(value: Any, name: str, count: int, where: str) -> list[Any]:
        """Return the ``count`` readings of the channel ``name``, or none of them. Raises DecodeError."""
        if value is ABSENT or value is None:
            return [None] * count
        if not isinstance(value, list):
            fail("wrong_shape", f"{where}: is a list, so {name} must be one, too, got {shown(value)}")
        if len(value) != count:
            fail("wrong_shape", f"{name}: holds {len(value)} values for {count} times of {where}")
        return value
