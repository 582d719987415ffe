"""Pictures of sequences as SVG for the page: small multiples over the band, the heatmap, the scores."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup

from streamad.pictures.content import Course, NormalCourse, Panel, Picture, Scores
from streamad.pictures.facts import MARKS, cut, departure
from streamad.pictures.ticks import labels_of, round_ticks, unit_for
from streamad.web.charts.svg import LEFT, RIGHT, WIDTH, grid, pinned, rect, svg, words

_HEIGHT, _TOP, _BOTTOM = 170, 8, 26
_MOST_POINTS = 600
_COLD, _GREY, _WARM = (43, 108, 176), (225, 225, 225), (200, 80, 20)
_SATURATED = 4.0  # half widths of the band
_MOST_ROWS = 64


class _Frame:
    """Maps values to the picture: x from 0 to ``right``, y so that it holds all ``courses``."""

    def __init__(self, right: float, courses: Iterable[Course]) -> None:
        finite = np.concatenate([course[np.isfinite(course)] for course in courses])
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
        if not high > low:
            pad = abs(low) * 0.05 or 1.0
            low, high = low - pad, high + pad
        pad = 0.06 * (high - low)
        self.right, self.low, self.high = right or 1.0, low - pad, high + pad

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / self.right

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - self.low) / (self.high - self.low)

    def points(self, at: Course, course: Course) -> str:
        return " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in zip(at, course, strict=True) if math.isfinite(y))

    def line(self, at: Course, course: Course, css: str) -> str:
        return f'<polyline class="{css}" points="{self.points(at, course)}"/>'

    def area(self, at: Course, low: Course, high: Course, css: str) -> str:
        return f'<polygon class="{css}" points="{self.points(at, low)} {self.points(at[::-1], high[::-1])}"/>'

    def normal(self, at: Course, normal: NormalCourse) -> list[str]:
        return [
            self.area(at, normal.lowest, normal.highest, "hull"),
            self.area(at, normal.low, normal.high, "band"),
            self.line(at, normal.middle, "median"),
        ]


def panel(picture: Picture, one: Panel) -> Markup:
    """Return one channel over its normal band, its segments shaded and named."""
    stride = max(1, math.ceil(len(picture.at) / _MOST_POINTS))
    at, course = picture.at[::stride], one.course[::stride]
    normal = None if one.normal is None else NormalCourse(*(side[::stride] for side in one.normal))
    frame = _Frame(float(at[-1]) if len(at) else 1.0, (course, *(normal or ())))
    parts: list[str] = []
    for segment in one.segments:
        left, right = (frame.x(min(share * picture.extent, frame.right)) for share in (segment.start, segment.end))
        parts.append(rect(left, _TOP, max(right - left, 2.0), _HEIGHT - _TOP - _BOTTOM, "segment"))
    if normal is not None:
        parts += frame.normal(at, normal)
    parts.append(frame.line(at, course, "course"))
    if len(at) == 1:
        parts.append(f'<circle class="dot" cx="{frame.x(0):.1f}" cy="{frame.y(float(course[0])):.1f}" r="3"/>')
    for segment in one.segments:
        middle_x = frame.x((segment.start + segment.end) / 2 * picture.extent)
        at_x = min(max(middle_x, LEFT + 8), WIDTH - 12)
        parts.append(words(MARKS[segment.direction], at_x, _TOP + 12, css="mark"))
    parts += _axes(frame, is_timed=picture.is_timed, is_aligned=picture.is_aligned)
    said = "; ".join(f"{departure(segment)} from {segment.start:.0%} to {segment.end:.0%}" for segment in one.segments)
    label = f"{one.name} {one.unit}".strip() + (f": {said}" if said else ": within what is usual")
    return svg(parts, _HEIGHT, label, css="panel")


def _axes(frame: _Frame, *, is_timed: bool, is_aligned: bool = False) -> list[str]:
    ticks = round_ticks(frame.low, frame.high, 4)
    parts, names = grid(zip(labels_of(ticks), map(frame.y, ticks), strict=True))
    parts += _time_axis(LEFT, frame.right, _HEIGHT - _BOTTOM, is_timed=is_timed, is_aligned=is_aligned)
    return [*parts, pinned(names, LEFT, _HEIGHT - _BOTTOM)]


def _time_axis(left: float, right: float, y: float, *, is_timed: bool, is_aligned: bool) -> list[str]:
    """Return the ticks of an axis from 0 at ``left`` to the value ``right`` at the right edge, below ``y``."""
    unit = unit_for(right) if is_timed and not is_aligned else None
    seconds, sign = (unit.seconds, unit.sign) if unit is not None else (1.0, "%" if is_aligned else "points")
    parts = []
    ticks = round_ticks(0.0, right / seconds, 6)
    for tick, label in zip(ticks, labels_of(ticks), strict=True):
        x = left + (WIDTH - left - RIGHT) * tick * seconds / right
        anchor = "end" if x > WIDTH - 40 else "middle"
        parts.append(f'<line class="tickmark" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 4}"/>')
        last = f" {sign}" if tick == ticks[-1] else ""
        parts.append(words(f"{label}{last}", x, y + 18, anchor))
    return parts


def unfinished(label: str, at: Course, course: Course, band: tuple[Course, NormalCourse] | None) -> Markup:
    """Return the readings so far of one channel, over the band of normal sequences if there is one.

    ``at`` and ``course`` [m]: seconds since the start, and readings. ``band``: its own seconds, and its courses.
    """
    band_at, normal = (np.empty(0), ()) if band is None else band
    ends = [float(each[-1]) for each in (at, band_at) if len(each)]
    frame = _Frame(max(ends, default=1.0), (course, *normal))
    parts = [] if band is None else frame.normal(*band)
    parts.append(frame.line(at, course, "course"))
    is_known = np.isfinite(course)
    if is_known.any():
        x, y = frame.x(float(at[is_known][-1])), frame.y(float(course[is_known][-1]))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
    parts += _axes(frame, is_timed=True)
    return svg(parts, _HEIGHT, f"{label}: the readings so far", css="panel")


def scores(found: Scores) -> Markup:
    """Return where the score lies among those of the calibration, on a logarithmic axis where all are positive."""
    height = 74
    values = [float(one) for one in found.normal if math.isfinite(one)]
    ends = [*values, found.score] + ([found.alerts_from] if math.isfinite(found.alerts_from) else [])
    low, high = min(ends), max(ends)
    is_log = low > 0
    scale = math.log10 if is_log else float
    left, right = scale(low), scale(high)
    if not right > left:
        left, right = left - 1, right + 1
    pad = 0.04 * (right - left)
    left, right = left - pad, right + pad

    def x(value: float) -> float:
        return 10 + (WIDTH - 20) * (scale(value) - left) / (right - left)

    parts = [f'<line class="axis" x1="10" x2="{WIDTH - 10}" y1="46" y2="46"/>']
    parts += [f'<line class="normal" x1="{x(one):.1f}" x2="{x(one):.1f}" y1="36" y2="46"/>' for one in values[:2_000]]
    if math.isfinite(found.alerts_from):
        at = x(found.alerts_from)
        parts.append(f'<line class="threshold" x1="{at:.1f}" x2="{at:.1f}" y1="18" y2="56"/>')
        anchor = "end" if at > WIDTH / 2 else "start"
        parts.append(words(f"alerts from {found.alerts_from:.4g}", at, 70, anchor))
    at, css = x(found.score), "odd" if found.is_alert else "fine"
    parts.append(f'<path class="{css}" d="M{at:.1f},46 l-6,-14 h12 z"/>')
    anchor = "end" if at > WIDTH - 120 else "start" if at < 120 else "middle"
    parts.append(words(f"score {found.score:.4g}", at, 26, anchor, css))
    return svg(parts, height, f"Score {found.score:.4g}, {found.words}; {found.limit}", css="scores")


def heatmap(picture: Picture, rows: Sequence[tuple[str, np.ndarray, Sequence[tuple[float, float]]]]) -> Markup:
    """Return channel x time: how far each reading lies from the median, in half widths of the band.

    ``picture`` has the times. ``rows``: name, deviations [m] and segments as (start, end) shares. Within the band is
    grey; above is warm, below cold. At most 64 rows are drawn.
    """
    shown = rows[:_MOST_ROWS]
    step = 18
    bottom = len(shown) * step + 4
    height = bottom + _BOTTOM
    left = 150
    width = WIDTH - left - RIGHT
    parts = [
        f'<image x="{left}" y="4" width="{width}" height="{len(shown) * step}" preserveAspectRatio="none" '
        f'class="pixels" href="{_png(_colours(np.stack([row[1] for row in shown])))}"/>'
    ]
    names = []
    for number, (name, _, segments) in enumerate(shown):
        y = 4 + number * step
        names.append(words(cut(name, 18), 144, y + 13, "end"))
        for start, end in segments:
            parts.append(rect(left + start * width, y, max((end - start) * width, 2.0), step, "outline"))
    right = float(picture.at[-1]) or 1.0
    parts += _time_axis(left, right, bottom, is_timed=picture.is_timed, is_aligned=picture.is_aligned)
    parts.append(pinned(names, left, bottom))
    return svg(parts, height, f"Distance from normal of {len(shown)} channels over time", css="heat")


def _colours(deviations: np.ndarray) -> np.ndarray:
    """Return the pixels uint8 [rows, m, 3] of deviations in half widths of the band."""
    depth = np.clip((np.abs(np.nan_to_num(deviations)) - 1) / (_SATURATED - 1), 0, 1)[..., None]
    ends = np.where((deviations > 0)[..., None], _WARM, _COLD)
    pixels: np.ndarray = np.rint(np.array(_GREY) * (1 - depth) + ends * depth).astype(np.uint8)
    return pixels


def _png(pixels: np.ndarray) -> str:
    """Return ``pixels`` uint8 [h, w, 3] as a data URI (PNG, RFC 2083)."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1).tobytes()

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def overlay(first: Picture, one: Panel, lines: Sequence[tuple[int, Course, Course]]) -> Markup:
    """Return one channel of several sequences over the band of ``first``, each from its own start.

    ``lines``: the number of the sequence, the seconds since its start [m] and its readings [m].
    """
    normal = one.normal
    sides = [] if normal is None else [normal.low, normal.high]
    right = max(float(at[-1]) if len(at) else 0.0 for _, at, _ in lines)
    frame = _Frame(right, (*(course for _, _, course in lines), *sides))
    parts = [] if normal is None else [frame.area(first.at, normal.low, normal.high, "band")]
    for number, at, course in lines:
        stride = max(1, math.ceil(len(at) / _MOST_POINTS))
        parts.append(frame.line(at[::stride], course[::stride], f"overlay line{number}"))
    parts += _axes(frame, is_timed=first.is_timed, is_aligned=first.is_aligned)
    return svg(parts, _HEIGHT, f"{one.name} of {len(lines)} sequences", css="panel")


