"""Pictures of a stream for the page: its scores, and each channel's mean and spread, sequence by sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from streamad.language import Form, gettext
from streamad.pictures.facts import cut
from streamad.pictures.ticks import LARGEST_POWER, labels_of, log_ticks, round_ticks
from streamad.types import from_us
from streamad.web.charts.svg import (
    STRETCH,
    grid,
    level,
    link,
    rect,
    stretched,
    svg,
    times_below,
    title,
    triangle,
    triangles,
    upright,
    words,
)
from streamad.web.pages.events import EventMark
from streamad.web.rendering import JUDGED, count, digits
from streamad.web.store.view import SeenSequence

JUDGED_SIGNS = {"confirmed": "✓", "false_alarm": "✗", "veto": "○"}
"""The sign of each judgement that counts."""
_HEIGHT, _TOP, _BOTTOM = 280, 50, 42
_MOST_TIMES, _MOST_TICKS = 6, 7
_RARE = 0.03
_LETTER = 1.0  # the width of one, in per cent of a narrow window's picture
_SHORT_US = 600_000_000
_LARGEST = 10.0**LARGEST_POWER


def _log10(value: float) -> float:
    """Return the logarithm of a positive value, within what a picture's arithmetic can take."""
    return math.log10(min(max(value, 1 / _LARGEST), _LARGEST))


class _Scale:
    """Places of sequences in their order, and of scores on a logarithmic axis."""

    def __init__(self, scored: Sequence[SeenSequence], known: Sequence[float]) -> None:
        ends = [_log10(one.score or 1.0) for one in scored] + [_log10(v) for v in known if 0 < v < math.inf]
        low, high = min(ends), max(ends)
        pad = 0.08 * (high - low) or 0.5
        self.low, self.high = low - pad, high + pad
        self.step = 100 / len(scored)

    def left(self, number: int) -> float:
        return number * self.step

    def middle(self, number: int) -> float:
        return self.left(number) + self.step / 2

    def y(self, value: float) -> float:
        share = (_log10(value) - self.low) / (self.high - self.low)
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def has_place(one: SeenSequence) -> bool:
    """Return whether a sequence has a place on a logarithmic axis of scores."""
    return one.score is not None and 0 < one.score < math.inf


def course_of_scores(
    rows: Sequence[SeenSequence], limits: Mapping[tuple[str, str], float], events: Sequence[EventMark] = ()
) -> Markup | None:
    """Return the scores of sequences in their order, on a logarithmic axis, with each version's threshold.

    Versions are strips of the background, ``events`` vertical lines; below are the times at which sequences ended.
    Sequences are evenly far apart, whatever the pauses between them. An event stands before the first sequence that was
    judged after it. None if no sequence has a score.
    """
    scored = [one for one in rows if has_place(one)]
    if not scored:
        return None
    known = [limits.get((one.model or "", one.version or ""), math.inf) for one in scored]
    scale = _Scale(scored, known)
    lines = grid((f"{tick:g}", scale.y(tick)) for tick in log_ticks(scale.low, scale.high, _MOST_TICKS))
    parts = [*_strips(scored, scale), *lines, *_event_lines(scored, scale, events)]
    first = end = 0
    for limit, group in groupby(known):
        first, end = end, end + len(list(group))
        if 0 < limit < math.inf:
            parts.append(level(scale.y(limit), "axis limit", scale.left(first), scale.left(end)))
    for number, one in enumerate(scored):
        parts.append(_dot(one, scale.middle(number), scale.y(one.score or 1.0)))
    parts += _times(scored, scale)
    label = gettext("Scores of %(sequences)s", sequences=count(len(scored), "sequence"))
    return svg(parts, _HEIGHT, label, css="course-of-scores", role="group")


def _strips(scored: Sequence[SeenSequence], scale: _Scale) -> list[str]:
    """Return the background: a strip and a name for each version that judged, one after the other."""
    parts: list[str] = []
    first = number = 0
    models = {one.model for one in scored}
    for strip, (key, group) in enumerate(groupby(scored, key=lambda one: (one.model, one.version))):
        first, number = number, number + len(list(group))
        left, width = scale.left(first), (number - first) * scale.step
        name = " ".join(filter(None, key if len(models) > 1 else key[1:])) or gettext("no model")
        box = rect(left, 4, width, _HEIGHT - _BOTTOM - 4, f"strip strip{strip % 2}")
        said = title(" ".join(filter(None, key)) or gettext("no model"))
        shown = words(cut(name, max(1, int(width / _LETTER))), left, 16, "start", dx=3)
        parts.append(f"<g>{box}{shown}{said}</g>")
    return parts


