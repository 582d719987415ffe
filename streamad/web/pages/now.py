"""The page Now: what needs attention, which first, since when, and whether the alerts are as many as promised; and the
page of all alerts, of which a person may ask for some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode

from markupsafe import Markup

from streamad.judge.evaluation import alerts_by_chance
from streamad.language import gettext, numeral, percent
from streamad.types import from_us
from streamad.web.attention import INBOX, Attention
from streamad.web.charts.lanes import swimlanes
from streamad.web.pages.running import section, silence
from streamad.web.pages.span import SKEW_US, remarked
from streamad.web.pages.warned import banner_of, first_running, warned
from streamad.web.rendering import count, rendered, times_text
from streamad.web.site import Site
from streamad.web.store.view import Place, SeenSequence
from streamad.web.store.wanted import Wanted

HEIGHT: Final = "height"
"""The order of alerts by how far they lie above their threshold; any other word: the newest first."""
_FIELDS = ("q", "stream", "channel", "batch", "state", "assigned", "from", "to", "zone", "order")
_SHIFT_HOUR = 6
_MOST_EVENTS = 12
_WARNINGS = 10
_BUDGET = 200
_PAGE = 120
_CHOICES = 200


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert as lists show it: its score in thresholds, and its leading channel over the band, if they are known."""

    one: SeenSequence
    times: str
    thumbnail: Markup | None


def alert_rows(site: Site, found: Iterable[SeenSequence]) -> list[AlertRow]:
    """Return what lists show of alerts."""
    return [AlertRow(one, times_text(site.cases.times(one)), site.thumbnails.of(one)) for one in found]


def now(site: Site, order: str) -> Markup:
    """Return the content, the same for everybody: banner, what to open first, lanes, warnings, inbox, what runs."""
    attention, now_us = Attention(site), site.plant.clock.now_us()
    early = site.plant.settings.alerts.early
    latest, limits = attention.latest(now_us), site.cases.limits()
    inbox = attention.inbox(now_us, limits if order == HEIGHT else None)
    since_us = min((one.start_us or 0 for one in latest), default=0)
    events = attention.events(now_us, 0 if not latest else min(since_us, site.view.begun_us))
    number = site.workers.number  # before what it is the number of
    workers, still_open = site.workers.seen(), site.workers.open()
    rows = warned(site, site.view.warnings(_WARNINGS, until_us=now_us + SKEW_US))
    is_kept = site.plant.settings.sinks.status is not None
    is_full = len(inbox) >= INBOX and not any(one.is_judged for one in inbox)
    first = attention.first(latest, now_us, limits)
    budget = _budget(site, latest[:_BUDGET])
    many = [(gettext("more alerts than by chance"), budget.text)] if budget.is_more else []
    return rendered(
        "now.html",
        has_judged=bool(latest),
        troubles=[*many, *banner_of(rows), *silence(workers), *attention.banner(latest, now_us)],
        budget=None if budget.is_more else budget.text,
        first=None if first is None else alert_rows(site, [remarked(first, now_us)])[0],
        first_running=first_running(rows),
        lanes=swimlanes(latest, events, still_open, now_us),
        warnings=rows,
        warning_rate=None if early is None else early.false_alarm_rate,
        alerts=alert_rows(site, inbox),
        is_by_height=order == HEIGHT,
        older=Place.behind(inbox[-1]) if is_full else None,
        handover=_handover(site, now_us),
        running=section(site, workers, still_open, number) if is_kept else None,
        events=events[:_MOST_EVENTS],
    )