def histogram(p_values: Sequence[float], n_bins: int) -> Markup:
    """Return the histogram of p-values with the 95 % band that each bar has under the uniform law."""
    from scipy.stats import binom  # noqa: PLC0415 - 0.3 s, of which only this picture has something

    counts, _ = np.histogram(np.clip(p_values, 0, 1), bins=n_bins, range=(0, 1))
    low, high = (float(each) for each in binom.interval(0.95, len(p_values), 1 / n_bins))
    top = max(float(counts.max()), high) * 1.1
    height = 180
    width = (WIDTH - LEFT - RIGHT) / n_bins

    def y(value: float) -> float:
        return height - 26 - (height - 36) * value / top

    parts = [rect(LEFT, y(high), WIDTH - LEFT - RIGHT, y(low) - y(high), "band")]
    for number, n in enumerate(counts):
        css = "bar anomalous" if n > high and number == 0 else "bar"
        parts.append(rect(LEFT + number * width + 2, y(float(n)), width - 4, height - 26 - y(float(n)), css))
    ticks = round_ticks(0.0, top, 4)
    names = [words(label, LEFT - 6, y(tick) + 4, "end") for tick, label in zip(ticks, labels_of(ticks), strict=True)]
    parts.append(pinned(names, LEFT, height))
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts.append(words(f"{share:g}", at, height - 8))
    return svg(parts, height, f"Histogram of {len(p_values)} p-values", css="histogram")
