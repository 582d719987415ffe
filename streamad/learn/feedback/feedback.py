"""The rules for a feedback message."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from streamad.messages import Feedback, message_types
from streamad.messages.accepting import is_alert_id
from streamad.settings.fields import NAME_PATTERN
from streamad.settings.plant_yaml import Settings
from streamad.system.untrusted_json import decode_json
from streamad.types import from_us

_NAME = re.compile(NAME_PATTERN)
_NOTE_CHARACTERS = 2_000
BY_CHARACTERS = 200
"""Longest name of who gives feedback."""


def decoded_feedback(content: bytes) -> Feedback:
    """Return the message, whose ``type`` may be missing or foreign, but not that of another message of streamad.

    Raises msgspec.DecodeError.
    """
    fields = decode_json(content, dict[str, Any])
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in message_types():
        fields.pop("type", None)
    return msgspec.convert(fields, Feedback)


def feedback_problem(feedback: Feedback, latest_us: int) -> str | None:
    """Return why ``feedback`` is refused, or None; a date after ``latest_us`` would override all later marks."""
    if not is_alert_id(feedback.alert_id):
        return f"{feedback.alert_id[:80]!r} is not an alert id: use the id of an alert or verdict, 32 hex digits"
    if feedback.model is not None and not _NAME.fullmatch(feedback.model):
        return f"model {feedback.model[:80]!r} is no name: use letters, digits, '.', '_' and '-' only"
    if feedback.created_at.tzinfo is None:
        return f"created_at {feedback.created_at.isoformat()} has no time zone: add Z for UTC"
    if feedback.created_at > from_us(latest_us):
        return f"created_at {feedback.created_at.isoformat()} lies in the future: check the sender's clock"
    for name, text, limit in (("note", feedback.note, _NOTE_CHARACTERS), ("by", feedback.by, BY_CHARACTERS)):
        if len(text) > limit:
            return f"{name} has {len(text)} characters, {limit} at most are kept"
    return None


def foreign_problem(feedback: Feedback, settings: Settings) -> str | None:
    """Return the problem if the named model is not of the plant of ``settings``, or None: it must not get a store."""
    own, model, is_routed = settings.model.name, feedback.model, settings.models is not None
    if model in (None, own) or (is_routed and model is not None and model.startswith(f"{own}.")):
        return None
    return f"model {model} is not one of this plant's models ({own}{' and its values' if is_routed else ''})"
