"""The page Calibration: whether the rates are kept, and how often people agreed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markupsafe import Markup

from streamad.judge.evaluation import alerts_by_chance, clopper_pearson
from streamad.language import gettext, percent, percents
from streamad.web.charts.scores import histogram
from streamad.web.rendering import JUDGED, count, rendered
from streamad.web.site import Site
from streamad.web.store.view import SeenSequence

_BINS = 20
_MOST_READ = 2_000


def calibration(site: Site) -> Markup:
    """Return the content: p-values against the uniform law, rates by version, precision by marks."""
    latest = site.view.latest(_MOST_READ)
    p_values = [one.p_value for one in latest if one.p_value is not None]
    judged: dict[tuple[str, str], list[SeenSequence]] = {}
    for one in latest:
        if one.p_value is not None:
            judged.setdefault((one.model or "", one.version or ""), []).append(one)
    marks = Counter(one.judgement for one in site.view.inbox(_MOST_READ) if one.judgement is not None)
    return rendered(
        "calibration.html",
        histogram=histogram(p_values, _BINS) if p_values else None,
        n_bins=_BINS,
        rates=[_rates(site, model, version, ours) for (model, version), ours in judged.items()],
        precision=precision(marks),
    )


def _rates(site: Site, model: str, version: str, judged: Sequence[SeenSequence]) -> tuple[str, ...]:
    """Return what a version did: how many sequences it judged, and how many alerts it raised, against the rate."""
    n_alerts = sum(one.is_alert for one in judged)
    low, high = clopper_pearson(n_alerts, len(judged))
    rate = next((one.rate for one in judged if one.rate is not None), site.rate)
    n_calibration = site.n_calibration(model, version)
    return (
        f"{model} {version}",
        str(len(judged)),
        str(n_alerts),
        f"{percent(n_alerts / len(judged), 1)} ({percents(low, high, 1)})",
        percent(rate, 1),
        rate_kept(len(judged), n_alerts, sum(one.judgement == "confirmed" for one in judged), rate, n_calibration),
        gettext("unknown") if n_calibration is None else str(n_calibration),
    )


def rate_kept(n_judged: int, n_alerts: int, n_confirmed: int, rate: float, n_calibration: int | None) -> str:
    """Return whether a version keeps the configured rate, in words; confirmed anomalies do not count.

    The rate is kept unless alerts are more than chance gives in 39 of 40 cases. They are too few to say so if no alert
    would be as usual.
    """
    n, n_ours = n_judged - n_confirmed, n_alerts - n_confirmed
    expected = None if n_calibration is None else alerts_by_chance(n, n_calibration, rate)
    if expected is None:
        return gettext("too few in the calibration to say")
    low, high = expected
    if n_ours > high:
        return "▲ " + gettext("no: chance gives at most %(n)s", n=high)
    if low:
        return "● " + gettext("yes")
    return "● " + gettext("too few to say: chance gives %(low)s to %(high)s", low=low, high=high)


def precision(marks: Counter[str]) -> str:
    """Return how often people agreed with the alerts that they have judged."""
    n_right, n_wrong = marks["confirmed"], marks["false_alarm"]
    n = n_right + n_wrong
    if not n:
        return gettext("No alert has been judged yet: open one and press C (confirmed) or F (false alarm).")
    low, high = clopper_pearson(n_right, n)
    known = ((kind, each) for kind, each in sorted(marks.items()) if kind in JUDGED)
    said = (count(each, "false alarm") if kind == "false_alarm" else f"{each} {JUDGED[kind]}" for kind, each in known)
    return gettext(
        "Anomalies among the judged alerts: %(n)s of %(all)s, %(share)s (%(range)s). %(marks)s.",
        n=n_right, all=n, share=percent(n_right / n), range=percents(low, high), marks=", ".join(said),
    )  # fmt: skip
