"""Finds the fields of a sample that hold stream, sequence, time, end and channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from types import MappingProxyType
from typing import Any, Literal

from streamad.commands.init.fields.columns import Column, columns_of, is_number
from streamad.commands.init.fields.ids import find_ids, place_of_missing, runs_in
from streamad.commands.init.fields.names import (
    CHANNEL,
    SEQUENCE,
    STREAM,
    UNIT,
    VALUE,
    channel_names,
    hints,
    id_hints,
    unit_of,
)
from streamad.commands.init.fields.readings import (
    QualityField,
    common_quality,
    missing_number,
    missing_texts,
    own_qualities,
    without,
)
from streamad.commands.init.fields.row_order import RowOrder, times_by_row
from streamad.commands.init.fields.time import TimeField, find_time
from streamad.commands.init.records import RawSample
from streamad.errors import DecodeError, SourceError, some_of
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import ABSENT, FieldPath
from streamad.settings.template import ChannelLine

Form = Literal["own", "flat", "object", "per_channel", "chunked"]
_MAX_CHANNELS = 1000
_FEW_WITHOUT = 0.01
_MANY_WITHOUT = 0.2
_FLATTEN = "flatten it first, see docs/guide/exports.md"
_LIST_OF_READINGS = (
    f"{{}} holds a list of objects: streamad reads channels as fields, or one channel a message; {_FLATTEN}"
)


@dataclass(slots=True)
class Layout:
    """The fields of a plant's messages that streamad needs; ``notes`` lists the guesses, in whole phrases."""

    form: Form
    time: TimeField
    channels: list[ChannelLine]
    stream: str | None = None
    sequence: str | None = None
    end: str | None = None
    values: str | None = None
    channel: str | None = None
    value: str | None = None
    as_text: tuple[str, ...] = ()
    left_out: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    missing: tuple[str, ...] = ()
    """Texts in place of readings that mean missing."""
    quality: QualityField | None = None
    """The quality of all readings of a message."""
    ids_from_files: bool = False
    """Every file is one sequence, and its name the id."""
    skips_without_id: bool = False
    """Messages without an id lie between sequences and are left out."""
    zone_is_given: bool = False
    """``time.zone`` was named by the user."""
    remarks: list[str] = field(default_factory=list)
    """Remarks for the user that the config does not hold."""
    remedy: str | None = None
    """What the user can give, such as an option, if the config would lose many samples."""

    @property
    def has_ids(self) -> bool:
        """Return whether messages or files name their sequence."""
        return self.sequence is not None or self.ids_from_files

    @property
    def is_relative(self) -> bool:
        """Return whether times count from the start of each sequence."""
        return self.time.counts and self.has_ids


def find_layout(sample: RawSample, known_names: Sequence[str] | None = None, time_format: str | None = None) -> Layout:
    """Return the layout of the sample's messages; ``time_format`` is that of its dates, if it is known.

    Raises SourceError if there is no time or no channel, or if several formats read its dates.
    """
    messages = sample.messages
    if all(_is_own(message) for message in messages):
        return _own(messages, known_names, time_format)
    columns = columns_of(messages)
    chunked = _chunked(messages, columns, time_format)
    if chunked is not None:
        return chunked
    time = find_time(columns.values(), len(messages), time_format)
    of_time = {time.path, time.time_of_day, *time.unused}
    rest = {path: column for path, column in columns.items() if path not in of_time}
    notes = _notes_of(time)
    channel, value = _per_channel(rest)
    quality = common_quality(rest) if channel is not None or not _own_qualities(rest) else None
    if quality is not None:
        del rest[quality.path]
    units = _units_by_channel(channel, rest) if channel is not None else None
    for used in (channel, value, units):
        if used is not None:
            del rest[used.path]
    qualities = set() if channel is not None else {one.path for one in _own_qualities(rest).values()}
    of_ids = {path: column for path, column in rest.items() if path not in qualities}
    ids = find_ids(of_ids, notes, _rows(columns, time, len(messages), channel))
    layout = Layout("flat", time, [], ids.stream, ids.sequence, ids.end, notes=notes, quality=quality)
    if ids.sequence is not None:
        streams = {} if ids.stream is None else columns[ids.stream].by_row
        _note_without_id(layout, len(messages), columns[ids.sequence].by_row, streams)
    layout.left_out += [(path, "a time beside that of the samples") for path in columns if path in time.unused]
    layout.as_text = tuple(path for path in (layout.stream, layout.sequence) if path and not columns[path].is_id)
    for path in ids:
        if path is not None:
            del rest[path]
    if channel is not None and value is not None:
        _add_channels_of(layout, channel, value, units)
    else:
        _add_columns(layout, rest, messages)
    _note_readings(layout)
    if not layout.channels:
        found = f"(fields: {some_of(columns)})"
        if listed := next((path for path, column in columns.items() if _holds(column, dict)), None):
            found = f"{found[:-1]}; {_LIST_OF_READINGS.format(listed)})"
        raise SourceError(f"nothing numeric found besides ids and times {found}; there must be a channel")
    return layout


