"""The simulated plant as a running one: messages of all its streams in the order of time, with or without an end."""

from __future__ import annotations

__all__ = ["PlantMessage", "PlantTime", "longest_us", "plant_messages"]

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from streamad.simulation.recordings import SLOT_US, STAGGER_US, Recording, begin_us, simulate_stream
from streamad.simulation.writing import messages_of
from streamad.types import from_us


@dataclass(frozen=True, slots=True)
class PlantTime:
    """How the plant's time is told: it begins at ``start_us`` and is ``shrink`` times shorter than simulated."""

    start_us: int
    shrink: float = 1.0

    def of(self, recording: Recording, origin_us: int) -> Recording:
        """Return ``recording`` in this time, where ``origin_us`` of the simulation is the start.

        Its id gets the start in front: a plant that is started again never repeats an id, as a real one does not.
        """
        shrink = Fraction(self.shrink)

        def told(time_us: int) -> int:
            return self.start_us + int((time_us - origin_us) / shrink)

        return replace(
            recording,
            sequence=f"{from_us(self.start_us):%Y%m%dT%H%M%S}-{recording.sequence}",
            start_us=told(recording.start_us),
            times_us=np.array([told(time_us) for time_us in recording.times_us.tolist()], dtype=np.int64),
            onset_us=None if recording.onset_us is None else told(recording.onset_us),
        )


class PlantMessage(NamedTuple):
    """One message in streamad's JSON format: its last sample's time (Unix microseconds), its stream, its text.

    ``batch`` is the whole batch where this is its last message, ``n_samples`` how many samples this one holds.
    """

    time_us: int
    stream: str
    text: str
    n_samples: int
    batch: Recording | None = None


def plant_messages(
    time: PlantTime,
    *,
    seed: int = 0,
    first_index: int = 0,
    n_batches: int | None = None,
    n_streams: int = 2,
    fault_share: float = 0.0,
    chunk_samples: int = 1,
) -> Iterator[PlantMessage]:
    """Yield the messages of all streams by the time of their last sample, without an end where `n_batches` is None.

    Deterministic. Batches are simulated as they begin (about 25 ms each), so little is held at any time. Raises
    ValueError for counts below their least, or a share outside 0 to 1.
    """
    if first_index < 0 or n_streams < 1 or chunk_samples < 1 or not 0 <= fault_share <= 1:
        raise ValueError("first_index must be 0 or more, streams and chunk 1 or more, the share of faults 0 to 1")
    origin_us = begin_us(first_index, n_streams)
    streams = [
        _messages(
            simulate_stream(
                stream,
                n_batches,
                seed=seed,
                first_index=first_index,
                n_streams=n_streams,
                fault_share=fault_share,
            ),
            time,
            origin_us,
            chunk_samples,
        )
        for stream in range(n_streams)
    ]
    return heapq.merge(*streams, key=lambda message: message.time_us)


def _messages(
    recordings: Iterator[Recording], time: PlantTime, origin_us: int, chunk_samples: int
) -> Iterator[PlantMessage]:
    for recording in recordings:
        told = time.of(recording, origin_us)
        left = len(told.times_us)
        for time_us, text in messages_of(told, chunk_samples):
            n_samples = min(chunk_samples, left)
            left -= n_samples
            yield PlantMessage(time_us, told.stream, text, n_samples, None if left else told)


def longest_us(n_batches: int, n_streams: int) -> int:
    """Return a time in microseconds of the simulation within which `n_batches` are surely done."""
    return -(-n_batches // n_streams) * SLOT_US + (n_streams - 1) * STAGGER_US
