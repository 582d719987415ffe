"""Pictures of how the calibration fits: the score among its scores, and the histogram of p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from streamad.language import gettext, numeral
from streamad.pictures.content import Scores
from streamad.pictures.ticks import labels_of, round_ticks
from streamad.web.charts.svg import STRETCH, grid, level, rect, sign, stretched, svg, ticks_below, upright, words
from streamad.web.rendering import digits


def score_strip(found: Scores) -> Markup:
    """Return where the score lies among those of the calibration."""
    low, high, is_log = found.axis()
    scale = math.log10 if is_log else float
    left, right = scale(low), scale(high)

    def x(value: float) -> float:
        return 100 * (scale(value) - left) / (right - left)

    strokes = "".join(f"M{STRETCH * x(float(one)):.1f},36v10" for one in found.strokes)
    parts = [level(46, "axis"), stretched([f'<path class="normal" d="{strokes}"/>'], 74)]
    if math.isfinite(found.alerts_from):
        at = x(found.alerts_from)
        parts.append(upright(at, 22, 56, "threshold"))
        said = gettext("alerts from %(score)s", score=digits(found.alerts_from, 4))
        parts.append(words(said, at, 70, _inwards(at)))
    at, css = x(found.drawn), "odd" if found.is_alert else "fine"
    parts.append(sign("M0,0l-6,-14h12z", at, 46, css))
    said = gettext("score %(score)s", score=digits(found.score, 4))
    parts.append(words(said, at, 14, _inwards(at), css))
    return svg(parts, 74, f"{said}, {found.words}; {found.limit}", css="scores")


def _inwards(x: float) -> str:
    """Return which part of a text stands at ``x``, so that it lies within the picture."""
    return "end" if x > 50 else "start"


def histogram(p_values: Sequence[float], n_bins: int) -> Markup:
    """Return the histogram of p-values with the 95 % band that each bar has under the uniform law."""
    from scipy.stats import binom  # noqa: PLC0415 - 0.3 s, of which only this picture has something

    counts, _ = np.histogram(np.clip(p_values, 0, 1), bins=n_bins, range=(0, 1))
    low, high = (float(each) for each in binom.interval(0.95, len(p_values), 1 / n_bins))
    top = max(float(counts.max()), high) * 1.1
    bottom = 214

    def y(value: float) -> float:
        return bottom - (bottom - 10) * value / top

    width = 100 / n_bins
    ticks = round_ticks(0.0, top, 4)
    parts = grid(zip(labels_of(ticks), map(y, ticks), strict=True))
    parts.append(rect(0, y(high), 100, y(low) - y(high), "expected"))
    for number, n in enumerate(counts):
        css = "bar anomalous" if n > high and number == 0 else "bar"
        parts.append(rect(number * width + 0.1 * width, y(float(n)), 0.8 * width, bottom - y(float(n)), css))
    parts += ticks_below([(numeral(f"{share / 4:g}"), 25.0 * share) for share in range(5)], bottom)
    return svg(parts, bottom + 26, gettext("Histogram of %(n)s p-values", n=len(p_values)), css="histogram")
