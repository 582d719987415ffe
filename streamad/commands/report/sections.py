"""The sections of a report, as data for the template ``web/templates/report.html``."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from typing import NamedTuple

from markupsafe import Markup

from streamad.commands.report.curves import Curve, Drawing
from streamad.commands.report.gathering import Gathered, Judged, Version
from streamad.commands.shared.console import count
from streamad.commands.shared.figures.losses import unscorable_text
from streamad.judge.evaluation import alerts_by_chance, clopper_pearson
from streamad.judge.verdicts import p_text
from streamad.language import percent
from streamad.messages import Alert, EarlyWarning, Event, ModelRef
from streamad.pictures.facts import MARKS, Facts, basis, cut, finding, headline, is_explained, score_line, when
from streamad.pictures.warned import age_and_lead, lead_of, warned_finding
from streamad.safe_text import one_line
from streamad.web.rendering import rendered, times_text

_NAME = 60
_REASON = 600
DRIFT = ("drift", "plant_changed")
_MOST_OPEN = 10
_SAID = {"false_alarm": "false alarm", "confirmed": "confirmed", "veto": "neither (veto)"}


class _Rate(NamedTuple):
    """The alerts of a version among what it judged; ``verdict`` compares them with what chance gives."""

    model: str
    judged: Judged
    share: str
    by_chance: str
    verdict: str
    is_odd: bool
    said: list[str]


class _Drawn(NamedTuple):
    """An alert with its curves, or with why there are none."""

    id: str
    headline: str
    facts: list[str]
    mark: str
    reasons: list[str]
    further: list[str]
    curves: list[Curve]
    no_curve: str


def page(name: str, rate: float, found: Gathered, drawing: Drawing) -> str:
    """Return the page of a plant with its configured ``rate``: its foremost alerts are drawn while there is room.

    It is one file, which asks for nothing from elsewhere and runs nothing: its policy forbids it.
    """
    calibrations = {each.model: each for each in found.versions}
    rates = [_rate(found, ref, judged, calibrations.get(ref), rate) for ref, judged in found.judged.items()]
    alerts = [_drawn(found, alert, drawing.of(alert)) for alert in found.foremost if not drawing.is_full]
    return rendered(
        "report.html",
        name=name,
        span=f"{found.since:%Y-%m-%d %H:%M} to {found.until:%Y-%m-%d %H:%M} UTC",
        found=found,
        summary=_summary(found),
        unscorable=cut(unscorable_text(found.unscorable), _REASON),
        notes=[one_line(note) for note in found.notes],
        rates=rates,
        configured=percent(rate, None),
        other_rates=[f"{each:g}" for each in sorted(found.rates) if each != rate][:5],
        alerts=alerts,
        shown={one.id for one in alerts},
        most_open=_MOST_OPEN,
        style=Markup((files("streamad.web") / "static" / "streamad.css").read_text("utf-8")),
        listed=[_listed(found, alert) for alert in found.alerts],
        warned=_warned_summary(found),
        warnings=[_warning(found, warning) for warning in found.warnings],
        drift=[_event(each) for each in found.events if each.kind in DRIFT],
        others=[_event(each) for each in found.events if each.kind not in DRIFT],
        kinds=cut(", ".join(f"{n} {kind}" for kind, n in found.kinds.most_common() if kind not in DRIFT), _REASON),
        models=[_version(each) for each in found.versions],
        marks=_marks(found),
        unmarked=sum(alert.alert_id not in found.marks for alert in found.alerts),
    )


def _summary(found: Gathered) -> str:
    """Return in one sentence what happened."""
    n = sum(found.decisions.values())
    parts = [count(found.n_alerts, "alert"), *([count(found.n_warnings, "warning")] if found.n_warnings else [])]
    if n:
        each = ", ".join(f"{number} {decision}" for decision, number in sorted(found.decisions.items()))
        parts.append(f"{count(n, 'sequence')} ended ({each})")
    parts.append(count(sum(found.kinds[kind] for kind in DRIFT), "drift event"))
    parts.append(f"{count(len(found.marks), 'mark')} of operators")
    return "; ".join(parts) + "."


def _rate(found: Gathered, ref: ModelRef, judged: Judged, version: Version | None, rate: float) -> _Rate:
    """Return alerts achieved, with the interval, beside what chance gives at the configured rate."""
    low, high = clopper_pearson(judged.n_alerts, judged.n)
    manifest = None if version is None else version.manifest
    chance = None
    if manifest is not None and manifest.metrics.method != "out_of_fold":
        chance = alerts_by_chance(judged.n, manifest.metrics.n_calibration, rate)
    by_chance, verdict, is_odd = "no range: the calibration does not certify the rate", "", False
    if chance is not None:
        by_chance, is_odd = f"{chance[0]} to {chance[1]}", judged.n_alerts > chance[1]
        verdict = f"{MARKS['below']} fewer than chance" if judged.n_alerts < chance[0] else "● within chance"
    marks = [found.marks.get(alert.alert_id) for alert in found.alerts if alert.model == ref]
    return _Rate(
        _label(ref),
        judged,
        f"{percent(judged.n_alerts / judged.n, None)} ({percent(low, None)} to {percent(high, None)})",
        f"about {judged.n * rate:.3g} ({by_chance})",
        f"{MARKS['above']} more than chance" if is_odd else verdict,
        is_odd,
        [str(marks.count("confirmed")), str(marks.count("false_alarm"))],
    )


def _listed(found: Gathered, alert: Alert) -> list[str]:
    """Return an alert's cells in the table of all, but for its id."""
    attribution = found.attributions.get(alert.alert_id)
    return [
        _time(alert.created_at),
        cut(alert.stream, _NAME),
        cut(alert.sequence, _NAME),
        f"{alert.score:.4g}",
        times_text(found.times.get(alert.alert_id)),
        p_text(alert.p_value) + (" (extrapolated)" if alert.tail == "extrapolated" else ""),
        _label(alert.model),
        finding(Facts.of(alert), attribution, _NAME),
        *([_warned_before(found, alert)] if found.has_warnings else []),
        _SAID.get(found.marks.get(alert.alert_id, ""), ""),
    ]


