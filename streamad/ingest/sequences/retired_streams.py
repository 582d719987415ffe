"""Streams that were forgotten, whose progress rereading may still need."""

from __future__ import annotations

from collections.abc import Container

from streamad.ingest.sequences.runs import Clocks
from streamad.ingest.sequences.sequence_ends import StreamState


class RetiredStreams:
    """The former lives of streams, the oldest first: a stream that is forgotten is new if it comes again."""

    def __init__(self) -> None:
        self._lives: dict[str, list[StreamState]] = {}

    def add(self, stream: StreamState, at: int) -> None:
        """Keep ``stream``, forgotten before the record at the offset ``at``."""
        stream.retired_at = at
        self._lives.setdefault(stream.name, []).append(stream)

    def lives(self, name: str, present: StreamState | None) -> list[StreamState]:
        """Return all lives of a stream, oldest first; ``present`` is the last one."""
        former = self._lives.get(name, []) if self._lives else []
        return former if present is None else [*former, present]

    def oldest(self, name: str, present: StreamState | None) -> tuple[int, Clocks] | None:
        """Return the lowest offset of an undone sample of a stream, with the clocks before it; None if all is done."""
        return next((oldest for life in self.lives(name, present) if (oldest := life.oldest()) is not None), None)

    def drop(self, low_watermark: int, clock_us: int | None, waiting: Container[str]) -> list[str]:
        """Drop what a restart at ``low_watermark`` would forget before it sees a record of it; return the names.

        ``clock_us`` is the clock there; streams in ``waiting`` have forced ends that are not repeated yet.
        """

        def is_needed(life: StreamState) -> bool:
            is_unseen = life.retired_at is not None and life.retired_at <= low_watermark
            is_forgotten = is_unseen or (clock_us is not None and life.forget_us < clock_us)
            return bool(life.in_flight) or life.name in waiting or not is_forgotten

        dropped = []
        for name in list(self._lives):
            lives = [life for life in self._lives[name] if is_needed(life)]
            if len(lives) == len(self._lives[name]):
                continue
            dropped.append(name)
            if lives:
                self._lives[name] = lives
            else:
                del self._lives[name]
        return dropped