def alerts(site: Site, given: Mapping[str, str], wanted: Wanted | str, behind: Place | None, me: str) -> Markup:
    """Return the content of the page of all alerts, a portion of those that are ``wanted``, or why that cannot be.

    ``given``: the fields of the form as they were written. ``me``: who looks.
    """
    kept = {name: text for name in _FIELDS if (text := given.get(name, ""))}
    is_by_height = kept.get("order") == HEIGHT
    found: list[SeenSequence] = []
    if isinstance(wanted, Wanted):
        limits = site.cases.limits() if is_by_height else None
        found = site.view.inbox(_PAGE + 1, wanted=wanted, behind=behind, limits=limits)
    others = {name: text for name, text in kept.items() if name != "order"}
    return rendered(
        "alerts.html",
        alerts=alert_rows(site, found[:_PAGE]),
        n_wanted=site.view.n_wanted(wanted) if isinstance(wanted, Wanted) else 0,
        problem=wanted if isinstance(wanted, str) else None,
        given=dict.fromkeys(_FIELDS, "") | kept,
        is_new=others == {"state": "new"},
        query=urlencode(kept),
        by_time=urlencode(others),
        by_height=urlencode({**others, "order": HEIGHT}),
        is_by_height=is_by_height,
        is_filtered=bool(others.keys() - {"zone"}),
        behind=behind,
        older=Place.behind(found[_PAGE - 1]) if len(found) > _PAGE else None,
        handover=_handover(site, site.plant.clock.now_us()),
        zone=site.zone,
        streams=sorted(site.view.streams(_CHOICES)),
        channels=[each.name for each in site.plant.settings.channel_specs[:_CHOICES]],
        people=[me, *(each for each in site.view.assignees(_CHOICES) if each != me)],
    )


def _handover(site: Site, now_us: int) -> str:
    """Return the address of the alerts since yesterday's early shift that nobody has judged; see ``zones`` in JS."""
    yesterday = from_us(now_us).astimezone(site.zone or UTC).date() - timedelta(days=1)
    since = datetime(yesterday.year, yesterday.month, yesterday.day, _SHIFT_HOUR)  # noqa: DTZ001 - in the zone
    return "/alerts?" + urlencode({"state": "new", "from": since.isoformat(timespec="minutes")})


@dataclass(frozen=True, slots=True)
class Budget:
    """Whether there are more alerts than chance gives where all is normal, and how many there are, in a sentence."""

    is_more: bool
    text: str


def _budget(site: Site, latest: Sequence[SeenSequence]) -> Budget:
    judged = [one for one in latest if one.p_value is not None]
    n_calibration = site.n_calibration(judged[0].model, judged[0].version) if judged else None
    return budget_of(len(judged), sum(one.is_alert for one in judged), site.rate, n_calibration)


def budget_of(n_judged: int, n_alerts: int, rate: float, n_calibration: int | None) -> Budget:
    """Return how many alerts there were, and how many chance gives at the configured rate, with its interval."""
    said = {"alerts": count(n_alerts, "alert"), "sequences": count(n_judged, "judged sequence")}
    if not n_judged:
        return Budget(False, gettext("%(alerts)s in the last %(sequences)s.", **said))
    said |= {"usual": numeral(f"{rate * n_judged:.2g}"), "rate": percent(rate, None)}
    expected = None if n_calibration is None else alerts_by_chance(n_judged, n_calibration, rate)
    if expected is None:
        return Budget(
            False,
            gettext(
                "%(alerts)s in the last %(sequences)s; if all were normal, a rate of %(rate)s gives %(usual)s on "
                "average.",
                **said,
            ),
        )
    low, high = expected
    said |= {"low": str(low), "high": str(high)}
    if n_alerts > high:
        text = gettext(
            "%(alerts)s in the last %(sequences)s, where chance gives %(usual)s (%(low)s to %(high)s) at a rate of "
            "%(rate)s if all are normal",
            **said,
        )
        return Budget(True, text)
    if n_alerts < low:
        text = gettext(
            "%(alerts)s in the last %(sequences)s: fewer than chance gives if all are normal (%(low)s to %(high)s, "
            "%(usual)s on average at a rate of %(rate)s).",
            **said,
        )
    else:
        text = gettext(
            "%(alerts)s in the last %(sequences)s: as many as chance gives if all are normal (%(low)s to %(high)s, "
            "%(usual)s on average at a rate of %(rate)s).",
            **said,
        )
    return Budget(False, text)