def _warning_of(found: Gathered, alert: Alert) -> EarlyWarning | None:
    """Return the warning of the sequence of an alert, None if there was none."""
    return found.warning_of.get((alert.stream, alert.sequence, alert.start_time))


def _warned_before(found: Gathered, alert: Alert) -> str:
    """Return how long before its end the sequence of an alert was warned of; "" if it was not."""
    warning = _warning_of(found, alert)
    return "" if warning is None else lead_of(warning, alert.end_time) or "at the end"


def _warned_summary(found: Gathered) -> str:
    """Return how many of the judged sequences were warned of, by what they turned out to be."""
    each = [f"{n} of {found.decisions[decision]} {decision}" for decision, n in sorted(found.warned.items()) if n]
    return f"Judged sequences that were warned of while they ran: {', '.join(each)}." if each else ""


def _warning(found: Gathered, warning: EarlyWarning) -> list[str]:
    """Return a warning's cells: when, of what, why, and what became of the sequence."""
    judged = found.judged_as.get(warning.warning_id)
    became: str = "no verdict yet" if judged is None else judged.decision
    if judged is not None and (lead := lead_of(warning, judged.end_time)):
        became += f", {lead} later"
    return [
        _time(warning.time),
        cut(warning.stream, _NAME),
        cut(warning.sequence, _NAME),
        percent(warning.age),
        p_text(warning.p_value) + (" (extrapolated)" if warning.tail == "extrapolated" else ""),
        warned_finding(warning, found.attributions.get(warning.warning_id), _NAME),
        became,
    ]


def _drawn(found: Gathered, alert: Alert, drawn: list[Curve] | str) -> _Drawn:
    facts, attribution = Facts.of(alert), found.attributions.get(alert.alert_id)
    reasons: list[str] = []
    further = ["No reasons were found for it in the outputs."]
    if attribution is not None and is_explained(attribution):
        shares = [
            f"{cut(each.channel, _NAME)} {percent(each.share)}"
            for each in attribution.channels[:6]
            if each.share >= 0.01
        ]
        parts = [", ".join(shares), *(cut(each.text, 3 * _NAME) for each in attribution.segments)]
        reasons = [part for part in parts if part]
        further = [f"{line[:1].upper()}{line[1:]}" for line in basis(attribution)]
    elif attribution is not None:
        further = [f"Not explained: {cut(attribution.detail or 'no reason is given', _REASON)}"]
    warned = ""
    if (warning := _warning_of(found, alert)) is not None:
        warned = f"{MARKS['shape']} Warned of while it ran, at {age_and_lead(warning, alert.end_time)}"
    return _Drawn(
        alert.alert_id,
        headline(facts, attribution, _NAME),
        [
            f"{score_line(facts)}{_height(found, alert)}   id {alert.alert_id}",
            f"{when(facts)}; ended by {alert.reason}",
            *([warned] if warned else []),
        ],
        _SAID.get(found.marks.get(alert.alert_id, ""), ""),
        reasons,
        further,
        [] if isinstance(drawn, str) else drawn,
        drawn if isinstance(drawn, str) else "",
    )


def _height(found: Gathered, alert: Alert) -> str:
    times = times_text(found.times.get(alert.alert_id))
    return f"   {times} times the threshold" if times else ""


def _event(event: Event) -> list[str]:
    model = "" if event.model is None else _label(event.model)
    return [_time(event.created_at), event.kind, model, event.stream or "", cut(event.message, _REASON)]


def _version(one: Version) -> list[str]:
    """Return the cells of a version, with the decision on it."""
    named = [_label(one.model), "● in service" if one.is_in_service else ""]
    if one.manifest is None:
        return [*named, "", "", "", one_line(one.problem or "")]
    metrics, decision = one.manifest.metrics, one.manifest.decision
    why = "trained by a person"
    if decision is not None:
        why = f"{'promoted' if decision.promoted else 'not promoted'}: {decision.reason}"
    calibrated = f"{metrics.n_calibration} ({metrics.method})"
    made = _time(one.manifest.created_at)
    return [*named, made, str(metrics.n_training), calibrated, cut(one_line(why), _REASON)]


def _marks(found: Gathered) -> list[list[str]]:
    """Return how many marks there are of each kind, and how many of them are of alerts."""
    ids = [{name for name, judgement in found.marks.items() if judgement == kind} for kind in _SAID]
    of_alerts = {alert.alert_id for alert in found.alerts}
    return [[said, str(len(own)), str(len(own & of_alerts))] for said, own in zip(_SAID.values(), ids, strict=True)]


def _label(model: ModelRef) -> str:
    return f"{model.name} {model.version}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
