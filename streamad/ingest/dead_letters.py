"""Messages about what enters no sequence: dead letters of unreadable records, late records, and bad values.

Of bad values each channel has at most one letter an hour; the channels that have too many of them are an event. All of
it depends on the records alone, so a restart and a replay give the same. ``RefusedStreams`` tells the operator that
streams above ``sequences.max_streams`` are locked out: at once, then once an hour.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import NamedTuple

import msgspec
import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.decode_values import QUALITY
from streamad.ingest.sequences.open_sequence import LateEntry, LateSamples
from streamad.ingest.sequences.time_jumps import Resolved
from streamad.messages import DeadLetter, LateRecord, Origin
from streamad.partition_progress import BadChannel
from streamad.settings.decode import DecodeSettings
from streamad.types import BAD_REASONS, BadValues, IntArray, Position, Record, SampleBlock, from_us

TIME_JUMP = "time_jump"


def dead_letter(
    record: Record, partition: str, error: DecodeError, settings: DecodeSettings, now_us: int
) -> DeadLetter:
    """Return the dead letter of ``record``.

    Value and key are cut above ``max_dead_letter_bytes`` (``truncated``); ``size_bytes`` and ``sha256`` are those of
    the whole value.
    """
    limit, key = settings.max_dead_letter_bytes, record.key
    return DeadLetter(
        origin=Origin(partition, record.offset),
        kind=error.kind,
        error=str(error),
        value=record.value[:limit],
        key=None if key is None else key[:limit],
        truncated=len(record.value) > limit or (key is not None and len(key) > limit),
        size_bytes=len(record.value),
        sha256=hashlib.sha256(record.value).hexdigest(),
        created_at=from_us(now_us),
    )


def element_letters(
    record: Record,
    partition: str,
    found: Iterable[tuple[DecodeError, Iterator[bytes]]],
    settings: DecodeSettings,
    now_us: int,
) -> Iterator[DeadLetter]:
    """Yield the dead letters of elements of the list in ``record``: each has the message with that element alone.

    ``found`` holds the errors, each with the iterator whose next value is its message. All together hold no more bytes
    than a message may have: those that come after them hold none.
    """
    left, of_record = settings.max_message_bytes, None
    for error, values in found:
        # Its digest is that of the record: made once, however many elements there are.
        of_record = of_record or dead_letter(record, partition, error, settings, now_us)
        value = next(values) if left > 0 else record.value
        kept = value[: min(left, settings.max_dead_letter_bytes)]
        left -= len(kept)
        is_cut = len(kept) < len(value) or (record.key is not None and len(record.key) > settings.max_dead_letter_bytes)
        yield msgspec.structs.replace(of_record, kind=error.kind, error=str(error), value=kept, truncated=is_cut)


class Notice(NamedTuple):
    """An event about a partition: its kind, its text, and the stream that it concerns."""

    kind: str
    text: str
    stream: str | None = None


class HeldLetters:
    """The dead letters of records whose last sample is held, for the case that its time proves wrong.

    A held record is gone when its sample is decided on; after a restart it is read, and held, once more.
    """

    def __init__(self, partition: str, settings: DecodeSettings) -> None:
        self._partition = partition
        self._settings = settings
        self._letters: dict[Position, DeadLetter] = {}
        self._newest: DeadLetter | None = None

    def hold(self, record: Record, index: int, now_us: int) -> None:
        """Keep the dead letter of ``record``, whose sample at ``index`` is held."""
        if self._newest is None or self._newest.origin.offset != record.offset:
            self._newest = self._letter(record, now_us)
        self._letters[Position(record.offset, index)] = self._newest

    def take(self, resolved: Iterable[Resolved], record: Record, now_us: int) -> Iterator[DeadLetter]:
        """Yield the dead letters of those whose time proved wrong, and forget all that were decided on.

        A sample of ``record`` itself may be held and rejected at once; then it has no letter yet.
        """
        for decision in resolved:
            letter = self._letters.pop(decision.position, None)
            if decision.error is not None:
                letter = letter or self._letter(record, now_us)
                yield msgspec.structs.replace(letter, error=decision.error)

    def clear(self) -> None:
        """Forget all: their samples were accepted."""
        self._letters.clear()
        self._newest = None

    def _letter(self, record: Record, now_us: int) -> DeadLetter:
        return dead_letter(record, self._partition, DecodeError(TIME_JUMP, ""), self._settings, now_us)


def late_records(found: Iterable[LateSamples], partition: str, now_us: int) -> Iterator[LateRecord]:
    """Yield the late records of the samples ``found``; those of a chunk stay together."""
    for _, together in groupby(found, key=_message_of):
        yield _late_record(list(together), partition, now_us)


def late_text(late: LateEntry) -> str:
    """Return the text of the event about late samples without a sequence id."""
    return (
        "samples without a sequence id came later than sequences.allowed_lateness, so they have no verdict: "
        f"{late.n} from {from_us(late.first_us).isoformat()} to {from_us(late.last_us).isoformat()}"
    )


def _late_record(together: list[LateSamples], partition: str, now_us: int) -> LateRecord:
    first = together[0]
    rows = [row for late in together for row in late.values.tolist()]
    return LateRecord(
        origin=Origin(partition, first.offset),
        stream=first.stream,
        sequence=first.sequence,
        cause="closed" if first.closed else "late",
        times=[from_us(time_us) for late in together for time_us in late.times_us.tolist()],
        values=[[None if math.isnan(value) else value for value in row] for row in rows],
        created_at=from_us(now_us),
    )


def _message_of(late: LateSamples) -> tuple[int, str, str | None, bool]:
    """Return the key by which late samples share a late record: those of a chunk stay together."""
    return late.offset, late.stream, late.sequence, late.closed


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


def by_bad_sample(block: SampleBlock, left_out: Set[int]) -> list[SampleBlock]:
    """Return ``block`` in parts in the order of the record: each sample with values that cannot be used is one.

    Samples whose indexes are ``left_out`` are in none.
    """
    if block.bad is None and not left_out:
        return [block]
    indexes = np.arange(len(block)) if block.indexes is None else block.indexes
    order = [place for place in np.argsort(indexes).tolist() if int(indexes[place]) not in left_out]
    is_bad = np.zeros(len(block), dtype=np.bool_) if block.bad is None else (block.bad.codes > 0).max(axis=1)
    parts: list[list[int]] = []
    for place in order:
        if parts and not is_bad[place] and not is_bad[parts[-1][-1]]:
            parts[-1].append(place)
        else:
            parts.append([place])
    return [_part(block, np.array(places), is_bad=bool(is_bad[places[0]])) for places in parts]


def _part(block: SampleBlock, places: IntArray, *, is_bad: bool) -> SampleBlock:
    bad, indexes = None, places if block.indexes is None else block.indexes[places]
    if is_bad and block.bad is not None:
        bad = BadValues(block.bad.codes[places], block.bad.of_samples[int(places[0])])
    times_us, values = block.times_us[places], block.values[places]
    return msgspec.structs.replace(block, times_us=times_us, values=values, indexes=indexes, bad=bad, boundaries=None)
