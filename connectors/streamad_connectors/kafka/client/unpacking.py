"""What a compressed batch of records unpacks to is bounded: 1 MB could become gigabytes, and be read again for ever.

aiokafka unpacks a batch whole. After ``bound_unpacking`` it stops at ``MOST_BYTES``; the batch is then one record at
its last offset, whose value is the batch as the topic holds it: an unreadable record, which becomes a dead letter.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka.codec import cramjam  # None where it is not installed
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.structs import ConsumerRecord

MOST_BYTES = 1 << 28
_GZIP = 31
_FIRST_GUESS = 32
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16


class TooLargeBatchError(Exception):
    """Raised for a batch that unpacks to more than ``MOST_BYTES``."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(f"a batch of {len(packed)} bytes unpacks to more than {MOST_BYTES}")
        self.packed = packed


def gunzipped(payload: Any) -> bytes:
    """Return what gzip has packed, in any number of members. Raises TooLargeBatchError, zlib.error."""
    rest, parts, left = bytes(payload), list[bytes](), MOST_BYTES
    while rest:
        reader = zlib.decompressobj(_GZIP)
        parts.append(reader.decompress(rest, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise TooLargeBatchError(bytes(payload))
        if not reader.eof:
            raise zlib.error("a batch of records that is cut")
        rest = reader.unused_data
    return b"".join(parts)


def unsnapped(payload: Any) -> bytes:
    """Return what snappy has packed, as one block or as those of xerial. Raises TooLargeBatchError."""
    packed = bytes(payload)
    blocks = list(_xerial_blocks(packed)) if packed.startswith(_XERIAL) else [packed]
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > MOST_BYTES:
        raise TooLargeBatchError(packed)
    return b"".join(bytes(cramjam.snappy.decompress_raw(block)) for block in blocks)


def _xerial_blocks(packed: bytes) -> Iterator[bytes]:
    at = _XERIAL_HEAD
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        yield packed[at + 4 : end]
        at = end


def _into(unpack_into: Callable[[bytes, bytearray], int]) -> Callable[[Any], bytes]:
    """Return what unpacks into room that it gets, which nothing touches beyond the end."""

    def unpacked(payload: Any) -> bytes:
        packed = bytes(payload)
        for size in (min(MOST_BYTES, _FIRST_GUESS * len(packed)), MOST_BYTES):
            room = bytearray(size)
            try:
                return bytes(memoryview(room)[: unpack_into(packed, room)])
            except cramjam.DecompressionError:
                continue
        raise TooLargeBatchError(packed)  # or damaged, which the broker would have refused

    return unpacked


class _Noting:
    """The batches of a fetch; ``batch`` is the last one that was given out."""

    def __init__(self, records: Any) -> None:
        self.has_next = records.has_next
        self._records, self.batch = records, None

    def next_batch(self) -> Any:
        self.batch = self._records.next_batch()
        return self.batch


class BoundedRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of a fetch; a batch that unpacks to too much is one record, in the place of all that it holds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._records: Any = _Noting(self._records)  # nothing was read of them yet

    def _unpack_records(self) -> Iterator[ConsumerRecord]:
        while True:
            try:
                yield from super()._unpack_records()
            except TooLargeBatchError as error:
                yield self._instead(self._records.batch, error.packed)
            else:
                return

    def _instead(self, batch: Any, packed: bytes) -> ConsumerRecord:
        self.next_fetch_offset = batch.next_offset
        at, kind, n_bytes = batch.max_timestamp, batch.timestamp_type, len(packed)
        place = (self._tp.topic, self._tp.partition, batch.next_offset - 1)
        return ConsumerRecord(*place, at, kind, None, packed, None, -1, n_bytes, ())


def bound_unpacking() -> None:
    """Let aiokafka's consumers in this process unpack no batch beyond ``MOST_BYTES``."""
    fetcher.PartitionRecords = BoundedRecords
    bounded: dict[str, Callable[[Any], bytes]] = {"gzip": gunzipped, "snappy": unsnapped}
    if cramjam is not None:
        bounded |= {"lz4": _into(cramjam.lz4.decompress_into), "zstd": _into(cramjam.zstd.decompress_into)}
    for name, unpack in bounded.items():  # the module looks them up by name
        setattr(sys.modules[DefaultRecordBatch.__module__], f"{name}_decode", unpack)
