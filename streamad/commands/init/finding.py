"""Puts the rules in order: finds the fields of a sample that hold stream, sequence, time, end and channels."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from streamad.commands.init.durations import duration_text
from streamad.commands.init.facts.columns import Column, columns_of
from streamad.commands.init.facts.marks import Marks, find_marks
from streamad.commands.init.facts.rows import LONGEST_STEP, Groups, Rows
from streamad.commands.init.facts.units import take_units
from streamad.commands.init.facts.words import CHANNEL, SEQUENCE, STREAM, TIME, hints, id_hints
from streamad.commands.init.forms import chunked, is_own, own
from streamad.commands.init.layout import Layout, note_without_id
from streamad.commands.init.lines import (
    FLATTEN,
    add_channels_of,
    add_columns,
    note_readings,
    own_qualities_of,
    per_channel,
    units_by_channel,
)
from streamad.commands.init.listed import Listed, as_lists, channel_in, with_elements
from streamad.commands.init.reading.sample import RawSample
from streamad.commands.init.rules.boundaries import (
    Words,
    are_needed,
    find_state,
    find_words,
    is_run_flag,
    says_the_same,
    share_outside,
)
from streamad.commands.init.rules.ids import KEY, Ids, find_ids
from streamad.commands.init.rules.patterns import OF_PATTERN, Split, find_pattern, find_stream
from streamad.commands.init.rules.readings import QualityField, common_quality, own_units
from streamad.commands.init.rules.time_field import TimeField, by_rows
from streamad.commands.init.rules.times import (
    even_clocks,
    find_times,
    finer,
    no_time,
    of_unknown_format,
    times_of,
    with_parts,
)
from streamad.commands.init.stepped import with_steps
from streamad.errors import SourceError, some_of
from streamad.language import percent
from streamad.types import IntArray

_OFTEN = 20
_MANY_DISPLACED = 0.05
_ROW_PERIOD_US = 1_000_000
_NUMBERED = re.compile(r"[ ._-]?\(?\d+\)?$")
_ROWS_ALONE = (
    "--row-period drops the times, and nothing else tells sequences apart: it needs a field with their ids, or a file "
    "for each"
)
_OR_IDS = "or add an id to each row that no other sequence has: then rows count as evenly spaced (decode.time: row)"
_LIST_OF_READINGS = (
    f"{{}} holds a list of objects: streamad reads channels as fields, or one channel a message; {FLATTEN}"
)


def find_layout(
    sample: RawSample,
    known_names: Sequence[str] | None = None,
    time_format: str | None = None,
    row_period_us: int | None = None,
    watched: Callable[[Collection[Column]], Iterable[Column]] = iter,
) -> Layout:
    """Return the layout of the sample's messages; ``time_format`` is that of its dates, if it is known.

    ``row_period_us``: rows are evenly spaced samples, whatever times they have. ``watched`` yields the columns while
    they are looked at, which takes the time. Raises SourceError if there is no time
    or no channel, or if several formats read its dates.
    """
    if all(is_own(message) for message in sample.messages):
        return own(sample.messages, known_names, time_format)
    found = _elements(sample, time_format, has_times=not row_period_us)
    messages, places, times = found.messages, found.places, found.times
    columns, marks, why = _columns(messages, sample)
    if (of_rows := chunked(messages, columns, time_format)) is not None:
        return of_rows
    if not row_period_us:
        times = times or find_times(columns.values(), len(messages), time_format, watched)
    notes: list[str] = []
    rest = {path: column for path, column in columns.items() if not times or path not in times[0].paths}
    roles = _roles(found, rest)
    channel, value, split = roles.channel, roles.value, roles.split
    rest = {path: column for path, column in rest.items() if path not in roles.paths}
    if split is not None:
        channel, rest[OF_PATTERN], columns[OF_PATTERN] = split.channels, split.streams, split.streams
        notes.append(split.note)
    if not times:
        is_table = sample.has_rows and channel is None
        times = [_without_time(columns, rest, row_period_us, places=places, is_table=is_table)]
    _refuse_own_times(columns, times)
    time = _resolved(times, columns, rest, places=places, channel=channel, notes=notes)
    notes[:0] = [] if time.note is None else [time.note]
    rows = Rows(times_of(time, columns, len(messages)), counts=time.counts, channel=channel, places=places)
    no_readings = {*time.paths, *time.unused, *(of.path for of in roles.qualities.values())}
    rest = {path: column for path, column in rest.items() if path not in no_readings}
    key = _key_of(found, columns)
    words, ids = _words_and_ids(rest, rows, key, notes, is_per_channel=channel is not None)
    has_ids = bool(ids.sequence) or len(np.unique(places)) > 1
    _refuse_rows_alone(time, columns, has_ids=has_ids, is_asked=row_period_us is not None)
    if key is not None and ids.stream == KEY:
        columns[KEY] = key
    layout = Layout(
        "flat", time, [], ids.stream, ids.sequence, ids.end, notes=notes, quality=roles.quality, marks=marks,
        restarts=ids.restarts, nested=sample.nested, pattern=None if split is None else (split.field, split.parts),
        wire="influx" if sample.is_line_protocol else None,
        each=None if found.listed is None else found.listed.path, words=words,
    )  # fmt: skip
    notes += [] if why is None else [why]
    rest = rest if has_ids or channel is not None else _with_state(rest, layout, columns, rows)
    if len(ids.sequence) == 1 and words is None:
        streams = {} if ids.stream is None else columns[ids.stream].by_row
        note_without_id(layout, len(messages), columns[ids.sequence[0]].by_row, streams)
    layout.left_out += [(path, "a time beside that of the samples") for path in columns if path in time.unused]
    layout.as_text = tuple(
        path for path in ids.paths if path not in (ids.end, KEY) and _needs_text(columns[path], sample)
    )
    rest = _readings_in(found.listed, {path: of for path, of in rest.items() if path not in ids.paths}, layout)
    groups = _groups(rows, ids, columns)
    if channel is not None and value is not None:
        add_channels_of(layout, channel, value, roles.units, columns.get(ids.stream or ""))
    else:
        layout.remedy = _remedy_for_shared_times(rows, groups.sequences, rest, time, has_ids=has_ids)
        units = {path: column.texts[0] for path, column in roles.own_units.items()} | _stated_units(columns)
        add_columns(
            layout, rest, messages, rows=rows, groups=groups, times=times, units=units, qualities=roles.qualities
        )
    note_readings(layout)
    if not layout.channels:
        raise SourceError(_nothing_numeric(layout, columns, sample))
    return layout


@dataclass(frozen=True, slots=True)
class _Roles:
    """The fields of channel, value, unit and quality of messages with one reading each; the qualities of others."""

    channel: Column | None
    value: Column | None
    split: Split | None
    units: Column | None
    quality: QualityField | None
    qualities: Mapping[str, QualityField]
    own_units: Mapping[str, Column]

    @property
    def paths(self) -> set[str]:
        """Return the fields that are no readings and no ids."""
        found = (self.channel, self.value, self.units, self.quality, *self.own_units.values())
        return {one.path for one in found if one is not None} | ({self.split.field} if self.split else set())


def _roles(found: _Elements, rest: Mapping[str, Column]) -> _Roles:
    channel, value = _channel_in(found, rest)
    split = None if channel is None else find_pattern(channel, rest.values())
    of_topic = find_stream(rest.values()) if split is None else None
    if of_topic is not None and (channel is None or not of_topic.parts.endswith(OF_PATTERN)):
        split, channel, value = of_topic, None, None
    qualities = {} if channel is not None else own_qualities_of(rest)
    quality = None if qualities else common_quality(rest)
    units = units_by_channel(channel, rest) if channel is not None else None
    own = {} if channel is not None else own_units(rest, [path for path, of in rest.items() if of.is_numeric])
    return _Roles(channel, value, split, units, quality, qualities, own)


def _channel_in(found: _Elements, rest: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """Return the fields of the channel's name and of its value; None, None for samples of all channels."""
    channel, value = per_channel(rest)
    return channel_in(found.listed, rest) if channel is None and found.listed is not None else (channel, value)


