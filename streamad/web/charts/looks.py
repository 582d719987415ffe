"""The line of a running sequence: the largest deviation of its looks so far over its age, against the limit."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from streamad.language import gettext, percent
from streamad.messages import Looked
from streamad.pictures.ticks import labels_of, round_ticks
from streamad.web.charts.svg import STRETCH, grid, stretched, svg, thumbnail, ticks_below, with_unit, words
from streamad.web.rendering import digits

_SMALL_WIDTH, _SMALL_HEIGHT = 180, 34
_HEIGHT, _TOP, _BOTTOM = 150, 12, 26
_USUAL = 1.0
_LARGEST = 1e3  # a channel that moved too early is above all


def said_of(looked: Looked) -> str:
    """Return in words how far a sequence is from the limit."""
    size, age = digits(looked.largest[-1], 3), percent(looked.ages[-1])
    at = gettext("largest deviation %(size)s at %(age)s of the usual length", size=size, age=age)
    if looked.limit is None:
        return gettext("%(deviation)s, no limit", deviation=at)
    return gettext("%(deviation)s, a warning from %(limit)s on", deviation=at, limit=digits(looked.limit, 3))


def small_line(looked: Looked) -> Markup:
    """Return the line without axes, for a table."""

    def x(age: float) -> float:
        return 4 + (_SMALL_WIDTH - 8) * age / max(_USUAL, looked.age)

    y = _scale(looked, 4, _SMALL_HEIGHT - 5)
    parts = _parts(looked, x, y, (4, _SMALL_WIDTH - 4))
    return thumbnail(parts, _SMALL_WIDTH, _SMALL_HEIGHT, said_of(looked), css="looks")


def large_line(looked: Looked) -> Markup:
    """Return the line over its axes: shares of the usual length, and deviations."""
    right = max(_USUAL, looked.age)
    y, low, high = _scale(looked, _TOP, _HEIGHT - _BOTTOM), *_ends(looked)
    ticks = round_ticks(low, high, 3)
    parts = grid(zip(labels_of(ticks), map(y, ticks), strict=True))
    whole = 100 * STRETCH
    parts.append(stretched(_parts(looked, lambda age: whole * age / right, y, (0, whole)), _HEIGHT))
    if looked.limit is not None:
        parts.append(words(gettext("limit"), 100, y(looked.limit) - 4, "end"))
    shares = round_ticks(0.0, 100 * right, 6)
    places = (share / right for share in shares)
    labels = zip(with_unit(labels_of(shares), "%"), places, strict=True)
    parts += ticks_below(list(labels), _HEIGHT - _BOTTOM)
    return svg(parts, _HEIGHT, said_of(looked), css="looks large")


def _ends(looked: Looked) -> tuple[float, float]:
    known = [min(each, _LARGEST) for each in looked.largest]
    if looked.limit is not None:
        known.append(looked.limit)
        known = [min(each, max(3 * looked.limit, looked.limit + 5)) for each in known]
    low, high = min(known), max(known)
    pad = 0.1 * (high - low) or 1.0
    return low - pad, high + pad


def _scale(looked: Looked, top: float, bottom: float) -> Callable[[float], float]:
    low, high = _ends(looked)
    return lambda value: bottom - (bottom - top) * (min(max(value, low), high) - low) / (high - low)


def _parts(
    looked: Looked, x: Callable[[float], float], y: Callable[[float], float], ends: tuple[float, float]
) -> list[str]:
    """Return the limit, and the largest deviation as steps that end at the present age."""
    parts = []
    if looked.limit is not None:
        at = y(looked.limit)
        parts.append(f'<line class="axis limit" x1="{ends[0]}" x2="{ends[1]}" y1="{at:.1f}" y2="{at:.1f}"/>')
    is_odd = looked.limit is not None and looked.largest[-1] >= looked.limit
    path = f"M{x(looked.ages[0]):.1f},{y(looked.largest[0]):.1f}"
    for age, largest in zip(looked.ages[1:], looked.largest[1:], strict=True):
        path += f"H{x(age):.1f}V{y(largest):.1f}"
    now = x(max(looked.age, looked.ages[-1]))
    parts.append(f'<path class="course{" odd" if is_odd else ""}" d="{path}H{now:.1f}"/>')
    dot = f"M{now:.1f},{y(looked.largest[-1]):.1f}h0"
    parts.append(f'<path class="dots{" odd" if is_odd else ""}" d="{dot}"/>')
    return parts
