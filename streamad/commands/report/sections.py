"""The sections of a report's page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from streamad.commands.report.gathering import MOST_ALERTS, MOST_EVENTS, Gathered, Judged, Version
from streamad.commands.report.html import Html, element, joined, picture, table
from streamad.commands.shared.console import count
from streamad.commands.shared.figures.report import unscorable_text
from streamad.judge.evaluation import alerts_by_chance, clopper_pearson
from streamad.judge.explanations.words import p_text
from streamad.messages import Alert, Attribution, Event, ModelRef
from streamad.pictures.facts import MARKS, Facts, cut, finding, headline, is_explained, score_line, speakers, when
from streamad.safe_text import one_line

_NAME = 60
_REASON = 600
DRIFT = ("drift", "plant_changed")
_SAID = {"false_alarm": "false alarm", "confirmed": "confirmed", "veto": "neither (veto)"}

Drawing = Callable[[Alert], bytes | str]
"""Returns an alert's picture, or why there is none."""


def summary(found: Gathered) -> Html:
    """Return what happened in one paragraph."""
    n = sum(found.decisions.values())
    parts = [count(found.n_alerts, "alert")]
    if n:
        each = ", ".join(f"{number} {decision}" for decision, number in sorted(found.decisions.items()))
        parts.append(f"{count(n, 'sequence')} ended ({each})")
    parts.append(count(sum(found.kinds[kind] for kind in DRIFT), "drift event"))
    parts.append(f"{count(len(found.marks), 'mark')} of operators")
    lines = [element("p", "; ".join(parts) + ".")]
    if reasons := unscorable_text(found.unscorable):
        lines.append(element("p", f"Unscorable: {cut(reasons, _REASON)}.", class_="soft"))
    if found.notes:
        lines.append(element("ul", *(element("li", one_line(note)) for note in found.notes), class_="soft"))
    return joined(lines)


def rates(found: Gathered, rate: float) -> Html:
    """Return alerts achieved and configured, per version, with the interval and what chance gives."""
    heads = (
        "model", "judged", "alerts", "share (95 % interval)", "configured", "if all were normal", "", "confirmed",
        "false alarms",
    )  # fmt: skip
    calibrations = {each.model: each for each in found.versions}
    rows = [_rate_row(found, ref, judged, calibrations.get(ref), rate) for ref, judged in found.judged.items()]
    if not rows:
        return element("p", "No sequence was judged in this time.")
    lines = [
        table(heads, rows),
        element(
            "p",
            "The interval (Clopper-Pearson) is that of the share of sequences that alert, true alerts among them. If "
            "all were normal: how many alerts the configured rate gives, and the range of 95 % of chance, that of the "
            "calibration included (beta-binomial). More than that are faults, or a plant that has changed. Confirmed, "
            "false alarms: what operators say of the alerts.",
            class_="soft",
        ),
    ]
    others = sorted(each for each in found.rates if each != rate)
    if others:
        text = f"Some alerts were raised at another configured rate: {', '.join(f'{each:g}' for each in others[:5])}."
        lines.append(element("p", text, class_="soft"))
    return joined(lines)


def _rate_row(found: Gathered, ref: ModelRef, judged: Judged, version: Version | None, rate: float) -> list[str]:
    low, high = clopper_pearson(judged.n_alerts, judged.n)
    manifest = None if version is None else version.manifest
    chance = None
    if manifest is not None and manifest.metrics.method != "out_of_fold":
        chance = alerts_by_chance(judged.n, manifest.metrics.n_calibration, rate)
    expected = f"about {judged.n * rate:.3g}"
    by_chance, says = f"{expected} (no range: the calibration does not certify the rate)", ""
    if chance is not None:
        by_chance = f"{expected} ({chance[0]} to {chance[1]})"
        says = _against_chance(judged.n_alerts, chance)
    marks = [found.marks.get(alert.alert_id) for alert in found.alerts if alert.model == ref]
    return [
        f"{ref.name} {ref.version}",
        str(judged.n),
        str(judged.n_alerts),
        f"{_percent(judged.n_alerts / judged.n)} ({_percent(low)} to {_percent(high)})",
        _percent(rate),
        by_chance,
        says,
        str(marks.count("confirmed")),
        str(marks.count("false_alarm")),
    ]


def _against_chance(n_alerts: int, chance: tuple[int, int]) -> str:
    if n_alerts > chance[1]:
        return element("span", f"{MARKS['above']} more than chance", class_="odd")
    return f"{MARKS['below']} fewer than chance" if n_alerts < chance[0] else "● within chance"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def alerts(found: Gathered, drawing: Drawing, most_pictures: int) -> Html:
    """Return the alerts: those with pictures one by one, all in a table."""
    if not found.alerts:
        return element("p", "No alert was raised in this time.")
    shown = found.alerts[:most_pictures]
    lines = []
    if found.n_alerts > len(shown):
        drawn_text = f"The newest {len(shown)} of {found.n_alerts} alerts have a picture (--pictures N draws more)"
        rest = found.n_alerts - len(found.alerts)
        listed = f"; the oldest {rest} are not in the table, which holds {MOST_ALERTS}" if rest else ""
        lines.append(element("p", f"{drawn_text}{listed}. streamad explain ID --plot FILE draws any other."))
    heads = ("judged (UTC)", "stream", "sequence", "score", "p", "model", "why", "mark", "id")
    lines.append(
        table(
            heads,
            (_alert_row(found, alert, index < len(shown)) for index, alert in enumerate(found.alerts)),
            long=("why",),
        )
    )
    lines += [_alert_section(found, alert, drawing(alert)) for alert in shown]
    return joined(lines)


