"""Which alerts a list shows: what a person asks for, and the same as a condition of SQL with its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from streamad.errors import UsageError
from streamad.language import gettext
from streamad.types import to_us
from streamad.web.store.warned import NEVER

MOST_CHARACTERS: Final = 200
_UNJUDGED = "(judgement IS NULL OR judgement = 'withdrawn')"
STATES: Final[Mapping[str, str]] = {
    "new": _UNJUDGED,
    "judged": f"NOT {_UNJUDGED}",
    "false_alarm": "judgement = 'false_alarm'",
    "confirmed": "judgement = 'confirmed'",
    "veto": "judgement = 'veto'",
}
_TEXTS = ("q", "stream", "channel", "batch", "assigned", "state", "from", "to", "zone")
_SEARCHED = ("sequence", "stream", "batch", "note", "comment")


class Condition(NamedTuple):
    """A condition on the rows of sequences; ``values``: what is bound to its question marks."""

    where: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What alerts must be like.

    ``since_us`` and ``until_us``: when they ended, in us since 1970.
    """

    state: str = ""
    stream: str = ""
    channel: str = ""
    batch: str = ""
    assigned: str = ""
    text: str = ""
    since_us: int = -NEVER
    until_us: int = NEVER

    @classmethod
    def of(cls, given: Mapping[str, str], zone: tzinfo | None) -> Wanted:
        """Return what a form asks for, its dates in ``zone``, or that of the form. Raises UsageError."""
        for name in _TEXTS:
            text = given.get(name, "")
            if len(text) > MOST_CHARACTERS or "\0" in text:
                raise UsageError(
                    gettext("%(name)s is no text of %(most)s characters or less", name=name, most=MOST_CHARACTERS)
                )
        if (state := given.get("state", "")) and state not in STATES:
            raise UsageError(gettext("there is no state %(name)s: choose one of the list", name=repr(state)))
        since, until = given.get("from", ""), given.get("to", "")
        zone = zone or _zone(given.get("zone", "UTC"))
        wanted = cls(
            state=state,
            stream=given.get("stream", ""),
            channel=given.get("channel", ""),
            batch=given.get("batch", "").strip(),
            assigned=given.get("assigned", "").strip(),
            text=given.get("q", "").strip(),
            since_us=_time_us(since, zone) if since else -NEVER,
            until_us=_time_us(until, zone, is_end=True) if until else NEVER,
        )
        if wanted.since_us > wanted.until_us:
            raise UsageError(
                gettext("from %(since)s lies after to %(until)s: no alert can be between", since=since, until=until)
            )
        return wanted

    @property
    def condition(self) -> Condition:
        """Return it as a condition."""
        parts: list[tuple[str, tuple[Any, ...]]] = []
        if self.state:
            parts.append((STATES[self.state], ()))
        parts += [(f"{name} = ?", (value,)) for name, value in (("stream", self.stream), ("assignee", self.assigned))
                  if value]  # fmt: skip
        if self.channel:
            parts.append(("EXISTS (SELECT 1 FROM json_each(named) WHERE json_each.value = ?)", (self.channel,)))
        if self.batch:
            parts.append((_like(("sequence", _BATCH)), (_pattern(self.batch),) * 2))
        if self.text:
            parts.append((_like(_SEARCHED), (_pattern(self.text),) * len(_SEARCHED)))
        parts.append(("end_us >= ? AND end_us <= ?", (self.since_us, self.until_us)))
        return Condition(
            " AND ".join(where for where, _ in parts), tuple(each for _, values in parts for each in values)
        )


_BATCH = "(SELECT group_concat(value, char(10)) FROM json_each(sequences.batch))"


def _like(columns: tuple[str, ...]) -> str:
    return "(" + " OR ".join(f"{_BATCH if each == 'batch' else each} LIKE ? ESCAPE '\\'" for each in columns) + ")"


def _pattern(text: str) -> str:
    """Return the pattern of what holds ``text``: its own wildcards are letters."""
    for mark in "\\%_":
        text = text.replace(mark, f"\\{mark}")
    return f"%{text}%"


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name or "UTC")
    except (KeyError, ValueError, OSError) as error:
        raise UsageError(gettext("there is no time zone %(name)s", name=repr(name[:80]))) from error


def _time_us(text: str, zone: tzinfo, *, is_end: bool = False) -> int:
    """Return the time that ``text`` names; with ``is_end`` the end of its day or minute. Raises UsageError."""
    is_day = len(text) == len("2026-11-01")
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            at = at.replace(tzinfo=zone)
        if is_end:
            at += timedelta(days=1) if is_day else timedelta(minutes=1)
        return to_us(at) - is_end
    except (ValueError, OverflowError) as error:
        raise UsageError(
            gettext("%(text)s is no time: write it as 2026-11-28 or 2026-11-28T06:00", text=repr(text))
        ) from error