def _readings_in(listed: Listed | None, rest: dict[str, Column], layout: Layout) -> dict[str, Column]:
    """Return the columns of the elements of a list; those around it are the same in all elements, and left out."""
    if listed is None:
        return rest
    around = [path for path, column in rest.items() if path not in listed.inside and column.is_numeric]
    layout.left_out += [(path, f"around the list {listed.path}: the same in all its elements") for path in around]
    return {path: column for path, column in rest.items() if path in listed.inside}


def _words_and_ids(
    rest: dict[str, Column], rows: Rows, key: Column | None, notes: list[str], *, is_per_channel: bool
) -> tuple[Words | None, Ids]:
    """Return the words of begin and end, None if ids or pauses cut already, and the ids; take their field of ``rest``.

    Neither a field of such words nor a flag of a running batch is an id.
    """
    words = None if is_per_channel else find_words(rest, rows.n)
    free = {path: of for path, of in rest.items() if not is_run_flag(of) and (words is None or path != words.path)}
    if words is not None:
        column, noted = rest[words.path], list[str]()
        ids = find_ids(free, noted, rows, key, words.rows(column))
        stream = key if ids.stream == KEY else rest.get(ids.stream or "")
        named = {row for path in ids.sequence for row in rest[path].rows}
        if not ids.restarts and are_needed(words, column, named, rows, rows.codes(stream)):
            del rest[words.path]
            notes += [*noted, words.note(share_outside(words, column, stream, rows.n))]
            return words, ids
    return None, find_ids(free, notes, rows, key)


