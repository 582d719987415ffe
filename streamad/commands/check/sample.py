"""Reads the first records of a source as ``streamad run`` would, and collects data for the checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamad.commands.check.names import add_fields
from streamad.commands.shared.recurring import Place, Recurring
from streamad.ingest.decode import Decoded, Decoder
from streamad.ingest.decode_values import FieldPath
from streamad.ingest.forms.each import elements_in
from streamad.ingest.forms.wire import Wire
from streamad.ingest.intake import Intake
from streamad.ingest.schemas.known import Schemas
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.ingest.table.rows import BatchTable
from streamad.messages import DeadLetter, LateRecord
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.ports import Source
from streamad.schemas.fetching import Fetcher, fetching
from streamad.settings.boundaries import plain
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.metrics import Counters
from streamad.types import (
    BoolArray,
    FinishedSequence,
    PartitionAssigned,
    PartitionEnded,
    Record,
    RecordBatch,
    SampleBlock,
    SourceEvent,
)

MAX_RECORDS = 20_000
MAX_SEQUENCES = 200
MAX_BYTES = 128_000_000
MAX_WAIT_S = 10.0
_REGISTRY_US = 5_000_000
_LOOKED_AT = 200
_MOST_WORDS = 12


@dataclass(slots=True)
class Sample:
    """The beginning of a source: counters, sequences, and properties of its streams and channels."""

    seen: BoolArray
    """Bool [C]: the channel had a value."""
    counters: Counters = field(default_factory=Counters)
    homes: dict[str, dict[str, None]] = field(default_factory=dict)
    """The partitions of each stream, in the order in which it was seen there."""
    partitions: set[str] = field(default_factory=set)
    n_without_key: int = 0
    sequences: list[FinishedSequence] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """The place of each of the ``sequences``."""
    recurring: Recurring = field(default_factory=Recurring)
    fields: dict[str, None] = field(default_factory=dict)
    """The paths of the fields of the first records."""
    words: dict[str, Counter[str]] = field(default_factory=dict)
    """Some of the states and words in the messages, and how often, by the field or tag that holds them."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Kind of dead letter -> the first one's place and error."""
    table: BatchTable | None = None
    """The table of batches that cuts the sequences."""
    n_bytes: int = 0
    """Bytes of the records' values: some KB of a packed file may stand for GB."""
    is_complete: bool = False
    """The source ended before the sample was full."""
    has_markers: bool = False
    has_ids: bool = False
    last_ids: dict[str, str | None] = field(default_factory=dict)
    n_stretches: int = 0
    """Stretches of samples with one id, of all streams."""
    is_relative: bool = False
    last_us: dict[str, int] = field(default_factory=dict)
    """Of each stream with relative times the last one."""
    n_restarts: int = 0
    """Relative times below the one before, of the same stream and id."""
    longest_chunk_us: int = 0
    lateness_us: int = 0
    """How far samples lay behind the newest one of their stream."""
    newest_us: dict[str, int] = field(default_factory=dict)
    oldest_us: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Return whether the sample is large enough."""
        return self.counters.records >= MAX_RECORDS or self.n_bytes >= MAX_BYTES or len(self.sequences) >= MAX_SEQUENCES

    def note(self, block: SampleBlock) -> None:
        """Add the samples of one record."""
        self.has_markers |= block.end
        self.has_ids |= block.sequence is not None
        goes_on = block.stream in self.last_ids and self.last_ids[block.stream] == block.sequence
        self.n_stretches += not goes_on
        self.last_ids[block.stream] = block.sequence
        self.seen |= np.isfinite(block.values).any(axis=0)
        if not len(block):
            return
        first_us, last_us = int(block.times_us[0]), int(block.times_us[-1])
        self.longest_chunk_us = max(self.longest_chunk_us, last_us - first_us)
        newest_us = self.newest_us.get(block.stream, first_us)
        self.newest_us[block.stream] = max(newest_us, last_us)
        self.oldest_us[block.stream] = min(self.oldest_us.get(block.stream, first_us), first_us)
        if block.relative:
            self.note_restarts(block, goes_on=goes_on)
        else:
            self.lateness_us = max(self.lateness_us, newest_us - first_us)

    def note_restarts(self, block: SampleBlock, *, goes_on: bool) -> None:
        """Count the relative times of ``block`` that begin anew; ``goes_on``: its id is that of the one before."""
        self.is_relative = True
        times_us = block.times_us if block.indexes is None else block.times_us[np.argsort(block.indexes)]
        before_us = self.last_us.get(block.stream) if goes_on else None
        self.n_restarts += int(np.count_nonzero(times_us[1:] < times_us[:-1]))
        self.n_restarts += before_us is not None and int(times_us[0]) < before_us
        self.last_us[block.stream] = int(times_us[-1])

    def add(self, partition: str, closed: Closed) -> None:
        """Add a sequence."""
        self.sequences.append(closed.sequence)
        self.places.append(self.recurring.add(partition, closed))


def _places_of_words(settings: Settings) -> Iterator[tuple[str, FieldPath, FieldPath | None]]:
    """Yield the fields of states and begin words; for a tag its name, the field of readings and that of tags."""
    fields, state = settings.decode.fields, settings.sequences.while_
    if state is not None and state.field is not None:
        yield state.field, FieldPath(state.field), None
    if fields is not None and fields.begin is not None:
        yield fields.begin.field, FieldPath(fields.begin.field), None
    if state is not None and state.tag is not None and fields is not None and fields.channel and fields.value:
        yield state.tag, FieldPath(fields.value), FieldPath(fields.channel)


class _NotingDecoder(Decoder):
    """Notes in ``sample`` what it decodes, so that no record is decoded twice."""

    def __init__(self, plant: Plant, sample: Sample, schemas: Schemas | None) -> None:
        settings = plant.settings
        super().__init__(settings.decode, settings.channels, settings.route_field, settings.sequences.while_, schemas)
        self._sample = sample
        self._n_looked_at = 0
        self._places = list(_places_of_words(settings))
        self._each = None if settings.decode.fields is None else settings.decode.fields.each
        sample.words |= {name: Counter() for name, _, _ in self._places}

    def decode(self, record: Record, written_us: int | None) -> Decoded:
        """Return what ``Decoder.decode`` does. Raises DecodeError."""
        decoded = super().decode(record, written_us)
        for block in decoded.blocks:
            self._sample.note(block)
        return decoded

    def _parsed(self, record: Record, wire: Wire | None) -> Any:
        message = super()._parsed(record, wire)
        if self._n_looked_at < _LOOKED_AT:
            self._n_looked_at += 1
            add_fields(self._sample.fields, message)
        if self._places and isinstance(message, dict):
            for part in self._parts_of(message):
                self._note_words(part)
        return message

    def _parts_of(self, message: dict[Any, Any]) -> list[dict[Any, Any]]:
        """Return the message, or each element of its list with the fields around it."""
        found = None if self._each is None else elements_in(message, self._each)
        if found is None or not isinstance(found[0], list):
            return [message]
        return [{**found[1], **element} for element in found[0] if isinstance(element, dict)]

    def _note_words(self, part: dict[Any, Any]) -> None:
        for name, path, tag in self._places:
            if tag is None or tag.get(part) == name:
                value, known = path.get(part), self._sample.words[name]
                for each in value if isinstance(value, list) else [value]:
                    word = "" if plain(each) is None else str(each).strip()
                    if (word or tag is None) and (word in known or len(known) < _MOST_WORDS):
                        known[word] += 1

    def singles(self, batch: RecordBatch, start: int) -> None:
        """Return None: every record goes through ``decode``."""


async def read_sample(plant: Plant, source: Source, table: BatchTable | None = None) -> Sample:
    """Read until the sample is full, the source ends or ten seconds are over. Raises SourceError, ConfigError.

    ``table`` is that of ``sequences.table``.
    """
    async with fetching(plant, give_up_us=_REGISTRY_US) as fetcher:
        return await _read_sample(plant, source, table, fetcher)


async def _read_sample(plant: Plant, source: Source, table: BatchTable | None, fetcher: Fetcher | None) -> Sample:
    sample = Sample(np.zeros(len(plant.settings.channels), dtype=np.bool_), table=table)
    decoder = _NotingDecoder(plant, sample, None if fetcher is None else fetcher.schemas)
    intakes: dict[str, Intake] = {}
    try:
        # Files that are sorted are read whole before their first record comes.
        async with asyncio.timeout(None if is_sorted(plant) else MAX_WAIT_S):
            async for event in source.batches():
                if isinstance(event, PartitionAssigned):
                    sample.partitions.add(event.partition)
                    intakes[event.partition] = Intake(
                        event.partition, plant.settings, decoder, sample.counters, table=sample.table
                    )
                    await source.seek(event.partition, None)
                else:
                    if fetcher is not None and isinstance(event, RecordBatch):
                        await fetcher.fetch_for(event.records)
                    _take(event, intakes, sample, plant.clock.now_us())
                if sample.is_full:
                    break
            else:
                sample.is_complete = True
    except TimeoutError:
        pass  # a silent or slow live source: the sample is what has come
    finally:
        await source.close()
    return sample


def is_sorted(plant: Plant) -> bool:
    """Return whether the source sorts its files."""
    source = plant.settings.source
    return {**source.options, **split_url(source.url)[2]}.get("sort") not in (None, False, "false")


def _take(event: SourceEvent, intakes: dict[str, Intake], sample: Sample, now_us: int) -> None:
    if isinstance(event, RecordBatch):
        intake = intakes[event.partition]
        for closed in intake.take(event, now_us):
            sample.add(event.partition, closed)
        for stream in intake.take_new_streams():
            sample.homes.setdefault(stream, {})[event.partition] = None
        sample.n_without_key += sum(record.key is None for record in event.records)
        sample.n_bytes += sum(len(record.value) for record in event.records)
        for output in intake.take_aside():
            message = output.message
            if isinstance(message, DeadLetter):
                where = f"{message.origin.partition} at {message.origin.offset}"
                sample.unreadable.setdefault(message.kind, f"{where}: {message.error}")
            elif isinstance(message, LateRecord):
                sample.recurring.note_late(event.partition, message, is_relative=sample.is_relative)
    elif isinstance(event, PartitionEnded):
        for closed in intakes.pop(event.partition).end_of_input(now_us):
            sample.add(event.partition, closed)
