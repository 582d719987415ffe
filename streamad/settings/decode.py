"""The sections ``channels`` and ``decode`` of ``plant.yaml``: how messages become readings."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, field_validator, model_validator

from streamad.settings.boundaries import BeginWord, EndWord, SequenceField, TagSettings, WordSettings
from streamad.settings.fields import ConfigSection, Duration, Name, Size, parse_duration_us
from streamad.settings.numerals import MISSING_WORDS, DecimalMark, Numerals, ThousandsMark
from streamad.settings.schemas.formats import Format, check_format
from streamad.settings.schemas.registry import SchemaRegistrySettings
from streamad.settings.time_format import NAMES, SERIALS, UNIX_UNITS, StepUnit, TimeFormat, TimeFormatText, TimeUnit
from streamad.types import SequenceFrom


def is_numeral(text: str) -> bool:
    """Return whether ``text`` is read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _texts(value: Any) -> Any:
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, str):
            if isinstance(item, bool) or item is None:
                raise ValueError("holds what YAML does not read as text (null, yes, no, on, off): put it in quotes")
            raise ValueError(f"{item!r} is a number: numbers that mean missing go into channels[].missing")
        if is_numeral(item):
            raise ValueError(f"{item!r} is read as a number: numbers that mean missing go into channels[].missing")
    return value


def _numbers(value: Any) -> Any:
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, str) and not is_numeral(item):
            raise ValueError(f"{item!r} is a text: texts that mean missing go into decode.missing")
        if isinstance(item, bool) or item is None or not math.isfinite(float(item)):
            raise ValueError("must be finite numbers such as -9999")
    return value


