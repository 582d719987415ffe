"""Ids that come again after the end of their sequence: where a sample shows it, and what to write then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from streamad.commands.shared.console import count
from streamad.ingest.sequences.closed_sequences import Closed
from streamad.messages import LateRecord
from streamad.types import to_us

_FEWEST_AGAIN = 5
"""So many samples of an id after its sequence's end are more than stragglers."""


class Place(NamedTuple):
    """The origin of a sequence: its partition, its stream, and its id, None if it has none."""

    partition: str
    stream: str
    key: str | None


@dataclass(slots=True)
class Again:
    """Samples with an id whose sequence has ended, after its end; ``pause_us`` is the shortest time since that end."""

    n: int
    pause_us: int


@dataclass(slots=True)
class Recurring:
    """The ids of a sample that come again, by place; ``ends_us`` are the ends of all sequences so far."""

    ends_us: dict[Place, int] = field(default_factory=dict)
    again: dict[Place, Again] = field(default_factory=dict)

    def add(self, partition: str, closed: Closed) -> Place:
        """Note the end of a sequence; return its place."""
        place = Place(partition, closed.sequence.stream, closed.key)
        self.ends_us[place] = closed.sequence.end_us
        return place

    def note_late(self, partition: str, late: LateRecord, *, is_relative: bool) -> None:
        """Add late samples that lie after the end of their sequence, or of an id whose relative times begin anew."""
        place = Place(partition, late.stream, late.sequence)
        end_us = self.ends_us.get(place)
        if late.sequence is None or end_us is None:
            return
        # A relative time counts from the start of the sequence that has ended, so it says nothing of the pause.
        pauses_us = [max(0, to_us(time) - end_us) for time in late.times if is_relative or to_us(time) > end_us]
        if pauses_us:
            found = self.again.setdefault(place, Again(0, min(pauses_us)))
            found.n += len(pauses_us)
            found.pause_us = min(found.pause_us, *pauses_us)

    @property
    def _found(self) -> dict[Place, Again]:
        return {place: again for place, again in self.again.items() if again.n >= _FEWEST_AGAIN}

    @property
    def pause_us(self) -> int | None:
        """Return the shortest time after which an id comes again with several samples; None if none does."""
        return min((again.pause_us for again in self._found.values()), default=None)

    @property
    def text(self) -> str:
        """Return which ids come again; some do."""
        first, n = next(iter(self._found)), len(self._found)
        comes = "comes" if n == 1 else "come"
        return f"{count(n, 'id')} {comes} again after the end, such as {first.key} of {first.stream}"

    @property
    def advice(self) -> str:
        """Return what to write if they are other sequences, and if they are not."""
        return (
            f"if each time is another sequence, write sequences.closed_memory: {(self.pause_us or 0) // 2_000_000}s; "
            "if several go on at once, leave change out of sequences.end"
        )
