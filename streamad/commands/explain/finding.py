"""Finds all messages about one sequence in a plant's outputs, by its id or the beginning of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from streamad.errors import UsageError
from streamad.messages import Alert, Attribution, Role, Verdict, Window
from streamad.outputs.reader import Skipped
from streamad.outputs.reading import is_there, place_of, present
from streamad.plant import Plant

_SHORTEST = 6
_ID = re.compile(r"[0-9a-f]{6,32}")
_SHOWN_IDS = 5
_SHOWN_CHARACTERS = 80
_KINDS: dict[Role, tuple[type[Alert | Attribution | Verdict | Window], ...]] = {
    "alerts": (Alert, Verdict),  # unscorable verdicts, without a verdicts sink
    "verdicts": (Verdict,),
    "attributions": (Attribution,),
    "windows": (Window,),
}


def checked_id(text: str) -> str:
    """Return an id, or the beginning of one, in lower case. Raises UsageError for any other text."""
    name = text.strip().lower()
    if _ID.fullmatch(name):
        return name
    if re.fullmatch(r"[0-9a-f]*", name):
        rule = f"give its 32 hex digits, or at least the first {_SHORTEST}"
    else:
        rule = "an id has hex digits only (0-9, a-f), as at the end of the alert's line"
    raise UsageError(f"{text[:_SHOWN_CHARACTERS]!r} is not the id of an alert or verdict: {rule}")


@dataclass(slots=True)
class Found:
    """The messages about one sequence that the outputs hold; of several of one kind, the last one."""

    alert: Alert | None = None
    verdict: Verdict | None = None
    attribution: Attribution | None = None
    window: Window | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no message was found that this release reads."""
        return self.alert is None and self.verdict is None

    def add(self, message: Alert | Verdict | Attribution | Window) -> None:
        """Note a message."""
        if isinstance(message, Alert):
            self.alert = message
        elif isinstance(message, Verdict):
            self.verdict = message
        elif isinstance(message, Attribution):
            self.attribution = message
        else:
            self.window = message


@dataclass(slots=True)
class Findings:
    """The messages in the outputs about the sequences whose id begins as wanted; ``places`` were read.

    ``skipped``: lines that are unreadable, of those that have this beginning or no id.
    """

    beginning: str
    by_id: dict[str, Found] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Skipped)

    def one(self) -> Found | None:
        """Return the messages of the only sequence; None if there is none. Raises UsageError for several."""
        if len(self.by_id) > 1:
            shown = ", ".join(f"{name} ({_named(found)})" for name, found in list(self.by_id.items())[:_SHOWN_IDS])
            more = f" and {len(self.by_id) - _SHOWN_IDS} more" if len(self.by_id) > _SHOWN_IDS else ""
            raise UsageError(
                f"{len(self.by_id)} ids begin with {self.beginning}: give more digits of one of {shown}{more}"
            )
        return next(iter(self.by_id.values()), None)

    @property
    def id(self) -> str:
        """Return the whole id if a message has it, else the beginning."""
        return next(iter(self.by_id), self.beginning)


def _named(found: Found) -> str:
    message = found.alert or found.verdict or found.attribution or found.window
    assert message is not None
    return f"{message.stream} {message.sequence}"


async def find(plant: Plant, beginning: str) -> Findings:
    """Read the outputs of ``plant`` for all sequences whose id begins with ``beginning``. Raises SourceError."""
    findings = Findings(beginning)

    def is_wanted(name: str) -> bool:
        return name.startswith(beginning)

    for role, kinds in _KINDS.items():
        if not is_there(plant, role):
            continue
        findings.places.append(str(place_of(plant, role)))
        skip = findings.skipped.add
        async for message in present(plant, role, kinds, is_wanted=is_wanted, on_unreadable=skip):
            name = message.alert_id if isinstance(message, Alert | Attribution) else message.verdict_id
            findings.by_id.setdefault(name, Found()).add(message)
    return findings


async def judged_after(plant: Plant, beginning: str) -> str | None:
    """Return the id of the verdict that names a warning whose id begins with ``beginning``. Raises SourceError."""
    judged = None
    async for verdict in present(plant, "verdicts", (Verdict,)):
        if verdict.warning is not None and verdict.warning.warning_id.startswith(beginning):
            judged = verdict.verdict_id
    return judged
