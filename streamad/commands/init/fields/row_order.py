"""The rows of a sample in the order of time, and how well ids tell interleaved sequences in it apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from streamad.commands.init.fields.columns import Column
from streamad.errors import DecodeError
from streamad.ingest.decode_times import TimeReader
from streamad.settings.time_format import join_clock

_LONGEST_STEP = 5  # in usual steps: a longer one is a pause


class RowOrder:
    """The rows of a sample by time; ``read`` gives the time of each row, which is done once, if it is needed.

    Rows stay in the order of the file if ``read`` is None: the times begin anew in each sequence.
    """

    def __init__(
        self, n_rows: int, read: Callable[[], Mapping[int, int]] | None, channel: Column | None = None
    ) -> None:
        self._n_rows = n_rows
        self._read = read
        self._channels = {} if channel is None else channel.by_row

    @cached_property
    def _times_us(self) -> Mapping[int, int]:
        return {} if self._read is None else self._read()

    @cached_property
    def _rows(self) -> list[int]:
        if self._read is None:
            return list(range(self._n_rows))
        return sorted(self._times_us, key=lambda row: (self._times_us[row], row))

    def disorder(self, stream: Column | None, sequence: Column | None) -> float:
        """Return the share of rows that make the sequences of ``stream`` overlap.

        They go back to a sequence that another one has followed, or have the time of another row of their sequence.
        """
        streams, sequences = _by_row(stream), _by_row(sequence)
        current: dict[str, str] = {}
        seen: set[tuple[str, str]] = set()
        newest: dict[tuple[str, str, object], int] = {}
        wrong = 0
        for row in self._rows:
            of_stream, of_sequence = streams.get(row, ""), sequences.get(row, "")
            key = of_stream, of_sequence
            has_gone_back = key in seen and current[of_stream] != of_sequence
            current[of_stream] = of_sequence
            seen.add(key)
            time_us, of_channel = self._times_us.get(row), (*key, self._channels.get(row))
            is_double = time_us is not None and newest.get(of_channel) == time_us
            if time_us is not None:
                newest[of_channel] = time_us
            wrong += has_gone_back or is_double
        return wrong / max(1, len(self._rows))

    def is_continuous(self, stream: Column | None, sequence: Column) -> bool:
        """Return whether each sequence is one course in time without a pause."""
        if self.disorder(stream, sequence):
            return False
        streams, sequences = _by_row(stream), _by_row(sequence)
        newest: dict[tuple[str, str], int] = {}
        steps_us = []
        for row in self._rows:
            key, time_us = (streams.get(row, ""), sequences.get(row, "")), self._times_us.get(row)
            if time_us is None:
                continue
            if key in newest and time_us > newest[key]:
                steps_us.append(time_us - newest[key])
            newest[key] = time_us
        return not steps_us or max(steps_us) <= _LONGEST_STEP * float(np.median(steps_us))


def times_by_row(dates: Column, clocks: Column | None, reader: TimeReader, form: str | None = None) -> dict[int, int]:
    """Return the time of each row in microseconds; those that cannot be read are left out.

    ``clocks`` holds times of day if ``dates`` holds dates alone; ``form`` is the format of both together.
    """
    of_day = {} if clocks is None else clocks.by_row
    known: dict[object, int | None] = {}
    found = {}
    for row, date in zip(dates.rows, dates.values, strict=True):
        value = date if clocks is None else join_clock(date, of_day.get(row, ""), form)
        key = value if isinstance(value, (str, int, float)) else str(value)
        if key not in known:
            known[key] = _time_us(value, reader)
        if (time_us := known[key]) is not None:
            found[row] = time_us
    return found


def _time_us(value: object, reader: TimeReader) -> int | None:
    try:
        return reader.one(value)
    except DecodeError:
        return None


def _by_row(column: Column | None) -> dict[int, str]:
    return {} if column is None else {row: str(value) for row, value in column.by_row.items()}
