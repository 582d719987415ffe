"""The page Calibration: whether the rates are kept, and how often people agreed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from streamad.judge.evaluation import clopper_pearson
from streamad.web.charts import curves
from streamad.web.rendering import JUDGED, count, rendered

_BINS = 20


@dataclass(frozen=True, slots=True)
class Achieved:
    """What a version did among the sequences that were read: how many it judged, and how many alerts it raised."""

    model: str
    version: str
    n_judged: int
    n_alerts: int
    rate: float
    n_calibration: int | None


def calibration(p_values: Sequence[float], achieved: Sequence[Achieved], marks: Counter[str]) -> Markup:
    """Return the content: p-values against the uniform law, rates by version, precision by marks."""
    return rendered(
        "calibration.html",
        histogram=curves.histogram(p_values, _BINS) if p_values else None,
        n_bins=_BINS,
        rates=[_rates(one) for one in achieved],
        precision=_precision(marks),
    )


def _rates(one: Achieved) -> tuple[str, ...]:
    low, high = clopper_pearson(one.n_alerts, one.n_judged)
    return (
        f"{one.model} {one.version}",
        str(one.n_judged),
        str(one.n_alerts),
        f"{one.n_alerts / one.n_judged:.1%} ({low:.1%} to {high:.1%})",
        f"{one.rate:.1%}",
        "unknown" if one.n_calibration is None else str(one.n_calibration),
    )


def _precision(marks: Counter[str]) -> str:
    """Return how often people agreed with the alerts that they have judged."""
    n_right, n_wrong = marks["confirmed"], marks["false_alarm"]
    n = n_right + n_wrong
    if not n:
        return "No alert has been judged yet: open one and press C (confirmed) or F (false alarm)."
    low, high = clopper_pearson(n_right, n)
    words = ((kind, n_marks, JUDGED[kind]) for kind, n_marks in sorted(marks.items()) if kind in JUDGED)
    said = ", ".join(count(each, word) if kind == "false_alarm" else f"{each} {word}" for kind, each, word in words)
    share = f"{n_right} of {n}, {n_right / n:.0%} ({low:.0%} to {high:.0%})"
    return f"Anomalies among the judged alerts: {share}. {said}."
