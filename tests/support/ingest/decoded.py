"""What a decoder makes of one record, for tests of messages that hold samples of one sequence."""

from __future__ import annotations

from streamad.ingest.decode import Decoder
from streamad.types import Record, SampleBlock


def block_in(decoder: Decoder, record: Record, written_us: int | None = None) -> SampleBlock | None:
    """Return the only block of ``record``, None if it has none. Raises DecodeError."""
    blocks = decoder.decode(record, written_us).blocks
    assert len(blocks) < 2
    return blocks[0] if blocks else None
