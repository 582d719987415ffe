"""What ``streamad explain`` prints: headline, score, reasons, normal sequences, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamad.commands.shared.console import note, out, styled
from streamad.judge.verdicts import p_text, place
from streamad.language import percent
from streamad.messages import Attribution, ChannelShare
from streamad.outputs.cases import Case
from streamad.pictures.content import Scores
from streamad.pictures.facts import MARKS, Facts, departure, headline, is_explained, speakers, when
from streamad.safe_text import visible_name

_LABEL = 9
_MOST_SHARES = 10
_LEAST_SHARE = 0.01
_WIDEST_NAME = 40


def print_case(case: Case, scores: Scores | None, missing: Sequence[str]) -> None:
    """Print all that is known of a sequence, for people."""
    facts, attribution = case.facts, case.attribution
    out.print(styled((visible_name(headline(facts, attribution)), "bold")))
    _line("id", facts.id)
    _line("decision", _decision(facts))
    if facts.score is not None:
        _line("score", _score(facts, scores))
    _line("when", f"{when(facts)}; ended by {facts.reason}")
    if attribution is not None and is_explained(attribution):
        _print_reasons(attribution)
    for text in missing:
        out.print(note(visible_name(text)))


def _line(label: str, text: str) -> None:
    out.print(f"{label:<{_LABEL}}{visible_name(text)}")


def _decision(facts: Facts) -> str:
    by = "" if facts.model is None else f" by model {facts.model.name} {facts.model.version}"
    word = "alert" if facts.is_alert else facts.decision
    return f"{word}{by}" + (f": {facts.detail}" if facts.detail else "")


def _score(facts: Facts, scores: Scores | None) -> str:
    text = f"{facts.score:.4g}"
    if facts.p_value is not None:
        rate = "" if facts.rate is None else f", alert at {facts.rate:g} or less"
        tail = " (extrapolated)" if facts.tail == "extrapolated" else ""
        text += f", p {p_text(facts.p_value)}{tail}{rate}"
    if scores is not None:
        text += f"; {scores.words}, {scores.limit}"
    return text


def _print_reasons(attribution: Attribution) -> None:
    large = [each for each in attribution.channels if each.share >= _LEAST_SHARE][:_MOST_SHARES]
    width = min(_WIDEST_NAME, max((len(visible_name(each.channel)) for each in large), default=0))
    for number, share in enumerate(large):
        _line("" if number else "channels", _share(share, attribution, width))
    if rest := len(attribution.channels) - len(large):
        what = "more channels" if rest > 1 else "more channel"
        _line("" if large else "channels", f"{rest} {what if large else 'channels'} below {percent(_LEAST_SHARE)}")
    for number, speaker in enumerate(speakers(attribution)):
        _line("" if number else "spoke", speaker)
    for number, each in enumerate(attribution.nearest):
        _line("" if number else "nearest", f"{each.sequence} (normal, distance {each.distance:.2g})")
    if attribution.detail:
        _line("left out", attribution.detail)


def _share(share: ChannelShare, attribution: Attribution, width: int) -> str:
    segments = [each for each in attribution.segments if each.channel == share.channel]
    words = [
        f"{MARKS[each.direction]} {departure(each)} {place(each.start, each.end)}"
        f" ({each.start_time:%H:%M:%S} to {each.end_time:%H:%M:%S})"
        for each in segments
    ]
    return "  ".join([f"{visible_name(share.channel):<{width}} {percent(share.share):>5}", *words])


def as_json(case: Case, scores: Scores | None, missing: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return all that is known of a sequence, for machines."""
    courses = case.courses
    figures: dict[str, Any] = {
        "id": case.facts.id,
        "headline": headline(case.facts, case.attribution),
        "attribution": case.attribution,
        "window": None,
        "calibration": None,
        "missing": list(missing),
    }
    if courses is not None:
        figures["window"] = {"length": courses.length, "channels": len(courses.channels)}
    if scores is not None:
        n_above = int((scores.normal >= scores.score).sum())
        lowest = scores.alerts_from if abs(scores.alerts_from) != float("inf") else None
        figures["calibration"] = {"n": len(scores.normal), "n_at_least": n_above, "alerts_from": lowest}
    return {**figures, **more}