def _words(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known: set[str] = set()
    for key, number in value.items():
        if not isinstance(key, str):
            raise ValueError(f"YAML reads {key!r} as no text: put the word in quotes")
        word = key.strip().lower()
        if is_numeral(word) and word != "nan":
            raise ValueError(f"{key!r} is read as a number: leave it out")
        if word in MISSING_WORDS:
            raise ValueError(f"{key!r} means a missing value")
        if word in known:
            raise ValueError(f"{key!r} stands there twice, in another case")
        known.add(word)
        if type(number) not in {int, float} or not math.isfinite(number):
            raise ValueError(f"{key!r}: must be a finite number, got {number!r}")
    return value


Words = Annotated[dict[str, float], BeforeValidator(_words)]
"""Numbers that words stand for."""

MissingTexts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Texts that mean a missing value."""

MissingNumbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]
"""Numbers that mean a missing value of one channel."""


class QualitySettings(ConfigSection):
    """The quality that a plant's system gives each reading."""

    field: str
    """Field of the quality (dotted path for nested ones)."""
    good: Annotated[tuple[bool | int | float | str | None, ...], Field(min_length=1)]
    """Qualities of readings to use: numbers, texts, true or false (null: no quality given); all others are missing."""


class ChannelSettings(ConfigSection):
    """One sensor signal."""

    name: Name
    """Name in alerts."""
    unit: str = ""
    """Physical unit, as text."""
    field: str | None = None
    """Its name in your messages if different (dotted path for nested ones)."""
    missing: MissingNumbers = ()
    """Numbers that mean missing, such as -9999."""
    values: Words = Field(default={})
    """Numbers of words, in any case, such as {HEAT: 0, HOLD: 1}, {t: 1, f: 0} or {"true": 1, "false": 0}."""
    quality: QualitySettings | None = None
    """Quality of this channel's readings, in a field beside its own; null: decode.quality."""
    fill: Literal["linear", "hold"] = "linear"
    """Between two readings: a line (`linear`), or the last value (`hold`)."""


_FractionUnit = Literal["ms", "us", "ns"]
_UNIT_NAMES: dict[str, _FractionUnit] = {"ms": "ms", "us": "us", "ns": "ns"}


class FractionSettings(ConfigSection):
    """A whole number beside a time: the parts of a second that the time itself does not show."""

    field: str
    """Field of the number."""
    unit: _FractionUnit
    """Its unit: ms, us or ns."""


def _named_by_unit(field: str) -> FractionSettings | None:
    return FractionSettings(field=field, unit=_UNIT_NAMES[field]) if field in _UNIT_NAMES else None


class StepSettings(ConfigSection):
    """The field of the step from one sample of a list to the next, with its unit."""

    field: str
    """Field of the number."""
    unit: StepUnit
    """Its unit; hz: samples in a second."""


LINES = "lines"
"""The list in the message that a record of line protocol becomes: an object for each line."""
_PARTS = re.compile(r"\{([a-z_]*)\}")
_KNOWN_PARTS = ("stream", "channel", "sequence")


class PatternSettings(ConfigSection):
    """The parts of a text that names several things, such as a tag or a key."""

    field: str
    """Field of the text; `key`: the record's key; in messages without such a field `topic`: the record's topic,
    `header:NAME`: a header of it."""
    parts: str
    """The text with {stream}, {channel} and {sequence} in place of its parts, {} for any other, as in
    `Plant.{stream}.{channel}`."""

    @field_validator("parts")
    @classmethod
    def _known_parts(cls, text: str) -> str:
        names = _PARTS.findall(text)
        unknown = [name for name in names if name and name not in _KNOWN_PARTS]
        if unknown:
            raise ValueError(f"{{{unknown[0]}}} is no part: known are {{stream}}, {{channel}}, {{sequence}} and {{}}")
        named = [name for name in names if name]
        if not named or len({*named}) < len(named):
            raise ValueError(f"{text!r} must name {{stream}}, {{channel}} or {{sequence}}, each at most once")
        if "}{" in text or {"{", "}"} & {*_PARTS.sub("", text)}:
            raise ValueError(f"{text!r}: something must stand between two parts, and no other brace")
        return text

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parts that it names."""
        return tuple(name for name in _PARTS.findall(self.parts) if name)

    @property
    def is_of_label(self) -> bool:
        """Return whether the text is the record's topic or a header."""
        return self.field == "topic" or self.field.startswith("header:")

    @property
    def regex(self) -> re.Pattern[str]:
        """Return the pattern: a part ends where the text behind it first follows, the last one takes the rest."""
        literals = _PARTS.split(self.parts)
        pattern = re.escape(literals[0])
        for name, behind in zip(literals[1::2], literals[2::2], strict=True):
            part = rf"(?:(?!{re.escape(behind)}).)+" if behind else ".+"
            pattern += (f"(?P<{name}>{part})" if name else part) + re.escape(behind)
        return re.compile(pattern, re.DOTALL)


def is_duration(text: str) -> bool:
    """Return whether a text is a duration such as 10ms, and no field's name."""
    try:
        parse_duration_us(text)
    except ValueError:
        return False
    return True


def _time_fields(value: Any) -> Any:
    """Refuse what neither a name nor a list of fields is with one text, instead of one for each kind."""
    for part in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(part, dict) and {*part} == {"field", "unit"} and isinstance(part["field"], str)
        if not (isinstance(part, str | FractionSettings) or (is_number and part["unit"] in _UNIT_NAMES)):
            raise ValueError(
                f"{part!r} is no field: write a name, or a list such as [date, time, {{field: millis, unit: ms}}] "
                "(units: ms, us, ns)"
            )
    return value


class FieldSettings(ConfigSection):
    """Field names of a plant's own messages; dotted paths reach into nested objects."""

    stream: str = "stream"
    """Field of the stream; `key`: the record's key."""
    sequence: SequenceField = "sequence"
    """Field of the sequence id, a list of fields as in `12/3`, or {tag: BatchID}, a tag that holds it; null: none."""
    time: Annotated[str | tuple[str | FractionSettings, ...], BeforeValidator(_time_fields)] = "time"
    """Field of the event time, or a list: date, time of day, {field: millis, unit: ms}; `record`: the record's own."""
    time_of_day: str | None = None
    """Field of the time of day, if that of `time` holds dates alone: the same as `time: [date, time of day]`."""
    start: str | None = None
    """With step: the field of the first sample's time, in place of time; `record`: the record's own time."""
    step: str | StepSettings | None = None
    """Lists of samples with one time: field of the step, {field: rate, unit: hz}, or a duration such as 10ms."""
    end: EndWord = "end"
    """Field that is true on the last sample of a sequence, or {field: event, value: END}: a field with that word."""
    begin: BeginWord = None
    """{field: event, value: START}: such a message begins a sequence, that of its stream's samples without an id."""
    values: str | None = "values"
    """Object of channels; null: channels are fields of the message (flat)."""
    channel: str | None = None
    """One channel per message: the field with its name."""
    value: str | None = None
    """One channel per message: the field with its value."""
    nested: str | Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Field that holds an object or a list as text (JSON, or base64 of JSON, msgpack or gzip), or a list of such."""
    each: str | None = None
    """List of readings or samples in a message; fields are looked up in its elements, then around it; null: no list."""
    pattern: PatternSettings | None = None
    """One text that names stream, channel or sequence; null: each has a field of its own."""
    ignore_unknown: bool = True
    """Skip fields not in `channels`, if flat or per channel (false: dead letters)."""

    @model_validator(mode="after")
    def _channel_and_value(self) -> FieldSettings:
        in_pattern = () if self.pattern is None else self.pattern.names
        if (self.channel is None and "channel" not in in_pattern) != (self.value is None):
            raise ValueError("channel and value go together")
        if twice := [part for part in in_pattern if part in self.model_fields_set]:
            raise ValueError(f"the pattern names the {twice[0]}: leave fields.{twice[0]} out")
        return self

    @property
    def is_per_channel(self) -> bool:
        """Return whether each message is one reading."""
        return self.value is not None

    @model_validator(mode="after")
    def _start_and_step(self) -> FieldSettings:
        if (self.start is None) != (self.step is None):
            raise ValueError("start and step go together: the first sample's time, and that from each to the next")
        given = {"time", "time_of_day"} & self.model_fields_set
        if self.start is not None and given:
            raise ValueError(f"start is the time of the first sample: leave {sorted(given)[0]} out")
        if isinstance(self.step, str) and is_duration(self.step) and parse_duration_us(self.step) < 1:
            raise ValueError("step must be longer than 0")
        return self

    @model_validator(mode="after")
    def _one_way_to_begin(self) -> FieldSettings:
        if self.id_tag is not None and not self.is_per_channel:
            raise ValueError(
                "sequence: {tag: ...} is for messages of one reading each (channel, value): write the field of the id"
            )
        if self.begin is not None and self.id_tag is not None:
            raise ValueError("begin and sequence: {tag: ...} both name the sequence: leave one of them out")
        return self

    @model_validator(mode="after")
    def _date_and_time(self) -> FieldSettings:
        if self.time_of_day is not None and self.time == "record":
            raise ValueError("time_of_day needs a field with dates: time is record")
        if isinstance(self.time, str):
            return self
        if self.time_of_day is not None:
            raise ValueError("time lists its fields: add that of time_of_day there, and leave time_of_day out")
        names, units = [*self.clock_fields], [part.unit for part in self.fractions]
        if "record" in names:
            raise ValueError("time: record is the record's own time: no field stands beside it")
        if not 1 <= len(names) <= 2:
            raise ValueError(
                "time lists a date and at most a time of day; a number beside them needs its unit, "
                "as in time: [date, time, {field: millis, unit: ms}]"
            )
        names += [part.field for part in self.fractions]
        if len({*names}) < len(names) or len({*units}) < len(units):
            raise ValueError("time lists a field or a unit twice")
        return self

    @property
    def id_fields(self) -> tuple[str, ...]:
        """Return the fields that make the sequence id together."""
        if isinstance(self.sequence, str):
            return (self.sequence,)
        return self.sequence if isinstance(self.sequence, tuple) else ()

    @property
    def id_tag(self) -> str | None:
        """Return the tag that holds the sequence id."""
        return self.sequence.tag if isinstance(self.sequence, TagSettings) else None

    @property
    def has_end_word(self) -> bool:
        """Return whether a word ends a sequence, and not a field that is true."""
        return isinstance(self.end, WordSettings)

    @property
    def nested_fields(self) -> tuple[str, ...]:
        """Return the fields that hold content as text."""
        return (self.nested,) if isinstance(self.nested, str) else self.nested or ()

    @property
    def is_of_record(self) -> bool:
        """Return whether the event time is the record's own."""
        return "record" in (self.time, self.start)

    @property
    def clock_fields(self) -> tuple[str, ...]:
        """Return the field of the time, or those of its date and its time of day."""
        if self.start is not None:
            return (self.start,)
        if isinstance(self.time, str):
            return (self.time,) if self.time_of_day is None else (self.time, self.time_of_day)
        return tuple(part for part in self.time if isinstance(part, str) and part not in _UNIT_NAMES)

    @property
    def fractions(self) -> tuple[FractionSettings, ...]:
        """Return the numbers beside the time; a field in a list that is named by its unit is one."""
        if isinstance(self.time, str):
            return ()
        parts = [_named_by_unit(part) if isinstance(part, str) else part for part in self.time]
        return tuple(part for part in parts if part is not None)


class DecodeSettings(ConfigSection):
    """How messages are read."""

    format: Format = "auto"
    """Wire format; auto: JSON or msgpack, by the first byte of each message, or as its schema says (`registry`);
    influx: InfluxDB's line protocol; avro, json_schema, protobuf: such messages alone."""
    registry: SchemaRegistrySettings | None = None
    """Schema Registry; null: framed messages are unreadable."""
    fields: FieldSettings | None = None
    """Field names of foreign messages; null: streamad's own format."""
    sequence_from: SequenceFrom = "message"
    """Where ids come from: messages, the file's name (`file`) or its folder's (`folder`)."""
    decimal: DecimalMark = "."
    """Decimal mark in text; default the CSV source's."""
    thousands: ThousandsMark | None = None
    """Mark between groups of three digits in such numbers; null: none. A space: also a no-break or narrow one."""
    time: Literal["absolute", "relative", "row"] = "absolute"
    """relative: since the sequence's start; row: a row's place."""
    row_period: Duration = 1_000_000
    """With `time: row`: from one row to the next."""
    time_unit: TimeUnit = "s"
    """Unit of numeric times, absolute or relative."""
    time_format: TimeFormatText | None = None
    """strptime tokens, or excel, wincc_time_ms, unix_s, unix_ms, unix_us, unix_ns, dotnet_ticks, filetime, garmin_fit;
    null: RFC 3339 or numbers."""
    timezone: str | None = None
    """IANA zone of dates without an offset; null: they are unreadable."""
    missing: MissingTexts = ()
    """Texts that mean missing; others are bad values."""
    quality: QualitySettings | None = None
    """Quality of all readings of a message; null: messages have none."""
    default_stream: str | None = None
    """Stream of messages without one."""
    max_clock_skew: Duration = 3_600_000_000
    """Samples further ahead of their record's time are unreadable."""
    max_message_bytes: Size = 8_000_000
    """Longer messages are unreadable."""
    max_samples_per_message: int = Field(default=100_000, ge=1)
    """Longer chunks are unreadable."""
    max_dead_letter_bytes: Size = 65_536
    """Bytes kept in a dead letter."""

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        try:
            return name if name is None else ZoneInfo(name).key
        except (KeyError, ValueError, OSError) as error:
            raise ValueError(f"no time zone {name!r}: write an IANA name such as Europe/Berlin or UTC") from error

    @model_validator(mode="after")
    def _registered(self) -> DecodeSettings:
        check_format(self.format, has_registry=self.registry is not None)
        return self

    @model_validator(mode="after")
    def _lines(self) -> DecodeSettings:
        if self.format == "influx":
            if self.fields is None:
                raise ValueError("format: influx needs fields: tags and fields of a line, its measurement and its time")
            if self.fields.each is not None:
                raise ValueError("format: influx: each line is a reading or a sample: leave fields.each out")
        return self

    @property
    def listed(self) -> str | None:
        """Return the field with the list of readings or samples of a message; None if there is none."""
        if self.format == "influx":
            return LINES
        return None if self.fields is None else self.fields.each

    @model_validator(mode="after")
    def _rows(self) -> DecodeSettings:
        if self.listed is not None and self.time == "row":
            raise ValueError("time: row reads messages of one sample, but fields.each names a list of them")
        if self.time != "row":
            if "row_period" in self.model_fields_set:
                raise ValueError("row_period is for time: row: leave it out")
            return self
        if self.row_period <= 0:
            raise ValueError("row_period must be longer than 0")
        given: list[str] = [key for key in ("time_unit", "time_format") if key in self.model_fields_set]
        if self.fields is not None:
            given += [
                f"fields.{key}" for key in ("time", "time_of_day", "start") if key in self.fields.model_fields_set
            ]
            if self.fields.is_per_channel:
                raise ValueError("time: row needs rows with all channels: fields.channel is one reading a row")
        if given:
            raise ValueError(f"time: row reads no times: leave {given[0]} out")
        return self

    @model_validator(mode="after")
    def _dates(self) -> DecodeSettings:
        if self.time == "relative" and self.fields is not None and len(self.fields.clock_fields) > 1:
            raise ValueError("a time of day is for absolute times: name one field in fields.time alone")
        text = self.time_format
        if text is None:
            return self
        if self.time == "relative" or (self.fields is not None and self.fields.is_of_record):
            raise ValueError("time_format is for absolute times in the messages: leave it out")
        if "time_unit" in self.model_fields_set:
            raise ValueError("time_format and time_unit: leave one of them out")
        needs_zone = text in SERIALS or (text not in NAMES and not TimeFormat(text).has_offset)
        if needs_zone and self.timezone is None:
            raise ValueError(
                f"dates of time_format {text!r} have no UTC offset: set decode.timezone, such as Europe/Berlin or UTC"
            )
        return self

    @property
    def numerals(self) -> Numerals:
        """Return how numbers in text are read."""
        return Numerals(self.decimal, self.thousands)

    @property
    def counts_from_start(self) -> bool:
        """Return whether times count from their sequence's start."""
        return self.time != "absolute"

    @property
    def label(self) -> str | None:
        """Return what the source must tell of each record for the pattern: ``topic``, or ``header:`` and a name."""
        pattern = None if self.fields is None else self.fields.pattern
        return pattern.field if pattern is not None and pattern.is_of_label else None

    @property
    def gives_ids(self) -> bool:
        """Return whether messages, or the names of files or folders, can hold sequence ids."""
        return self.sequence_from != "message" or self.fields is None or self.fields.sequence is not None

    @property
    def unit(self) -> TimeUnit:
        """Return the unit of numeric times."""
        return UNIX_UNITS.get(self.time_format or "", self.time_unit)

    @model_validator(mode="after")
    def _one_id(self) -> DecodeSettings:
        given = FieldSettings(sequence=None) if self.fields is None else self.fields
        source = self.sequence_from
        if source != "message" and given.pattern is not None and "sequence" in given.pattern.names:
            raise ValueError(f"sequence_from: {source} and a sequence in fields.pattern: leave one of them out")
        if source != "message" and given.sequence is not None and "sequence" in given.model_fields_set:
            raise ValueError(f"sequence_from: {source} and fields.sequence ({given.sequence}): leave one of them out")
        return self
