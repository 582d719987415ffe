"""What is known of a judged sequence apart from its readings, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from streamad.judge.verdicts import NAMED_SHARE, beyond, p_text, phrase
from streamad.language import Form, Words, catalogued, gettext, moment, ngettext, numeral, percent
from streamad.messages import (
    NO_METHOD,
    Alert,
    Attribution,
    ChannelSegment,
    Decision,
    EndReason,
    ModelRef,
    Tail,
    TermShare,
    Verdict,
)

MARKS = {"above": "▲", "below": "▼", "shape": "◆"}
"""The sign of each direction: no meaning is carried by colour alone."""
_NAMED = 3
_UNIT = 16  # characters of a unit
_NAME = 60
_CELL, _MOST_CELLS = 32, 4
_COUNTED_FROM = 1970
_FINE_S = 10.0  # shorter sequences have times in milliseconds
_SAID = Words(
    {
        "normal": catalogued("normal"),
        "anomalous": catalogued("alert"),
        "unscorable": catalogued("could not be judged"),
        "learning": catalogued("was not judged: there was no model yet"),
    }
)
_DECIDED = Words(
    {
        "normal": catalogued("normal"),
        "unscorable": catalogued("not judged"),
        "learning": catalogued("learning"),
    }
)


@dataclass(frozen=True, slots=True)
class Facts:
    """A judged sequence as its alert or verdict says it. ``rate``: the configured one, None if it is not known."""

    id: str
    stream: str
    sequence: str
    decision: Decision
    reason: EndReason
    start_time: datetime
    end_time: datetime
    n_samples: int
    created_at: datetime
    score: float | None = None
    p_value: float | None = None
    tail: Tail | None = None
    rate: float | None = None
    model: ModelRef | None = None
    detail: str | None = None
    n_merged: int = 0
    n_late: int = 0
    batch: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Alert | Verdict, rate: float | None = None) -> Facts:
        """Return the facts of an alert, or of a verdict with the configured ``rate``."""
        return cls(
            id=message.alert_id if isinstance(message, Alert) else message.verdict_id,
            decision="anomalous" if isinstance(message, Alert) else message.decision,
            stream=message.stream,
            sequence=message.sequence,
            reason=message.reason,
            start_time=_in_utc(message.start_time),
            end_time=_in_utc(message.end_time),
            n_samples=message.n_samples,
            created_at=_in_utc(message.created_at),
            score=message.score,
            p_value=message.p_value,
            tail=message.tail,
            rate=message.false_alarm_rate if isinstance(message, Alert) else rate,
            model=message.model,
            detail=None if isinstance(message, Alert) else message.detail,
            n_merged=message.n_merged,
            n_late=message.n_late,
            batch=message.batch,
        )

    @property
    def is_alert(self) -> bool:
        """Return whether the sequence raised an alert."""
        return self.decision == "anomalous"

    @property
    def span_s(self) -> float:
        """Return the seconds from the first to the last sample."""
        return (self.end_time - self.start_time).total_seconds()

    @property
    def name(self) -> str:
        """Return stream and sequence."""
        return f"{self.stream} {self.sequence}"


def _in_utc(at: datetime) -> datetime:
    """Return ``at`` in UTC; a time without an offset, which another program has written, counts as UTC."""
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def headline(facts: Facts, attribution: Attribution | None, most: int | None = None) -> str:
    """Return in one sentence which sequence it is, and ``finding``; names are cut to ``most`` characters."""
    stream, sequence = (cut(name, most or len(name)) for name in (facts.stream, facts.sequence))
    return f"{stream} {sequence}: {finding(facts, attribution, most)}"


def finding(facts: Facts, attribution: Attribution | None, most: int | None = None) -> str:
    """Return what was found: the first segment, else the channels with the largest shares, else the decision."""
    why = ""
    if attribution is not None and attribution.segments:
        first = attribution.segments[0]
        name = cut(first.channel, most or len(first.channel))
        why = phrase(name, first.unit, first.size, first.direction, first.start, first.end)
    elif attribution is not None:
        why = shares_of(attribution, most)
    if not why:
        why = _SAID[facts.decision]
        if facts.detail and not facts.is_alert:
            why += f" ({facts.detail})"
    return why


def shares_of(attribution: Attribution, most: int | None = None) -> str:
    """Return the channels with the largest shares, "" if none has a large one."""
    named = [each for each in attribution.channels[:_NAMED] if each.share >= NAMED_SHARE]
    words = (f"{cut(each.channel, most or len(each.channel))} {percent(each.share)}" for each in named)
    return gettext("because of %(channels)s", channels=", ".join(words)) if named else ""


def cut(name: str, most: int) -> str:
    """Return ``name`` cut to ``most`` characters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def score_line(facts: Facts) -> str:
    """Return decision, score, p-value and configured rate in words."""
    alert = MARKS["above"] + " " + gettext("ALERT")
    parts = [alert if facts.is_alert else f"● {_DECIDED[facts.decision]}"]
    if facts.score is not None:
        parts.append(gettext("score %(score)s", score=numeral(f"{facts.score:.4g}")))
    if facts.p_value is not None:
        parts.append(f"p {p_text(facts.p_value)}{_limit(facts)}")
    if facts.model is not None:
        parts.append(gettext("model %(name)s %(version)s", name=facts.model.name, version=facts.model.version))
    return "   ".join(parts)