def _with_state(
    rest: dict[str, Column], layout: Layout, columns: Mapping[str, Column], rows: Rows
) -> dict[str, Column]:
    """Let a field of states say when a batch runs, if there is one; return the columns without it and its copies."""
    free = {path: column for path, column in rest.items() if path != layout.stream}
    if layout.words is not None or layout.end is not None or layout.is_relative:
        return rest
    stream = None if layout.stream is None else columns[layout.stream]
    state = find_state(free, stream, rows)
    if state is None:
        return rest
    layout.state = state
    layout.notes.append(state.note(share_outside(state, free[state.path], stream, rows.n)))
    copies = [path for path in free if path != state.path and says_the_same(free[path], free[state.path])]
    layout.left_out += [(path, f"says the same as {state.path}") for path in copies]
    return {path: column for path, column in rest.items() if path not in (state.path, *copies)}


def _columns(messages: Sequence[Mapping[str, Any]], sample: RawSample) -> tuple[dict[str, Column], Marks, str | None]:
    """Return the columns with their units, how their texts write numbers, and why if that is a guess."""
    columns = columns_of(messages)
    stated = {**sample.units, **take_units(columns)}
    marks, why = find_marks((column.values for column in columns.values()), sample.delimiter)
    for path, column in columns.items():
        column.marks, column.unit = marks, stated.get(path, "")
    return columns, marks, why


def _stated_units(columns: Mapping[str, Column]) -> dict[str, str]:
    return {path: column.unit for path, column in columns.items() if column.unit}


def _nothing_numeric(layout: Layout, columns: Mapping[str, Column], sample: RawSample) -> str:
    found = f"(fields: {some_of(columns)})"
    why = [f"{path}: {reason}" for path, reason in layout.left_out[:3]]
    if why:
        found = f"{found[:-1]}; left out: {'; '.join(why)})"
    if listed := next((path for path, column in columns.items() if column.holds(dict)), None):
        found = f"{found[:-1]}; {_LIST_OF_READINGS.format(listed)})"
    table = sample.layout
    doubt = (
        "" if table is None or table.is_sure else f"; {table.why}: set source.options.header to the line of the names"
    )
    return f"nothing numeric found besides ids and times {found}; there must be a channel{doubt}"


def _key_of(found: _Elements, columns: Mapping[str, Column]) -> Column | None:
    """Return the keys of the records, if all have one and no field has their name."""
    if KEY in columns or not found.keys or None in found.keys:
        return None
    return Column(KEY, list(range(len(found.keys))), list(found.keys))


@dataclass(frozen=True, slots=True)
class _Elements:
    """The messages of a sample, those with lists one for each element, and the number of the file of each.

    ``times`` is their time, if that is known; ``listed`` says of which list they are elements.
    """

    messages: Sequence[Mapping[str, Any]]
    places: IntArray
    times: list[TimeField]
    keys: Sequence[str | None] = ()
    listed: Listed | None = None


