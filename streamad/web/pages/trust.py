"""The pages Calibration and Models: whether the rates are kept, which version judges and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from streamad.judge.evaluation import clopper_pearson
from streamad.learn.registry.manifest import Manifest
from streamad.pictures.html import Html, element
from streamad.web import charts
from streamad.web.pages.layout import JUDGED, count, rows_table

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
            f"bars lies within the shaded band 95 times in 100. A bar far above it on the left is anomalies; bars that "
            f"lean to one side mean that the plant is another one than at training.",
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
    said = ", ".join(f"{count(n, JUDGED[kind])}" for kind, n in sorted(marks.items()) if kind in JUDGED)
    return element(
        "p",
        f"Of {n_right + n_wrong} judged alerts {n_right} were anomalies: {n_right / (n_right + n_wrong):.0%} "
        f"({low:.0%} to {high:.0%}). {said}.",
    )


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of one model, the newest first, and what may be done with them."""

    name: str
    current: str | None
    manifests: tuple[Manifest, ...]
    problems: tuple[str, ...]
    waiting: str | None


def models(found: Sequence[Versions], *, may_act: bool, why_not: str, said: str) -> list[Html]:
    """Return the content: each model's versions with their decisions, and the forms if ``may_act``."""
    parts = [element("h1", "Models")]
    if said:
        parts.append(element("p", said, class_="said", role="status"))
    if not any(one.manifests for one in found):
        parts.append(element("p", "There is no model yet: streamad train makes one, or learning makes the first."))
    for one in found:
        parts.append(element("h2", f"Model {one.name}"))
        if one.waiting is not None:
            text = f"{one.waiting} waits for a person: operators' marks have changed what it learned from."
            parts.append(element("p", text, class_="missing"))
        rows = [_row(each, one) for each in one.manifests]
        heads = ("version", "made (UTC)", "trained on", "calibrated with", "decision")
        parts.append(rows_table(f"Versions of {one.name}, the newest first", heads, rows))
        parts += [element("p", problem, class_="missing") for problem in one.problems]
        if may_act:
            parts += [_form(each.version, one) for each in one.manifests[:10] if each.version != one.current]
    if not may_act:
        parts.append(element("p", why_not, class_="soft"))
    return parts


def _row(manifest: Manifest, of: Versions) -> tuple[str, ...]:
    decision = manifest.decision
    state = "● in service" if manifest.version == of.current else "○"
    if decision is None:
        why = "" if manifest.learning is None else manifest.learning.reason
    else:
        why = ("promoted: " if decision.promoted else "not promoted: ") + decision.reason
    return (
        f"{manifest.version} {state}",
        f"{manifest.created_at:%Y-%m-%d %H:%M}",
        count(manifest.metrics.n_training, "sequence"),
        count(manifest.metrics.n_calibration, "score"),
        why,
    )


def _form(version: str, of: Versions) -> Html:
    """Return the form that puts ``version`` into service once its name is typed."""
    hidden = [element("input", name=name, value=value, type="hidden")
              for name, value in (("model", of.name), ("version", version))]  # fmt: skip
    label = element(
        "label", f"Type {version} to put it into service ", element("input", name="typed", autocomplete="off")
    )
    button = element("button", "Put into service", type="submit", name="act", value="promote")
    more = [element("button", "Decline", type="submit", name="act", value="decline")] if version == of.waiting else []
    form = element("form", *hidden, label, button, *more, method="post", action="/models/act")
    return element("details", element("summary", f"Put {version} into service"), form)
