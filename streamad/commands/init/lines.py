"""Makes the channels of a config from the fields that hold readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.rows import Groups, Rows
from streamad.commands.init.facts.units import take_units
from streamad.commands.init.facts.words import (
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
from streamad.commands.init.layout import Layout, note_without_id
from streamad.commands.init.rules.boundaries import find_id_tag, find_state_tag, share_outside
from streamad.commands.init.rules.channels import A_LABEL, constant, find_not_readings, is_label, words_of_tag
from streamad.commands.init.rules.readings import (
    QualityField,
    missing_number,
    missing_texts,
    own_qualities,
    switch,
)
from streamad.commands.init.rules.time_field import TimeField
from streamad.errors import DecodeError, some_of
from streamad.ingest.decode_values import ABSENT, FieldPath
from streamad.settings.template import ChannelLine

_MAX_CHANNELS = 1000
_LONGEST_SHOWN = 40
_MOST_WORDS = 12
_FEWEST_OF_EACH = 3
_IDS = frozenset({"id", "node", "address", "path", "topic", "measurement"})
FLATTEN = "without numbers that vary, or with lists inside; flatten it, see docs/guide/exports.md"


# --- channels ---


def per_channel(columns: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """Return the field of the channel's name and the field of its value; None, None for other forms."""
    names = [
        column
        for path, column in columns.items()
        if (hints(path) & CHANNEL or _names_readings(column))
        and not id_hints(path) & (SEQUENCE | STREAM)
        and (not column.is_numeric or (column.is_whole and 2 * column.n_runs > len(column)))
        and (column.is_id or column.is_whole)
        and 1 < len(column.counts) <= _MAX_CHANNELS
    ]
    if not names:
        return None, None
    numeric = [
        column for column in columns.values() if column.is_numeric and not column.is_flag and column not in names
    ]
    values = [column for column in numeric if hints(column.path) & VALUE]
    if not values:
        plain = [column for column in numeric if not hints(column.path) & (SEQUENCE | STREAM)]
        values = plain if len(plain) == 1 else []
    texts = [column for column in names if not column.is_numeric]
    names = texts or [column for column in names if values and hints(values[0].path) & VALUE]
    if len(values) != 1 or not names:
        return None, None
    return max(names, key=lambda column: column.n_runs / len(column)), values[0]


def _names_readings(column: Column) -> bool:
    """Return whether a field that is only called id names something that changes from message to message and recurs."""
    words = hints(column.path)
    is_id = bool(words) and words <= _IDS and not column.is_numeric
    return is_id and 2 * column.n_runs > len(column) and _FEWEST_OF_EACH * len(column.counts) <= len(column)


def units_by_channel(channel: Column, columns: Mapping[str, Column]) -> Column | None:
    """Return the field that holds each channel's unit, if one is named so and depends on the channel alone."""
    for path, column in columns.items():
        if hints(path) & UNIT and column.rows == channel.rows and column.varies:
            pairs = set(zip(map(str, channel.values), map(str, column.values), strict=True))
            if len(pairs) == len(channel.counts):
                return column
    return None


def add_channels_of(
    layout: Layout, channel: Column, value: Column, units: Column | None, stream: Column | None
) -> None:
    """Add the channels of messages with one channel each; a tag may name the batches, or say when one runs."""
    layout.form, layout.channel, layout.value = "per_channel", channel.path, value.path
    by_row = dict(zip(value.rows, value.written or value.values, strict=True))
    readings: dict[str, Column] = {}
    for row, name in zip(channel.rows, channel.values, strict=True):
        reading = readings.setdefault(str(name), Column(str(name), marks=value.marks))
        if row in by_row:
            reading.rows.append(row)
            reading.values.append(by_row[row])
    if not layout.has_ids:
        _take_tags(layout, readings, stream, 1 + max(channel.rows, default=-1))
    if layout.id_tag is not None:
        rows = [row for row, name in zip(channel.rows, channel.values, strict=True) if str(name) == layout.id_tag]
        ids = {at: by_row[row] for at, row in enumerate(rows) if row in by_row}
        streams = {} if stream is None else {at: stream.by_row.get(row) for at, row in enumerate(rows)}
        note_without_id(layout, len(rows), ids, streams)
    stated = {} if units is None else dict(zip(map(str, channel.values), units.values, strict=True))
    stated |= take_units(readings)
    _add(
        layout,
        readings,
        {path: words_of_tag(column) or constant(column) for path, column in readings.items() if column.is_constant},
        units=stated,
    )


