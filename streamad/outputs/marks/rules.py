"""The rules for the messages in the place of feedback: operators' marks, and requests to the learner."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from streamad.messages import Feedback, Request
from streamad.messages.accepting import is_alert_id
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings
from streamad.types import from_us

_NAME = re.compile(NAME_PATTERN)
BY_CHARACTERS: Final = 200
"""Longest name of who gives feedback."""
_MOST_CHARACTERS = {"note": 2_000, "comment": 2_000, "by": BY_CHARACTERS, "assignee": BY_CHARACTERS}


def feedback_problem(feedback: Feedback | Request, latest_us: int) -> str | None:
    """Return why ``feedback`` is refused, or None; a date after ``latest_us`` would override all later marks."""
    own_problem = _request_problem(feedback) if isinstance(feedback, Request) else _mark_problem(feedback)
    if own_problem is not None:
        return own_problem
    if feedback.model is not None and not _NAME.fullmatch(feedback.model):
        return f"model {feedback.model[:80]!r} is no name: use letters, digits, '.', '_' and '-' only"
    if (problem := _time_problem("created_at", feedback.created_at)) is not None:
        return problem
    if feedback.created_at > from_us(latest_us):
        return f"created_at {feedback.created_at.isoformat()} lies in the future: check the sender's clock"
    for name, limit in _MOST_CHARACTERS.items():
        if (n := len(getattr(feedback, name, ""))) > limit:
            return f"{name} has {n} characters, {limit} at most are kept"
    return None


def _mark_problem(feedback: Feedback) -> str | None:
    if is_alert_id(feedback.alert_id):
        return None
    return f"{feedback.alert_id[:80]!r} is not an alert id: use the id of an alert or verdict, 32 hex digits"


def _request_problem(request: Request) -> str | None:
    """Return what contradicts itself in a request, or None: half of a purge would delete what nobody named."""
    if not is_alert_id(request.request_id):
        return f"request_id {request.request_id[:80]!r} is none: use letters, digits, _ and -, 64 at most"
    if (request.since is None) == (request.action == "relearn"):
        return "since goes with relearn, and relearn needs it"
    is_limited = any(each is not None for each in (request.before, request.share, request.ids))
    if request.action != "purge" and (is_limited or request.everything):
        return "before, share, ids and everything go with purge"
    if request.action == "purge" and is_limited == request.everything:
        return "a purge needs a condition (before, share, ids), or everything: true, not both"
    times = (("since", request.since), ("before", request.before))
    return next((why for name, time in times if time is not None and (why := _time_problem(name, time))), None)


def _time_problem(name: str, time: datetime) -> str | None:
    """Return why the store could not hold ``time``, or None: what it cannot read again would stop all learning."""
    if time.tzinfo is None:
        return f"{name} {time.isoformat()} has no time zone: add Z for UTC"
    try:
        time.astimezone(UTC)
    except OverflowError:
        return f"{name} {time.isoformat()} lies outside the years 1 to 9999 in UTC"
    return None


def foreign_problem(feedback: Feedback | Request, settings: Settings) -> str | None:
    """Return the problem if the named model is not of the plant of ``settings``, or None: it must not get a store."""
    own, model, is_routed = settings.model.name, feedback.model, settings.models is not None
    if model in (None, own) or (is_routed and model is not None and model.startswith(f"{own}.")):
        return None
    return f"model {model} is not one of this plant's models ({own}{' and its values' if is_routed else ''})"