def _notes_of(time: TimeField) -> list[str]:
    return [] if time.note is None else [time.note]


def _rows(columns: Mapping[str, Column], time: TimeField, n_rows: int, channel: Column | None) -> RowOrder:
    """Return the rows in the order of their times; in that of the file if times begin anew in each sequence."""

    def read() -> Mapping[int, int]:
        zone = None if time.zone is None else UTC
        reader = TimeReader(time.unit, relative=False, zone=zone, form=time.format)
        return times_by_row(columns[time.path], columns.get(time.time_of_day or ""), reader, time.format)

    return RowOrder(n_rows, None if time.counts else read, channel)


def _note_without_id(
    layout: Layout, n_messages: int, sequences: Mapping[int, object], streams: Mapping[int, object]
) -> None:
    """Note messages without a sequence id, by row; those in runs between two sequences are left out."""
    without, name = n_messages - len(sequences), layout.sequence
    place = place_of_missing(n_messages, sequences, streams) if without else "outside"
    if place == "between":
        layout.skips_without_id = True
        layout.notes.append(
            f"{without} of {n_messages} messages have no {name}, in runs between two of them, as in pauses: they are "
            "left out (sequences.without_id: skip); if they are sequences, too, set keep"
        )
    elif place == "inside" and without <= _MANY_WITHOUT * n_messages:
        layout.skips_without_id = True
        layout.notes.append(
            f"{without} of {n_messages} messages have no {name}, some of them inside a sequence, which they would end: "
            "they are left out (sequences.without_id: skip)"
        )
    elif without > _FEW_WITHOUT * n_messages:
        layout.notes.append(
            f"{without} of {n_messages} messages have no {name}: they become sequences of their own, named by their "
            "start; if they are no sequences, set sequences.without_id: skip"
        )


# --- streamad's own format ---


def _is_own(message: Mapping[str, Any]) -> bool:
    values = message.get("values")
    if "times" in message:
        return isinstance(message["times"], list) and isinstance(values, list)
    if isinstance(values, dict):
        return (
            "time" in message
            and all(value is None or is_number(value) for value in values.values())
            and not any(isinstance(value, str) for value in values.values())
        )
    return values is None and "time" in message and message.get("end") is True


def _own(messages: Sequence[Mapping[str, Any]], known_names: Sequence[str] | None, time_format: str | None) -> Layout:
    names = list(dict.fromkeys(name for message in messages for name in _names_in(message)))
    notes: list[str] = []
    if not names:
        width = max((len(row) for message in messages for row in _rows_of(message)[:1]), default=0)
        names = _channels_of_rows(list(known_names or ()), width, notes)
    if not names:
        raise SourceError("nothing numeric found: the messages hold no values")
    times = Column("time", values=[time for message in messages for time in _times_of(message)])
    time = find_time([times], len(times.values), time_format)
    layout = Layout("own", time, _lines(names), notes=[*notes, *_notes_of(time)])
    if any(message.get("stream") is not None for message in messages):
        layout.stream = "stream"
    if any(message.get("sequence") is not None for message in messages):
        layout.sequence = "sequence"
        _note_without_id(layout, len(messages), *(_by_row(messages, name) for name in ("sequence", "stream")))
    if any(message.get("end") is True for message in messages):
        layout.end = "end"
    return layout


def _by_row(messages: Sequence[Mapping[str, Any]], name: str) -> dict[int, Any]:
    return {row: message[name] for row, message in enumerate(messages) if message.get(name) is not None}


