"""The page Calibration: whether the rates are kept, and how often people agreed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from streamad.judge.evaluation import clopper_pearson
from streamad.pictures.html import Html, element
from streamad.web import charts
from streamad.web.pages.layout import rows_table
from streamad.web.rendering import JUDGED, count

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


def calibration(p_values: Sequence[float], achieved: Sequence[Achieved], marks: Counter[str]) -> list[Html]:
    """Return the content: p-values against the uniform law, rates by version, precision by marks."""
    parts = [element("h1", "Calibration")]
    if not p_values:
        return [*parts, element("p", "No sequence has been judged by a model yet.")]
    parts += [
        element("h2", "p-values"),
        element(
            "p",
            f"If normal sequences are what the calibration saw, their p-values are spread evenly: each of the {_BINS} "
            f"bars lies within the shaded band 95 times in 100. A first bar far above it (red) counts "
            f"anomalies; bars that rise to one side mean that the plant has changed since the training.",
        ),
        charts.histogram(p_values, _BINS),
        element("h2", "Rates by version"),
    ]
    rows = []
    for one in achieved:
        low, high = clopper_pearson(one.n_alerts, one.n_judged)
        rows.append((
            f"{one.model} {one.version}", str(one.n_judged), str(one.n_alerts),
            f"{one.n_alerts / one.n_judged:.1%} ({low:.1%} to {high:.1%})", f"{one.rate:.1%}",
            "unknown" if one.n_calibration is None else str(one.n_calibration),
        ))  # fmt: skip
    heads = ("model", "judged", "alerts", "share of alerts (95 %)", "configured", "calibrated with")
    parts.append(rows_table("Alerts by version", heads, rows))
    parts += [element("h2", "What people said"), _precision(marks)]
    return parts


def _precision(marks: Counter[str]) -> Html:
    n_right, n_wrong = marks["confirmed"], marks["false_alarm"]
    if not n_right + n_wrong:
        return element("p", "No alert has been judged yet: open one and press C (confirmed) or F (false alarm).")
    low, high = clopper_pearson(n_right, n_right + n_wrong)
    words = ((kind, n, JUDGED[kind]) for kind, n in sorted(marks.items()) if kind in JUDGED)
    said = ", ".join(count(n, word) if kind == "false_alarm" else f"{n} {word}" for kind, n, word in words)
    return element(
        "p",
        f"Anomalies among the judged alerts: {n_right} of {n_right + n_wrong}, {n_right / (n_right + n_wrong):.0%} "
        f"({low:.0%} to {high:.0%}). {said}.",
    )
