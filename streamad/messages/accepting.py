"""Which messages of the outputs a reader takes up, and what of them: whoever can write a topic can write anything."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any, Final, TypeVar, cast, get_args

import msgspec

from streamad.messages import (
    Alert,
    Attribution,
    ChannelSegment,
    Decision,
    EarlyWarning,
    OpenSequence,
    Running,
    Verdict,
    Window,
    WorkerStatus,
)

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
MOST_BYTES: Final[Mapping[type[msgspec.Struct], int]] = {Window: 64 << 20, Attribution: 4 << 20}
"""Longest message of a kind that is decoded; of the others ``MOST_BYTES_ELSE``."""
MOST_BYTES_ELSE: Final = 1 << 20
_NAME_CHARACTERS = 1_000
_TEXT_CHARACTERS = 4_000
_MOST_KEYS = 200
_MOST_SAMPLES = 2**63 - 1  # SQLite's largest integer
_MOST_PARTS = {"segments": 24, "terms": 2_000, "nearest": 10, "leading_terms": 10, "open": 200, "models": 20}
_TEXTS = {"detail", "message"}
_KEPT = {"values", "id", "verdict_id", "alert_id", "warning_id", "note", "by"}
_MOST_SECONDS = 1e12
_MOST_LOOKS = 50
_MOST_CURVE = {"seconds": 64, "channels": 1_000}
_T = TypeVar("_T", bound=msgspec.Struct)


def is_alert_id(text: str) -> bool:
    """Return whether ``text`` may be the id of an alert or verdict."""
    return _ID.fullmatch(text) is not None


def accepted(message: _T) -> _T:
    """Return what a reader keeps of ``message``: dates in UTC, long texts and lists cut. Raises ValidationError.

    Refused are ids that are none, dates that are none in UTC, whole numbers that are negative or beyond 64 bits,
    figures of a warning that no look finds, and readings of an open sequence that do not rise or are too many.
    """
    try:
        kept: Any = _dated(message)
    except OverflowError:
        raise msgspec.ValidationError("one of its dates is none in UTC") from None
    if isinstance(message, Verdict | Alert | EarlyWarning | Attribution | Window):
        name = _id_of(message)
        if not is_alert_id(name):
            raise msgspec.ValidationError(f"its id {name[:80]!r} is none")
    if not _has_usual_numbers(message):
        raise msgspec.ValidationError("one of its whole numbers is negative or beyond 64 bits")
    if isinstance(message, EarlyWarning) and not _is_found(message.age, message.p_value, message.score):
        raise msgspec.ValidationError("no look finds its figures")
    if isinstance(message, Running):
        fits = all(len(getattr(message, name)) <= most for name, most in _MOST_CURVE.items())
        if not fits or not _rises(message.seconds) or message.n_samples == 0:
            raise msgspec.ValidationError("its readings do not rise, or are none or too many")
    if isinstance(kept, Attribution):
        kept = msgspec.structs.replace(kept, segments=[_segment(each) for each in kept.segments])
    elif isinstance(kept, Window):
        kept = msgspec.structs.replace(kept, course=msgspec.UNSET)  # it is for the learner
    elif isinstance(kept, WorkerStatus):
        still_open = [_dated(each) for each in kept.open if _is_dated(each) and _has_usual_numbers(each)]
        still_open = [_looked(each) for each in still_open[: _MOST_PARTS["open"]]]
        kept = msgspec.structs.replace(kept, open=still_open, verdicts=_of_decisions(kept.verdicts))
    return cast("_T", _cut(kept))


def _id_of(message: Verdict | Alert | EarlyWarning | Attribution | Window) -> str:
    if isinstance(message, EarlyWarning):
        return message.warning_id
    return message.alert_id if isinstance(message, Alert | Attribution) else message.verdict_id


def _is_found(age: float, p_value: float, *others: float) -> bool:
    """Return whether looks may have found this: pages write percents, which must not become infinite."""
    return 0 <= age < _MOST_SECONDS and 0 <= p_value <= 1 and all(abs(each) < _MOST_SECONDS for each in others)


def _rises(seconds: list[float]) -> bool:
    return all(0 <= a <= b < _MOST_SECONDS for a, b in pairwise([0.0, *seconds]))


def _has_usual_numbers(message: msgspec.Struct) -> bool:
    """Return whether no whole number is negative or beyond 64 bits: thousands of digits cannot even be printed."""
    values = [getattr(message, name) for name in message.__struct_fields__]
    values += [n for value in values if isinstance(value, dict) for n in value.values()]
    return all(0 <= value <= _MOST_SAMPLES for value in values if isinstance(value, int))


def _of_decisions(counts: dict[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in get_args(Decision) if name in counts}


def _is_dated(message: msgspec.Struct) -> bool:
    """Return whether all dates are some in UTC: 9999-12-31T23:59:59-12:00 is in the year 10000."""
    try:
        _dated(message)
    except OverflowError:
        return False
    return True


def _dated(message: _T) -> _T:
    """Return ``message`` with its dates in UTC; those without a zone count as UTC. Raises OverflowError."""
    given = ((name, getattr(message, name)) for name in message.__struct_fields__)
    dates = {
        name: value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        for name, value in given
        if isinstance(value, datetime) and value.tzinfo is not UTC
    }
    return msgspec.structs.replace(message, **dates) if dates else message


def _cut(message: _T) -> _T:
    """Return ``message`` with its texts cut to what a page can show."""
    cut: dict[str, Any] = {}
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if isinstance(value, str):
            most = _TEXT_CHARACTERS if name in _TEXTS else _NAME_CHARACTERS
            if len(value) > most and name not in _KEPT:
                cut[name] = value[:most]
        elif isinstance(value, list):
            cut[name] = [_cut_part(each) for each in value[: _MOST_PARTS.get(name)]]
        elif isinstance(value, dict):
            cut[name] = {_cut_part(key): _cut_part(value[key]) for key in islice(value, _MOST_KEYS)}
        elif isinstance(value, msgspec.Struct):
            cut[name] = _cut(value)
    return msgspec.structs.replace(message, **cut) if cut else message


def _cut_part(part: Any) -> Any:
    if isinstance(part, msgspec.Struct):
        return _cut(part)
    return part[:_NAME_CHARACTERS] if isinstance(part, str) else part


def _looked(one: OpenSequence) -> OpenSequence:
    """Return ``one`` without what looks have found, if no looks find that."""
    found = one.looked
    if found is None:
        return one
    is_usual = 0 < len(found.ages) == len(found.largest) <= _MOST_LOOKS and _rises(found.ages)
    is_usual = is_usual and _is_found(found.age, found.p_value, found.limit or 0.0, *found.largest)
    names = (found.model.name, found.model.version, found.warning_id or "a")
    return one if is_usual and all(map(is_alert_id, names)) else msgspec.structs.replace(one, looked=None)


def _segment(segment: ChannelSegment) -> ChannelSegment:
    """Return ``segment`` as it lies within its sequence."""
    start, end = sorted(min(max(share, 0.0), 1.0) for share in (segment.start, segment.end))
    size = segment.size if segment.size is None or math.isfinite(segment.size) else None
    return msgspec.structs.replace(segment, start=start, end=end, size=size)