def _names_in(message: Mapping[str, Any]) -> list[str]:
    values = message.get("values")
    if isinstance(values, dict):
        return list(values)
    names = message.get("channels")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _rows_of(message: Mapping[str, Any]) -> list[list[Any]]:
    values = message.get("values")
    return [row for row in values if isinstance(row, list)] if isinstance(values, list) else []


def _times_of(message: Mapping[str, Any]) -> list[Any]:
    times = message.get("times")
    return times if isinstance(times, list) else [message.get("time")]


# --- several samples in a message, under other names ---


def _chunked(
    messages: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], time_format: str | None
) -> Layout | None:
    rows = next((column for column in columns.values() if _holds(column, list)), None)
    if rows is None:
        return None
    lists = {
        path: Column(path, values=[item for value in column.values for item in value])
        for path, column in columns.items()
        if column is not rows and column.values and all(isinstance(value, list) for value in column.values)
    }
    time = find_time(lists.values(), 0, time_format)
    rest = {path: column for path, column in columns.items() if path not in lists and column is not rows}
    notes = _notes_of(time)
    names = next((list(names) for message in messages if isinstance(names := message.get("channels"), list)), [])
    lines = _lines(_channels_of_rows([*map(str, names)], len(rows.values[0][0]), notes))
    ids = find_ids(rest, notes, RowOrder(len(messages), None))
    return Layout("chunked", time, lines, ids.stream, ids.sequence, ids.end, rows.path, notes=notes)


def _channels_of_rows(names: list[str], width: int, notes: list[str]) -> list[str]:
    """Return ``names`` if there is one for each column of the rows, else ch00, ch01, ... with a note."""
    if len(names) == width:
        return names
    notes.append("the recording does not name its channels: replace ch00, ch01, ... by their names")
    return [f"ch{index:02d}" for index in range(width)]


def _holds(column: Column, kind: type) -> bool:
    """Return whether all values are lists of ``kind``."""
    return bool(column.values) and all(
        isinstance(value, list) and value and isinstance(value[0], kind) for value in column.values
    )


# --- channels ---


