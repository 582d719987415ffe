"""Pictures of sequences as SVG for the page: small multiples over the band, and the map of deviations."""

from __future__ import annotations

import math
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from streamad.judge.verdicts import beside_the_band, place
from streamad.language import gettext
from streamad.pictures.content import Course, NormalCourse, Panel, Picture, limits_of
from streamad.pictures.facts import MARKS, cut, departure
from streamad.pictures.ticks import labels_of, round_ticks, unit_for
from streamad.web.charts.svg import STRETCH, grid, rect, stretched, svg, ticks_below, with_unit, words
from streamad.web.rendering import count

_HEIGHT, _TOP, _BOTTOM = 170, 10, 26
_PLOT = _HEIGHT - _TOP - _BOTTOM
_MOST_POINTS, _MOST_DOTS = 600, 40
_MOST_TICKS = 5
_COLD, _WARM = (43, 108, 176), (200, 80, 20)
_SATURATED = 4.0  # half widths of the band
_MOST_ROWS = 64


class _Frame:
    """Maps values to the picture: x from ``left`` to ``right``, y so that it holds ``limits``."""

    def __init__(self, left: float, right: float, limits: tuple[float, float]) -> None:
        pad = 0.06 * (limits[1] - limits[0])
        self.left, self.right, self.low, self.high = left, right, limits[0] - pad, limits[1] + pad
        self._span = right - left or 1.0

    def x(self, value: float) -> float:
        return 100 * (value - self.left) / self._span

    def within(self, value: float) -> float:
        """Return the place of a value, or the edge beyond which it lies."""
        return min(max(self.x(value), 0.0), 100.0)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - _PLOT * (value - self.low) / (self.high - self.low)

    def points(self, at: Course, course: Course) -> str:
        pairs = zip(at, course, strict=True)
        return " ".join(f"{STRETCH * self.x(x):.1f},{self.y(y):.1f}" for x, y in pairs if math.isfinite(y))

    def line(self, at: Course, course: Course, css: str) -> str:
        return f'<polyline class="{css}" points="{self.points(at, course)}"/>'

    def area(self, at: Course, low: Course, high: Course, css: str) -> str:
        low, high = (np.clip(side, self.low, self.high) for side in (low, high))
        return f'<polygon class="{css}" points="{self.points(at, low)} {self.points(at[::-1], high[::-1])}"/>'

    def normal(self, at: Course, normal: NormalCourse) -> list[str]:
        return [
            self.area(at, normal.lowest, normal.highest, "hull"),
            self.area(at, normal.low, normal.high, "band"),
            self.line(at, normal.middle, "median"),
        ]

    def dots(self, at: Course, course: Course) -> str:
        """Return a dot for each reading, if they are few."""
        if len(at) > _MOST_DOTS:
            return ""
        known = zip(at, course, strict=True)
        path = "".join(f"M{STRETCH * self.x(x):.1f},{self.y(y):.1f}h0" for x, y in known if math.isfinite(y))
        return f'<path class="dots" d="{path}"/>'

    def span(self, start: float, end: float, y: float, height: float, css: str) -> str:
        """Return a rectangle from one time to another, at least a little wide."""
        left, right = self.within(start), self.within(end)
        return rect(left, y, max(right - left, 0.3), height, css)


def panel(picture: Picture, one: Panel) -> Markup:
    """Return one channel over its normal band, its segments shaded and named, other departures in a paler way."""
    stride = max(1, math.ceil(len(picture.at) / _MOST_POINTS))
    at, course = picture.at[::stride], one.course[::stride]
    normal = None if one.normal is None else NormalCourse(*(side[::stride] for side in one.normal))
    frame = _Frame(picture.first, picture.last, one.limits)
    shown = [each for each in one.segments if picture.shows(each.start, each.end)]
    outside = [each for each in one.outside if picture.shows(each.start, each.end)]
    parts: list[str] = []
    for each in outside:
        ends = each.start * picture.extent, each.end * picture.extent
        parts += [frame.span(*ends, _TOP, _PLOT, "outside"), frame.span(*ends, _TOP - 4, 4, "outside-edge")]
    parts += [
        frame.span(part.start * picture.extent, part.end * picture.extent, _TOP, _PLOT, "segment") for part in shown
    ]
    layer = [] if normal is None else frame.normal(at, normal)
    parts.append(stretched([*layer, frame.line(at, course, "course"), frame.dots(at, course)], _HEIGHT))
    for segment in shown:
        middle = (max(segment.start, picture.part[0]) + min(segment.end, picture.part[1])) / 2
        x = min(max(frame.within(middle * picture.extent), 1.5), 98.5)
        parts.append(words(MARKS[segment.direction], x, _TOP + 13, css="mark"))
    parts += _axes(frame, is_timed=picture.is_timed, is_aligned=picture.is_aligned)
    said = [f"{departure(each)} {place(each.start, each.end)}" for each in one.segments]
    said += [f"{beside_the_band(each.direction)} {place(each.start, each.end)}" for each in one.outside]
    label = f"{one.name} {one.unit}".strip() + (
        f": {'; '.join(said)}" if said else ": " + gettext("within what is usual")
    )
    return svg(parts, _HEIGHT, label, css="panel")


def _axes(frame: _Frame, *, is_timed: bool, is_aligned: bool = False) -> list[str]:
    ticks = round_ticks(frame.low, frame.high, 4)
    parts = grid(zip(labels_of(ticks), map(frame.y, ticks), strict=True))
    return parts + _time_axis(frame.left, frame.right, _HEIGHT - _BOTTOM, is_timed=is_timed, is_aligned=is_aligned)


