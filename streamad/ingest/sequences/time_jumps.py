"""Samples far ahead of their stream: each is held until the next sample tells whether the time is right.

A single wrong time would otherwise move the clocks for good, and all that follows would be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamad.ingest.sequences.runs import Run
from streamad.settings.plant_yaml import SequenceSettings
from streamad.types import IntArray, Position, from_us

MAX_RECORDS = 1_000
"""Records of the partition after which a held sample is accepted; also the jumps that a progress remembers."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldSample:
    """The last sample of a record, far ahead; ``record_us`` is the record's own time, ``number`` counts the records."""

    run: Run
    record_us: int | None
    number: int


class Jump(NamedTuple):
    """A record whose last sample was held: where it moved the partition's clock (None: nowhere), and its time."""

    offset: int
    moved_at: int | None
    time_us: int


class Resolved(NamedTuple):
    """The decision on the held sample at ``position``: ``error`` is None if it was accepted."""

    position: Position
    error: str | None


class TimeJumps:
    """The held samples of a partition by stream, and those that rereading must treat as at their first reading.

    ``n_records`` counts the records. A sample more than ``farthest_us`` ahead of its stream is far ahead. ``moves`` are
    the moves of the clock to be repeated, (offset, time), the next one last.
    """

    def __init__(
        self, settings: SequenceSettings, max_clock_skew_us: int, past: Sequence[Jump], low_watermark: int
    ) -> None:
        self.farthest_us = max(settings.gap or 0, settings.max_duration) + settings.allowed_lateness
        self._lateness_us = settings.allowed_lateness
        self._skew_us = max_clock_skew_us
        self._past: dict[int, list[Jump]] = {}
        for jump in past:
            self._past.setdefault(jump.offset, []).append(jump)
        self.moves: list[tuple[int, int]] = []
        self._repeat(jump for jump in past if jump.offset < low_watermark)
        self.n_records = 0
        self._resolved: list[Resolved] = []
        self._ahead: tuple[int, Set[int]] = (0, frozenset())
        self.held: dict[str, HeldSample] = {}

    def overdue(self) -> Iterator[str]:
        """Yield the streams whose held samples have waited long enough."""
        while self.held:
            name, oldest = next(iter(self.held.items()))
            if self.n_records - oldest.number <= MAX_RECORDS:
                return
            yield name

    def is_ahead(self, run: Run, newest_us: int | None, record_us: int | None) -> bool:
        """Return whether the last sample of ``run`` lies far ahead of all before, and of the record's own time.

        Earlier ones that do are not held, since the next sample of the run accepts them; ``ahead_in`` tells of them.
        """
        newest_us = run.first_us if newest_us is None else newest_us
        if run.last_us - newest_us <= self.farthest_us:
            return False
        before = np.maximum(np.concatenate(([newest_us], run.times_us[:-1])), newest_us)
        is_far = run.times_us - before > self.farthest_us
        if record_us is not None:
            is_far &= np.abs(run.times_us - record_us) > self._skew_us
        position = run.position
        found = {position.index + place for place in np.flatnonzero(is_far).tolist()}
        self._ahead = position.offset, self.ahead_in(position.offset) | found
        return bool(is_far[-1])

    def ahead_in(self, offset: int) -> Set[int]:
        """Return the indexes of the samples of the newest record, at ``offset``, that came far ahead of all before."""
        return self._ahead[1] if self._ahead[0] == offset else frozenset()

    def hold(self, stream: str, run: Run, record_us: int | None) -> None:
        """Hold the sample of ``run``."""
        self.held[stream] = HeldSample(run, record_us, self.n_records)

    def held_index(self, stream: str, offset: int) -> int | None:
        """Return the index of the sample of the record at ``offset`` that is held, None if none is."""
        held = self.held.get(stream)
        return None if held is None or held.run.position.offset != offset else held.run.position.index

    def is_right(self, stream: str, time_us: int, newest_us: int) -> bool:
        """Return whether a sample at ``time_us`` lies nearer to the held one than to the newest before."""
        ahead_us = abs(time_us - self.held[stream].run.first_us)
        return ahead_us <= max(abs(time_us - newest_us), self._lateness_us)

    def accept(self, stream: str, offset: int | None) -> HeldSample:
        """Remove and return the held sample, accepted at the record ``offset`` (None: at the end of the input)."""
        held = self.held.pop(stream)
        moved_at = offset if held.record_us is None else None
        self._resolve(held, None, moved_at)
        return held

    def reject(self, stream: str, newest_us: int) -> None:
        """Remove the held sample: its time is wrong."""
        held = self.held.pop(stream)
        time, newest = from_us(held.run.first_us).isoformat(), from_us(newest_us).isoformat()
        self._resolve(held, f"{time} is far ahead of the stream's newest time {newest}, and the next sample is not")

    def _resolve(self, held: HeldSample, error: str | None, moved_at: int | None = None) -> None:
        offset = held.run.position.offset
        self._resolved.append(Resolved(held.run.position, error))
        jump = Jump(offset, moved_at, held.run.first_us)
        known = self._past.setdefault(offset, [])
        if jump not in known:
            known.append(jump)
        if len(self._past) > MAX_RECORDS:
            del self._past[min(self._past)]

    def take_resolved(self) -> list[Resolved]:
        """Return what became of held samples since the last call."""
        resolved, self._resolved = self._resolved, []
        return resolved

    # --- reading again ---

    def _repeat(self, jumps: Iterable[Jump]) -> None:
        self.moves += [(jump.moved_at, jump.time_us) for jump in jumps if jump.moved_at is not None]
        self.moves.sort(reverse=True)

    def moves_of(self, offset: int, times_us: IntArray) -> list[int]:
        """Return the times to which a done record at ``offset`` with ``times_us`` [n], as it has them, moved the clock.

        Not only the last one: the clock may have decided on another stream's held sample at any of them. Its own held
        samples moved it later, or not at all: ``moves_before`` yields those.
        """
        jumps = self._past.get(offset)
        if jumps is None:
            return [*times_us.tolist()]
        self._repeat(jumps)
        held = {jump.time_us for jump in jumps}
        others = [time_us for time_us in times_us.tolist() if time_us not in held]
        return [*others, *self.moves_before(offset)]

    def moves_before(self, offset: int) -> Iterator[int]:
        """Remove and yield the times to which held samples of done records moved the clock up to ``offset``."""
        while self.moves and self.moves[-1][0] <= offset:
            yield self.moves.pop()[1]

    def past(self, low_watermark: int) -> tuple[Jump, ...]:
        """Return the jumps that rereading from ``low_watermark`` on needs, and forget the others."""
        if not self._past:
            return ()
        kept = {
            offset: left
            for offset, jumps in self._past.items()
            if (left := [jump for jump in jumps if max(offset, jump.moved_at or -1) >= low_watermark])
        }
        self._past = kept
        return tuple(jump for offset in sorted(kept) for jump in kept[offset])
