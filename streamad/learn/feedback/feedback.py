"""Operators' feedback: the rules for a message, sending it, and the worker's reader of the topic or file."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from streamad.errors import StreamadError
from streamad.learn.feedback.exchange import MAX_MESSAGE_BYTES, Follower, OnEvent, send
from streamad.messages import Feedback, OutputRecord, message_types
from streamad.messages.accepting import is_alert_id
from streamad.plant import Plant
from streamad.ports import StoredMessage
from streamad.settings.fields import NAME_PATTERN
from streamad.system.clock import pause
from streamad.system.untrusted_json import decode_json
from streamad.types import from_us

_NAME = re.compile(NAME_PATTERN)
_NOTE_CHARACTERS = 2_000
_BY_CHARACTERS = 200
_REPORT_EVERY_US = 60_000_000
_RETRY_S = 10.0
OnFeedback: TypeAlias = Callable[[Feedback, str | None], Awaitable[None]]


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
    for name, text, limit in (("note", feedback.note, _NOTE_CHARACTERS), ("by", feedback.by, _BY_CHARACTERS)):
        if len(text) > limit:
            return f"{name} has {len(text)} characters, {limit} at most are kept"
    return None


async def send_feedback(plant: Plant, feedback: Sequence[Feedback]) -> None:
    """Write ``feedback`` to ``learning.feedback``, keyed by id; raises OutputError, ConfigError, PluginError."""
    await send(plant, [OutputRecord("feedback", each.alert_id, each) for each in feedback])


def _decoded(content: bytes) -> Feedback:
    """Return the message, whose ``type`` may be missing or foreign, but not that of another message of streamad."""
    fields = decode_json(content, dict[str, Any])
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in message_types():
        fields.pop("type", None)
    return msgspec.convert(fields, Feedback)


class FeedbackReader(Follower):
    """Reads ``learning.feedback`` and passes each message to ``on_feedback``, at least once, in order.

    ``on_feedback`` also gets the sender's authenticated name, None if there is none (then ``by`` is a claim).
    A message is done when ``on_feedback`` has returned; a StreamadError makes it try again, so that an outage of the
    store loses nothing. A malformed message is reported as an event (at most one a minute)
    and skipped. A place that cannot be read is reported once and tried again. All workers of a plant read as one group:
    each message reaches one of them.
    """

    def __init__(self, plant: Plant, on_feedback: OnFeedback, on_event: OnEvent) -> None:
        def on_trouble(why: str) -> None:
            on_event("feedback_unreadable", f"feedback is not read: {why}")

        settings = plant.settings
        wanted = {"group": plant.context.feedback_group}
        if settings.learning is not None and settings.learning.feedback_principal is not None:
            wanted["principal_header"] = settings.learning.feedback_principal
        super().__init__(plant, "feedback", on_trouble, **wanted)
        self._clock = plant.clock
        self._own_model = settings.model.name
        self._is_routed = settings.models is not None
        self._skew_us = settings.decode.max_clock_skew
        self._on_feedback = on_feedback
        self._on_event = on_event
        self._reported_us: int | None = None
        self._n_unreported = 0
        self.n_malformed = 0
        """How many messages were skipped because they were malformed."""

    async def take(self, message: StoredMessage) -> bool:
        """Pass the message on, or skip it and return False if it is malformed."""
        too_long = f"longer than {MAX_MESSAGE_BYTES} bytes" if len(message.value) > MAX_MESSAGE_BYTES else None
        if (problem := message.problem or too_long) is not None:
            return self._skip(message, problem)
        try:
            feedback = _decoded(message.value)
            problem = feedback_problem(feedback, self._clock.now_us() + self._skew_us) or self._foreign(feedback)
        except (msgspec.DecodeError, OverflowError) as error:
            problem = str(error)
        if problem is not None:
            return self._skip(message, problem)
        await self._deliver(feedback, message.sender and message.sender[:_BY_CHARACTERS])
        return True

    def _foreign(self, feedback: Feedback) -> str | None:
        """Return the problem if the named model is not of this plant: it must not get a store here."""
        own, model = self._own_model, feedback.model
        if model in (None, own) or (self._is_routed and model is not None and model.startswith(f"{own}.")):
            return None
        return f"model {model} is not one of this plant's models ({own}{' and its values' if self._is_routed else ''})"

    async def _deliver(self, feedback: Feedback, sender: str | None) -> None:
        is_reported = False
        while True:
            try:
                return await self._on_feedback(feedback, sender)
            except StreamadError as error:
                if not is_reported:
                    self._on_event("feedback_waits", f"feedback on {feedback.alert_id} cannot be kept yet: {error}")
                is_reported = True
                if self.ending.is_set():
                    raise
                await pause(_RETRY_S, self._clock, self.ending)

    def _skip(self, message: StoredMessage, problem: str) -> bool:
        self._n_unreported += 1
        self.n_malformed += 1
        now_us = self._clock.monotonic_us()
        if self._reported_us is None or now_us - self._reported_us >= _REPORT_EVERY_US:
            more = f" (and {self._n_unreported - 1} before it)" if self._n_unreported > 1 else ""
            self._reported_us, self._n_unreported = now_us, 0
            text = f"{message.place}: no feedback message, skipped{more}: {problem[:300]}"
            self._on_event("feedback_malformed", text)
        return False
