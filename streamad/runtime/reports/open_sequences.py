"""Open sequences as they are at the moment, read from the assemblers, which nothing here changes.

Shapes: n samples so far, m kept ones, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

import msgspec
import numpy as np

from streamad.ingest.sequences.open_sequence import OpenSequence
from streamad.judge.routing import Router
from streamad.messages import OpenSequence as OpenMessage
from streamad.messages import Running, packed_values
from streamad.runtime.partition import Partition
from streamad.types import ChannelSpec, FloatArray, IntArray, from_us

MOST_OPEN = 200
MOST_POINTS = 64
MOST_BYTES = 100_000


class Open(NamedTuple):
    """An open sequence and its stream."""

    stream: str
    sequence: OpenSequence

    def message(self) -> OpenMessage:
        """Return what the status says of it."""
        sequence = self.sequence
        start = from_us(sequence.start_us)
        return OpenMessage(stream=self.stream, sequence=sequence.name, start_time=start, n_samples=sequence.n)


def open_sequences(partitions: Iterable[Partition]) -> list[Open]:
    """Return open sequences of ``partitions``, ``MOST_OPEN`` at most."""
    streams = chain.from_iterable(partition.intake.streams.values() for partition in partitions)
    every = (Open(stream.name, sequence) for stream in streams for sequence in stream.open.values())
    return list(islice(every, MOST_OPEN))


def newest_of_each(found: Iterable[Open]) -> list[Open]:
    """Return of each stream the open sequence that began last."""
    newest: dict[str, Open] = {}
    for one in found:
        known = newest.get(one.stream)
        if known is None or one.sequence.start_us >= known.sequence.start_us:
            newest[one.stream] = one
    return list(newest.values())


def running(one: Open, instance: str, channels: Sequence[ChannelSpec], now_us: int, router: Router) -> Running | None:
    """Return the readings so far of an open sequence; None if even two points take more than ``MOST_BYTES``."""
    model = router.name_for(tuple(value for _, value in one.sequence.routes))
    times_us, values = _thinned(one.sequence)
    while True:
        message = Running(
            instance=instance,
            stream=one.stream,
            sequence=one.sequence.name,
            start_time=from_us(one.sequence.start_us),
            n_samples=one.sequence.n,
            channels=[channel.name for channel in channels],
            units=[channel.unit for channel in channels],
            seconds=((times_us - one.sequence.start_us) / 1e6).tolist(),
            values=packed_values(values.T),
            created_at=from_us(now_us),
            model=model if isinstance(model, str) else None,
        )
        if len(msgspec.json.encode(message)) <= MOST_BYTES:
            return message
        if len(times_us) <= 2:
            return None
        kept = _evenly(len(times_us), max(2, len(times_us) // 2))
        times_us, values = times_us[kept], values[kept]


def _thinned(sequence: OpenSequence) -> tuple[IntArray, FloatArray]:
    """Return times int64 [m] and values float32 [m, C] of evenly spread samples, the first and the last among them.

    Of many parts one sample each is looked at, so that the time does not grow with the number of parts.
    """
    n_parts = len(sequence.times_us)
    if n_parts > MOST_POINTS:
        chosen = [(number, 0) for number in _evenly(n_parts, MOST_POINTS)[:-1].tolist()]
        chosen.append((n_parts - 1, -1))
    else:
        ends = np.cumsum([len(times_us) for times_us in sequence.times_us])
        chosen = []
        for at in _evenly(int(ends[-1]), MOST_POINTS).tolist():
            number = int(np.searchsorted(ends, at, side="right"))
            chosen.append((number, at - int(ends[number])))
    times_us = np.array([sequence.times_us[number][at] for number, at in chosen], np.int64)
    with np.errstate(over="ignore"):
        return times_us, np.array([sequence.values[number][at] for number, at in chosen], np.float32)


def _evenly(n: int, most: int) -> IntArray:
    """Return at most ``most`` (2 or more) of n places, evenly spread, the first and the last among them."""
    if n <= most:
        return np.arange(n, dtype=np.int64)
    return np.linspace(0, n - 1, most).round().astype(np.int64)
