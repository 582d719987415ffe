"""The frame of every page: head, navigation, times and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from streamad.pictures.html import Html, element, joined, text
from streamad.types import from_us
from streamad.web.access import Level, Person
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
JUDGED: Final = {"false_alarm": "false alarm", "confirmed": "confirmed", "veto": "neither", "withdrawn": "taken back"}


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
    links = [
        element("a", name, href=path, aria_current="page") if path == place else element("a", name, href=path)
        for path, name in _PLACES
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - {frame.plant}"),
        Html('<link rel="stylesheet" href="/static/streamad.css"><link rel="icon" href="/static/icon.svg">'),
        Html('<script type="module" src="/static/streamad.js"></script>'),
    )
    bar = element(
        "header",
        element("a", "To the content", href="#live", class_="skip"),
        element("a", frame.plant, href="/", class_="plant"),
        element("nav", *links, aria_label="Pages"),
        element("span", f"{frame.person.name} ({frame.person.level.name.lower()})", class_="person"),
        element("span", "", id="connection", class_="connection", role="status"),
        element("p", "", id="news", class_="unseen", role="alert"),
    )
    main = element("main", *content, id="live", data_change=frame.change)
    return f"<!DOCTYPE html>\n{element('html', head, element('body', bar, main, _foot()), lang='en')}\n"


def _foot() -> Html:
    """Return what stands under every page: the keys, which can be switched off, and what the words mean."""
    words = [joined((element("dt", word), element("dd", said))) for word, said in MEANINGS.items()]
    keys = (
        "Keys: J goes to the earlier alert, K to the later one. On the page of an alert: F false alarm, C confirmed, "
        "V neither, W take back."
    )
    switch = Html('<label id="keys" hidden><input type="checkbox" checked> keys of one letter</label>')
    glossary = element("details", element("summary", "What the words mean"), element("dl", *words))
    return element("footer", element("p", keys), switch, glossary)


def sentence_page(frame: Frame | None, title: str, sentence: str, *, back: str | None = None) -> str:
    """Return a page of one sentence: an error, or a thing that is not there; ``back``: a path to go back to."""
    if frame is not None:
        way = [] if back is None else [element("p", element("a", "Back", href=back))]
        return page(frame, title, "", element("h1", title), element("p", sentence), *way)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("title", title),
        Html('<link rel="stylesheet" href="/static/streamad.css">'),
    )
    body = element("body", element("main", element("h1", title), element("p", sentence)))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


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


def count(n: int, name: str) -> str:
    """Return ``n`` with its noun: 1 alert, 2 alerts."""
    return f"{n} {name}" if n == 1 else f"{n} {name}s"


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