def _elements(sample: RawSample, time_format: str | None, *, has_times: bool) -> _Elements:
    """Return the messages, and their time if there is a step; those with lists one for each element.

    ``has_times``: their times are read.
    """
    places = np.array(sample.places, dtype=np.int64) * sample.in_files
    has_times = has_times and sample.layout is None  # a table of text holds no lists
    stepped = with_steps(sample.messages, places, time_format) if has_times else None
    if stepped is not None:
        return _Elements(stepped.messages, stepped.places, [stepped.time])
    listed = with_elements(sample.messages, time_format) if has_times else None
    if listed is not None:
        rows = as_lists(sample.messages, listed.path) if not listed.times else []
        stepped = with_steps(rows, places, time_format) if rows else None
        if stepped is not None:
            return _Elements(stepped.messages, stepped.places, [stepped.time], listed=listed)
        keys = [sample.keys[row] for row in listed.of] if sample.keys else []
        return _Elements(listed.messages, places[listed.of], listed.times, keys, listed)
    if not sample.has_lists:
        return _Elements(sample.messages, places, [], sample.keys)
    expanded, of = [], []
    for message, place in zip(sample.messages, sample.places, strict=True):
        lengths = {len(value) for value in message.values() if isinstance(value, list)}
        n = lengths.pop() if len(lengths) == 1 else 0
        expanded += [
            {key: value[at] if isinstance(value, list) else value for key, value in message.items()} for at in range(n)
        ]
        of += [place] * n
    return _Elements(expanded, np.array(of, dtype=np.int64), [])


def _needs_text(column: Column, sample: RawSample) -> bool:
    """Return whether a reader of numbers would change the ids: 1.10 is no 1.1."""
    return column.is_numeric and not (column.is_id if sample.layout is None else column.is_whole)


# --- the time ---


def _without_time(
    columns: Mapping[str, Column],
    rest: Mapping[str, Column],
    row_period_us: int | None,
    *,
    places: IntArray,
    is_table: bool,
) -> TimeField:
    """Return a field that rises as a clock does, else the rows as the time, if something else tells sequences apart.

    ``rest`` are the columns that may hold readings and ids, ``places`` the number of each row's file. Only the rows of
    a table can be the time. Raises SourceError if nothing is one.
    """
    if row_period_us is not None and not is_table:
        raise SourceError("--row-period is for tables with a row a sample, in CSV or Parquet (decode.time: row)")
    if row_period_us is not None:
        return by_rows(row_period_us, "rows are evenly spaced, as --row-period says: their own times are not read")
    if listed := next((path for path, column in columns.items() if column.holds(dict)), None):
        raise SourceError(_LIST_OF_READINGS.format(listed))
    unread = next(
        (one for path, one in columns.items() if hints(path) & TIME and one.varies and not one.is_numeric), None
    )
    if unread is not None:
        raise SourceError(
            f"{of_unknown_format(unread)}: give it with --time-format, or read rows as evenly spaced with "
            f"--row-period 1s (fields: {some_of(columns)})"
        )
    if clocks := even_clocks(rest.values(), places):
        return clocks[0]
    named = any(id_hints(path) & SEQUENCE and of.varies and of.n_runs < len(of) / 2 for path, of in rest.items())
    if not is_table or not (named or len(np.unique(places)) > 1):
        raise SourceError(no_time(list(columns.values())))
    return by_rows(
        _ROW_PERIOD_US,
        "no field holds a time: rows count as one a second, in the order of the file (decode.time: row); if another "
        "time lies between them, set decode.row_period",
    )


def _refuse_rows_alone(time: TimeField, columns: Mapping[str, Column], *, has_ids: bool, is_asked: bool) -> None:
    """Raise SourceError if rows are the time, also if the user asked for that, and nothing tells sequences apart."""
    if time.row_period_us is not None and not has_ids:
        raise SourceError(_ROWS_ALONE if is_asked else f"{no_time(list(columns.values()))}; {_OR_IDS}")


def _refuse_own_times(columns: Mapping[str, Column], times: Sequence[TimeField]) -> None:
    """Raise SourceError if each channel has a time of its own beside it, as two columns a tag."""
    paths = [path for path, column in columns.items() if column.values]
    of_times = [time.path for time in times if time.path and not time.time_of_day]
    bases = {_NUMBERED.sub("", path) for path in of_times}
    beside = [(a, b) for a, b in pairwise(paths) if a in of_times and b not in of_times and columns[b].is_numeric]
    if len(of_times) < 2 or len(bases) > 1 or len(beside) < 2:
        return
    first, second = (columns[path] for path, _ in beside[:2])
    if sum(a != b for a, b in zip(first.values, second.values, strict=False)) < 0.5 * min(len(first), len(second)):
        return
    raise SourceError(
        f"each channel has times of its own: {beside[0][1]} in {beside[0][0]}, {beside[1][1]} in {beside[1][0]}; write "
        "one reading a row instead, with the columns time, tag and value, or one time for all channels"
    )


