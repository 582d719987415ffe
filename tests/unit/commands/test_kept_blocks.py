"""The decoder that decodes a record once, for commands that look at a sample several times."""

from __future__ import annotations

import json

import pytest

from streamad.commands.init.reading import kept as records
from streamad.commands.init.reading.kept import KeptBlocks
from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.decode import ChannelSettings, DecodeSettings
from streamad.types import Record

RECORD = Record(0, json.dumps({"stream": "r1", "time": 1_772_352_930, "values": {"temp": 1.0}}).encode())
DAMAGED = Record(1, b"{")


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> KeptBlocks:
    """A decoder that counts in ``n_decoded`` how often it decodes."""
    decoder = KeptBlocks(DecodeSettings(), [ChannelSettings(name="temp")])
    decode = Decoder.decode

    def counted(self: Decoder, record: Record, written_us: int | None) -> object:
        n_decoded.append(record.offset)
        return decode(self, record, written_us)

    n_decoded.clear()
    monkeypatch.setattr(Decoder, "decode", counted)
    return decoder


n_decoded: list[int] = []


def test_blocks_and_errors_are_kept_until_they_are_forgotten(decoder: KeptBlocks) -> None:
    first = decoder.decode(RECORD, None)
    assert first.blocks
    assert decoder.decode(RECORD, None) is first
    errors = []
    for _ in range(2):
        with pytest.raises(DecodeError, match="not JSON") as caught:
            decoder.decode(DAMAGED, None)
        errors.append(caught.value.kind)
    assert errors == ["malformed"] * 2
    assert n_decoded == [0, 1]
    with pytest.raises(DecodeError, match="ahead of the record"):
        decoder.decode(RECORD, 1)
    decoder.forget()
    assert decoder.decode(RECORD, None) is not first
    assert n_decoded == [0, 1, 0, 0]


def test_memory_is_bounded(decoder: KeptBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_KEPT_BYTES", 1)
    other = Record(2, RECORD.value)
    first = decoder.decode(RECORD, None)
    assert decoder.decode(RECORD, None) is first
    assert decoder.decode(other, None) is not decoder.decode(other, None)
    assert n_decoded == [0, 2, 2]
