"""Bad values of one partition: at most one dead letter an hour, and the channels that have too many of them.

All of it depends on the records alone, so a restart and a replay give the same letters and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamad.ingest.decode_rows import QUALITY
from streamad.partition_progress import BadChannel
from streamad.types import BAD_REASONS, BadValues, SampleBlock

BAD_VALUE = "bad_value"
"""The kind of dead letters whose record was read, but for the values that they name."""
HOUR_US = 3_600_000_000
WINDOW = 1_000
"""Readings of a channel that are counted together, from a bad one on."""
MOST_BAD = WINDOW // 20
MOST_CHANNELS = 256
"""Channels with a state of their own, which is part of every commit."""
_SHOWN = 3
_LETTER_CHARACTERS = 280


class _Window:
    """Counts the readings of one channel; ``is_over`` from more than 5 % bad ones on until a window has fewer."""

    def __init__(self, saved: BadChannel | None = None) -> None:
        saved = saved or BadChannel()
        self.letters = dict(saved.letters)
        self.is_over = saved.is_over
        self._seen, self._bad = saved.seen, saved.bad

    @property
    def is_open(self) -> bool:
        return self.is_over or self._seen > 0

    @property
    def saved(self) -> BadChannel:
        return BadChannel(letters=dict(self.letters), seen=self._seen, bad=self._bad, is_over=self.is_over)

    def take_bad(self) -> int | None:
        """Count a bad reading; if the channel is over the limit by it, return the number of readings counted."""
        self._bad += 1
        self._seen += 1
        if self._bad <= MOST_BAD:
            self._end_if_full()
            return None
        seen, was_over = self._seen, self.is_over
        self._seen, self._bad, self.is_over = 0, 0, True
        return None if was_over else seen

    def take_good(self, number: int) -> None:
        """Count so many readings that are not bad."""
        while number and self.is_open:
            taken = min(number, WINDOW - self._seen)
            self._seen += taken
            number -= taken
            self._end_if_full()

    def _end_if_full(self) -> None:
        if self._seen == WINDOW:
            self._seen, self._bad, self.is_over = 0, 0, False


class BadValueWatch:
    """Watches the bad values of a partition; ``saved`` is its share of the progress, by channel.

    ``open`` holds the indexes of the channels whose readings are being counted.
    """

    def __init__(self, channels: Sequence[str], saved: Mapping[str, BadChannel]) -> None:
        self._channels = channels
        columns = {name: column for column, name in enumerate(channels)}
        self._windows = {columns[name]: _Window(state) for name, state in saved.items() if name in columns}
        self.open = {column for column, window in self._windows.items() if window.is_open}
        self._over: list[str] = []
        self._pending = np.zeros(len(channels), dtype=np.int64)
        self._blocks = 0

    @property
    def saved(self) -> dict[str, BadChannel]:
        """Return the state for the progress."""
        self._settle()
        return {self._channels[column]: window.saved for column, window in self._windows.items()}

    def take_over(self) -> list[str]:
        """Return texts about the channels that since the last call got too many bad values."""
        over, self._over = self._over, []
        return over

    def note(self, block: SampleBlock, now_us: int) -> str | None:
        """Count the readings of ``block`` where bad ones are counted; return the text of a dead letter if one is due.

        ``now_us`` is the record's own time, or the event time if it has none.
        """
        present = np.isfinite(block.values).sum(axis=0)
        if block.bad is None:
            self._pending += present
            self._blocks += 1
            if self._blocks >= WINDOW:
                self._settle()
            return None
        letter = self._letter(block.bad, now_us)
        columns = sorted({column for column, _ in block.bad.first} & self._windows.keys())
        over = {column: self._count(block, block.bad, column) for column in columns}
        present[columns] = 0
        self._pending += present
        over = {column: seen for column, seen in over.items() if seen is not None}
        if over:
            found = _joined([f"{MOST_BAD + 1} of {seen} values of {self._channels[c]}" for c, seen in over.items()])
            reasons = {BAD_REASONS[code]: text for (column, code), text in block.bad.first.items() if column in over}
            first = "; ".join(f"{reason}: {text}" for reason, text in reasons.items())
            self._over.append(f"{found} cannot be used ({first})")
        return letter

    def _count(self, block: SampleBlock, bad: BadValues, column: int) -> int | None:
        """Count the readings of a channel with bad ones; return the number of them at which it went over the limit."""
        self._settle_one(column)
        window, over = self._windows[column], None
        is_bad = bad.codes[:, column] > 0
        is_reading = is_bad | np.isfinite(block.values[:, column])
        places = np.flatnonzero(is_bad[is_reading])
        for gap in (np.diff(places, prepend=-1) - 1).tolist():
            window.take_good(gap)
            over = window.take_bad() or over
        window.take_good(int(is_reading.sum()) - int(places[-1]) - 1)
        self._settle_one(column)
        return over

    def _settle(self) -> None:
        """Count the good readings that wait: they change nothing before a bad one comes."""
        for column in list(self.open):
            self._settle_one(column)
        self._pending[:] = 0
        self._blocks = 0

    def _settle_one(self, column: int) -> None:
        window = self._windows[column]
        window.take_good(int(self._pending[column]))
        self._pending[column] = 0
        (self.open.add if window.is_open else self.open.discard)(column)

    def _letter(self, bad: BadValues, now_us: int) -> str | None:
        texts = []
        for (column, code), text in bad.first.items():
            letters = self._letters_of(column, now_us)
            if letters is None or code == QUALITY:  # a bad quality is no surprise: the config names the good ones
                continue
            last_us = letters.get(BAD_REASONS[code])
            if last_us is None or now_us - last_us >= HOUR_US:
                letters[BAD_REASONS[code]] = now_us
                texts.append(f"{self._channels[column]}: {text}")
        return f"{_joined(texts)}; all else was read"[:_LETTER_CHARACTERS] if texts else None

    def _letters_of(self, column: int, now_us: int) -> dict[str, int] | None:
        """Return the times of a channel's letters by reason; None if too many others have a state."""
        if column not in self._windows:
            if len(self._windows) >= MOST_CHANNELS:
                self._forget(now_us)
            if len(self._windows) >= MOST_CHANNELS:
                return None
            self._windows[column] = _Window()
        return self._windows[column].letters

    def _forget(self, now_us: int) -> None:
        """Drop the states that change nothing: no window is open, and the next letter is due anyway."""
        self._settle()
        for column, window in list(self._windows.items()):
            if not window.is_open and all(now_us - last_us >= HOUR_US for last_us in window.letters.values()):
                del self._windows[column]


def _joined(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
