"""Questions to the view store, and what they are answered with."""

from __future__ import annotations

import statistics
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

import msgspec

from streamad.errors import StreamadError
from streamad.judge.verdicts import NAMED_SHARE, NO_REASON, phrase
from streamad.language import Words, catalogued, gettext
from streamad.messages import NO_METHOD, Attribution, Direction, Window
from streamad.messages.accepting import MOST_BYTES
from streamad.web.store.warned import NEVER, WarningQuestions

_LAST_ID = "~"  # comes after every id
_DAMAGE = (zlib.error, msgspec.MsgspecError, UnicodeDecodeError, TypeError)
_T = TypeVar("_T")


class ContentError(StreamadError):
    """Raised if the view holds something of a sequence that cannot be read."""


@dataclass(frozen=True, slots=True)
class SeenSequence:
    """One sequence as the outputs describe it so far; what no message has said yet is None.

    ``rate`` is the configured false-alarm rate of its alert, None if there is none. ``judgement`` is the last mark,
    ``assignee`` who looks after the sequence. ``leading`` is the channel that the reasons name first.
    ``change`` grows with everything that was read. ``contradiction``: in what a message read later under this id says
    otherwise, None if none does. Times in us since 1970.
    """

    id: str
    change: int
    stream: str
    sequence: str
    decision: str | None
    reason: str | None
    detail: str | None
    start_us: int | None
    end_us: int | None
    n_samples: int | None
    n_merged: int | None
    n_late: int | None
    batch: str | None
    score: float | None
    p_value: float | None
    tail: str | None
    model: str | None
    version: str | None
    created_us: int | None
    rate: float | None
    judgement: str | None
    note: str | None
    judged_by: str | None
    judged_us: int | None
    assignee: str | None
    comment: str | None
    contradiction: str | None
    has_window: bool
    why: str | None
    leading: str | None

    @property
    def is_judged(self) -> bool:
        """Return whether a mark counts."""
        return self.judgement not in {None, "withdrawn"}

    @property
    def is_taken_up(self) -> bool:
        """Return whether somebody looks after it or has commented on it, before it is judged."""
        return not self.is_judged and bool(self.assignee or self.comment)

    @property
    def is_alert(self) -> bool:
        """Return whether an alert was raised."""
        return self.rate is not None


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One event of the plant."""

    id: str
    change: int
    kind: str
    message: str
    stream: str | None
    model: str | None
    version: str | None
    created_us: int


class Place(NamedTuple):
    """A place in a list of sequences, the newest first: behind the one with the id ``id``, which ended at ``end_us``.

    Without an id: behind all that ended then.
    """

    end_us: int
    id: str | None = None

    @classmethod
    def behind(cls, one: SeenSequence) -> Place:
        """Return the place behind ``one``."""
        return cls(one.end_us or 0, one.id)

    @property
    def values(self) -> tuple[int, int, str]:
        """Return the values for ``BEHIND``."""
        return self.end_us, self.end_us, self.id or _LAST_ID


class Moments(NamedTuple):
    """Mean and spread of each channel in one judged window, in the order of the config's channels."""

    means: list[float]
    spreads: list[float]


_WHY = f"""iif(json_valid(attribution), coalesce(
    json_extract(attribution, '$.segments[0]'),
    iif(json_extract(attribution, '$.channels[0].share') >= {NAMED_SHARE},
        json_object('channel', json_extract(attribution, '$.channels[0].channel')), NULL),
    iif(json_extract(attribution, '$.method') = '{NO_METHOD}', 'not explained', '{NO_REASON}')), NULL)"""
_NO_WHY = Words({"not explained": catalogued("not explained"), NO_REASON: catalogued("no channel stands out")})


class _Reason(msgspec.Struct):
    """The first segment of an attribution, or its leading channel alone."""

    channel: str
    unit: str = ""
    size: float | None = None
    direction: Direction | None = None
    start: float = 0.0
    end: float = 1.0


