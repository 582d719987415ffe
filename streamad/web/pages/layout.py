"""The document around the content of every page, and pages of one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from streamad.language import Words, catalogued
from streamad.web.access import Person
from streamad.web.rendering import rendered

_PLACES = Words(
    {
        "/": catalogued("Now"),
        "/streams": catalogued("Streams"),
        "/compare": catalogued("Compare"),
        "/calibration": catalogued("Calibration"),
        "/models": catalogued("Models"),
        "/decisions": catalogued("Decisions"),
    }
)


@dataclass(frozen=True, slots=True)
class Frame:
    """What every page shows besides its own: the plant's name, who looks, and how far the view was read."""

    plant: str
    person: Person
    change: str


def page(frame: Frame, title: str, place: str, content: Markup) -> str:
    """Return the whole document. ``place`` is the path of the entry of the navigation that it belongs to."""
    return rendered("document.html", frame=frame, title=title, place=place, places=_PLACES.items(), content=content)


def bare_page(title: str, content: Markup) -> str:
    """Return a document for somebody who is nobody yet: without navigation."""
    return rendered("document.html", frame=None, title=title, place="", places=_PLACES, content=content)


def sentence_page(frame: Frame | None, title: str, sentence: str, *, back: str | None = None) -> str:
    """Return a page of one sentence: an error, or a thing that is not there; ``back``: a path to go back to."""
    content = rendered("sentence.html", title=title, sentence=sentence, back=back)
    return rendered("document.html", frame=frame, title=title, place="", places=_PLACES.items(), content=content)
