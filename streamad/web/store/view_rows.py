"""What a message may set of a sequence in the view: the law of ids. Pure.

An id is a hash of stream, sequence and start, and a sequence is judged once. So what was read first under an id stays:

1. A message of a kind that was read before sets nothing. It is a repetition, or says otherwise: a contradiction.
2. A message of another kind adds to what was read. If it names another stream, sequence, start, end or number of
   samples, it sets nothing: a contradiction.
3. An alert of the same sequence is shown whatever a verdict says, or a forged verdict could hide it.
4. Reasons and windows do not identify a sequence: those read before its verdict or alert have to fit it.
"""

from __future__ import annotations

import math
import zlib
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from streamad.judge.verdicts import NAMED_SHARE
from streamad.messages import Alert, Attribution, Verdict, Window
from streamad.types import to_us

Judgement: TypeAlias = Verdict | Alert | Attribution | Window
"""A message about one sequence."""
_SCORE_TOLERANCE = 1e-3  # the last digits of a score depend on what was scored together
_IDENTITY = ("stream", "sequence", "start_us", "end_us", "n_samples")
_WORDS = {"start_us": "start", "end_us": "end", "n_samples": "samples", "version": "model version"}


class Known(NamedTuple):
    """What the view holds of a sequence before a message is taken up."""

    stream: str
    sequence: str
    start_us: int | None
    end_us: int | None
    n_samples: int | None
    decision: str | None
    score: float | None
    model: str | None
    version: str | None
    rate: float | None
    created_us: int | None
    contradiction: str | None
    has_attribution: bool
    has_window: bool

    @property
    def is_judged(self) -> bool:
        """Return whether its verdict or alert was read."""
        return self.end_us is not None

    @property
    def has_verdict(self) -> bool:
        """Return whether its verdict was read: no other message says when it was made."""
        return self.created_us is not None

    def waits_for(self, message: Judgement) -> bool:
        """Return whether ``message`` is the first to identify the sequence, after its reasons or window."""
        return isinstance(message, Verdict | Alert) and not self.is_judged and (self.has_attribution or self.has_window)


_EXPRESSIONS = {
    "has_attribution": "attribution IS NOT NULL",
    "has_window": "window IS NOT NULL",
}
KNOWN_COLUMNS: Final = tuple(_EXPRESSIONS.get(name, name) for name in Known._fields)


class Taken(NamedTuple):
    """The columns that a message sets, and in what it contradicts what was read before, if it does."""

    columns: dict[str, Any]
    contradiction: str | None = None


def id_of(message: Judgement) -> str:
    """Return the id of the sequence that ``message`` is about."""
    return message.alert_id if isinstance(message, Alert | Attribution) else message.verdict_id


def taken_up(message: Judgement, known: Known | None) -> Taken:
    """Return what ``message`` sets of the sequence of its id, of which ``known`` was read before."""
    match message:
        case Verdict():
            return _verdict(message, known)
        case Alert():
            return _alert(message, known)
        case Attribution():
            reasons = msgspec.json.encode(message).decode()
            columns = {"attribution": reasons, "named": named_in(message)}
            return _addition(message, columns, known, is_known=bool(known and known.has_attribution))
        case Window():
            packed = zlib.compress(msgspec.json.encode(message), 1)
            return _addition(message, {"window": packed}, known, is_known=bool(known and known.has_window))


def named_in(attribution: Attribution) -> str:
    """Return the channels that the reasons name, as a JSON list: where it departs, then those with a share."""
    shares = [each.channel for each in attribution.channels if each.share >= NAMED_SHARE]
    return msgspec.json.encode(
        list(dict.fromkeys([*(each.channel for each in attribution.segments), *shares]))
    ).decode()


def _verdict(verdict: Verdict, known: Known | None) -> Taken:
    columns = _of_verdict(verdict)
    if known is None or not known.is_judged:
        return Taken(columns)
    if (contradiction := _contradiction("verdict", known, columns)) is not None:
        return Taken({}, contradiction)
    if known.has_verdict:
        return Taken({})
    return Taken({name: columns[name] for name in ("detail", "created_us", "means", "spreads")})


def _alert(alert: Alert, known: Known | None) -> Taken:
    columns = _of_alert(alert)
    if known is None or not known.is_judged:
        return Taken(columns)
    contradiction = _contradiction("alert", known, columns)
    if contradiction is None:
        return Taken({"rate": alert.false_alarm_rate} if known.rate is None else {})
    if known.rate is not None or _differing(known, columns, _IDENTITY):
        return Taken({}, contradiction)
    return Taken(columns, contradiction)


def _addition(message: Attribution | Window, content: dict[str, Any], known: Known | None, *, is_known: bool) -> Taken:
    identity: dict[str, Any] = {"stream": message.stream, "sequence": message.sequence}
    if isinstance(message, Window):
        identity |= _span(message)
    if known is not None and known.is_judged and (differing := _differing(known, identity, _IDENTITY)):
        return Taken({}, _said(type(message).__name__.lower(), differing))
    return Taken({} if is_known else content)


def _contradiction(kind: str, known: Known, columns: dict[str, Any]) -> str | None:
    """Return in what a verdict or alert differs from what was read before, None if in nothing."""
    differing = _differing(known, columns, (*_IDENTITY, "decision", "model", "version"))
    if not _is_close(known.score, columns["score"]):
        differing.append("score")
    return _said(kind, differing) if differing else None


def _differing(known: Known, columns: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in columns and getattr(known, name) != columns[name]]


def _is_close(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=_SCORE_TOLERANCE)


def _said(kind: str, differing: list[str]) -> str:
    return f"{kind}: {', '.join(_WORDS.get(name, name) for name in differing)}"


def _span(message: Verdict | Alert | Window) -> dict[str, Any]:
    return {
        "start_us": to_us(message.start_time),
        "end_us": to_us(message.end_time),
        "n_samples": message.n_samples,
    }


def _lost(message: Verdict | Alert) -> dict[str, Any]:
    batch = msgspec.json.encode(message.batch).decode() if message.batch else None
    return {"n_merged": message.n_merged, "n_late": message.n_late, "batch": batch}


def _of_verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "stream": verdict.stream,
        "sequence": verdict.sequence,
        "decision": verdict.decision,
        "reason": verdict.reason,
        "detail": verdict.detail,
        **_span(verdict),
        **_lost(verdict),
        "score": verdict.score,
        "p_value": verdict.p_value,
        "tail": verdict.tail,
        "model": None if verdict.model is None else verdict.model.name,
        "version": None if verdict.model is None else verdict.model.version,
        "created_us": to_us(verdict.created_at),
        "means": _numbers(verdict.means),
        "spreads": _numbers(verdict.spreads),
    }


def _numbers(values: list[float]) -> str | None:
    return msgspec.json.encode(values).decode() if values else None


def _of_alert(alert: Alert) -> dict[str, Any]:
    return {
        "stream": alert.stream,
        "sequence": alert.sequence,
        "decision": "anomalous",
        "reason": alert.reason,
        **_span(alert),
        **_lost(alert),
        "score": alert.score,
        "p_value": alert.p_value,
        "tail": alert.tail,
        "model": alert.model.name,
        "version": alert.model.version,
        "rate": alert.false_alarm_rate,
    }
