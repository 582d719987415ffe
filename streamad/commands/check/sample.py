"""Reads the first records of a source as ``streamad run`` would, and collects data for the checks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np

from streamad.commands.shared.decoding import KeptBlocks
from streamad.errors import DecodeError
from streamad.ingest.intake import Intake
from streamad.messages import DeadLetter
from streamad.plant import Plant
from streamad.plugins import split_url
from streamad.ports import Source
from streamad.telemetry.metrics import Counters
from streamad.types import (
    BoolArray,
    FinishedSequence,
    PartitionAssigned,
    PartitionEnded,
    RecordBatch,
    SampleBlock,
    SourceEvent,
)

MAX_RECORDS = 20_000
MAX_SEQUENCES = 200
MAX_BYTES = 128_000_000
MAX_WAIT_S = 10.0


@dataclass(slots=True)
class Sample:
    """The beginning of a source: counters, sequences, and properties of its streams and channels."""

    seen: BoolArray
    """Bool [C]: the channel had a value."""
    counters: Counters = field(default_factory=Counters)
    sequences: list[FinishedSequence] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Kind of dead letter -> the first one's place and error."""
    partitions: int = 0
    n_bytes: int = 0
    """Bytes of the records' values: some KB of a packed file may stand for GB."""
    is_complete: bool = False
    """The source ended before the sample was full."""
    has_markers: bool = False
    has_ids: bool = False
    longest_chunk_us: int = 0
    lateness_us: int = 0
    """How far samples lay behind the newest one of their stream."""
    newest_us: dict[str, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Return whether the sample is large enough."""
        return self.counters.records >= MAX_RECORDS or self.n_bytes >= MAX_BYTES or len(self.sequences) >= MAX_SEQUENCES

    def note(self, block: SampleBlock) -> None:
        """Add the samples of one record."""
        self.has_markers |= block.end
        self.has_ids |= block.sequence is not None
        self.seen |= np.isfinite(block.values).any(axis=0)
        if not len(block):
            return
        first_us, last_us = int(block.times_us[0]), int(block.times_us[-1])
        self.longest_chunk_us = max(self.longest_chunk_us, last_us - first_us)
        newest_us = self.newest_us.get(block.stream, first_us)
        self.lateness_us = max(self.lateness_us, newest_us - first_us)
        self.newest_us[block.stream] = max(newest_us, last_us)


async def read_sample(plant: Plant, source: Source) -> Sample:
    """Read until the sample is full, the source ends or ten seconds are over. Raises SourceError, ConfigError."""
    sample = Sample(np.zeros(len(plant.settings.channels), dtype=np.bool_))
    settings = plant.settings
    decoder = KeptBlocks(settings.decode, settings.channels, settings.route_field)
    intakes: dict[str, Intake] = {}
    try:
        async with asyncio.timeout(_longest_wait_s(plant)):
            async for event in source.batches():
                if isinstance(event, PartitionAssigned):
                    sample.partitions += 1
                    intakes[event.partition] = Intake(event.partition, plant.settings, decoder, sample.counters)
                    await source.seek(event.partition, None)
                else:
                    _take(event, intakes, sample, decoder, plant.clock.now_us())
                if sample.is_full:
                    break
            else:
                sample.is_complete = True
    except TimeoutError:
        pass  # a silent or slow live source: the sample is what has come
    finally:
        await source.close()
    return sample


def _longest_wait_s(plant: Plant) -> float | None:
    """Return None for files that are sorted: they are read whole before their first record comes."""
    return None if is_sorted(plant) else MAX_WAIT_S


def is_sorted(plant: Plant) -> bool:
    """Return whether the source sorts its files."""
    source = plant.settings.source
    return {**source.options, **split_url(source.url)[2]}.get("sort") not in (None, False, "false")


def _take(event: SourceEvent, intakes: dict[str, Intake], sample: Sample, decoder: KeptBlocks, now_us: int) -> None:
    finished = []
    if isinstance(event, RecordBatch):
        intake = intakes[event.partition]
        finished = intake.take(event, now_us)
        for record in event.records:
            sample.n_bytes += len(record.value)
            try:
                block = decoder.decode(record, event.written_us(record.offset))
            except DecodeError:
                continue  # the intake counts it
            if block is not None:
                sample.note(block)
        decoder.forget()
        for output in intake.take_aside():
            letter = output.message
            if isinstance(letter, DeadLetter):
                where = f"{letter.origin.partition} at {letter.origin.offset}"
                sample.unreadable.setdefault(letter.kind, f"{where}: {letter.error}")
    elif isinstance(event, PartitionEnded):
        finished = intakes.pop(event.partition).end_of_input(now_us)
    sample.sequences += [closed.sequence for closed in finished]