def _take_tags(layout: Layout, readings: dict[str, Column], stream: Column | None, n: int) -> None:
    """Take the tag that names the batches, else the one that says when a batch runs, out of the readings."""
    layout.id_tag = find_id_tag(readings, stream)
    if layout.id_tag is not None:
        layout.notes.append(
            f"{layout.id_tag} names the batches: it holds until its next reading (decode.fields.sequence: {{tag: "
            f"{layout.id_tag}}}); if it does not, write sequence: null and an end mode"
        )
        del readings[layout.id_tag]
        return
    layout.state = find_state_tag(readings, stream)
    if layout.state is not None:
        layout.notes.append(layout.state.note(share_outside(layout.state, readings[layout.state.path], stream, n)))
        del readings[layout.state.path]


def _no_number(column: Column) -> str:
    if is_label(column):
        return A_LABEL
    if column.holds(float) or column.holds(int):
        return "lists of numbers need a list of times, or a step beside their time (decode.fields.step)"
    text = next(value for value in column.values if column.number(value) is None)
    few = 1 < len(column.counts) <= _MOST_WORDS and all(isinstance(value, str) for value in column.values)
    hint = "; channels[].values gives words numbers" if few else ""
    if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
        hint = "; name a text of JSON in decode.fields.nested"
    return f"no number, such as {str(text).strip()[:_LONGEST_SHOWN]!r}{hint}"


def own_qualities_of(columns: Mapping[str, Column]) -> dict[str, QualityField]:
    """Return the quality of each channel that has a field of its own for it, by channel."""
    return own_qualities(columns, [path for path, column in columns.items() if column.is_numeric])


def add_columns(
    layout: Layout,
    rest: Mapping[str, Column],
    messages: Sequence[Mapping[str, Any]],
    *,
    rows: Rows,
    groups: Groups,
    times: Sequence[TimeField],
    units: Mapping[str, str],
    qualities: Mapping[str, QualityField],
) -> None:
    """Add the numeric fields that hold readings, with their ``qualities``, and what is left out with its reason."""
    fills = {path: missing_number(column) for path, column in rest.items() if column.is_numeric}
    numeric = {path: rest[path].without(fill) for path, fill in fills.items()}
    others = [time for time in times if time.path != layout.time.path]
    switches = {path: numbers for path, column in rest.items() if (numbers := switch(column))}
    readings = {path: column for path, column in rest.items() if path in numeric or path in switches}
    not_readings = find_not_readings(numeric, rows, groups, others)
    outer = _outer_object([path for path in readings if path not in not_readings], messages)
    _add(layout, readings, not_readings, units=units, qualities=qualities, switches=switches, outer=outer)
    layout.left_out += [
        (path, f"a list of objects: {FLATTEN}" if column.holds(dict) else _no_number(column))
        for path, column in rest.items()
        if column.values and path not in readings
    ]
    paths = [line.field or line.name for line in layout.channels]
    known = [*paths, *(quality.path for path, quality in qualities.items() if path in rest)]
    inside = paths[0].split(".", 1)[0] if paths else ""
    if all(path.startswith(f"{inside}.") for path in paths) and _holds_only(inside, known, messages):
        layout.form, layout.values = "object", inside
        layout.channels = [_inside(path, f"{inside}.", line) for path, line in zip(paths, layout.channels, strict=True)]
        return
    reached = {path: _is_reached(path, messages) for path in paths}
    layout.left_out += [(path, "another field stands on the way to it") for path in paths if not reached[path]]
    layout.channels = [line for path, line in zip(paths, layout.channels, strict=True) if reached[path]]