def _resolved(
    times: Sequence[TimeField],
    columns: Mapping[str, Column],
    rest: Mapping[str, Column],
    *,
    places: IntArray,
    channel: Column | None,
    notes: list[str],
) -> TimeField:
    """Return the likeliest time, or another reading if by that one readings displace each other."""
    time = times[0]
    if time.step_us is not None and _wraps(columns[time.path], places):
        why = f"{time.path} begins anew at 2^32 within a file: rows are evenly spaced instead (decode.time: row)"
        return replace(by_rows(time.step_us, why), unused=(time.path,))
    rows = Rows(times_of(time, columns, len(places)), counts=False, channel=channel, places=places)
    ids = [of for path, of in rest.items() if id_hints(path) & (SEQUENCE | STREAM | CHANNEL)]
    named = [of for of in ids if of.n_runs < max(2, len(of) / 2) or (not of.is_numeric and _recurs(of))]
    groups = rows.codes(*named) * (int(places.max(initial=0)) + 1) + places
    readings = [of for path, of in rest.items() if of.is_numeric and of not in named]
    lost = rows.displaced(groups, readings)
    if lost <= _MANY_DISPLACED or time.counts:
        return with_parts(time, columns, rows, notes)
    for other in finer(time, times, columns):
        if rows.displaced(groups, readings, times_of(other, columns, len(places))) < lost / 10:
            notes.append(
                f"the time is {other.title}: by {time.title} alone {percent(lost)} of the rows share their time"
            )
            return replace(other, unused=time.unused, others=(), note=time.note)
    return time


def _recurs(column: Column) -> bool:
    """Return whether a few texts come again and again, in whatever order: streams that take turns."""
    return _OFTEN * len(column.counts) <= len(column)


def _wraps(counter: Column, places: IntArray) -> bool:
    """Return whether a counter begins anew within a file."""
    is_within = np.diff(places[np.array(counter.rows)]) == 0
    return bool((np.diff(counter.cells)[is_within] < -(2**31)).any())


def _groups(rows: Rows, ids: Ids, columns: Mapping[str, Column]) -> Groups:
    """Return the stream and the sequence of each row: by ids, else by file and restart or pause."""
    streams = rows.codes(columns[ids.stream]) if ids.stream is not None else np.zeros(rows.n, dtype=np.int64)
    if ids.sequence:
        of_ids = rows.codes(*(columns[path] for path in (ids.stream, *ids.sequence) if path is not None))
        return Groups(streams, of_ids)
    parts = np.unique(np.stack([streams, rows.places]), axis=1, return_inverse=True)[1].ravel()
    cuts, order = np.zeros(rows.n, dtype=np.int64), np.argsort(parts, kind="stable")
    if ids.restarts:
        cuts[rows.restarts(streams)] = 1
    elif not rows.counts and len(steps := rows.steps_us(parts)):
        cuts[order[1:]] = np.abs(np.diff(rows.times_us[order])) > LONGEST_STEP * float(np.median(steps))
    pieces = np.empty(rows.n, dtype=np.int64)
    pieces[order] = np.cumsum(cuts[order])
    return Groups(streams, parts * (rows.n + 1) + pieces)


def _remedy_for_shared_times(
    rows: Rows, groups: IntArray, rest: Mapping[str, Column], time: TimeField, *, has_ids: bool
) -> str | None:
    """Return what the user can do if many rows have the time of another; None if they have not."""
    share = rows.displaced(groups, [column for column in rest.values() if column.is_numeric])
    if share <= _MANY_DISPLACED or time.counts or not len(steps := rows.steps_us(groups)):
        return None
    period_us = float(np.median(steps)) / max(1, round(1 / (1 - share)))
    evenly = f", or read rows as evenly spaced with --row-period {duration_text(max(1, round(period_us)))}"
    return f"{percent(share)} of the rows have the time of another in {time.title}: give a finer time{evenly * has_ids}"
