"""Tells the operator that streams above ``sequences.max_streams`` are locked out: at once, then once an hour."""

from __future__ import annotations

TOO_MANY_STREAMS = "too_many_streams"
_HOUR_US = 3_600_000_000


class RefusedStreams:
    """Counts the refused records of one partition. Law: two texts are an hour apart, and their counts add up."""

    def __init__(self, max_streams: int) -> None:
        self._max_streams = max_streams
        self._n_untold = 0
        self._first = ""
        self._told_us: int | None = None

    def note(self, error: str) -> None:
        """Note a record that was refused because of ``error``."""
        if not self._n_untold:
            self._first = error
        self._n_untold += 1

    def take(self, now_us: int) -> str | None:
        """Return the text of an event if one is due at ``now_us``, in wall-clock microseconds."""
        if not self._n_untold or (self._told_us is not None and now_us - self._told_us < _HOUR_US):
            return None
        n, self._n_untold, self._told_us = self._n_untold, 0, now_us
        return (
            f"{n} record{'s' * (n != 1)} of further streams refused: sequences.max_streams is {self._max_streams} "
            f"({self._first}); raise it, or check the field of the stream"
        )
