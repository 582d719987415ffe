"""The page Now: what needs attention, which line, since when, and whether the alerts are as many as promised."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from streamad.judge.evaluation import alerts_by_chance
from streamad.web.attention import INBOX, Attention
from streamad.web.charts.lanes import swimlanes
from streamad.web.pages.running import section, silence
from streamad.web.pages.span import SKEW_US
from streamad.web.pages.warned import banner_of, warned
from streamad.web.rendering import count, rendered
from streamad.web.site import Site
from streamad.web.store.alerts import ANY, UNJUDGED
from streamad.web.store.view import Place, SeenSequence

_MOST_EVENTS = 12
_WARNINGS = 10
_BUDGET = 200
_PAGE = 120


def now(site: Site) -> Markup:
    """Return the content, the same for everybody: banner, budget, swimlanes, warnings, inbox, what runs."""
    attention, now_us = Attention(site), site.plant.clock.now_us()
    early = site.plant.settings.alerts.early
    latest, inbox = attention.latest(now_us), attention.inbox(now_us)
    since_us = min((one.start_us or 0 for one in latest), default=0)
    events = attention.events(now_us, 0 if not latest else min(since_us, site.view.begun_us))
    number = site.workers.number  # before what it is the number of
    workers, still_open = site.workers.seen(), site.workers.open()
    rows = warned(site, site.view.warnings(_WARNINGS, until_us=now_us + SKEW_US))
    is_kept = site.plant.settings.sinks.status is not None
    is_full = len(inbox) >= INBOX and all(one.judgement in (None, "withdrawn") for one in inbox)
    return rendered(
        "now.html",
        has_judged=bool(latest),
        troubles=[*banner_of(rows), *silence(workers), *attention.banner(latest, now_us)],
        budget=_budget(site, latest[:_BUDGET]),
        lanes=swimlanes(latest, events, still_open, now_us),
        warnings=rows,
        warning_rate=None if early is None else early.false_alarm_rate,
        alerts=inbox,
        older=Place.behind(inbox[-1]) if is_full else None,
        running=section(site, workers, still_open, number) if is_kept else None,
        events=events[:_MOST_EVENTS],
    )


def alerts(site: Site, unjudged: bool, behind: Place | None) -> Markup:
    """Return the content of the page of all alerts, a portion of it."""
    found = site.view.inbox(_PAGE + 1, behind=behind, wanted=UNJUDGED if unjudged else ANY)
    older = Place.behind(found[_PAGE - 1]) if len(found) > _PAGE else None
    return rendered("alerts.html", alerts=found[:_PAGE], unjudged=unjudged, behind=behind, older=older)


def _budget(site: Site, latest: Sequence[SeenSequence]) -> str:
    judged = [one for one in latest if one.p_value is not None]
    n_calibration = site.n_calibration(judged[0].model, judged[0].version) if judged else None
    return budget_text(len(judged), sum(one.is_alert for one in judged), site.rate, n_calibration)


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
