"""Recordings of raw records (``.records.jsonl``): offset, time, key and value of each, exactly as a topic held them.

The first line describes the file; every other line is one record. A value that is JSON on one line is stored as it is,
so that a recording can be read, searched and edited; any other value is base64. Readers get the topic's records
unchanged.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import msgspec

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.ranges import EVERYTHING, Span
from streamad.types import Record, from_us
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import READ_FAILURES, ReadRecord, open_bytes, read_error, shrunk_error

RECORDS_ENDING = ".records.jsonl"
_FORMAT = "streamad records"
_VERSION = 1
_MICROSECOND = timedelta(microseconds=1)
_EPOCH = from_us(0)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, the range of RFC 3339
_BASE64_SHARE = 2  # a line holds a value at most 4/3 times as long, and a key
# A reader may have less stack left than the writer, so deeply nested values are written as base64.
_DEEPER = 100


class _FirstLine(msgspec.Struct, frozen=True, kw_only=True):
    """The first line; ``from_start``: the partition has no record before the first one here."""

    format: str
    version: int
    partition: str
    from_start: bool
    streamad: str


class _Line(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    offset: int
    time: datetime | None = None
    time_us: int | None = None
    key: str | None = None
    key_base64: str | None = None
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | None = None
    schema: str | None = None
    label: str | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)
_raw_decoder = msgspec.json.Decoder(msgspec.Raw)


def encode_header(partition: str, *, from_start: bool, streamad: str) -> bytes:
    """Return the first line of a recording, with its line end."""
    header = _FirstLine(format=_FORMAT, version=_VERSION, partition=partition, from_start=from_start, streamad=streamad)
    return _encoder.encode(header) + b"\n"


def encode_record(record: Record) -> bytes:
    """Return the line of ``record``, with its line end; ``read_records`` returns an equal record."""
    time_us, key = record.timestamp_us, record.key
    is_date = time_us is not None and _FIRST_US <= time_us <= _LAST_US
    is_json = _is_json_on_one_line(record.value)
    text = None if key is None else _text(key)
    line = _Line(
        record.offset,
        time=from_us(time_us) if is_date and time_us is not None else None,
        time_us=None if is_date else time_us,
        key=text,
        key_base64=b64encode(key).decode() if key is not None and text is None else None,
        value=msgspec.Raw(record.value) if is_json else msgspec.UNSET,
        value_base64=None if is_json else b64encode(record.value).decode(),
        schema=record.schema,
        label=record.label,
    )
    return _encoder.encode(line) + b"\n"


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _is_json_on_one_line(value: bytes) -> bool:
    """Return whether ``value`` is JSON by RFC 8259 that a line can hold unchanged."""
    if not value or b"\n" in value or b"\r" in value or value != value.strip() or _text(value) is None:
        return False
    try:
        _raw_decoder.decode(b"[" * _DEEPER + value + b"]" * _DEEPER)
        return bytes(_raw_decoder.decode(value)) == value
    except (msgspec.MsgspecError, RecursionError):
        return False


def is_seen_from_start(path: Path, options: FileOptions, span: Span) -> bool:
    """Return whether the records of ``path`` in ``span`` begin at the partition's beginning. Raises SourceError."""
    try:
        with open_bytes(path) as handle:
            header = _header(handle, path, options)
            line = handle.readline(_longest(options))
    except READ_FAILURES as error:
        raise read_error(path, error) from error
    if span.since_us is None or not header.from_start or not line:
        return header.from_start
    first = _record(line, path, 2, options)
    return first.timestamp_us is not None and first.timestamp_us >= span.since_us


def _header(handle: BinaryIO, path: Path, options: FileOptions) -> _FirstLine:
    try:
        header = msgspec.json.decode(handle.readline(_longest(options)), type=_FirstLine)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = None
    if header is None or header.format != _FORMAT:
        raise SourceError(
            f"{path}: its first line does not say {_FORMAT!r}, so streamad record did not write it; "
            "for JSON lines of another kind give the option format=jsonl"
        )
    if header.version != _VERSION:
        raise SourceError(f"{path}: is of version {header.version}, known is {_VERSION}; read it with a newer streamad")
    return header


def read_records(
    path: Path, offset: int, options: FileOptions, context: ConnectorContext, span: Span = EVERYTHING
) -> Iterator[ReadRecord]:
    """Yield the records of ``path`` in ``span`` whose offset is ``offset`` or above.

    As in a topic, the span runs from the first record at ``since_us`` or later to the first one at ``until_us`` or
    later, whatever the times between. Raises SourceError for a foreign line.
    """
    begun, last = span.since_us is None, -1
    with open_bytes(path) as handle:
        _header(handle, path, options)
        for number, line in enumerate(iter(lambda: handle.readline(_longest(options)), b""), 2):
            if line.isspace():
                continue
            record = _record(line, path, number, options)
            if record.offset <= last:
                raise SourceError(
                    f"{path}: line {number}: offset {record.offset} does not come after {last}; put back the order"
                )
            last = record.offset
            time_us = record.timestamp_us
            if span.until_us is not None and time_us is not None and time_us >= span.until_us:
                break
            begun = begun or (span.since_us is not None and time_us is not None and time_us >= span.since_us)
            if begun and record.offset >= offset:
                yield record, record.offset + 1
    if span == EVERYTHING and offset > last + 1 > 0:
        raise shrunk_error(path, offset, last + 1, "records")


def _longest(options: FileOptions) -> int:
    return _BASE64_SHARE * options.max_record_bytes


def _record(line: bytes, path: Path, number: int, options: FileOptions) -> Record:
    if len(line) >= _longest(options) and not line.endswith(b"\n"):
        raise SourceError(f"{path}: line {number} is too long; raise the option max_record_bytes")
    try:
        return _decoded(_decoder.decode(line))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Base64Error, ValueError) as error:
        hint = "the file ends in the middle of it: remove what is left" if not line.endswith(b"\n") else str(error)
        raise SourceError(f"{path}: line {number} is no record ({hint})") from error


def _decoded(line: _Line) -> Record:
    if isinstance(line.value, msgspec.Raw):
        value = bytes(line.value)
    elif line.value_base64 is not None:
        value = b64decode(line.value_base64, validate=True)
    else:
        raise ValueError("it has neither value nor value_base64")
    key = None if line.key is None else line.key.encode()
    if line.key_base64 is not None:
        key = b64decode(line.key_base64, validate=True)
    time_us = line.time_us
    if line.time is not None:
        if line.time.tzinfo is None:
            raise ValueError("its time has no zone")
        time_us = (line.time - _EPOCH) // _MICROSECOND
    return Record(line.offset, value, time_us, key, schema=line.schema, label=line.label)
