"""Alerts as a list: those of the page Now, and the page of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from streamad.pictures.html import Html, element
from streamad.web.pages.layout import link_to, rows_table, state_of, stream_link, when
from streamad.web.store.view import SeenSequence

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


def alerts_link(words: str, *, unjudged: bool, before_us: int | None = None) -> Html:
    """Return a link to the list of alerts that ended before a time."""
    query = ({"state": "new"} if unjudged else {}) | ({} if before_us is None else {"before": str(before_us)})
    return element("a", words, href="/alerts" + (f"?{urlencode(query)}" if query else ""))


def alerts_page(
    rows: Sequence[SeenSequence], *, unjudged: bool, before_us: int | None, older: int | None
) -> list[Html]:
    """Return the content: alerts, the newest first. ``older``: where further ones begin, None if there are none."""
    parts = [element("h1", "Alerts")]
    links: list[Html] = []
    for name, only in (("all", False), ("not judged", True)):
        marked = {"aria_current": "true"} if only == unjudged else {}
        links += [element("a", name, href="/alerts?state=new" if only else "/alerts", **marked), Html(" ")]
    parts.append(element("p", *links, class_="choice"))
    if not rows:
        found = "No alert" if before_us is None else "No older alert"
        return [*parts, element("p", f"{found}{' that nobody has judged' if unjudged else ''}.")]
    if before_us is not None:
        parts.append(element("p", "Those that ended before ", when(before_us), "."))
    parts.append(alerts_table("Alerts, the newest first", rows))
    if older is not None:
        parts.append(element("p", alerts_link("older ones", unjudged=unjudged, before_us=older)))
    return parts
