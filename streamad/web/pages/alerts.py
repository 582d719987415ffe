"""Alerts as a list: those of the page Now, and the page of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from streamad.pictures.html import Html, element
from streamad.web.pages.layout import link_to, rows_table, state_of, stream_link, when
from streamad.web.store.view import Place, SeenSequence

_HEADS: Final = ("ended (UTC)", "stream", "sequence", "why", "p", "model", "state")


def alerts_table(caption: str, alerts: Sequence[SeenSequence]) -> Html:
    """Return the table of alerts; the keys J and K go through its sequences."""
    rows = [
        (
            when(one.end_us),
            stream_link(one.stream),
            link_to(one),
            one.why or element("span", "reasons follow", class_="soft"),
            p_text(one.p_value),
            element("span", " ".join(filter(None, (one.model, one.version))), class_="short"),
            state_of(one),
        )
        for one in alerts
    ]
    return element("div", rows_table(caption, _HEADS, rows), data_walk="alerts")


def p_text(p_value: float | None) -> str:
    """Return a p-value for a cell."""
    return "" if p_value is None else f"{p_value:.2g}"


def alerts_link(words: str, *, unjudged: bool, behind: Place | None = None) -> Html:
    """Return a link to the list of alerts, ``behind`` a place in it."""
    query = ({"state": "new"} if unjudged else {}) | place_query(behind)
    return element("a", words, href="/alerts" + (f"?{urlencode(query)}" if query else ""))


def place_query(behind: Place | None) -> dict[str, str]:
    """Return what an address says of the place in a list where it goes on."""
    if behind is None:
        return {}
    return {"before": str(behind.end_us)} | ({} if behind.id is None else {"id": behind.id})


def alerts_page(
    rows: Sequence[SeenSequence], *, unjudged: bool, behind: Place | None, older: Place | None
) -> list[Html]:
    """Return the content: alerts, the newest first. ``older``: behind which place are further ones."""
    parts = [element("h1", "Alerts")]
    links: list[Html] = []
    for name, only in (("all", False), ("not judged", True)):
        marked = {"aria_current": "true"} if only == unjudged else {}
        links += [element("a", name, href="/alerts?state=new" if only else "/alerts", **marked), Html(" ")]
    parts.append(element("p", *links, class_="choice"))
    if not rows:
        found = "No alert" if behind is None else "No older alert"
        return [*parts, element("p", f"{found}{' that nobody has judged' if unjudged else ''}.")]
    if behind is not None:
        parts.append(element("p", "The older ones, from ", when(behind.end_us), " on."))
    parts.append(alerts_table("Alerts, the newest first", rows))
    if older is not None:
        parts.append(element("p", alerts_link("older ones", unjudged=unjudged, behind=older)))
    return parts
