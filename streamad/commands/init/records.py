"""Reads the beginning of a sample recording as raw messages; their fields are not known yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from streamad.commands.shared.console import run_async
from streamad.commands.shared.decoding import KeptBlocks
from streamad.errors import DecodeError, EncodingError, SourceError
from streamad.ingest.decode import Decoder
from streamad.plugins import ConnectorContext, RecordTimes, connect_source, split_url
from streamad.ports import Source
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import SystemClock
from streamad.types import PartitionAssigned, PartitionEnded, Record, RecordBatch, SampleBlock

MAX_RECORDS = 50_000
MAX_BYTES = 128_000_000
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")


@dataclass(slots=True)
class RawSample:
    """The records of each partition, and their messages as plain objects."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    n_records: int = 0
    n_bytes: int = 0
    unreadable: int = 0
    native: bool = False
    is_complete: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    _decoder: KeptBlocks | None = None
    _decodes: tuple[object, ...] = ()

    def decoder(self, settings: Settings) -> KeptBlocks:
        """Return a decoder of the records, the last one if the settings are the same as then.

        Raises ConfigError if ``decode`` contradicts itself.
        """
        if self._decoder is None or self._decodes != (settings.decode, settings.channels):
            self._decoder = KeptBlocks(settings.decode, settings.channels)
            self._decodes = settings.decode, settings.channels
        return self._decoder

    def check_readable(self, settings: Settings) -> None:
        """Raise SourceError if no record holds a sample, with the error of the first one."""
        decoder, first, n = self.decoder(settings), "", 0
        for record in (record for records in self.records.values() for record in records):
            n += 1
            try:
                if decoder.decode(record, None) is not None:
                    return
            except DecodeError as error:
                first = first or f": {error}"
        raise SourceError(f"none of {n} records can be read{first or ': they hold no channel'}")

    @property
    def has_foreign_text(self) -> bool:
        """Return whether one of the first messages holds bytes: text that is not in the file's encoding."""
        return any(isinstance(value, bytes) for message in self.messages[:1000] for value in message.values())

    @property
    def is_full(self) -> bool:
        """Return whether enough was read."""
        return self.n_records >= MAX_RECORDS or self.n_bytes >= MAX_BYTES


def read_raw(
    url: str,
    base_dir: Path,
    options: Mapping[str, Any] = MappingProxyType({}),
    *,
    ids_from_files: bool = False,
    times: RecordTimes | None = None,
) -> RawSample:
    """Read the sample, also CSV with decimal commas or in Windows' encodings.

    Raises SourceError, PluginError, ConfigError.
    """
    context = ConnectorContext(
        (), SystemClock(), base_dir, ids_from_files=ids_from_files, times=times, local_times=True
    )
    sample = _read_text(url, options, context)
    options = {**options, **sample.options}
    if not sample.messages:
        what = f"none of its {sample.unreadable} records is a message" if sample.unreadable else "it holds no record"
        raise SourceError(f"{url}: {what}; give a recording in JSON lines, CSV, Parquet or NPZ")
    if not sample.native and _has_decimal_commas(sample) and "decimal=" not in url:
        try:
            again = run_async(_read(_source(url, {**options, "decimal": ","}, context)))
        except SourceError:
            return sample  # not CSV: the texts stay texts
        again.options = {**sample.options, "decimal": ","}
        return again
    return sample


def _read_text(url: str, options: Mapping[str, Any], context: ConnectorContext) -> RawSample:
    """Read the sample; if its text is not in the usual encoding, in the one that it seems to have."""
    is_open = "encoding" not in options and "encoding=" not in url and split_url(url)[0] == "file"
    try:
        sample = run_async(_read(_source(url, options, context)))
    except EncodingError as error:
        if not is_open:
            raise
        return _read_as(error.likely, url, options, context)
    if not is_open or not sample.has_foreign_text:
        return sample
    try:
        return _read_as("cp1252", url, options, context)
    except SourceError:
        return sample  # not CSV: the bytes stay bytes


def _read_as(encoding: str, url: str, options: Mapping[str, Any], context: ConnectorContext) -> RawSample:
    sample = run_async(_read(_source(url, {**options, "encoding": encoding}, context)))
    sample.options = {"encoding": encoding}
    return sample


def _source(url: str, options: Mapping[str, Any], context: ConnectorContext) -> Source:
    return connect_source(url, options, context, where="sample")


def _has_decimal_commas(sample: RawSample) -> bool:
    texts = [value for message in sample.messages[:200] for value in message.values() if isinstance(value, str)]
    commas = sum(_DECIMAL_COMMA.fullmatch(text) is not None for text in texts)
    return commas > 0 and commas >= len(sample.messages[:200]) / 2


async def _read(source: Source) -> RawSample:
    sample = RawSample()
    try:
        async for event in source.batches():
            if isinstance(event, PartitionAssigned):
                await source.seek(event.partition, None)
            elif isinstance(event, RecordBatch):
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
    message = _parse(record.value)
    found = message if isinstance(message, list) else [message]
    objects = [item for item in found if isinstance(item, dict)]
    sample.messages += objects
    sample.unreadable += len(objects) != len(found)


def _parse(value: bytes) -> Any:
    first = value[0] if value else 0
    is_msgpack = 0x80 <= first <= 0x9F or 0xDC <= first <= 0xDF
    try:
        return msgspec.msgpack.decode(value) if is_msgpack else msgspec.json.decode(value.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        try:
            return None if is_msgpack else json.loads(value.decode())  # NaN, as Python writes it
        except (ValueError, RecursionError):
            return None


def blocks_of(records: Iterable[Record], decoder: Decoder) -> Iterator[SampleBlock]:
    """Yield the samples of each record that has some; those that cannot be read are left out: ``check`` counts them."""
    for record in records:
        try:
            block = decoder.decode(record, None)
        except DecodeError:
            continue
        if block is not None and len(block):
            yield block
