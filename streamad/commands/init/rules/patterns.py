"""The rule that splits names of channels that also name their stream: Plant.R1.temp."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.words import STREAM, id_hints
from streamad.errors import some_of

OF_PATTERN = "{stream}"
"""The path of the column with the streams that a pattern finds."""
_SEPARATORS = "/.|:\\>"
_SAME_CHANNELS = 0.8
_FEWEST_CHANNELS = 2
_MOST_STREAMS = 1_000
_OF_A_LOOP = frozenset(
    {"pv", "sp", "op", "mv", "cv", "out", "mode", "val", "value", "v", "q", "raw", "avg", "min", "max"}
)


@dataclass(frozen=True, slots=True)
class Split:
    """The pattern of a column's texts, the streams and channels that they name, and a note that says so."""

    field: str
    parts: str
    streams: Column
    channels: Column

    @property
    def note(self) -> str:
        """Return the guess in a phrase."""
        streams = some_of(self.streams.texts)
        return (
            f"{self.field} names the stream, too: {streams} in {self.parts!r} (decode.fields.pattern); if these are "
            f"parts of one, write fields.channel: {self.field}"
        )


def find_pattern(column: Column, rest: Iterable[Column]) -> Split | None:
    """Return how the names of channels begin with that of their stream; None if they do not.

    Each stream has nearly the same channels, and no other field (``rest``) is named as the stream. If all names begin
    alike, the part before the channel is the stream.
    """
    names = [str(name) for name in column.counts]
    if any(id_hints(one.path) & STREAM and one.is_id for one in rest):
        return None
    for separator in _SEPARATORS:
        rows = [name.split(separator) for name in names]
        shortest = min(map(len, rows))
        if shortest < 2 or not all(all(parts) for parts in rows):
            continue
        at = next((at for at in range(shortest - 1) if len({parts[at] for parts in rows}) > 1), shortest - 2)
        return _split(column, separator, rows[0], at) if _is_split(rows, at) else None
    return None


def _is_split(rows: Sequence[Sequence[str]], at: int) -> bool:
    channels = {tuple(parts[at + 1 :]) for parts in rows}
    n_streams = len({parts[at] for parts in rows})
    if len(channels) < _FEWEST_CHANNELS or n_streams > _MOST_STREAMS:
        return False
    if all(len(parts) == 1 and parts[0].lower() in _OF_A_LOOP for parts in channels):
        return False  # TIC-101.PV and TIC-101.SP belong to one controller
    return len(rows) >= _SAME_CHANNELS * n_streams * len(channels)


def _split(column: Column, separator: str, first: Sequence[str], at: int) -> Split:
    before = "".join(f"{part}{separator}" for part in first[:at])
    streams, channels = Column(OF_PATTERN, list(column.rows)), Column("{channel}", list(column.rows))
    for value in column.values:
        parts = str(value).split(separator)
        streams.values.append(parts[at])
        channels.values.append(separator.join(parts[at + 1 :]))
    return Split(column.path, f"{before}{{stream}}{separator}{{channel}}", streams, channels)
