"""The frame of every page: head, navigation, times and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from streamad.pictures.html import Html, element, joined, text
from streamad.types import from_us
from streamad.web.access import Level, Person
from streamad.web.rendering import JUDGED, rendered
from streamad.web.store.view import SeenSequence

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PLACES = (("/", "Now"), ("/streams", "Streams"), ("/compare", "Compare"), ("/calibration", "Calibration"),
           ("/models", "Models"))  # fmt: skip
_SHORT = 28
SIGNS: Final = {"anomalous": "▲", "normal": "●", "unscorable": "▨", "learning": "○", "open": "┄"}
WORDS: Final = {
    "anomalous": "alert",
    "normal": "normal",
    "unscorable": "not judged",
    "learning": "learning",
}
MEANINGS: Final = {
    "p-value": "the share of held-out normal sequences that score at least as high; small is unusual",
    "band": "where the middle 90 % of the normal training sequences lie at each point of time: from their 5 % to "
    "their 95 % quantile (the envelope)",
    "quantile": "a value with a given share of all values below it: 5 % of them lie below the 5 % quantile",
    "calibration": "the scores of held-out normal sequences; they turn a score into a p-value",
    "share": "how far the score falls if this channel is replaced by a normal one, in parts of all channels' falls",
    "term": "one of the parts whose sum is the score",
    "seen": "opened in this browser, and not judged",
}
"""What the words on the pages mean."""
_HEADS: Final = {
    "p": "p-value",
    "share": "share",
    "normal band": "band",
    "term": "term",
    "above so many of calibration": "quantile",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What every page shows besides its own: the plant's name, who looks, and how far the view was read."""

    plant: str
    person: Person
    change: str

    @property
    def may_judge(self) -> bool:
        """Return whether the person may judge alerts."""
        return self.person.level >= Level.OPERATOR


def page(frame: Frame, title: str, place: str, *content: str) -> str:
    """Return the whole document. ``place`` is the path of the entry of the navigation that it belongs to."""
    return rendered(
        "document.html", frame=frame, title=title, place=place, places=_PLACES, content=Markup(joined(content))
    )


def sentence_page(frame: Frame | None, title: str, sentence: str, *, back: str | None = None) -> str:
    """Return a page of one sentence: an error, or a thing that is not there; ``back``: a path to go back to."""
    content = rendered("sentence.html", title=title, sentence=sentence, back=back)
    return rendered("document.html", frame=frame, title=title, place="", places=_PLACES, content=content)


def when(time_us: int | None, *, seconds: bool = True) -> Html:
    """Return a time, UTC; the browser shows the local one beside it."""
    if time_us is None:
        return text("unknown")
    at = from_us(time_us)
    return element("time", f"{at:%Y-%m-%d %H:%M:%S}" if seconds else f"{at:%Y-%m-%d %H:%M}", datetime=iso(at))


def iso(at: datetime) -> str:
    """Return ``at`` as RFC 3339 text."""
    return at.isoformat().replace("+00:00", "Z")


def link_to(one: SeenSequence, *content: str) -> Html:
    """Return a link to the page of a sequence."""
    return element("a", *(content or (one.sequence,)), href=f"/s/{quote(one.id)}", class_=_width(one.sequence))


def stream_link(stream: str) -> Html:
    """Return a link to the page of a stream."""
    return element("a", stream, href=f"/stream?name={quote(stream, safe='')}", class_=_width(stream))


def _width(name: str) -> str:
    """Return the class of a name: a short one stays on one line."""
    return "short" if len(name) <= _SHORT else "long"


def decision_of(one: SeenSequence) -> Html:
    """Return the decision as sign and word: no meaning is carried by colour alone."""
    decision = "anomalous" if one.is_alert else one.decision or "normal"
    return element("span", f"{SIGNS[decision]} {WORDS[decision]}", class_=f"decision {decision}")


def state_of(one: SeenSequence) -> Html:
    """Return what a person has said of an alert; a browser that has opened a new one calls it seen."""
    if one.judgement is None or one.judgement == "withdrawn":
        return element("span", "new", class_="state new", data_new=one.id)
    by = f" by {one.judged_by}" if one.judged_by else ""
    return element("span", f"{JUDGED.get(one.judgement, one.judgement)}{by}", class_="state")


def rows_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], css: str = "") -> Html:
    """Return a table whose caption names it for readers who do not see it."""
    meanings = [MEANINGS.get(_HEADS.get(each, "")) for each in heads]
    head = element(
        "tr",
        *(
            element("th", each, scope="col", **({} if said is None else {"title": said}))
            for each, said in zip(heads, meanings, strict=True)
        ),
    )
    body = [
        element("tr", *(element("td", cell, data_head=name) for cell, name in zip(row, heads, strict=True)))
        for row in rows
    ]
    whole = element(
        "table", element("caption", caption), element("thead", head), element("tbody", *body), class_=f"rows {css}"
    )
    return element("div", whole, class_="wide", tabindex="0", role="region", aria_label=caption)


def notices(lines: Sequence[tuple[str, str]]) -> Html:
    """Return the banner: a kind and a sentence each; empty if all is well."""
    if not lines:
        return Html("")
    items = [element("li", element("strong", f"⚠ {kind}"), " ", sentence) for kind, sentence in lines]
    return element("section", element("ul", joined(items)), class_="banner", aria_label="Needs attention")