def _per_channel(columns: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """Return the field of the channel's name and the field of its value; None, None for other forms."""
    names = [
        column
        for path, column in columns.items()
        if hints(path) & CHANNEL
        and not id_hints(path) & (SEQUENCE | STREAM)
        and not column.is_numeric
        and column.is_id
        and 1 < len(column.counts) <= _MAX_CHANNELS
    ]
    numeric = [column for column in columns.values() if column.is_numeric and not column.is_flag]
    values = [column for column in numeric if hints(column.path) & VALUE]
    if not values:
        plain = [column for column in numeric if not hints(column.path) & (SEQUENCE | STREAM)]
        values = plain if len(plain) == 1 else []
    if not names or len(values) != 1:
        return None, None
    best = max(names, key=lambda column: runs_in(column) / len(column.values))
    return best, values[0]


def _units_by_channel(channel: Column, columns: Mapping[str, Column]) -> Column | None:
    """Return the field that holds each channel's unit, if one is named so and depends on the channel alone."""
    for path, column in columns.items():
        if hints(path) & UNIT and column.rows == channel.rows and len(column.counts) > 1:
            pairs = set(zip(map(str, channel.values), map(str, column.values), strict=True))
            if len(pairs) == len(channel.counts):
                return column
    return None


def _add_channels_of(layout: Layout, channel: Column, value: Column, units: Column | None) -> None:
    layout.form, layout.channel, layout.value = "per_channel", channel.path, value.path
    by_row = dict(zip(value.rows, value.values, strict=True))
    readings: dict[str, Column] = {}
    for row, name in zip(channel.rows, channel.values, strict=True):
        reading = readings.setdefault(str(name), Column(str(name)))
        if row in by_row:
            reading.values.append(by_row[row])
    _add(layout, readings, {} if units is None else dict(zip(map(str, channel.values), units.values, strict=True)))


def _own_qualities(columns: Mapping[str, Column]) -> dict[str, QualityField]:
    """Return the quality of each channel that has a field of its own for it, by channel."""
    return own_qualities(columns, [path for path, column in columns.items() if column.is_numeric])


def _add_columns(layout: Layout, rest: Mapping[str, Column], messages: Sequence[Mapping[str, Any]]) -> None:
    qualities = _own_qualities(rest)
    fields_of_qualities = {quality.path for quality in qualities.values()}
    rest = {path: column for path, column in rest.items() if path not in fields_of_qualities}
    _add(layout, {path: column for path, column in rest.items() if column.is_numeric}, {}, qualities)
    layout.left_out += [
        (
            path,
            f"a list of objects: {_FLATTEN}" if _holds(column, dict) else "no number",
        )
        for path, column in rest.items()
        if column.values and not column.is_numeric
    ]
    paths = [line.field or line.name for line in layout.channels]
    known = [*paths, *(quality.path for quality in qualities.values())]
    inside = paths[0].split(".", 1)[0] if paths else ""
    if all(path.startswith(f"{inside}.") for path in paths) and _holds_only(inside, known, messages):
        layout.form, layout.values = "object", inside
        layout.channels = [_inside(path, f"{inside}.", line) for path, line in zip(paths, layout.channels, strict=True)]
        return
    reached = {path: _is_reached(path, messages) for path in paths}
    layout.left_out += [(path, "another field stands on the way to it") for path in paths if not reached[path]]
    layout.channels = [line for path, line in zip(paths, layout.channels, strict=True) if reached[path]]


def _holds_only(inside: str, paths: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every key of the object ``inside`` leads to a channel, in all messages."""
    keys = {key for message in messages if isinstance(message.get(inside), dict) for key in message[inside]}
    inner = [path.removeprefix(f"{inside}.").split(".") for path in paths]
    return keys <= {".".join(parts[:n]) for parts in inner for n in range(1, len(parts) + 1)}


def _is_reached(path: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the decoder finds the dotted path in a message."""
    of_path = FieldPath(path)
    for message in messages:
        try:
            if of_path.get(dict(message)) not in (None, ABSENT):
                return True
        except DecodeError:  # another key of the path holds no object
            continue
    return False


def _add(
    layout: Layout,
    found: Mapping[str, Column],
    units: Mapping[str, str],
    qualities: Mapping[str, QualityField] = MappingProxyType({}),
) -> None:
    kept: dict[str, float | None] = {}
    for path, of_path in found.items():
        fill = missing_number(of_path)
        column = without(of_path, fill)
        if column.is_constant:
            value = f"{column.numbers[0]:g}" if column.numbers else "no value"
            layout.left_out.append((path, f"never changes in the sample ({value}), so there is nothing to learn"))
        elif column.counts_rows and layout.form == "flat":
            layout.left_out.append((path, "counts the rows"))
        else:
            kept[path] = fill
    layout.missing = missing_texts(found[path] for path in kept)
    layout.channels = [
        replace(
            line,
            missing=() if fill is None else (fill,),
            quality=qualities[path].entry if path in qualities else None,
        )
        for line, (path, fill) in zip(_lines(list(kept), units), kept.items(), strict=True)
    ]
    if guessed := [quality.path for path, quality in qualities.items() if path in kept and quality.is_guess]:
        layout.notes.append(f"{some_of(guessed)} were taken for qualities, the most frequent value for the good one")


def _note_readings(layout: Layout) -> None:
    """Note the guesses about readings."""
    if fills := [f"{line.missing[0]:g} of {line.name}" for line in layout.channels if line.missing]:
        layout.notes.append(f"{some_of(fills)} means missing, because it lies far from all other values")
    if layout.missing:
        texts = ", ".join(map(repr, layout.missing))
        layout.notes.append(f"{texts} instead of numbers: taken for missing values (decode.missing)")
    if layout.quality is not None and layout.quality.is_guess:
        path, good = layout.quality.path, layout.quality.good[0]
        layout.notes.append(f"{path} was taken for the quality of readings, its most frequent value {good!r} for good")


def _lines(paths: Sequence[str], units: Mapping[str, str] = MappingProxyType({})) -> list[ChannelLine]:
    return [_line(path, name, units.get(path)) for path, name in zip(paths, channel_names(paths), strict=True)]


def _inside(path: str, prefix: str, line: ChannelLine) -> ChannelLine:
    """Return the line of a channel in the object that all of them are in."""
    inner = _line(path.removeprefix(prefix), line.name, line.unit)
    quality = line.quality
    if quality is not None:
        quality = quality | {"field": quality["field"].removeprefix(prefix)}
    return replace(line, field=inner.field, quality=quality)


def _line(path: str, name: str, unit: str | None = None) -> ChannelLine:
    return ChannelLine(name, unit if unit is not None else unit_of(path), None if name == path else path)