def _time_axis(left: float, right: float, y: float, *, is_timed: bool, is_aligned: bool) -> list[str]:
    """Return the ticks of an axis from the value ``left`` to ``right``, below ``y``."""
    unit = unit_for(right) if is_timed and not is_aligned else None
    seconds, what = (unit.seconds, unit.sign) if unit is not None else (1.0, "%" if is_aligned else gettext("points"))
    ticks = round_ticks(left / seconds, right / seconds, _MOST_TICKS)
    places = (100 * (tick * seconds - left) / (right - left or 1.0) for tick in ticks)
    return ticks_below(list(zip(with_unit(labels_of(ticks), what), places, strict=True)), y)


def unfinished(label: str, at: Course, course: Course, band: tuple[Course, NormalCourse] | None) -> Markup:
    """Return the readings so far of one channel of a sequence that still runs, over the band of normal ones.

    ``at`` and ``course`` [m]: seconds since the start, and readings. ``band``: its own seconds, and its courses.
    """
    band_at, normal = (np.empty(0), None) if band is None else band
    ends = [float(each[-1]) for each in (at, band_at) if len(each)]
    frame = _Frame(0.0, max(ends, default=1.0), limits_of([course], normal))
    layer = [] if band is None else frame.normal(*band)
    parts = [stretched([*layer, frame.line(at, course, "course")], _HEIGHT)]
    is_known = np.isfinite(course)
    if is_known.any():
        x, y = frame.x(float(at[is_known][-1])), frame.y(float(course[is_known][-1]))
        parts.append(f'<circle class="dot" cx="{x:.5g}%" cy="{y:.1f}" r="3.5"/>')
    parts += _axes(frame, is_timed=True)
    return svg(parts, _HEIGHT, gettext("%(channel)s: the readings so far", channel=label), css="panel")


def heatmap(picture: Picture, rows: Sequence[tuple[str, np.ndarray, Sequence[tuple[float, float]]]]) -> Markup:
    """Return channel x time: how far each reading lies from the median, in half widths of the band.

    ``picture`` has the times. ``rows``: name, deviations [m] and segments as (start, end) shares of the sequence.
    Within the band nothing is drawn over the ground; above is warm, below cold. At most 64 rows are drawn.
    """
    shown = rows[:_MOST_ROWS]
    step, top = 20, 4
    bottom = top + len(shown) * step
    frame = _Frame(picture.first, picture.last, (0.0, 1.0))
    half = (float(picture.at[-1]) - float(picture.at[0])) / max(1, len(picture.at) - 1) / 2 or 0.5
    left, right = (STRETCH * frame.x(end) for end in (float(picture.at[0]) - half, float(picture.at[-1]) + half))
    image = (
        f'<image x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" '
        f'preserveAspectRatio="none" class="pixels" href="{_png(_colours(np.stack([row[1] for row in shown])))}"/>'
    )
    parts = [rect(0, top, 100, bottom - top, "ground"), stretched([image], bottom)]
    for number, (name, _, segments) in enumerate(shown):
        y = top + number * step
        parts.append(words(cut(name, 18), 0, y + 14, "end", dx=-6))
        for start, end in segments:
            if picture.shows(start, end):
                parts.append(frame.span(start * picture.extent, end * picture.extent, y, step, "outline"))
    parts += _time_axis(picture.first, picture.last, bottom, is_timed=picture.is_timed, is_aligned=picture.is_aligned)
    return svg(
        parts, bottom + _BOTTOM, gettext("Distance from normal of %(n)s channels over time", n=len(shown)), css="heat"
    )


def _colours(deviations: np.ndarray) -> np.ndarray:
    """Return the pixels uint8 [rows, m, 4] of deviations in half widths of the band, transparent within it."""
    depth = np.clip((np.abs(np.nan_to_num(deviations)) - 1) / (_SATURATED - 1), 0, 1)[..., None]
    ends = np.where((deviations > 0)[..., None], _WARM, _COLD)
    pixels: np.ndarray = np.concatenate([ends, np.rint(255 * depth)], axis=-1).astype(np.uint8)
    return pixels


def _png(pixels: np.ndarray) -> str:
    """Return ``pixels`` uint8 [h, w, 4] as a data URI (PNG, RFC 2083)."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1).tobytes()

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def overlay(
    first: Picture,
    one: Panel,
    lines: Sequence[tuple[int, Course, Course]],
    golden: NormalCourse | None = None,
    *,
    most: int = _MOST_POINTS,
) -> Markup:
    """Return one channel of several sequences over the band of ``first``, each from its own start.

    ``lines``: the number of the sequence, the seconds since its start [m] and its readings [m]. ``golden``: the range
    of chosen normal sequences on the times of ``first``. ``most``: points of each line.
    """
    normal = one.normal
    sides = [] if normal is None else [normal.low, normal.high]
    sides += [] if golden is None else [golden.low, golden.high]
    right = max(float(at[-1]) if len(at) else 0.0 for _, at, _ in lines)
    frame = _Frame(0.0, right, limits_of([*(course for _, _, course in lines), *sides]))
    n = max(1, math.ceil(len(first.at) / most))
    layer = [] if normal is None else [frame.area(first.at[::n], normal.low[::n], normal.high[::n], "band")]
    if golden is not None:
        layer.append(frame.area(first.at[::n], golden.low[::n], golden.high[::n], "golden"))
        layer.append(frame.line(first.at[::n], golden.middle[::n], "golden-line"))
    for number, at, course in lines:
        stride = max(1, math.ceil(len(at) / most))
        layer.append(frame.line(at[::stride], course[::stride], f"overlay line{number}"))
    parts = [stretched(layer, _HEIGHT), *_axes(frame, is_timed=first.is_timed, is_aligned=first.is_aligned)]
    label = gettext("%(channel)s of %(sequences)s", channel=one.name, sequences=count(len(lines), "sequence"))
    return svg(parts, _HEIGHT, label, css="panel")
