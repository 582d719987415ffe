"""What is known of a judged sequence apart from its readings, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from streamad.judge.verdicts import NAMED_SHARE, figure, p_text, phrase
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
_SAID = {
    "normal": "normal",
    "anomalous": "alert",
    "unscorable": "could not be judged",
    "learning": "was not judged: there was no model yet",
}


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
    words = (f"{cut(each.channel, most or len(each.channel))} {100 * each.share:.0f} %" for each in named)
    return f"because of {', '.join(words)}" if named else ""


def cut(name: str, most: int) -> str:
    """Return ``name`` cut to ``most`` characters."""
    return name if len(name) <= most else name[: most - 1] + "…"


def score_line(facts: Facts) -> str:
    """Return decision, score, p-value and configured rate in words."""
    parts = [f"{MARKS['above']} ALERT" if facts.is_alert else f"● {facts.decision}"]
    if facts.score is not None:
        parts.append(f"score {facts.score:.4g}")
    if facts.p_value is not None:
        extrapolated = ", extrapolated" if facts.tail == "extrapolated" else ""
        at = "" if facts.rate is None else f" (alert at {facts.rate:g} or less{extrapolated})"
        parts.append(f"p {p_text(facts.p_value)}{at}")
    if facts.model is not None:
        parts.append(f"model {facts.model.name} {facts.model.version}")
    return "   ".join(parts)


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
    n = ", ".join(["1 sample" if facts.n_samples == 1 else f"{facts.n_samples} samples", *_lost(facts), *_batch(facts)])
    start, end = facts.start_time, facts.end_time
    if is_counted(start):
        return f"{elapsed(start)} to {elapsed(end)} since the start of its clock, {n}"
    first, last = f"{start:%Y-%m-%d %H:%M:%S}", f"{end:%Y-%m-%d %H:%M:%S}"
    if facts.span_s < _FINE_S:
        first, last = (f"{text}.{at.microsecond // 1000:03d}" for text, at in ((first, start), (last, end)))
    if start.date() == end.date():
        last = last.partition(" ")[2]
    return f"{first} to {last} UTC, {n}"


def _lost(facts: Facts) -> list[str]:
    parts = [f"{facts.n_merged} displaced by another of their time"] * bool(facts.n_merged)
    return parts + [f"{facts.n_late} too late"] * bool(facts.n_late)


def _batch(facts: Facts) -> list[str]:
    shown = [f"{cut(name, _CELL)}: {cut(cell, _CELL)}" for name, cell in facts.batch.items()]
    return shown[:_MOST_CELLS] + ["…"] * (len(shown) > _MOST_CELLS)


def departure(segment: ChannelSegment) -> str:
    """Return how a channel departs in a segment, such as "3.1 K above the band"."""
    if segment.size is None or segment.direction == "shape":
        return "unusual shape"
    return " ".join(filter(None, (figure(segment.size), cut(segment.unit, _UNIT), segment.direction, "the band")))


def speakers(attribution: Attribution) -> list[str]:
    """Return the members or transformations that spoke: the leading terms, or the largest one of older messages."""
    by_number = {each.transformation: each for each in attribution.terms}
    numbers = attribution.leading_terms or ([attribution.dominating_transformation] if attribution.terms else [])
    return [_speaker(by_number[number]) for number in numbers if number in by_number]


def _speaker(term: TermShare) -> str:
    who = term.member or f"transformation {term.transformation}"
    return f"{who} (term {term.term:.3g}, above {100 * term.calibration_quantile:.0f} % of calibration)"


def basis(attribution: Attribution) -> list[str]:
    """Return in words what the reasons rest on: who spoke, and the normal sequences that are nearest."""
    lines = []
    if spoke := speakers(attribution):
        lines.append(f"spoke: {', '.join(spoke)}")
    if attribution.nearest:
        near = ", ".join(f"{cut(each.sequence, _NAME)} ({each.distance:.2g})" for each in attribution.nearest[:3])
        lines.append(f"nearest normal sequences (distance): {near}")
    return lines


def is_explained(attribution: Attribution | None) -> bool:
    """Return whether there are reasons."""
    return attribution is not None and attribution.method != NO_METHOD
