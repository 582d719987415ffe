"""The rules that split texts that also name a stream: names of channels (Plant.R1.temp), topics (plant/R1/samples)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.words import STREAM, id_hints
from streamad.errors import some_of

OF_PATTERN = "{stream}"
"""The path of the column with the streams that a pattern finds."""
TOPICS = frozenset({"topic", "mqtt_topic"})
_LEVELS = "/"
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
    channels: Column | None = None
    """None: the messages hold all channels, and the texts name the stream alone."""

    @property
    def note(self) -> str:
        """Return the guess in a phrase."""
        where = f"{some_of(self.streams.texts)} in {self.parts!r} (decode.fields.pattern)"
        if self.channels is None:
            return f"{self.field} names the stream: {where}"
        return (
            f"{self.field} names the stream, too: {where}; if these are parts of one, write "
            f"fields.channel: {self.field}"
        )


def find_pattern(column: Column, rest: Iterable[Column]) -> Split | None:
    """Return how the names of channels begin with that of their stream; None if they do not.

    Each stream has nearly the same channels, and no other field (``rest``) is named as the stream. If all names begin
    alike, the part before the channel is the stream.
    """
    names = [str(name) for name in column.counts]
    if _name_a_stream(rest):
        return None
    for separator in _SEPARATORS:
        rows = [name.split(separator) for name in names]
        shortest = min(map(len, rows))
        if shortest < 2 or not all(all(parts) for parts in rows):
            continue
        at = next((at for at in range(shortest - 1) if len({parts[at] for parts in rows}) > 1), shortest - 2)
        return _split(column, separator, rows[0], at) if _is_split(rows, at) else None
    return None


def find_stream(columns: Collection[Column]) -> Split | None:
    """Return the level of a topic that tells streams apart, of messages with all channels; None if no single one does.

    No other field is named as the stream.
    """
    if _name_a_stream(columns):
        return None
    for column in columns:
        if column.path.lower() not in TOPICS or not all(isinstance(value, str) for value in column.values):
            continue
        rows = [str(name).split(_LEVELS) for name in column.counts]
        found = [at for at, names in enumerate(zip(*rows, strict=False)) if len(set(names)) > 1]
        if (
            len(found) == 1
            and len({len(row) for row in rows}) == 1
            and len(rows) <= _MOST_STREAMS
            and all(map(all, rows))
        ):
            at = found[0]
            streams = Column(OF_PATTERN, list(column.rows), [str(value).split(_LEVELS)[at] for value in column.values])
            return Split(column.path, _LEVELS.join([*rows[0][:at], OF_PATTERN, *rows[0][at + 1 :]]), streams)
    return None


def _name_a_stream(columns: Iterable[Column]) -> bool:
    return any(id_hints(one.path) & STREAM and one.is_id for one in columns)


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
