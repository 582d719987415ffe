"""Events as marks over time: what changed the plant or the model, each change once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from streamad.language import Words, catalogued
from streamad.web.store.view import SeenEvent

_WORDS: Final = Words(
    {
        "model_promoted": catalogued("new model"),
        "model_swapped": catalogued("new model"),
        "drift": catalogued("drift"),
        "many_alerts": catalogued("far too many alerts"),
        "plant_changed": catalogued("plant changed"),
    }
)
_OF_MODELS: Final = ("model_promoted", "model_swapped")


@dataclass(frozen=True, slots=True)
class EventMark:
    """What happened at ``at_us`` (since 1970): in a word, and in the event's own."""

    at_us: int
    word: str
    said: str


def event_marks(events: Iterable[SeenEvent]) -> list[EventMark]:
    """Return the marks of the events that have one, the oldest first.

    A version's way into service is marked once, at the first of its events: the training that made it emits one
    (``model_promoted``), and so does each worker that takes it up (``model_swapped``), also after a promotion or a
    rollback by a person.
    """
    marks: list[EventMark] = []
    serving: dict[str | None, str | None] = {}
    for event in sorted(events, key=lambda one: one.created_us):
        word = _WORDS.get(event.kind)
        if word is None:
            continue
        if event.kind in _OF_MODELS:
            if event.version is not None and serving.get(event.model) == event.version:
                continue
            serving[event.model] = event.version
        marks.append(EventMark(event.created_us, word, event.message))
    return marks
