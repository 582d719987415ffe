"""The pages of streams: all of them, one with its scores over time, and up to eight sequences over each other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import numpy as np

from streamad.pictures.content import Picture
from streamad.pictures.html import Html, element
from streamad.web import charts
from streamad.web.pages.layout import count, decision_of, link_to, rows_table, stream_link, when
from streamad.web.pages.now import decision_row
from streamad.web.view import SeenSequence

_HEADS = ("ended (UTC)", "sequence", "decision", "score", "p", "why")


def streams(rows: Sequence[tuple[str, SeenSequence | None, int]]) -> list[Html]:
    """Return the content: name, last sequence and number of alerts among the last ones of each stream."""
    if not rows:
        return [element("h1", "Streams"), element("p", "No stream yet: nothing has been judged.")]
    cells = [
        (stream_link(name), when(last.end_us) if last else "", decision_of(last) if last else "", str(n_alerts))
        for name, last, n_alerts in rows
    ]
    heads = ("stream", "last ended (UTC)", "last decision", "alerts in the last 50")
    return [element("h1", count(len(rows), "stream")), rows_table("Streams, the newest first", heads, cells)]


def stream(
    name: str, rows: Sequence[SeenSequence], limits: Mapping[tuple[str, str], float], *, before: int | None
) -> list[Html]:
    """Return the content: scores over time with each version's threshold, then the sequences.

    ``limits``: the lowest score that alerts, by name and version of the model. ``before``: where older ones begin.
    """
    if not rows:
        return [element("h1", name or "Stream"), element("p", "No sequence of this stream was read.")]
    parts = [element("h1", name), element("h2", "Scores"), charts.course_of_scores(list(reversed(rows)), limits)]
    parts.append(
        element(
            "p",
            "Each dot is a sequence; dashed: the score from which its model's version alerts. ▲: an alert.",
            class_="soft",
        )  # fmt: skip
    )
    listed = [decision_row(one) for one in rows]
    parts += [element("h2", "Sequences"), rows_table("Sequences, the newest first", _HEADS, listed)]
    if before is not None:
        parts.append(
            element("p", element("a", "older ones", href=f"/stream?name={quote(name, safe='')}&before={before}"))
        )
    return parts


def compare(found: Sequence[tuple[SeenSequence, Picture | None]], others: Sequence[SeenSequence]) -> list[Html]:
    """Return the content: the sequences over each other and over the band, a table, and others to add."""
    if not found:
        return [
            element("h1", "Compare"),
            element("p", "Name up to eight sequences by their ids: /compare?id=...&id=..."),
        ]
    parts = [element("h1", "Compare")]
    ids = [one.id for one, _ in found]
    legend = []
    for number, (one, picture) in enumerate(found):
        rest = "&".join(f"id={quote(each)}" for each in ids if each != one.id)
        gone = "" if picture is not None else " (no window was kept)"
        line = Html(
            f'<svg class="key" viewBox="0 0 30 8"><line class="line{number} overlay" x1="0" x2="30" y1="4" y2="4"/></svg>'
        )
        drop = element("a", "leave out", href=f"/compare?{rest}") if rest else ""
        legend.append(element("li", line, " ", link_to(one, f"{one.stream} {one.sequence}"), f"{gone} ", drop))
    parts.append(element("ul", *legend, class_="keys"))
    pictures = [(number, picture) for number, (_, picture) in enumerate(found) if picture is not None]
    if pictures:
        names = [panel.name for panel in pictures[0][1].panels]
        for name in names:
            shown = [(number, picture, panel) for number, picture in pictures
                     for panel in picture.panels if panel.name == name]  # fmt: skip
            unit = shown[0][2].unit
            parts.append(element("figure", element("h3", f"{name} ", element("small", unit)), charts.overlay(shown)))
        parts += [element("h2", "Means"), _means(found, names)]
    more = [one for one in others if one.id not in ids and one.has_window][:20]
    if more and len(ids) < 8:
        here = "&".join(f"id={quote(each)}" for each in ids)
        links = [
            element(
                "li",
                element("a", f"{one.stream} {one.sequence}", href=f"/compare?{here}&id={one.id}"),
                " ",
                decision_of(one),
            )  # fmt: skip
            for one in more
        ]
        parts += [element("h2", "Add one"), element("ul", *links)]
    return parts


def _means(found: Sequence[tuple[SeenSequence, Picture | None]], names: Sequence[str]) -> Html:
    """Return mean and spread of each channel in each sequence."""
    rows = []
    for one, picture in found:
        courses = {} if picture is None else {panel.name: panel.course for panel in picture.panels}
        cells = [_mean(courses[name]) if name in courses else "-" for name in names]
        rows.append((f"{one.stream} {one.sequence}", *cells))
    return rows_table("Mean and spread", ("sequence", *names), rows)


def _mean(course: np.ndarray) -> str:
    mean, spread = float(np.mean(course)), float(np.std(course))
    return f"{mean:.4g} ± {spread:.2g}" if math.isfinite(mean) else "-"