def _limit(facts: Facts) -> str:
    if facts.rate is None:
        return ""
    rate = numeral(f"{facts.rate:g}")
    if facts.tail == "extrapolated":
        return " " + gettext("(alert at %(rate)s or less, extrapolated)", rate=rate)
    return " " + gettext("(alert at %(rate)s or less)", rate=rate)


def is_counted(at: datetime) -> bool:
    """Return whether a time counts from a start: a sequence with relative times has no date, and begins in 1970."""
    return at.year == _COUNTED_FROM


def elapsed(at: datetime) -> str:
    """Return a time that counts from a start: 0:09:45, or 0:00:01.580."""
    seconds = (at - datetime(_COUNTED_FROM, 1, 1, tzinfo=UTC)).total_seconds()
    whole = f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}"
    return f"{whole}:{seconds % 60:06.3f}" if seconds % 1 else f"{whole}:{int(seconds) % 60:02d}"


def when(facts: Facts) -> str:
    """Return start, end, length, what was lost, and the row in the table of batches, in words."""
    start, end = facts.start_time, facts.end_time
    if is_counted(start):
        first, last = elapsed(start), elapsed(end)
        return gettext("%(first)s to %(last)s since the start of its clock, %(what)s", first=first, last=last,
                       what=seen_of(facts))  # fmt: skip
    form: Form = "fine" if facts.span_s < _FINE_S else "second"
    first, last = moment(start, form, is_zoned=False), moment(end, form)
    if first.partition(" ")[0] == last.partition(" ")[0]:
        last = last.partition(" ")[2]
    return gettext("%(first)s to %(last)s, %(what)s", first=first, last=last, what=seen_of(facts))


def seen_of(facts: Facts) -> str:
    """Return how many samples there were, what was lost, and the row in the table of batches, in words."""
    n = ngettext("%(num)s sample", "%(num)s samples", facts.n_samples)
    return ", ".join([n, *_lost(facts), *_batch(facts)])


def _lost(facts: Facts) -> list[str]:
    merged = gettext("%(n)s displaced by another of their time", n=facts.n_merged)
    late = gettext("%(n)s too late", n=facts.n_late)
    return [merged] * bool(facts.n_merged) + [late] * bool(facts.n_late)


def _batch(facts: Facts) -> list[str]:
    shown = [f"{cut(name, _CELL)}: {cut(cell, _CELL)}" for name, cell in facts.batch.items()]
    return shown[:_MOST_CELLS] + ["…"] * (len(shown) > _MOST_CELLS)


def departure(segment: ChannelSegment) -> str:
    """Return how a channel departs in a segment, such as "3.1 K above the band"."""
    if segment.size is None or segment.direction == "shape":
        return gettext("unusual shape")
    return beyond(segment.size, cut(segment.unit, _UNIT), segment.direction)


def speakers(attribution: Attribution) -> list[str]:
    """Return the members or transformations that spoke: the leading terms, or the largest one of older messages."""
    by_number = {each.transformation: each for each in attribution.terms}
    numbers = attribution.leading_terms or ([attribution.dominating_transformation] if attribution.terms else [])
    return [_speaker(by_number[number]) for number in numbers if number in by_number]


def _speaker(term: TermShare) -> str:
    who = term.member or gettext("transformation %(number)s", number=term.transformation)
    size, above = numeral(f"{term.term:.3g}"), percent(term.calibration_quantile)
    return gettext("%(who)s (term %(size)s, above %(share)s of calibration)", who=who, size=size, share=above)


def basis(attribution: Attribution) -> list[str]:
    """Return in words what the reasons rest on: who spoke, and the normal sequences that are nearest."""
    lines = []
    if spoke := speakers(attribution):
        lines.append(gettext("spoke: %(who)s", who=", ".join(spoke)))
    if attribution.nearest:
        near = ", ".join(f"{cut(each.sequence, _NAME)} ({each.distance:.2g})" for each in attribution.nearest[:3])
        lines.append(gettext("nearest normal sequences (distance): %(names)s", names=near))
    return lines


def is_explained(attribution: Attribution | None) -> bool:
    """Return whether there are reasons."""
    return attribution is not None and attribution.method != NO_METHOD
