"""Reads the beginning of a sample recording as raw messages; their fields are not known yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from streamad.commands.init.reading.content import lines_of, parse, unnest
from streamad.commands.init.reading.kept import KeptBlocks
from streamad.commands.init.reading.registered import SampleSchemas, why_registry
from streamad.commands.shared.console import run_async
from streamad.errors import DecodeError, EncodingError, SourceError
from streamad.plugins import ConnectorContext, RecordTimes, connect_source, gives_files
from streamad.ports import RangedSource, Source
from streamad.schemas.fetching import Fetcher
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.tables import TableLayout, TableSource
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch

MAX_RECORDS = 20_000
MAX_BYTES = 128_000_000
_LONGEST_SHOWN = 60
_FEWEST_PARTS = 3


@dataclass(slots=True)
class RawSample:
    """The records of each partition, and their messages as plain objects."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    n_records: int = 0
    n_bytes: int = 0
    unreadable: int = 0
    places: list[int] = field(default_factory=list)
    """The number of the file or partition of each message."""
    keys: list[str | None] = field(default_factory=list)
    """The record's key of each message, if it is text."""
    native: bool = False
    is_complete: bool = False
    in_files: bool = False
    has_lists: bool = False
    """Each message holds the samples of a sequence, a list for each field."""
    is_line_protocol: bool = False
    """The records hold lines of InfluxDB's line protocol: each is one of ``messages``."""
    nested: tuple[str, ...] = ()
    """The fields that hold their content as text: it stands in ``messages`` in the place of the text."""
    delimiter: str | None = None
    """The delimiter of a table's cells, None if the sample is no table of text."""
    units: Mapping[str, str] = field(default_factory=dict)
    """The units in a line of a table, by column."""
    options: dict[str, Any] = field(default_factory=dict)
    layout: TableLayout | None = None
    """How the table of text looks to be laid out, None if the sample is none: the values of one are texts."""
    schemas: SampleSchemas | None = None
    """The registry with the schemas of its messages."""
    _decoder: KeptBlocks | None = None
    _decodes: tuple[object, ...] = ()

    def decoder(self, settings: Settings) -> KeptBlocks:
        """Return a decoder of the records, the last one if the settings are the same as then.

        Raises ConfigError if ``decode`` contradicts itself.
        """
        decodes = settings.decode, settings.channels, settings.sequences.while_
        if self._decoder is None or self._decodes != decodes:
            self._decoder = KeptBlocks(*decodes, schemas=None if self.schemas is None else self.schemas.known)
            self._decodes = decodes
        return self._decoder

    def check_readable(self, settings: Settings) -> None:
        """Raise SourceError if no record holds a sample, with the error of the first one."""
        decoder, first, n = self.decoder(settings), "", 0
        for record in (record for records in self.records.values() for record in records):
            n += 1
            try:
                if decoder.decode(record, None).blocks:
                    return
            except DecodeError as error:
                first = first or f": {error}"
        raise SourceError(f"none of {n} records can be read{first or ': they hold no channel'}")

    @property
    def is_keyless(self) -> bool:
        """Return whether several partitions of a topic hold messages without keys."""
        is_topic = not self.in_files and len(self.records) > 1
        return is_topic and all(record.key is None for records in self.records.values() for record in records)

    @property
    def has_foreign_text(self) -> bool:
        """Return whether one of the first messages holds bytes: text that is not in the file's encoding."""
        return any(isinstance(value, bytes) for message in self.messages[:1000] for value in message.values())

    @property
    def has_rows(self) -> bool:
        """Return whether records count as the rows of files do; those of lines stand at their bytes."""
        return self.in_files and all(
            after.offset == before.offset + 1
            for records in self.records.values()
            for before, after in pairwise(records)
        )

    @property
    def is_full(self) -> bool:
        """Return whether enough was read."""
        return self.n_records >= MAX_RECORDS or self.n_bytes >= MAX_BYTES


def read_raw(
    url: str,
    base_dir: Path,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    ids_from: Literal["file", "folder"] | None = None,
    times: RecordTimes | None = None,
    schemas: SampleSchemas | None = None,
) -> RawSample:
    """Read the sample, of a table the texts as they stand, also in Windows' encodings.

    ``schemas`` are those of the registry that the user has named. Raises SourceError, PluginError, ConfigError.
    """
    more: dict[str, Any] = {"ids_from": ids_from, "times": times, "schemas": schemas}
    context = ConnectorContext(
        (),
        SystemClock(),
        base_dir,
        sequence_from=ids_from or "message",
        times=times,
        local_times=True,
        as_written=True,
    )
    given = options
    layout = _table_layout(url, given, context)
    if layout is not None:
        options = {**layout.options, **given}
    try:
        sample = _read_text(url, options, context, schemas)
    except EncodingError as error:
        if not _is_open(url, given):
            raise
        return read_raw(url, base_dir, {**given, "encoding": error.likely}, **more)
    if not sample.messages:
        raise SourceError(f"{url}: {_unusable(sample, layout)}")
    foreign = None if layout is None or _is_text(layout) or not _is_open(url, given) else "cp1252"
    encoding = sample.options.get("encoding", foreign)
    if layout is not None and encoding is not None:  # the layout was that of its bytes
        return read_raw(url, base_dir, {**given, "encoding": encoding}, **more)
    sample.options = {**options, **sample.options}
    if layout is not None:
        _refuse_blanks(url, sample)
        sample.delimiter = layout.delimiter
        sample.layout = layout
        sample.units = {name: unit for name, unit in zip(layout.names, layout.units, strict=False) if unit}
    sample.messages, sample.nested = unnest(sample.messages)
    sample.in_files = gives_files(url)
    sample.has_lists = all(_holds_lists(message) for message in sample.messages[:200])
    return sample


