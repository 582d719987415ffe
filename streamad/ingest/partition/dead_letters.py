"""Dead letters of unreadable records, and late records: messages about what enters no sequence."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.sequences.late_entries import LateEntry, LateSamples
from streamad.ingest.sequences.time_jumps import Resolved
from streamad.messages import DeadLetter, LateRecord, Origin
from streamad.settings.plant_yaml import DecodeSettings
from streamad.types import Record, from_us

TIME_JUMP = "time_jump"


def dead_letter(
    record: Record, partition: str, error: DecodeError, settings: DecodeSettings, now_us: int
) -> DeadLetter:
    """Return the dead letter of ``record``.

    Value and key are cut above ``max_dead_letter_bytes`` (``truncated``); ``size_bytes`` and ``sha256`` are those of
    the whole value.
    """
    limit, key = settings.max_dead_letter_bytes, record.key
    return DeadLetter(
        origin=Origin(partition, record.offset),
        kind=error.kind,
        error=str(error),
        value=record.value[:limit],
        key=None if key is None else key[:limit],
        truncated=len(record.value) > limit or (key is not None and len(key) > limit),
        size_bytes=len(record.value),
        sha256=hashlib.sha256(record.value).hexdigest(),
        created_at=from_us(now_us),
    )


class HeldLetters:
    """The dead letters of records whose last sample is held, for the case that its time proves wrong.

    A held record is gone when its sample is decided on; after a restart it is read, and held, once more.
    """

    def __init__(self, partition: str, settings: DecodeSettings) -> None:
        self._partition = partition
        self._settings = settings
        self._letters: dict[int, DeadLetter] = {}

    def hold(self, record: Record, now_us: int) -> None:
        """Keep the dead letter of ``record``, whose sample is held."""
        self._letters[record.offset] = self._letter(record, now_us)

    def take(self, resolved: Iterable[Resolved], record: Record, now_us: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of those whose time proved wrong, and forget all that were decided on.

        The sample of ``record`` itself may be held and rejected at once; then it has no letter yet.
        """
        for decision in resolved:
            letter = self._letters.pop(decision.offset, None)
            if decision.error is not None:
                letter = letter or self._letter(record, now_us)
                yield msgspec.structs.replace(letter, error=decision.error)

    def clear(self) -> None:
        """Forget all: their samples were accepted."""
        self._letters.clear()

    def _letter(self, record: Record, now_us: int) -> DeadLetter:
        return dead_letter(record, self._partition, DecodeError(TIME_JUMP, ""), self._settings, now_us)


def late_records(found: Iterable[LateSamples], partition: str, now_us: int) -> Iterator[LateRecord]:
    """Yield the late records of the samples ``found``; those of a chunk stay together."""
    for _, together in groupby(found, key=_message_of):
        yield _late_record(list(together), partition, now_us)


def late_text(late: LateEntry) -> str:
    """Return the text of the event about late samples without a sequence id."""
    return (
        "samples without a sequence id came later than sequences.allowed_lateness, so they have no verdict: "
        f"{late.n} from {from_us(late.first_us).isoformat()} to {from_us(late.last_us).isoformat()}"
    )


def _late_record(together: list[LateSamples], partition: str, now_us: int) -> LateRecord:
    first = together[0]
    rows = [row for late in together for row in late.values.tolist()]
    return LateRecord(
        origin=Origin(partition, first.offset),
        stream=first.stream,
        sequence=first.sequence,
        cause="closed" if first.closed else "late",
        times=[from_us(time_us) for late in together for time_us in late.times_us.tolist()],
        values=[[None if math.isnan(value) else value for value in row] for row in rows],
        created_at=from_us(now_us),
    )


def _message_of(late: LateSamples) -> tuple[int, str, str | None, bool]:
    """Return the key by which late samples share a late record: those of a chunk stay together."""
    return late.offset, late.stream, late.sequence, late.closed