def _why_of(found: str | None) -> str | None:
    """Return in words why a sequence alerted; ``found`` is what ``_WHY`` selects."""
    if found is None or found in _NO_WHY:
        return None if found is None else _NO_WHY[found]
    with suppress(msgspec.DecodeError):
        reason = msgspec.json.decode(found, type=_Reason)
        if reason.direction is None:
            return gettext("because of %(channel)s", channel=reason.channel)
        return phrase(reason.channel, reason.unit, reason.size, reason.direction, reason.start, reason.end)
    return None


COLUMNS = ", ".join(
    {
        "has_window": "window IS NOT NULL",
        "why": _WHY,
        "leading": "json_extract(named, '$[0]')",
    }.get(field.name, field.name)
    for field in fields(SeenSequence)
)
EVENT_COLUMNS = ", ".join(field.name for field in fields(SeenEvent))
BEHIND = "end_us <= ? AND (end_us < ? OR id > ?)"
ANYWHERE = Place(NEVER)
_SHOWN = "(decision IS NOT NULL OR rate IS NOT NULL)"


class Questions(WarningQuestions):
    """What can be asked of the view, by any thread. Every question raises ViewError if the file cannot be read."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that the query finds. Raises ViewError."""

    @property
    def begun_us(self) -> int:
        """Return when this view was begun, in us since 1970."""
        ((value,),) = self._rows("SELECT value FROM meta WHERE name = 'begun_us'")
        return int(value)

    def sequence(self, name: str) -> SeenSequence | None:
        """Return the sequence with the id ``name``, None if no verdict or alert of it was read."""
        return next(iter(self._select(f"id = ? AND {_SHOWN}", (name,))), None)

    def window(self, name: str) -> Window | None:
        """Return the judged window of a sequence, None if none is kept. Raises ContentError."""
        content = self._content("window", name)
        return None if content is None else _read("window", lambda: unpacked_window(content))

    def attribution(self, name: str) -> Attribution | None:
        """Return the attribution of an alert, None if none was read. Raises ContentError."""
        content = self._content("attribution", name)
        return None if content is None else _read("attribution", lambda: unpacked_attribution(content))

    def _content(self, column: str, name: str) -> Any:
        rows = self._rows(f"SELECT {column} FROM sequences WHERE id = ?", (name,))
        return rows[0][0] if rows else None

    def moments(self, names: Sequence[str]) -> dict[str, Moments]:
        """Return mean and spread of each channel of the sequences with the ids ``names``, of those that have any."""
        query = (
            f"SELECT id, means, spreads FROM sequences WHERE id IN ({', '.join('?' * len(names))}) "
            "AND means IS NOT NULL AND spreads IS NOT NULL"
        )
        rows = self._rows(query, tuple(names))
        found = {}
        for name, means, spreads in rows:
            with suppress(*_DAMAGE):
                found[name] = Moments(*(msgspec.json.decode(each, type=list[float]) for each in (means, spreads)))
        return found

    def usual_size(self, stream: str, limit: int) -> tuple[float, float] | None:
        """Return the median number of samples and of seconds of the last normal sequences of a stream."""
        where = "stream = ? AND decision = 'normal' AND n_samples > 1 AND start_us IS NOT NULL"
        query = f"SELECT n_samples, end_us - start_us FROM sequences WHERE {where} ORDER BY end_us DESC LIMIT ?"
        rows = self._rows(query, (stream, limit))
        if not rows:
            return None
        return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows) / 1e6

    def of_stream(
        self,
        stream: str,
        limit: int,
        *,
        behind: Place | None = None,
        since_us: int = -NEVER,
        until_us: int = NEVER,
    ) -> list[SeenSequence]:
        """Return the sequences of one stream, the newest first, ``behind`` a place in the list.

        They ended from ``since_us`` to ``until_us``.
        """
        where = f"stream = ? AND end_us >= ? AND end_us <= ? AND {BEHIND} AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        return self._select(where, (stream, since_us, until_us, *(behind or ANYWHERE).values, limit))

    def n_alerts(self, stream: str, n: int) -> int:
        """Return how many of the last ``n`` sequences of one stream have an alert."""
        last = f"SELECT rate FROM sequences WHERE stream = ? AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        ((found,),) = self._rows(f"SELECT count(rate) FROM ({last})", (stream, n))
        return int(found)

    def latest(self, limit: int, *, since_us: int = -NEVER, until_us: int = NEVER) -> list[SeenSequence]:
        """Return the sequences that ended last, the newest first, of those that ended between two times."""
        where = f"end_us >= ? AND end_us <= ? AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        return self._select(where, (since_us, until_us, limit))

    def _select(self, where: str, values: Sequence[Any]) -> list[SeenSequence]:
        rows = self._rows(f"SELECT {COLUMNS} FROM sequences WHERE {where}", values)
        return [replace(one, why=_why_of(one.why)) for one in (SeenSequence(*row) for row in rows)]

    def events(self, limit: int, *, since_us: int = -NEVER, until_us: int = NEVER) -> list[SeenEvent]:
        """Return events, the newest first."""
        where = "created_us >= ? AND created_us <= ?"
        query = f"SELECT {EVENT_COLUMNS} FROM events WHERE {where} ORDER BY created_us DESC LIMIT ?"
        return [SeenEvent(*row) for row in self._rows(query, (since_us, until_us, limit))]

    def streams(self, limit: int) -> list[str]:
        """Return the names of the streams, those with the newest sequences first."""
        query = (
            "SELECT stream FROM sequences WHERE end_us IS NOT NULL GROUP BY stream ORDER BY max(end_us) DESC LIMIT ?"
        )
        return [row[0] for row in self._rows(query, (limit,))]

    def contradicted(self, limit: int) -> list[SeenSequence]:
        """Return sequences about which messages contradict each other, the newest first."""
        return self._select(f"contradiction IS NOT NULL AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?", (limit,))

    def decisions(self, n: int) -> dict[str, int]:
        """Return how many of the ``n`` sequences that ended last have each decision."""
        query = (
            "SELECT decision, count(*) FROM (SELECT coalesce(decision, 'anomalous') AS decision FROM sequences WHERE "
            f"{_SHOWN} AND end_us IS NOT NULL ORDER BY end_us DESC LIMIT ?) GROUP BY decision"
        )
        return dict(self._rows(query, (n,)))

    def p_values(self, version: str | None, limit: int) -> list[float]:
        """Return the p-values of the last sequences that ``version`` judged (None: any)."""
        query = (
            "SELECT p_value FROM sequences WHERE p_value IS NOT NULL AND (? IS NULL OR version = ?) "
            "ORDER BY end_us DESC LIMIT ?"
        )
        return [row[0] for row in self._rows(query, (version, version, limit))]


def unpacked_window(content: bytes) -> Window:
    """Return a window as the view holds it. Raises what zlib and msgspec raise."""
    reader = zlib.decompressobj()
    raw = reader.decompress(content, MOST_BYTES[Window])
    if not reader.eof:
        raise zlib.error("a window that is cut, or too large")
    return msgspec.json.decode(raw, type=Window)


def unpacked_attribution(content: str) -> Attribution:
    """Return an attribution as the view holds it. Raises what msgspec raises."""
    return msgspec.json.decode(content, type=Attribution)


def read_or_none(read: Callable[[], _T]) -> _T | None:
    """Return what ``read`` returns, None if that is damaged."""
    try:
        return read()
    except _DAMAGE:
        return None


def _read(what: str, read: Callable[[], _T]) -> _T:
    found = read_or_none(read)
    if found is None:
        raise ContentError(f"what the page's view holds of the {what} of this sequence is damaged")
    return found