def _alert_row(found: Gathered, alert: Alert, is_linked: bool) -> list[str]:
    attribution = found.attributions.get(alert.alert_id)
    why = finding(Facts.of(alert), attribution, _NAME).replace(" %", "\N{NO-BREAK SPACE}%")
    short = alert.alert_id[:8]
    return [
        _time(alert.created_at),
        cut(alert.stream, _NAME),
        cut(alert.sequence, _NAME),
        f"{alert.score:.4g}",
        p_text(alert.p_value) + (" (extrapolated)" if alert.tail == "extrapolated" else ""),
        f"{alert.model.name} {alert.model.version}",
        why,
        _SAID.get(found.marks.get(alert.alert_id, ""), ""),
        element("a", short, href=f"#{_anchor(alert)}") if is_linked else short,
    ]


def _anchor(alert: Alert) -> str:
    return f"alert-{alert.alert_id[:32]}"


def _alert_section(found: Gathered, alert: Alert, drawn: bytes | str) -> Html:
    facts, attribution = Facts.of(alert), found.attributions.get(alert.alert_id)
    said = headline(facts, attribution, _NAME)
    lines = [element("h3", said), element("p", f"{score_line(facts)}   id {alert.alert_id}", class_="soft")]
    lines.append(element("p", f"{when(facts)}; ended by {alert.reason}", class_="soft"))
    if mark := _SAID.get(found.marks.get(alert.alert_id, "")):
        lines.append(element("p", f"Operators say: {mark}."))
    if attribution is not None and is_explained(attribution):
        shares = [
            f"{cut(each.channel, _NAME)} {100 * each.share:.0f} %"
            for each in attribution.channels[:6]
            if each.share >= 0.01
        ]
        parts = [", ".join(shares), *(cut(each.text, 3 * _NAME) for each in attribution.segments)]
        lines.append(element("ul", *(element("li", part) for part in parts if part)))
        if isinstance(drawn, str):  # the picture says it, too
            lines += _details(attribution)
    elif attribution is not None:
        lines.append(element("p", f"Not explained: {cut(attribution.detail or 'no reason is given', _REASON)}"))
    else:
        lines.append(element("p", "No reasons were found for it in the outputs."))
    lines.append(picture(drawn, said) if isinstance(drawn, bytes) else element("p", drawn, class_="soft"))
    return element("section", *lines, class_="alert", id=_anchor(alert))


def _details(attribution: Attribution) -> list[Html]:
    lines = []
    if spoke := speakers(attribution):
        lines.append(element("p", f"Spoke: {', '.join(spoke)}"))
    if attribution.nearest:
        near = ", ".join(f"{cut(each.sequence, _NAME)} ({each.distance:.2g})" for each in attribution.nearest)
        lines.append(element("p", f"Nearest normal sequences (distance): {near}"))
    return lines


def drift(found: Gathered) -> Html:
    """Return the drift events."""
    own = [event for event in found.events if event.kind in DRIFT]
    if not own:
        return element("p", "No drift was reported in this time.")
    return _event_table(own)


def other_events(found: Gathered) -> Html:
    """Return the other events, the newest first, and how many of each kind there were."""
    own = [event for event in found.events if event.kind not in DRIFT]
    if not own:
        return element("p", "None.")
    counts = ", ".join(f"{n} {kind}" for kind, n in found.kinds.most_common() if kind not in DRIFT)
    lines = [element("p", cut(counts, _REASON)), _event_table(own)]
    if sum(found.kinds.values()) > len(found.events):
        lines.append(element("p", f"The newest {MOST_EVENTS} events are listed, the others only counted."))
    return joined(lines)


def _event_table(events: Iterable[Event]) -> Html:
    rows = []
    for event in events:
        model = "" if event.model is None else f"{event.model.name} {event.model.version}"
        rows.append([_time(event.created_at), event.kind, model, event.stream or "", cut(event.message, _REASON)])
    return table(("time (UTC)", "kind", "model", "stream", "what"), rows, long=("what",))


def models(found: Gathered) -> Html:
    """Return the versions in service, those that judged, and those that were made, with the decisions on them."""
    if not found.versions:
        return element("p", "No model has a version yet.")
    rows = []
    for each in found.versions:
        state = "● in service" if each.is_in_service else ""
        manifest = each.manifest
        if manifest is None:
            rows.append([f"{each.model.name} {each.model.version}", state, "", "", "", one_line(each.problem or "")])
            continue
        metrics, decision = manifest.metrics, manifest.decision
        why = "trained by a person" if decision is None else _decision_word(decision.promoted) + decision.reason
        calibrated = f"{metrics.n_calibration} ({metrics.method})"
        made = f"{_time(manifest.created_at)}"
        rows.append(
            [
                f"{each.model.name} {each.model.version}",
                state,
                made,
                str(metrics.n_training),
                calibrated,
                cut(one_line(why), _REASON),
            ]
        )
    return table(("model", "", "made (UTC)", "trained on", "calibrated on", "decision"), rows, long=("decision",))


def _decision_word(is_promoted: bool) -> str:
    return "promoted: " if is_promoted else "not promoted: "


def feedback(found: Gathered) -> Html:
    """Return how many marks there are of each kind."""
    if not found.marks:
        return element("p", "No marks of operators.")
    of_alerts = {alert.alert_id for alert in found.alerts}
    rows = []
    for kind, said in _SAID.items():
        ids = {name for name, judgement in found.marks.items() if judgement == kind}
        rows.append([said, str(len(ids)), str(len(ids & of_alerts))])
    unmarked = sum(alert.alert_id not in found.marks for alert in found.alerts)
    return joined(
        [
            table(("mark", "sequences", "of them alerts of this report"), rows),
            element("p", f"{count(unmarked, 'alert')} of this report without a mark.", class_="soft"),
        ]
    )


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