def _event_lines(scored: Sequence[SeenSequence], scale: _Scale, events: Sequence[EventMark]) -> list[str]:
    """Return a vertical line for each place with events, with their words if there is room."""
    judged_us = [one.created_us or one.end_us or 0 for one in scored]
    places: dict[int, list[EventMark]] = {}
    for event in sorted(events, key=lambda one: one.at_us):
        n_before = sum(at <= event.at_us for at in judged_us)
        if n_before:
            places.setdefault(n_before, []).append(event)
    parts: list[str] = []
    free = 0.0
    for n_before, found in sorted(places.items()):
        x = scale.left(n_before)
        kinds = ", ".join(dict.fromkeys(one.word for one in found))
        said = title("; ".join(f"{one.word}: {one.said}" for one in found))
        line = upright(x, 22, _HEIGHT - _BOTTOM, "event")
        width = len(kinds) * _LETTER
        is_left = x + width > 100
        begin = x - width if is_left else x
        text = ""
        if begin >= free:
            free = begin + width + _LETTER
            anchor, dx = ("end", -3) if is_left else ("start", 3)
            text = words(kinds, x, 31, anchor, "tick more", dx=dx)
        parts.append(f'<g class="eventmark">{line}{text}{said}</g>')
    return parts


def _dot(one: SeenSequence, x: float, y: float) -> str:
    """Return the mark of one sequence, with the sign of what a person has said of it above."""
    judged = JUDGED_SIGNS.get(one.judgement or "")
    said = f"{one.sequence}: " + gettext("score %(score)s", score=digits(one.score, 4))
    if judged is not None:
        said += f", {JUDGED[one.judgement or '']}" + (
            " " + gettext("by %(name)s", name=one.judged_by) if one.judged_by else ""
        )
    shape = triangle(x, y) if one.is_alert else f'<circle class="plain" cx="{x:.5g}%" cy="{y:.1f}" r="3.5"/>'
    if judged is not None:
        shape += upright(x, _TOP - 4, round(y - 8, 1), "judged") + words(judged, x, _TOP - 6)
    return link(f"/s/{quote(one.id)}", said, shape)


def _times(scored: Sequence[SeenSequence], scale: _Scale) -> list[str]:
    """Return the axis below: when some of the sequences ended, the date where it changes."""
    numbers = sorted({round(each) for each in np.linspace(0, len(scored) - 1, _MOST_TIMES).tolist()})
    ends = [one.end_us or 0 for one in scored]
    form: Form = "clock_second" if max(ends) - min(ends) < _SHORT_US else "clock"
    times = [(from_us(ends[number]), scale.middle(number)) for number in numbers]
    return [level(_HEIGHT - _BOTTOM, "axis"), *times_below(times, _HEIGHT - _BOTTOM, form)]


def course_of_means(
    name: str,
    unit: str,
    rows: Sequence[tuple[SeenSequence, float, float]],
    usual: tuple[float, float] | None = None,
) -> Markup:
    """Return mean and spread of one channel in sequences, in their order; alerts are marked.

    The axis holds all means, but not the largest spreads: one of them would press all others into a line.

    ``usual``: from where to where the means of normal sequences lie.
    """
    height = 150
    drawn = [(one, *_within(mean, spread)) for one, mean, spread in rows]
    sides = [side for side in usual or () if abs(side) < _LARGEST]
    means = [each[2] for each in drawn]
    low = min(*means, *sides, float(np.quantile([each[1] for each in drawn], _RARE)))
    high = max(*means, *sides, float(np.quantile([each[3] for each in drawn], 1 - _RARE)))
    pad = 0.08 * (high - low) or abs(low) * 0.05 or 1.0
    low, high = low - pad, high + pad

    def y(value: float) -> float:
        return height - 8 - (height - 16) * (value - low) / (high - low)

    ticks = round_ticks(low, high, 4)
    parts = grid(zip(labels_of(ticks), map(y, ticks), strict=True))
    if len(sides) == 2:
        parts.insert(0, rect(0, y(sides[1]), 100, max(y(sides[0]) - y(sides[1]), 1.0), "band"))
    step = 100 / len(drawn)
    at = [(number + 0.5) * step for number in range(len(drawn))]
    places = [(round(STRETCH * x), *(round(y(each), 1) for each in one[1:])) for x, one in zip(at, drawn, strict=True)]
    spreads = "".join(f"M{x},{below:g}V{above:g}" for x, below, _, above in places)
    dots = "".join(f"M{x},{middle:g}h0" for x, _, middle, _ in places)
    shapes = [f'<path class="spread" d="{spreads}"/>', f'<path class="means" d="{dots}"/>']
    parts.append(stretched(shapes, height))
    parts.append(triangles([(x, y(mean)) for x, (one, _, mean, _) in zip(at, drawn, strict=True) if one.is_alert]))
    said = f"{name} {unit}".strip()
    return svg(
        parts,
        height,
        gettext("Mean and spread of %(channel)s in %(n)s sequences", channel=said, n=len(drawn)),
        css="means-box",
        role="group",
    )


def _within(mean: float, spread: float) -> tuple[float, float, float]:
    """Return mean - spread, mean and mean + spread, cut where a picture's arithmetic would overflow."""
    mean, spread = (min(max(value, -_LARGEST), _LARGEST) for value in (mean, spread))
    return mean - abs(spread), mean, mean + abs(spread)
