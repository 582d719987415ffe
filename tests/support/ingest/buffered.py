"""How many samples an assembler holds."""

from __future__ import annotations

from streamad.ingest.assembly import Assembler
from streamad.ingest.sequences.sequence_ends import StreamState


def pending_samples(assembler: Assembler) -> int:
    """Return how many samples are buffered and not yet in a finished sequence, those of ``jumps`` apart."""
    return sum(map(n_buffered, assembler.streams.values()))


def n_buffered(stream: StreamState) -> int:
    """Return how many samples of ``stream`` wait or are in open sequences, merged ones included."""
    waiting = sum(len(run) + run.merged for run in stream.pending.runs)
    return waiting + sum(sequence.n + sequence.merged for sequence in stream.open.values())