def _outer_object(paths: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the beginning of all ``paths``, with its dot, if it is an object in the messages; else an empty text."""
    firsts = {path.partition(".")[0] for path in paths}
    outer = firsts.pop() if len(firsts) == 1 and len(paths) > 1 else ""
    return f"{outer}." if any(isinstance(message.get(outer), dict) for message in messages) else ""


def _holds_only(inside: str, paths: Sequence[str], messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether ``inside`` is an object whose every key leads to a channel, in all messages."""
    objects = [message[inside] for message in messages if isinstance(message.get(inside), dict)]
    keys = {key for one in objects for key in one}
    inner = [path.removeprefix(f"{inside}.").split(".") for path in paths]
    return bool(objects) and keys <= {".".join(parts[:n]) for parts in inner for n in range(1, len(parts) + 1)}


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
    not_readings: Mapping[str, str],
    *,
    units: Mapping[str, str] = MappingProxyType({}),
    qualities: Mapping[str, QualityField] = MappingProxyType({}),
    switches: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    outer: str = "",
) -> None:
    layout.left_out += not_readings.items()
    kept = {path: missing_number(column) for path, column in found.items() if path not in not_readings}
    layout.missing = missing_texts(found[path] for path in kept if path not in switches)
    layout.channels = [
        replace(
            line,
            missing=() if fill is None else (fill,),
            quality=qualities[path].entry if path in qualities else None,
            values=dict(switches[path]) if path in switches else None,
        )
        for line, (path, fill) in zip(lines_of(list(kept), units, outer), kept.items(), strict=True)
    ]
    if guessed := [quality.path for path, quality in qualities.items() if path in kept and quality.is_guess]:
        layout.notes.append(f"{some_of(guessed)} were taken for qualities, the most frequent value for the good one")


def note_readings(layout: Layout) -> None:
    """Note the guesses about readings."""
    if fills := [f"{line.missing[0]:g} of {line.name}" for line in layout.channels if line.missing]:
        layout.notes.append(f"{some_of(fills)} means missing, because it lies far from all other values")
    if switches := [line.name for line in layout.channels if line.values]:
        layout.notes.append(f"the words of {some_of(switches)} are read as 1 and 0 (channels[].values)")
    if layout.missing:
        texts = ", ".join(f"'{text}'" for text in layout.missing)
        layout.notes.append(f"{texts} instead of numbers: taken for missing values (decode.missing)")
    if layout.quality is not None and layout.quality.is_guess:
        path, good = layout.quality.path, layout.quality.good[0]
        layout.notes.append(f"{path} was taken for the quality of readings, its most frequent value {good!r} for good")


def lines_of(
    paths: Sequence[str], units: Mapping[str, str] = MappingProxyType({}), outer: str = ""
) -> list[ChannelLine]:
    """Return the channels' lines; ``outer`` is the beginning of all paths that the names leave out."""
    names = channel_names([path.removeprefix(outer) for path in paths])
    return [_line(path, name, units.get(path)) for path, name in zip(paths, names, strict=True)]


def _inside(path: str, prefix: str, line: ChannelLine) -> ChannelLine:
    """Return the line of a channel in the object that all of them are in."""
    inner = _line(path.removeprefix(prefix), line.name, line.unit)
    quality = line.quality
    if quality is not None:
        quality = quality | {"field": quality["field"].removeprefix(prefix)}
    return replace(line, field=inner.field, quality=quality)


def _line(path: str, name: str, unit: str | None = None) -> ChannelLine:
    return ChannelLine(name, unit if unit is not None else unit_of(path), None if name == path else path)
