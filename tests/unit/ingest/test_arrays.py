"""Chunks read straight into arrays: the same samples and errors as without simdjson, whatever the bytes."""

from __future__ import annotations

import json
import mmap
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.ingest.decode import Decoder
from streamad.ingest.forms.arrays import ArrayReader
from streamad.settings.decode import DecodeSettings
from streamad.types import Record
from tests.support.ingest.number_chunks import CHANNELS, number_chunks, outcome, pairs

pytest.importorskip("simdjson", reason="the extra simdjson is not installed")

N_MESSAGES = 5_000
T = 1_772_352_930
CHUNK = {"stream": "r", "sequence": "B", "times": [T, T + 0.5], "values": [[1, 2.5, -3], [4, 5, 6]], "end": True}


@pytest.fixture
def reader() -> ArrayReader:
    found = ArrayReader.if_installed()
    assert found is not None
    return found


def test_thousands_of_messages_are_read_alike_with_and_without_simdjson(reader: ArrayReader) -> None:
    n_read = 0
    both = pairs()
    for value in number_chunks(N_MESSAGES):
        n_read += reader.read(value) is not None
        for fast, slow in both:
            assert outcome(fast, value) == outcome(slow, value), value
    assert N_MESSAGES / 4 < n_read < 3 * N_MESSAGES / 4  # both ways were compared


def test_a_chunk_of_numbers_is_read_into_arrays(reader: ArrayReader) -> None:
    found = reader.read(json.dumps(CHUNK).encode())
    assert found is not None
    assert (found.stream, found.sequence, found.channels, found.end) == ("r", "B", None, True)
    np.testing.assert_array_equal(found.times, [T, T + 0.5])
    np.testing.assert_array_equal(found.values, np.array([[1, 2.5, -3], [4, 5, 6]], dtype=np.float32))
    assert found.values.flags.writeable


def test_whole_times_stay_integers(reader: ArrayReader) -> None:
    found = reader.read(json.dumps({**CHUNK, "times": [9007199254740993, 9007199254740995]}).encode())
    assert found is not None
    assert found.times.dtype == np.int64
    assert found.times.tolist() == [9007199254740993, 9007199254740995]


@pytest.mark.parametrize(
    "changed",
    [
        {"values": [[1, 2, 3], [4]]},
        {"values": [[1, 2, [3]], [4, 5, 6]]},
        {"values": [[[], [1, 2], 3], [4, 5, 6]]},
        {"values": [[1, None, 3], [4, 5, 6]]},
        {"values": [[1, "2", 3], [4, 5, 6]]},
        {"values": [[1, True, 3], [4, 5, 6]]},
        {"values": [[1, 2, 1e39], [4, 5, 6]]},
        {"values": [[1, 2, 2**64], [4, 5, 6]]},
        {"values": []},
        {"values": {"temp": 1}},
        {"times": [T]},
        {"times": [T, "2026-03-01T08:15:31Z"]},
        {"times": [[T], T]},
        {"times": T},
        {"stream": None},
        {"stream": 1.5},
        {"stream": "a[b"},
        {"sequence": True},
        {"end": 1},
        {"channels": "temp"},
        {"channels": ["temp", 7, "flow"]},
        {"site": "a"},
    ],
)
def test_all_else_is_left_to_the_typed_decoder(reader: ArrayReader, changed: dict[str, Any]) -> None:
    value = json.dumps({**CHUNK, **changed}).encode()
    assert reader.read(value) is None
    assert reader.read(json.dumps(CHUNK).encode()) is not None  # nothing keeps the parser from the next message


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"times"',
        b'\xef\xbb\xbf{"stream":"r","times":[1],"values":[[1,2,3]]}',
        b'{"stream":"r","times":[1],"values":[[1,2,3]]}x',
        b'{"stream":"\xff","times":[1],"values":[[1,2,3]]}',
        b'{"stream":"r","stream":"s","times":[1],"values":[[1,2,3]]}',
        b'{"stream":"r","times":[1],"values":[[1,2,NaN]]}',
        b'{"stream":"r","times":[1],"values":' + b"[" * 2_000 + b"]" * 2_000 + b"}",
    ],
)
def test_what_simdjson_refuses_or_reads_otherwise_is_left_out(reader: ArrayReader, value: bytes) -> None:
    assert reader.read(value) is None


def held_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="the system says otherwise what memory a process has")
def test_a_very_long_message_takes_no_memory_for_ever(reader: ArrayReader) -> None:
    n = 1_000_000
    value = b'{"stream":"r","times":[%s],"values":[%s]}' % (
        b",".join([b"1772352930"] * n),
        b",".join([b"[1.5,2.5]"] * n),
    )
    before = held_bytes()
    found = reader.read(value)
    assert found is not None
    assert found.values.shape == (n, 2)
    del found
    assert held_bytes() - before < 3 * len(value)  # the parser took six times as much


def test_decoded_arrays_can_be_written_to() -> None:
    (block,) = Decoder(DecodeSettings(), CHANNELS).decode(Record(0, json.dumps(CHUNK).encode()), None).blocks
    block.values[0, 0] = 1
    block.times_us[0] = 1


def test_a_decoder_makes_no_object_of_a_number() -> None:
    value = json.dumps({**CHUNK, "times": [T + i / 8 for i in range(1_000)], "values": [[0.5, 1.5, 2.5]] * 1_000})
    peaks = []
    for decoder in pairs()[0]:
        tracemalloc.start()
        try:
            decoder.decode(Record(0, value.encode()), None)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    with_arrays, with_lists = peaks
    assert with_arrays < 0.6 * with_lists, peaks
