"""Bytes to samples: JSON and msgpack, streamad's own format or a plant's; a bad message raises DecodeError.

Regular messages of the own format take the fast path (``decode_own.py``), all others the general one
(``decode_fields.py``); both give the same samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import takewhile
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from streamad.errors import ConfigError, DecodeError, Problem
from streamad.ingest.decode_fields import FieldReader
from streamad.ingest.decode_own import OwnReader
from streamad.ingest.decode_times import TimeReader, may_come_twice
from streamad.ingest.decode_values import (
    FieldPath,
    Samples,
    check_own_time,
    fail,
    read_id,
    serializer_advice,
)
from streamad.ingest.forms.each import EachReader, ElementError, encoded
from streamad.ingest.forms.packed import Nested
from streamad.ingest.forms.wire import PARSE_ERRORS, Wire, read_message, read_plain, wire_format
from streamad.ingest.schemas.framing import LAST_FRAMING, Framed, framed
from streamad.ingest.schemas.known import Readable
from streamad.settings.boundaries import WhileSettings
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.settings.numerals import Numerals
from streamad.settings.schemas.formats import kind_of, wire_of
from streamad.settings.time_format import UNIX_UNITS, TimeUnit
from streamad.tables import NO_STREAM, Singles
from streamad.types import MAX_TIME_US, BadValues, IntArray, Record, RecordBatch, SampleBlock

_HOUR_US = 3_600_000_000


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """The samples of a record: its blocks in order; none if it holds only ignored channels, or no message.

    ``unreadable`` are the elements of its list (``decode.fields.each``) that cannot be read.
    """

    blocks: tuple[SampleBlock, ...] = ()
    unreadable: tuple[ElementError, ...] = ()


NOTHING = Decoded()


class Decoder:
    """Decodes records into blocks of samples; pure, so one decoder serves every partition.

    ``route`` names the field that chooses the model (``Settings.route_field``), in every format; ``state`` is
    ``sequences.while``. ``schemas`` has those of messages that a Schema Registry's serializer has framed, before such a
    message is decoded. Raises ConfigError if two channels read the same field, or ``decode`` contradicts itself.
    """

    def __init__(
        self,
        settings: DecodeSettings,
        channels: Sequence[ChannelSettings],
        route: str | None = None,
        state: WhileSettings | None = None,
        schemas: Readable | None = None,
    ) -> None:
        _check(settings, channels)
        self._settings = settings
        self.schemas = schemas if settings.registry is not None else None
        self._wire, self._kind = wire_of(settings.format), kind_of(settings.format)
        self._ids_from_files = settings.sequence_from != "message"
        self._native = _Readers(settings, channels, route, state, native=True)
        self._plain = _Readers(settings, channels, route, state, native=False)
        self._later = _Readers(settings, channels, route, state, native=False, fold=1) if self._plain.zone else None
        self._json = msgspec.json.Decoder()
        nested = () if settings.fields is None else settings.fields.nested_fields
        each = None if settings.fields is None else settings.fields.each
        self._nested = Nested(nested, _parse_nested, settings.max_message_bytes, each) if nested else None

    @property
    def fields(self) -> FieldReader:
        """Return the reader of parsed messages."""
        return self._plain.fields

    @property
    def zone(self) -> ZoneInfo | None:
        """Return the zone of times without an offset."""
        return self._plain.zone

    def decode(self, record: Record, written_us: int | None) -> Decoded:
        """Return the samples of ``record``, those of each block ordered by time.

        A value that cannot be read is missing, and the block says which ones are (``bad``). ``written_us`` replaces a
        missing record time in the clock-skew check (None: not checked). ``end`` of an unordered message belongs to its
        last sample in time. With ``decode.time: relative`` the times count from the sequence's start, except in native
        records. Raises DecodeError for anything else unreadable, and nothing else, whatever the bytes.
        """
        value = record.value
        if not value:
            return NOTHING  # a tombstone
        if len(value) > self._settings.max_message_bytes:
            fail("too_large", f"{len(value)} bytes, allowed are {self._settings.max_message_bytes}")
        readers = self._native if record.native else self._plain
        if readers.each is not None:
            return self._decode_each(readers.each, self._parsed(record, self._wire_of(record)), record, written_us)
        samples = self._samples(readers, record)
        if samples is None:
            return NOTHING
        later_us = self._second_reading(samples, record) if readers.zone is not None else None
        if self._ids_from_files and not record.native:
            samples = samples._replace(sequence=read_id(record.sequence, "the file's name"))
        if readers.relative:
            check_own_time(record)
        else:
            reference_us = written_us if record.timestamp_us is None else record.timestamp_us
            if reference_us is not None:
                times_us = samples.times_us
                self._check_skew(times_us.item(times_us.argmax()), reference_us)
        return Decoded((_block(samples, record.offset, relative=readers.relative, later_us=later_us),))

    def _samples(self, readers: _Readers, record: Record) -> Samples | None:
        """Return the samples of a record that is no list; None if it holds only ignored channels."""
        own = readers.own
        found = None if record.native or self.schemas is None else framed(record)
        if found is not None:
            message = self._registered(record, found)
            samples = None if own is None else own.read_parsed(message)
        else:
            wire = self._wire_of(record)
            samples = None if own is None or wire is None else own.read(record.value, wire)
            message = self._parsed(record, wire) if samples is None else None
        return readers.fields.read(message, record) if samples is None else samples

    def _decode_each(self, each: EachReader, message: Any, record: Record, written_us: int | None) -> Decoded:
        """Return the samples of the elements of a parsed message."""
        relative, zone, later = self._plain.relative, self._plain.zone, self._later
        reference_us = written_us if record.timestamp_us is None else record.timestamp_us
        if relative:
            check_own_time(record)
            reference_us = None

        def check(time_us: int) -> None:
            if reference_us is not None:
                self._check_skew(time_us, reference_us)

        def second(fields: dict[Any, Any], index: int, time_us: int) -> int:
            if zone is None or later is None or not may_come_twice(time_us // _HOUR_US, zone):
                return time_us
            return later.fields.time_of(fields, record, index)

        is_checked, is_local = reference_us is not None, zone is not None
        found = each.read(message, record, check if is_checked else None, second if is_local else None)
        blocks = []
        for samples, second_us in zip(found.samples, found.second_us, strict=True):
            if self._ids_from_files:
                samples = samples._replace(sequence=read_id(record.sequence, "the file's name"))  # noqa: PLW2901
            later_us = None if zone is None else np.array(second_us, dtype=np.int64)
            if later_us is not None and np.array_equal(later_us, samples.times_us):
                later_us = None
            blocks.append(_block(samples, record.offset, relative=relative, later_us=later_us))
        return Decoded(tuple(blocks), tuple(found.unreadable))

    def reads_elements(self, record: Record) -> bool:
        """Return whether ``record`` is read as a list of messages."""
        return self._plain.each is not None and not record.native

    def at_element(self, error: DecodeError, index: int) -> DecodeError:
        """Return ``error`` with the place of an element before its text, if it is not there."""
        if self._plain.each is None or isinstance(error, ElementError):
            return error
        return ElementError(error, self._plain.each.name, index)

    def elements(self, record: Record, indexes: Sequence[int]) -> Iterator[bytes]:
        """Yield for each of ``indexes`` the message of ``record`` with that element of its list alone.

        If that cannot be written, yield the whole message.
        """
        assert self._plain.each is not None
        wire = self._wire_of(record)
        found = self._plain.each.alone(self._parse(record), indexes)
        for message in found:
            alone = None if wire == "influx" else encoded(message, as_msgpack=wire == "msgpack")
            yield alone or record.value

    def singles(self, batch: RecordBatch, start: int) -> Singles | None:
        """Return the records of ``batch`` from the index ``start`` on, up to one that holds more than plain readings.

        ``decode`` would return the same sample of each, or refuse the ones that are marked or have ids that are not
        allowed. None if such records cannot be read by column here.
        """
        own = self._plain.own
        if own is None or own.has_route or self._ids_from_files or self._plain.relative or self._plain.zone is not None:
            return None
        setting = self._wire
        if setting is None:
            return None
        limit, records = self._settings.max_message_bytes, batch.records[start:]
        plain = takewhile(lambda record: 0 < len(record.value) <= limit and not record.native, records)
        if self.schemas is not None:
            plain = takewhile(lambda record: record.schema is None and record.value[0] > LAST_FRAMING, plain)
        found = own.singles(plain, lambda value: wire_format(value, setting))
        references_us = [
            batch.written_us(offset) if record_us is None else record_us
            for offset, record_us in zip(found.offsets, found.records_us, strict=True)
        ]
        skew_us = self._settings.max_clock_skew
        for at, (time_us, reference_us) in enumerate(zip(found.times_us, references_us, strict=True)):
            if reference_us is None:
                continue
            if time_us - reference_us > skew_us or not 0 <= reference_us <= MAX_TIME_US:
                found.streams[at] = NO_STREAM
        return found

    def _second_reading(self, samples: Samples, record: Record) -> IntArray | None:
        """Return the times read as the second ones where local times come twice; None if there are none."""
        zone = self._plain.zone
        assert zone is not None
        assert self._later is not None
        times_us = samples.times_us
        hours = {int(times_us[0]) // _HOUR_US} if len(times_us) == 1 else set((times_us // _HOUR_US).tolist())
        if not any(may_come_twice(hour, zone) for hour in hours):
            return None
        later = self._later.fields.read(self._parse(record), record)
        if later is None or np.array_equal(later.times_us, samples.times_us):
            return None
        return later.times_us

    def _wire_of(self, record: Record) -> Wire | None:
        """Return the wire format of a record, None if only a registered schema tells it."""
        if record.native:
            return "msgpack"
        setting = self._wire
        if setting is None or (self.schemas is not None and framed(record) is not None):
            return None
        return wire_format(record.value, setting)

    def _parsed(self, record: Record, wire: Wire | None) -> Any:
        if wire == "json" and self._nested is None:  # the usual message, in one step
            try:
                message = self._json.decode(record.value)
            except PARSE_ERRORS:
                message = None
            if isinstance(message, dict | list):
                return message
        try:
            return self._parse(record)
        except DecodeError as error:
            is_read = self.schemas is not None and framed(record) is not None
            if is_read or (advice := serializer_advice(record)) is None:
                raise
            raise DecodeError("schema_registry", advice) from error

    def _parse(self, record: Record) -> Any:
        """Return the message of a record, whatever it is packed in."""
        setting = "msgpack" if record.native else self._wire
        found = None if record.native or self.schemas is None else framed(record)
        if found is not None:
            return self._registered(record, found)
        if setting is None:
            fail("malformed", f"no Schema Registry serializer has framed it: decode.format is {self._settings.format}")
        limits = self._settings.max_message_bytes, self._settings.max_samples_per_message
        message = read_message(record.value, setting, *limits)
        return message if self._nested is None else self._nested.unpacked(message)

    def _registered(self, record: Record, found: Framed) -> Any:
        """Return the message of a framed record."""
        assert self.schemas is not None
        known, wanted = self.schemas.known(found.schema, record.offset), self._kind
        if wanted is not None and known.kind != wanted:
            fail("malformed", f"schema {found.schema} is of {known.kind}: decode.format is {self._settings.format}")
        message = known.reader.read(record.value, found)
        return message if self._nested is None else self._nested.unpacked(message)

    def reading_by(self, schemas: Readable) -> Self:
        """Return this decoder with other ``schemas``."""
        other = copy(self)
        other.schemas = schemas
        return other

    def _check_skew(self, time_us: int, reference_us: int) -> None:
        ahead_us = time_us - reference_us
        if ahead_us > self._settings.max_clock_skew:
            allowed_s = self._settings.max_clock_skew / 1e6
            fail(
                "clock_skew",
                f"the event time is {ahead_us / 1e6:.6g} s ahead of the record's own time (of a file: its last change),"
                f" decode.max_clock_skew is {allowed_s:.6g} s",
            )


class _Readers:
    """The readers of one kind of record: the general one, and the fast one for our own format.

    Native records have our own field names and absolute times in seconds, whatever ``decode`` says.
    """

    def __init__(
        self,
        settings: DecodeSettings,
        channels: Sequence[ChannelSettings],
        route: str | None,
        state: WhileSettings | None,
        *,
        native: bool,
        fold: Literal[0, 1] = 0,
    ) -> None:
        path = None if route is None else FieldPath(route)
        self.relative = settings.counts_from_start and not native
        self.zone = None if native or settings.timezone is None else ZoneInfo(settings.timezone)
        unit: TimeUnit = "s" if native else settings.unit
        form = None if native else settings.time_format
        numerals = Numerals() if native or settings.fields is None else settings.numerals
        times = TimeReader(unit, relative=self.relative, zone=self.zone, fold=fold, form=form, numerals=numerals)
        has_qualities = settings.quality is not None or any(channel.quality for channel in channels)
        name = None if native else settings.listed
        own = native or (settings.fields is None and not has_qualities and (form is None or form in UNIX_UNITS))
        own = own and OwnReader.serves(path) and (native or settings.time != "row") and state is None
        self.fields = FieldReader(settings, channels, times, native=native, route=path, state=state)
        self.each = None if name is None else EachReader(name, self.fields, settings.max_samples_per_message)
        self.own = OwnReader(channels, times, settings.max_samples_per_message, path) if own else None


def _check(settings: DecodeSettings, channels: Sequence[ChannelSettings]) -> None:
    counts = Counter(channel.field or channel.name for channel in channels)
    twice = sorted(name for name in counts if counts[name] > 1)
    problems = [Problem("channels", f"two channels read the field {name}") for name in twice]
    if settings.fields is not None and settings.fields.is_of_record and settings.time == "relative":
        problems.append(Problem("decode.time", "relative times cannot be the record's own: name their field"))
    if problems:
        raise ConfigError(problems)


def _parse_nested(value: bytes) -> Any:
    return read_plain(value, "auto")


def block_of(singles: Singles, at: int) -> SampleBlock | None:
    """Return the record of ``singles`` at the index ``at`` as a block; None for ``NO_STREAM`` and ids not allowed."""
    stream, sequence, row = singles.streams[at], singles.sequences[at], singles.values[at : at + 1].copy()
    try:
        sequence = None if sequence is None else read_id(sequence, "sequence")
        stream = read_id(stream, "stream")
    except DecodeError:
        return None
    times_us = np.array([singles.times_us[at]], dtype=np.int64)
    route = None if singles.routes is None else singles.routes[at]
    return SampleBlock(stream, sequence, singles.offsets[at], times_us, row, singles.ends[at], route=route)


def _block(samples: Samples, offset: int, *, relative: bool, later_us: IntArray | None = None) -> SampleBlock:
    stream, sequence, times_us, values, end, indexes, route, bad, boundaries = samples
    if later_us is None and len(times_us) > 1 and np.count_nonzero(times_us[1:] < times_us[:-1]):
        order = np.argsort(times_us, kind="stable")
        times_us, values = times_us[order], values[order]
        indexes = order.astype(np.int64) if indexes is None else indexes[order]
        if bad is not None:
            bad = BadValues(bad.codes[order], bad.first, bad.of_samples and tuple(bad.of_samples[at] for at in order))
        boundaries = None if boundaries is None else tuple(boundaries[at] for at in order)
    return SampleBlock(
        stream, sequence, offset, times_us, values, end, indexes, relative, route, later_us, bad, boundaries
    )
