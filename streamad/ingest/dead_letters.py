"""What becomes of an unreadable record: a dead letter with its bytes, its origin and the reason."""

from __future__ import annotations

__all__ = ["dead_letter"]

import hashlib

from streamad.errors import DecodeError
from streamad.settings import DecodeSettings
from streamad.types import DeadLetter, Origin, Record, from_us


def dead_letter(
    record: Record, partition: str, error: DecodeError, settings: DecodeSettings, now_us: int
) -> DeadLetter:
    """Return the dead letter of ``record``.

    Value and key are cut above ``max_dead_letter_bytes``, then ``truncated`` says so; ``size_bytes`` and ``sha256``
    are always those of the whole value.
    """
    limit = settings.max_dead_letter_bytes
    key = record.key
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
