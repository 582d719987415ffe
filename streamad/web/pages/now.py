"""The page Now: what needs attention, which line, since when, and whether the alerts are as many as promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from urllib.parse import quote

from streamad.judge.evaluation import alerts_by_chance
from streamad.messages import OpenSequence
from streamad.pictures.html import Html, element, joined
from streamad.types import to_us
from streamad.web.attention.span import span_of
from streamad.web.pages.layout import (
    SIGNS,
    count,
    decision_of,
    link_to,
    notices,
    rows_table,
    state_of,
    stream_link,
    when,
)
from streamad.web.store.view import SeenEvent, SeenSequence

_LANE, _WIDTH, _LEFT = 22, 1000, 150
_MOST_LANES = 200
_NAME = 20
_EVENT_MARKS = {"model_promoted": "new model", "drift": "drift", "plant_changed": "plant changed"}


def now(
    *,
    latest: Sequence[SeenSequence],
    inbox: Sequence[SeenSequence],
    events: Sequence[SeenEvent],
    troubles: Sequence[tuple[str, str]],
    budget: str,
    still_open: Sequence[OpenSequence] = (),
    running: Sequence[Html] = (),
) -> list[Html]:
    """Return the content: banner, budget, swimlanes, inbox, what runs, events."""
    parts = [element("h1", "Now"), notices(troubles)]
    if not latest:
        parts.append(element("p", "No sequence has been judged yet. This page fills by itself as soon as one is."))
        return [*parts, *running]
    parts.append(element("p", budget, class_="budget"))
    parts += [element("h2", "Lines"), swimlanes(latest, events, still_open), _legend()]
    parts += [element("h2", "Alerts"), _inbox(inbox), *running]
    if events:
        parts += [element("h2", "Events"), _events(events[:12])]
    return parts


def budget_text(n_judged: int, n_alerts: int, rate: float, n_calibration: int | None) -> str:
    """Return how many alerts there were, how many the configured rate promises, and what chance gives."""
    text = f"{count(n_alerts, 'alert')} in the last {count(n_judged, 'judged sequence')}"
    if not n_judged:
        return f"{text}."
    text += f"; a false-alarm rate of {100 * rate:g} % promises {rate * n_judged:.3g} if all are normal"
    expected = None if n_calibration is None else alerts_by_chance(n_judged, n_calibration, rate)
    if expected is None:
        return f"{text}."
    low, high = expected
    return f"{text}, and chance gives {low} to {high}."


def _inbox(alerts: Sequence[SeenSequence]) -> Html:
    if not alerts:
        return element("p", "No alert yet.")
    rows = [
        (
            when(one.end_us),
            stream_link(one.stream),
            link_to(one),
            one.why or element("span", "reasons follow", class_="soft"),
            _p(one.p_value),
            state_of(one),
        )
        for one in alerts
    ]
    return rows_table(
        "Alerts, those not judged first", ("ended (UTC)", "stream", "sequence", "why", "p", "state"), rows
    )


def _p(p_value: float | None) -> str:
    return "" if p_value is None else f"{p_value:.2g}"


def swimlanes(
    sequences: Sequence[SeenSequence], events: Sequence[SeenEvent], still_open: Sequence[OpenSequence] = ()
) -> Html:
    """Return a lane for each stream and a bar for each sequence from its start to its end; events cross all lanes.

    Open sequences reach to the right edge.
    """
    timed = [one for one in sequences if one.end_us is not None and one.start_us is not None]
    span = span_of(timed)
    if span is None:
        return Html("")
    first, last, n_before = span
    timed = [one for one in timed if (one.end_us or 0) >= first]
    names = sorted({one.stream for one in timed})[:_MOST_LANES]
    lanes = {name: number for number, name in enumerate(names)}
    judged = {(one.stream, one.sequence) for one in timed}  # a status may be older than a verdict
    begun = [
        (one, to_us(one.start_time))
        for one in still_open
        if one.stream in lanes and (one.stream, one.sequence) not in judged
    ]
    begun = [(one, at) for one, at in begun if at <= last + max(1, last - first)]  # others have a wrong clock
    last = max([last, *(at for _, at in begun)])
    width_us = max(1, last - first)
    height = len(names) * _LANE + 22

    def x(time_us: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * (time_us - first) / width_us

    parts: list[str] = []
    for name, number in lanes.items():
        y = number * _LANE
        parts.append(f'<rect class="lane" x="{_LEFT}" y="{y + 2}" width="{_WIDTH - _LEFT - 8}" height="{_LANE - 4}"/>')
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        parts.append(str(element("text", shown, class_="tick", x=f"{_LEFT - 8}", y=f"{y + 15}", text_anchor="end")))
    for event in events:
        if event.kind in _EVENT_MARKS and first <= event.created_us <= last:
            at = x(event.created_us)
            title = element("title", f"{_EVENT_MARKS[event.kind]}: {event.message}")
            parts.append(
                f'<g class="eventmark"><line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height - 22}"/>{title}</g>'
            )
    for one in sorted(timed, key=lambda each: each.is_alert):
        if one.stream in lanes:
            parts.append(_bar(one, x(max(one.start_us or 0, first)), x(one.end_us or 0), lanes[one.stream] * _LANE))
    for each, at_us in begun:
        left = x(max(at_us, first))
        width = max(_WIDTH - 8 - left, 1.2)
        box = f'x="{left:.1f}" y="{lanes[each.stream] * _LANE + 10}" width="{width:.1f}" height="8"'
        said = f"{each.stream} {each.sequence}: running"
        link = element(
            "a", element("title", said), Html(f'<rect class="bar open" {box}/>'),
            href=f"/running?name={quote(each.stream, safe='')}", aria_label=said,
        )  # fmt: skip
        parts.append(link)
    for share in (0.0, 0.5, 1.0):
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        label = when(first + round(share * width_us), seconds=width_us < 86_400_000_000 * 2)
        at = _LEFT + share * (_WIDTH - _LEFT - 8)
        words = str(label).partition(">")[2].partition("<")[0]
        parts.append(f'<text class="tick" x="{at:.1f}" y="{height - 6}" text-anchor="{anchor}">{words}</text>')
    title = element("title", f"{count(len(timed), 'sequence')} of {count(len(names), 'stream')} over time")
    picture = Html(f'<svg class="lanes" viewBox="0 0 {_WIDTH} {height}" role="group">{title}{"".join(parts)}</svg>')
    box = element("div", picture, class_="wide lanes-box", tabindex="0", role="region", aria_label="Lines over time")
    if not n_before:
        return box
    said = f"{count(n_before, 'sequence')} dated long before the others {'is' if n_before == 1 else 'are'} not drawn."
    return joined([box, element("p", said, class_="soft")])


def _bar(one: SeenSequence, left: float, right: float, y: float) -> Html:
    decision = "anomalous" if one.is_alert else one.decision or "normal"
    width = max(right - left - 0.6, 1.2)
    middle = left + width / 2
    shape = Html(f'<rect class="bar {decision}" x="{left:.1f}" y="{y + 10}" width="{width:.1f}" height="8"/>')
    mark = Html("")
    if one.is_alert:
        mark = Html(f'<path class="bar anomalous" d="M{middle:.1f},{y + 2} l-4,7 h8 z"/>')
    said = f"{one.stream} {one.sequence}: {decision}" + (f", {one.why}" if one.why else "")
    return element("a", element("title", said), shape, mark, href=f"/s/{quote(one.id)}", aria_label=said)


def _legend() -> Html:
    said = (
        ("anomalous", "alert"),
        ("normal", "normal"),
        ("unscorable", "could not be judged"),
        ("learning", "learning"),
        ("open", "running"),
    )
    items = [element("span", f"{SIGNS[kind]} {word}", class_=f"decision {kind}") for kind, word in said]
    return element("p", *items, class_="legend")


def _events(events: Sequence[SeenEvent]) -> Html:
    rows = [(when(one.created_us), one.kind.replace("_", " "), one.message) for one in events]
    return rows_table("Events, the newest first", ("made (UTC)", "kind", "what happened"), rows)


def decision_row(one: SeenSequence) -> tuple[str, ...]:
    """Return the cells of a sequence in a listing."""
    score = "" if one.score is None or not math.isfinite(one.score) else f"{one.score:.4g}"
    return (when(one.end_us), link_to(one), decision_of(one), score, _p(one.p_value), one.why or one.detail or "")
