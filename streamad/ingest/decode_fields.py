"""The general reader: any parsed message, own or foreign field names, each field checked.

``decode_own.py`` reads regular messages of the own format faster; irregular ones come here, so every error text is
made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.boundaries.reading import BoundaryReader
from streamad.ingest.decode_time_fields import TimeFields
from streamad.ingest.decode_times import TimeReader
from streamad.ingest.decode_values import (
    ABSENT,
    BadCells,
    FieldPath,
    Samples,
    Single,
    fail,
    inner_value,
    key_text,
    located,
    read_flag,
    read_id,
    read_route,
    shown,
)
from streamad.ingest.forms.pattern import Pattern, part_name
from streamad.ingest.forms.rows import RowReader
from streamad.settings.boundaries import WhileSettings
from streamad.settings.decode import ChannelSettings, DecodeSettings, FieldSettings
from streamad.types import Record


class FieldReader:
    """Reads parsed messages by their fields; mapped formats (``decode.fields``) may write numbers as text.

    ``rows`` reads the readings of each sample, ``time`` its time. ``paths`` are the fields that it reads, the end mark
    aside; of those ``id_paths`` give stream, sequence and route. ``end_path`` is that of the end mark.
    """

    def __init__(
        self,
        settings: DecodeSettings,
        channels: Sequence[ChannelSettings],
        times: TimeReader,
        *,
        native: bool = False,
        route: FieldPath | None = None,
        state: WhileSettings | None = None,
    ) -> None:
        fields = FieldSettings() if native or settings.fields is None else settings.fields
        self._fields = fields
        self._as_text = not native and settings.fields is not None
        self.time = TimeFields(settings, fields, times, native=native)
        self._default_stream = settings.default_stream
        self._max_samples = settings.max_samples_per_message
        self._pattern = None if fields.pattern is None else Pattern(fields.pattern)
        parts = {} if fields.pattern is None else {part: FieldPath(part_name(part)) for part in fields.pattern.names}
        of_key = fields.stream == "key" and self._as_text
        self._stream = None if of_key else parts.get("stream", FieldPath(fields.stream))
        id_fields = (part_name("sequence"),) if "sequence" in parts else fields.id_fields
        self._sequence = [FieldPath(field) for field in id_fields]
        self._end = FieldPath(fields.end) if fields.end and isinstance(fields.end, str) else None
        self.id_paths = [path for path in (self._stream, *self._sequence, route) if path is not None]
        self._bounds = BoundaryReader(fields, state)
        self._route = route
        self.end_path = self._end or self._bounds.end
        channel = FieldPath(fields.channel) if fields.channel else parts.get("channel")
        self.rows = RowReader(settings, fields, channels, channel=channel, is_own=not self._as_text, native=native)
        text = None if self._pattern is None else self._pattern.path
        used = (text, self._stream, *self.time.paths, *self._sequence, channel, self.rows.value, route)
        known = [*filter(None, used)]
        self.paths = [
            *self.rows.paths,
            *known,
            *self.rows.qualities.paths,
            *self.rows.qualities.common,
            *filter(None, [self._bounds.state]),
        ]
        self.rows.know([*known, *self._bounds.paths, *filter(None, [self._end])], route)

    def read(self, message: object, record: Record) -> Samples | None:
        """Return the samples of a parsed message; None if it holds only ignored channels. Raises DecodeError."""
        if isinstance(message, list):
            return self._list(message, record)
        if self._is_bare(message):
            assert self.rows.value is not None
            message = {self.rows.value.name: message}
        if not isinstance(message, dict):
            fail("wrong_type", f"a message must be an object, got {shown(message)}")
        if self._pattern is not None and (message := self.named(message, record)) is None:
            return None
        if self._is_chunk(message):
            return self._chunk(message, record)
        if self.time.step is not None and self._holds_lists(message):
            return self._lists(message, None, record)
        bad = BadCells()
        try:
            single = self.single(message, record, bad)
        except DecodeError:
            if self._as_text and isinstance(times := self.time.raw(message), list):
                return self._lists(message, times, record)
            raise
        return None if single is None else self._of_one(single, bad)

    def _is_bare(self, message: object) -> bool:
        """Return whether ``message`` is a reading without a name, which the record's key, topic or header gives."""
        is_scalar = isinstance(message, int | float | str)
        return is_scalar and self._pattern is not None and self.rows.value is not None

    # --- single samples ---------------------------------------------------------------------------------------------

    def _list(self, messages: list[Any], record: Record) -> Samples | None:
        self.time.check_several()
        self._check_count(len(messages))
        if not messages:
            fail("wrong_shape", "an empty list")
        singles: list[Single] = []
        indexes, bad = [], BadCells()
        for index, message in enumerate(messages):
            try:
                if not isinstance(message, dict):
                    fail("wrong_type", f"must be an object with one sample, got {shown(message)}")
                if self._is_chunk(message):
                    fail("wrong_shape", "a chunk inside a list: send chunks as messages of their own")
                if self._pattern is not None and (message := self.named(message, record)) is None:
                    continue
                bad.row, bad.n_lists = len(singles), 0
                single = self.single(message, record, bad)
            except DecodeError as error:
                raise located(error, f"[{index}]") from None
            if single is not None:
                singles.append(single)
                indexes.append(index)
        return self._joined(singles, indexes, bad) if singles else None

    def _of_one(self, single: Single, bad: BadCells) -> Samples:
        stream, sequence, time_us, row, end, route, boundary = single
        values = self.rows.array([row], bad)
        bad_values = None if bad.cells is None else bad.values(*values.shape)
        boundaries = None if boundary is None else (boundary,)
        return Samples(stream, sequence, np.array([time_us]), values, end, None, route, bad_values, boundaries)

    def _joined(self, singles: list[Single], indexes: list[int], bad: BadCells) -> Samples:
        stream, sequence, *_ = singles[0]
        latest = max(single.time_us for single in singles)
        routes = {single.route for single in singles} - {None}
        if len(routes) > 1:
            assert self._route is not None
            fail("mixed_message", f"holds several values of {self._route.name}: send one message for each")
        for single in singles:
            if (single.stream, single.sequence) != (stream, sequence):
                fail("mixed_message", "holds samples of several sequences: send one message for each")
            if single.end and single.time_us < latest:
                fail("mixed_message", "holds samples after the end of the sequence: send them as another message")
        values = self.rows.array([single.row for single in singles], bad)
        boundaries = tuple(single.boundary for single in singles)
        return Samples(
            stream,
            sequence,
            np.array([single.time_us for single in singles], dtype=np.int64),
            values,
            any(single.end for single in singles),
            np.array(indexes, dtype=np.int64),
            routes.pop() if routes else None,
            bad.values(*values.shape),
            boundaries if any(boundaries) else None,
        )

    def single(self, message: dict[Any, Any], record: Record, bad: BadCells, index: int = 0) -> Single | None:
        """Return the sample of a message of one, or of that at ``index`` of a list; None if it holds no channel.

        Raises DecodeError.
        """
        bounds = self._bounds
        is_bounded = bounds.is_on
        if is_bounded and bounds.has_tags and (name := self._tag(message)) is not None:
            return self._tag_reading(name, message, record, index)
        end = self.end_of(message)
        is_bounded = is_bounded and (end or bounds.begins(message) or bounds.is_outside(message))
        row = self.rows.of(message, end or is_bounded, bad)
        if row is None:
            return None
        if bad.n_lists and self._as_text and self.rows.channel is None and all(map(math.isnan, row)):
            fail(
                "wrong_shape", "the channels hold lists, but there is one time: a list of samples needs a list of times"
            )
        time_us = self.time.read(message, record, index)
        boundary = None
        if is_bounded:
            boundary = bounds.of_sample(message, end=end, is_bare=all(map(math.isnan, row)))
        return Single(*self._ids(message, record), time_us, row, end, self._read_route(message), boundary)

    def _tag(self, message: dict[Any, Any]) -> str | None:
        """Return the tag of which the message is a reading, if it says where sequences begin or which they are."""
        assert self.rows.channel is not None
        name = self.rows.channel.get(message)
        if name is ABSENT or name is None:
            return None
        name = read_id(name, self.rows.channel.name)
        return name if name in (self._bounds.state_tag, self._bounds.id_tag) else None

    def _tag_reading(self, name: str, message: dict[Any, Any], record: Record, index: int) -> Single | None:
        """Return the reading of a tag as a row without readings; None if it holds none, or one of bad quality."""
        assert self.rows.value is not None
        boundary = self._bounds.of_tag(name, self.rows.value.get(message), self.rows.value.name)
        if boundary is None or not self.rows.qualities.is_good(message):
            return None
        row = self.rows.nothing
        time_us = self.time.read(message, record, index)
        stream = self.read_stream(self._raw_stream(message, record))
        return Single(stream, None, time_us, row, False, self._read_route(message), boundary)

    def begins(self, message: dict[Any, Any]) -> bool:
        """Return whether a message holds the begin word."""
        return self._bounds.begins(message)

    def bounded(self, single: Single, *, begins: bool = False, ends: bool = False) -> Single:
        """Return ``single`` with the begin or end of the message around it."""
        boundary = self._bounds.around(single.boundary, begins=begins, ends=ends)
        return single._replace(end=single.end or ends, boundary=boundary)

    def named(self, message: dict[Any, Any], record: Record) -> dict[Any, Any] | None:
        """Return ``message`` with the parts of its pattern, if there is one; None if it has others and is skipped.

        Raises DecodeError.
        """
        if self._pattern is None:
            return message
        named = self._pattern.named(message, record)
        if named is None and not self._fields.ignore_unknown:
            raise self._pattern.unmatched(message, record)
        return named

    def time_of(self, message: dict[Any, Any], record: Record, index: int) -> int:
        """Return the time of a message of one sample, at ``index`` of a list. Raises DecodeError."""
        return self.time.read(message, record, index)

    # --- chunks -----------------------------------------------------------------------------------------------------

    def _is_chunk(self, message: dict[Any, Any]) -> bool:
        if self.rows.container is None or self.rows.channel is not None:
            return False
        values = self.rows.container.get(message)
        return isinstance(values, list) or (
            self.time.step is None
            and isinstance(self._chunk_times(message), list)
            and not (self._as_text and isinstance(values, dict))
        )

    def _chunk_times(self, message: dict[Any, Any]) -> Any:
        times = message.get("times", ABSENT)
        return self.time.raw(message) if times is ABSENT else times

    def _chunk(self, message: dict[Any, Any], record: Record) -> Samples:
        assert self.rows.container is not None
        rows, where = self.rows.container.get(message), self.rows.container.name
        times = self._chunk_times(message) if self.time.step is None else [None] * len(rows)
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            fail("wrong_shape", f"{where}: holds a list of objects: write decode.fields.each: {where}")
        if not isinstance(times, list):
            fail("wrong_shape", f"{where}: is a list, so times must be a list as well")
        if not isinstance(rows, list):
            fail("wrong_shape", f"times: is a list, so {where} must be a list of rows")
        if len(times) != len(rows):
            fail("wrong_shape", f"{len(times)} times for {len(rows)} rows of {where}")
        self.time.check_lists()
        if not rows:
            fail("wrong_shape", "an empty chunk: an end needs the time of at least one sample")
        self._check_count(len(rows))
        columns = self.rows.named_columns(message)
        bad = BadCells()
        matrix = [self.rows.of_list(row, index, columns, message, bad) for index, row in enumerate(rows)]
        return self._of_rows(message, record, matrix, bad, times if self.time.step is None else None, where="times")

    # --- a list for each channel, with a list of times or a step ---------------------------------------------------

    def _holds_lists(self, message: dict[Any, Any]) -> bool:
        values = message if self.rows.container is None else self.rows.container.get(message)
        if self.rows.channel is not None or not isinstance(values, dict):
            return False
        return any(isinstance(inner_value(path, values), list) for path in self.rows.channels)

    def _lists(self, message: dict[Any, Any], times: list[Any] | None, record: Record) -> Samples:
        """Return the samples of a message whose fields hold one element for each; ``times`` None: there is a step."""
        self.time.check_lists()
        values = message if self.rows.container is None else self.rows.container.get(message)
        where = "the values" if times is None else self.time.paths[0].name
        if self.rows.channel is not None or not isinstance(values, dict):
            fail("wrong_shape", f"{where}: is a list, so the channels must be lists in fields of their own")
        found = [path.get(values) for path in self.rows.channels]
        n = 0 if times is None else len(times)
        for path, value in zip(self.rows.channels, found, strict=True) if times is None else ():
            if isinstance(value, list) and len(value) >= n:
                n, where = len(value), path.name
        self._check_count(n)
        if not n:
            fail("wrong_shape", f"{where}: an empty list: an end needs the time of at least one sample")
        columns = [
            self.rows.list_of(value, path.name, n, where) for path, value in zip(self.rows.channels, found, strict=True)
        ]
        bad, rows = BadCells(), []
        for bad.row, elements in enumerate(zip(*columns, strict=True)):
            row = [self.rows.number(value, bad, column) for column, value in enumerate(elements)]
            self.rows.apply_qualities(row, message, values, bad)
            rows.append(row)
        return self._of_rows(message, record, rows, bad, times, where=where)

    def _of_rows(
        self,
        message: dict[Any, Any],
        record: Record,
        rows: list[list[float]],
        bad: BadCells,
        times: list[Any] | None,
        *,
        where: str,
    ) -> Samples:
        """Return the samples of a message with a row for each; ``times`` None: there is a step."""
        values = self.rows.array(rows, bad)
        times_us = self.time.spread(message, record, len(rows)) if times is None else self.time.many(times, where)
        end = self.end_of(message)
        return Samples(
            *self._ids(message, record),
            times_us,
            values,
            end,
            route=self._read_route(message),
            bad=bad.values(*values.shape),
            boundaries=self._bounds.of_chunk(message, times_us.tolist(), end=end) if self._bounds.is_on else None,
        )

    # --- fields of both ---------------------------------------------------------------------------------------------

    def _check_count(self, count: int) -> None:
        if count > self._max_samples:
            fail("too_many_samples", f"{count} samples, decode.max_samples_per_message is {self._max_samples}")

    def _ids(self, message: dict[Any, Any], record: Record) -> tuple[str, str | None]:
        return self.read_stream(self._raw_stream(message, record)), self._read_sequence(message)

    def ids_of(self, message: dict[Any, Any], record: Record) -> tuple[str, str | None, str | None]:
        """Return stream, sequence and route of a message. Raises DecodeError."""
        return (*self._ids(message, record), self._read_route(message))

    def _raw_stream(self, message: dict[Any, Any], record: Record) -> Any:
        return key_text(record) if self._stream is None else self._stream.get(message)

    def read_stream(self, value: Any) -> str:
        """Return the stream's id, or the configured default if the message names none. Raises DecodeError."""
        if value is None or value is ABSENT or (self._as_text and value == ""):
            if self._default_stream is None:
                fail("missing_field", f"{self._fields.stream}: is missing, and decode.default_stream is not set")
            value = self._default_stream
        return read_id(value, self._fields.stream)

    def _read_sequence(self, message: dict[Any, Any]) -> str | None:
        """Return the sequence's id, that of several fields with a slash between; None if one of them is missing."""
        parts = []
        for field in self._sequence:
            value = field.get(message)
            if value is None or value is ABSENT or (self._as_text and value == ""):
                return None
            parts.append(read_id(value, field.name))
        if len(parts) > 1:
            return read_id("/".join(parts), " and ".join(field.name for field in self._sequence))
        return parts[0] if parts else None

    def _read_route(self, message: dict[Any, Any]) -> str | None:
        value = ABSENT if self._route is None else self._route.get(message)
        if self._route is None or value is ABSENT:
            return None
        return read_route(value, self._route.name, as_text=self._as_text)

    def end_of(self, message: dict[Any, Any]) -> bool:
        """Return the end mark of a message. Raises DecodeError."""
        if self._end is None:
            return self._bounds.ends(message)
        value = self._end.get(message)
        return value is not ABSENT and read_flag(value, self._end.name, as_text=self._as_text)
