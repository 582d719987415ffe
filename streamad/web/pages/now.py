"""The page Now: what needs attention, which line, since when, and whether the alerts are as many as promised."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from streamad.judge.evaluation import alerts_by_chance
from streamad.messages import OpenSequence
from streamad.web.charts.lanes import swimlanes
from streamad.web.rendering import count, rendered
from streamad.web.store.view import Place, SeenEvent, SeenSequence

_MOST_EVENTS = 12


def now(
    *,
    latest: Sequence[SeenSequence],
    inbox: Sequence[SeenSequence],
    events: Sequence[SeenEvent],
    troubles: Sequence[tuple[str, str]],
    budget: str,
    still_open: Sequence[OpenSequence],
    now_us: int,
    running: Markup | None,
    most: int,
) -> Markup:
    """Return the content: banner, budget, swimlanes, inbox of at most ``most`` alerts, what runs, events.

    ``now_us`` is the page's own time: an open sequence that began after it and far after all others is not drawn.
    """
    is_full = len(inbox) >= most and all(one.judgement in (None, "withdrawn") for one in inbox)
    return rendered(
        "now.html",
        has_judged=bool(latest),
        troubles=troubles,
        budget=budget,
        lanes=swimlanes(latest, events, still_open, now_us),
        alerts=inbox,
        older=Place.behind(inbox[-1]) if is_full else None,
        running=running,
        events=events[:_MOST_EVENTS],
    )


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