def _table_layout(url: str, options: Mapping[str, Any], context: ConnectorContext) -> TableLayout | None:
    """Return how the sample's first table is laid out, None if it has none."""
    source = connect_source(url, options, context, where="sample")
    return source.table_layout() if isinstance(source, TableSource) else None


def _unusable(sample: RawSample, layout: TableLayout | None) -> str:
    """Return why no record is a message, and what to do."""
    if not sample.unreadable:
        return "it holds no record; give a recording in JSON lines, CSV, Parquet or NPZ"
    record = next(iter(sample.records.values()))[0]
    if sample.schemas is None and (needs_registry := why_registry(record)) is not None:
        return needs_registry
    first = record.value.decode(errors="replace").strip()
    if layout is not None:
        where = f"line {layout.header or 1}"
        return (
            f"none of its {sample.unreadable} rows has as many cells as {where}, which was taken for the names, "
            f"such as {first[:_LONGEST_SHOWN]!r}; {layout.why}: give both the same number of cells, or set "
            "source.options.header to the line of the names"
        )
    if first[:1] in ("[", "{") and sample.n_records == 1:
        return f"its only line is no whole JSON object, as if it were cut: it ends with {first[-_LONGEST_SHOWN:]!r}"
    if first[:1] in ("[", "{"):
        return "it is one JSON document over several lines; write one object a line, for example with jq -c '.[]'"
    return f"none of its {sample.unreadable} records is a message; give a recording in JSON lines, CSV, Parquet or NPZ"


def _refuse_blanks(url: str, sample: RawSample) -> None:
    """Raise SourceError if the only column holds several numbers or names with blanks between them."""
    message = sample.messages[0]
    parts = [len(str(text).split()) for pair in message.items() for text in pair]
    if len(message) == 1 and min(parts) >= _FEWEST_PARTS:
        row = str(next(iter(message.values())))
        raise SourceError(
            f"{url}: only blanks divide its cells, such as {row[:_LONGEST_SHOWN]!r}; write one comma, semicolon or tab "
            "between two cells instead"
        )


def _holds_lists(message: Mapping[str, Any]) -> bool:
    lists = [value for value in message.values() if isinstance(value, list)]
    return len(lists) > 1 and not any(isinstance(item, (list, dict)) for value in lists for item in value[:1])


def _read_text(
    url: str, options: Mapping[str, Any], context: ConnectorContext, schemas: SampleSchemas | None
) -> RawSample:
    """Read the sample; if it holds text of another encoding than UTF-8, in the one of Windows."""
    sample = run_async(_read(_source(url, options, context), schemas))
    if not _is_open(url, options) or not sample.has_foreign_text:
        return sample
    try:
        found = run_async(_read(_source(url, {**options, "encoding": "cp1252"}, context), schemas))
    except SourceError:
        return sample  # not CSV: the bytes stay bytes
    found.options = {"encoding": "cp1252"}
    return found


def _is_open(url: str, options: Mapping[str, Any]) -> bool:
    """Return whether nobody has said which encoding a file has."""
    return "encoding" not in options and "encoding=" not in url and gives_files(url)


def _is_text(layout: TableLayout) -> bool:
    """Return whether names and units are in the usual encoding."""
    try:
        "".join([*layout.names, *(unit or "" for unit in layout.units)]).encode()
    except UnicodeEncodeError:
        return False
    return True


def _source(url: str, options: Mapping[str, Any], context: ConnectorContext) -> Source:
    """Return the source of the sample; topics end where they end when reading begins."""
    source = connect_source(url, options, context, where="sample")
    return source.between(None, None) if isinstance(source, RangedSource) else source


async def _read(source: Source, schemas: SampleSchemas | None) -> RawSample:
    if schemas is None:
        return await _read_with(source, RawSample(), None)
    async with schemas.fetching() as fetcher:
        return await _read_with(source, RawSample(schemas=schemas), fetcher)


async def _read_with(source: Source, sample: RawSample, fetcher: Fetcher | None) -> RawSample:
    try:
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
                if fetcher is not None:
                    await fetcher.fetch_for(event.records)
                for record in event.records:
                    _take(sample, event.partition, record)
            if sample.is_full and not isinstance(event, PartitionEnded):
                return sample
        sample.is_complete = True
    finally:
        await source.close()
    return sample


def _take(sample: RawSample, partition: str, record: Record) -> None:
    sample.n_records += 1
    sample.n_bytes += len(record.value)
    sample.native |= record.native
    sample.records.setdefault(partition, []).append(record)
    place = len(sample.records) - 1
    message = None if sample.schemas is None else sample.schemas.message_of(record)
    message = parse(record.value) if message is None else message
    found = message if isinstance(message, list) else [message]
    if message is None and (lines := lines_of(record.value)):
        found, sample.is_line_protocol = lines, True
    objects = [item for item in found if isinstance(item, dict)]
    sample.messages += objects
    sample.places += [place] * len(objects)
    sample.keys += [_key(record)] * len(objects)
    sample.unreadable += len(objects) != len(found)


def _key(record: Record) -> str | None:
    try:
        return None if record.key is None else record.key.decode()
    except UnicodeDecodeError:
        return None
