"""A compressed batch that unpacks to too much is one unreadable record, and costs no more memory than the bound."""

from __future__ import annotations

import tracemalloc

import pytest
from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import ConsumerRecord, TopicPartition

from streamad_connectors.kafka.client import unpacking
from streamad_connectors.kafka.client.unpacking import bound_unpacking

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch(first: int, *values: bytes, codec: str) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=CODECS[codec], is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 30,
    )  # fmt: skip
    for i, value in enumerate(values):
        assert builder.append(i, 1_000 + i, b"key", value, []) is not None
    content = builder.build()
    content[:8] = first.to_bytes(8, "big")  # as the broker numbers it
    return bytes(content)


def records_of(*batches: bytes) -> list[ConsumerRecord]:
    bound_unpacking()
    found = MemoryRecords(b"".join(batches))
    return list(fetcher.PartitionRecords(TopicPartition("t", 0), found, [], 10, None, None, True, 0))


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_every_codec_give_their_records(codec: str) -> None:
    values = [b"x" * 100_000, b"", b"{}" * 3_000]
    found = records_of(batch(10, *values, codec=codec), batch(13, b"z", codec=codec))
    assert [(each.offset, each.value) for each in found] == list(enumerate([*values, b"z"], start=10))


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "none"])
def test_a_batch_that_unpacks_to_too_much_is_one_unreadable_record(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    large = batch(11, *[b"x" * 2_000_000] * 4, codec=codec)
    monkeypatch.setattr(unpacking, "MOST_BYTES", 1 << 20)
    tracemalloc.start()
    found = records_of(batch(10, b"a", codec=codec), large, batch(15, b"b", codec=codec))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [each.offset for each in found] == [10, 14, 15]
    assert (found[0].value, found[2].value) == (b"a", b"b")
    assert found[1].value in large
    assert (found[1].timestamp, found[1].key) == (1_003, None)
    assert peak < 6_000_000
