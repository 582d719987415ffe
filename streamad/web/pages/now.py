"""The page Now: what needs attention, which line, since when, and whether the alerts are as many as promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from streamad.judge.evaluation import alerts_by_chance
from streamad.messages import OpenSequence
from streamad.pictures.html import Html, element, joined
from streamad.types import to_us
from streamad.web import charts
from streamad.web.pages.alerts import alerts_link, alerts_table, p_text
from streamad.web.pages.events import event_marks
from streamad.web.pages.layout import SIGNS, decision_of, link_to, notices, rows_table, when
from streamad.web.pages.span import SKEW_US, span_of
from streamad.web.rendering import count
from streamad.web.store.view import Place, SeenEvent, SeenSequence

_LANE, _WIDTH, _LEFT = 22, 1000, 150
_MOST_LANES, _MOST_OPEN = 200, 400
_NAME = 20
_OPEN = 0.02
_SKIP = element("a", "Skip the streams: to the alerts", href="#alerts", class_="skip")


def now(
    *,
    latest: Sequence[SeenSequence],
    inbox: Sequence[SeenSequence],
    events: Sequence[SeenEvent],
    troubles: Sequence[tuple[str, str]],
    budget: str,
    still_open: Sequence[OpenSequence] = (),
    now_us: int = 0,
    running: Sequence[Html] = (),
    most: int = 30,
) -> list[Html]:
    """Return the content: banner, budget, swimlanes, inbox of at most ``most`` alerts, what runs, events.

    ``now_us`` is the page's own time: an open sequence that began after it and far after all others is not drawn.
    """
    parts = [element("h1", "Now"), notices(troubles)]
    if not latest:
        parts.append(element("p", "No sequence has been judged yet. This page fills by itself as soon as one is."))
        if lanes := swimlanes((), events, still_open, now_us):
            parts += [element("h2", "Streams"), lanes, _legend()]
        return [*parts, *running]
    parts.append(element("p", budget, class_="budget"))
    parts += [element("h2", "Streams"), _SKIP, swimlanes(latest, events, still_open, now_us), _legend()]
    parts += [element("h2", "Alerts", id="alerts", tabindex="-1"), *_inbox(inbox, most), *running]
    if events:
        parts += [element("h2", "Events"), _events(events[:12])]
    return parts


def budget_text(n_judged: int, n_alerts: int, rate: float, n_calibration: int | None) -> str:
    """Return how many alerts there were, how many false alarms the configured rate means, and their range by chance."""
    text = f"{count(n_alerts, 'alert')} in the last {count(n_judged, 'judged sequence')}"
    if not n_judged:
        return f"{text}."
    text += f". If all were normal, {100 * rate:g} % of them would be false alarms: {rate * n_judged:.3g} on average"
    expected = None if n_calibration is None else alerts_by_chance(n_judged, n_calibration, rate)
    if expected is None:
        return f"{text}."
    low, high = expected
    return f"{text}, by chance {low} to {high}."


def _inbox(alerts: Sequence[SeenSequence], most: int) -> list[Html]:
    if not alerts:
        return [element("p", "No alert yet.")]
    parts = [alerts_table("Alerts, those not judged first", alerts)]
    is_full = len(alerts) >= most and all(one.judgement in (None, "withdrawn") for one in alerts)
    behind = Place.behind(alerts[-1])
    older = [alerts_link("older ones not judged", unjudged=True, behind=behind)] if is_full else []
    parts.append(element("p", *older, " ", alerts_link("all alerts by time", unjudged=False), class_="choice"))
    return parts


class _Lines(NamedTuple):
    """What the lines show from ``first_us`` to ``last_us``: sequences, and open ones with their starts in us."""

    first_us: int
    last_us: int
    timed: list[SeenSequence]
    begun: list[tuple[OpenSequence, int]]
    n_before: int


def _lines(sequences: Sequence[SeenSequence], still_open: Sequence[OpenSequence], now_us: int) -> _Lines | None:
    """Return what is drawn; None if nothing has a time."""
    timed = [one for one in sequences if one.end_us is not None and one.start_us is not None]
    judged = {(one.stream, one.sequence, one.start_us) for one in timed}  # a status may be older than a verdict
    starts = ((one, to_us(one.start_time)) for one in still_open)
    begun = [(one, at) for one, at in starts if (one.stream, one.sequence, at) not in judged]
    span = span_of(timed)
    if span is None:
        begun = [(one, at) for one, at in begun if at <= now_us + SKEW_US]
        if not begun:
            return None
        first_us, last_us, n_before = min(at for _, at in begun), max(at for _, at in begun), 0
    else:
        first_us, last_us, n_before = span
        until_us = max(last_us + max(1, last_us - first_us), now_us + SKEW_US)  # what begins later has a wrong clock
        begun = [(one, at) for one, at in begun if at <= until_us]
        timed = [one for one in timed if (one.end_us or 0) >= first_us]
        last_us = max([last_us, *(at for _, at in begun)])
    if begun:
        last_us += max(1, round(_OPEN * (last_us - first_us)))  # so that one that has just begun is seen
    return _Lines(first_us, last_us, timed, begun, n_before)


def swimlanes(
    sequences: Sequence[SeenSequence],
    events: Sequence[SeenEvent],
    still_open: Sequence[OpenSequence] = (),
    now_us: int = 0,
) -> Html:
    """Return a lane for each stream and a bar for each sequence from its start to its end; events cross all lanes.

    Open sequences reach to the right edge; ``now_us`` is the page's own time.
    """
    found = _lines(sequences, still_open, now_us)
    if found is None:
        return Html("")
    first, last, timed, begun, n_before = found
    alerts_first = sorted(timed, key=lambda one: not one.is_alert)
    every = list(dict.fromkeys([*(one.stream for one in alerts_first), *(one.stream for one, _ in begun)]))
    names = sorted(every[:_MOST_LANES])
    lanes = {name: number for number, name in enumerate(names)}
    width_us = max(1, last - first)
    height = len(names) * _LANE + 22

    def x(time_us: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - 8) * (time_us - first) / width_us

    parts: list[str] = []
    labels: list[str] = []
    for name, number in lanes.items():
        y = number * _LANE
        parts.append(f'<rect class="lane" x="{_LEFT}" y="{y + 2}" width="{_WIDTH - _LEFT - 8}" height="{_LANE - 4}"/>')
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        labels.append(str(element("text", shown, class_="tick", x=f"{_LEFT - 8}", y=f"{y + 15}", text_anchor="end")))
    for event in event_marks(events):
        if first <= event.at_us <= last:
            at = x(event.at_us)
            title = element("title", f"{event.word}: {event.said}")
            parts.append(
                f'<g class="eventmark"><line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height - 22}"/>{title}</g>'
            )
    for one in sorted(timed, key=lambda each: each.is_alert):
        if one.stream in lanes:
            parts.append(_bar(one, x(max(one.start_us or 0, first)), x(one.end_us or 0), lanes[one.stream] * _LANE))
    for stream, said, at_us in _open_bars([(one, at) for one, at in begun if one.stream in lanes]):
        left = x(max(at_us, first))
        width = max(_WIDTH - 8 - left, 1.2)
        box = f'x="{left:.1f}" y="{lanes[stream] * _LANE + 10}" width="{width:.1f}" height="8"'
        link = element(
            "a", element("title", said), Html(f'<rect class="bar open" {box}/>'),
            href=f"/running?name={quote(stream, safe='')}", aria_label=said,
        )  # fmt: skip
        parts.append(link)
    for share in (0.0, 0.5, 1.0):
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        label = when(first + round(share * width_us), seconds=width_us < 86_400_000_000 * 2)
        at = _LEFT + share * (_WIDTH - _LEFT - 8)
        words = str(label).partition(">")[2].partition("<")[0]
        parts.append(f'<text class="tick" x="{at:.1f}" y="{height - 6}" text-anchor="{anchor}">{words}</text>')
    parts.append(charts.pinned(labels, _LEFT, height - 22))
    title = element("title", f"{count(len(timed), 'sequence')} of {count(len(names), 'stream')} over time")
    picture = Html(f'<svg class="lanes" viewBox="0 0 {_WIDTH} {height}" role="group">{title}{"".join(parts)}</svg>')
    box = element("div", picture, class_="wide lanes-box", tabindex="0", role="region", aria_label="Streams over time")
    left_out = []
    if n_before:
        left_out.append(f"{count(n_before, 'sequence')} dated long before the others {_are(n_before)} not drawn.")
    if n_more := len(every) - len(names):
        left_out.append(f"{count(n_more, 'more stream')} {_are(n_more)} not drawn: those with alerts come first.")
    return joined([box, *(element("p", said, class_="soft") for said in left_out)])


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _open_bars(begun: Sequence[tuple[OpenSequence, int]]) -> list[tuple[str, str, int]]:
    """Return stream, words and start of each bar of open sequences; of very many one for each stream."""
    if len(begun) <= _MOST_OPEN:
        return [(one.stream, f"{one.stream} {one.sequence}: running", at) for one, at in begun]
    of_stream: dict[str, list[int]] = {}
    for one, at in begun:
        of_stream.setdefault(one.stream, []).append(at)
    return [(stream, f"{stream}: {count(len(at), 'sequence')} running", min(at)) for stream, at in of_stream.items()]


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
    items.append(element("span", "┆ drift, new model or plant changed", class_="decision event"))
    return element("p", *items, class_="legend")


def _events(events: Sequence[SeenEvent]) -> Html:
    rows = [(when(one.created_us), one.kind.replace("_", " "), one.message) for one in events]
    return rows_table("Events, the newest first", ("made (UTC)", "kind", "what happened"), rows)


def decision_row(one: SeenSequence) -> tuple[str, ...]:
    """Return the cells of a sequence in a listing."""
    score = "" if one.score is None or not math.isfinite(one.score) else f"{one.score:.4g}"
    return (when(one.end_us), link_to(one), decision_of(one), score, p_text(one.p_value), one.why or one.detail or "")
