"""Records that an assembler reads to the end of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences.closed_sequences import Closed
from tests.support.ingest.assembly_model import Record


def read_to_end(
    assembler: Assembler, records: Sequence[Record], expire: Mapping[int, int] | None = None, *, relative: bool = False
) -> list[Closed]:
    """Return the sequences of ``records``; ``expire`` maps offsets to the wall clock's word after them."""
    finished: list[Closed] = []
    for offset, record in enumerate(records):
        finished += assembler.push(record.block(offset, relative=relative), record.record_us)
        if expire and offset in expire:
            finished += assembler.expire(expire[offset])
    return finished + assembler.end_of_input()


def jumped(assembler: Assembler) -> Counter[int]:
    """Return the offsets of samples whose time proved wrong since the last call."""
    resolved = assembler.jumps.take_resolved()
    return Counter(one.position.offset for one in resolved if one.error is not None)
