"""Thumbnails for lists: the channel that the reasons name first, over its normal band, in few points."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from streamad.language import asking, gettext
from streamad.pictures.content import Panel, Picture
from streamad.ports import Clock
from streamad.web.cases import Cases
from streamad.web.charts import svg
from streamad.web.store.view import SeenSequence

_WIDTH, _HEIGHT = 120, 32
_POINTS, _BAND_POINTS = 40, 16
_MOST_KEPT = 5_000
_MOST_SHADED = 12
_FRESH_US = 60_000_000


class _Made(NamedTuple):
    picture: Markup
    at_us: int
    has_band: bool


class Thumbnails:
    """Draws each thumbnail once; one without a band is tried again after a minute, for its model may be back."""

    def __init__(self, cases: Cases, clock: Clock) -> None:
        self._cases, self._clock = cases, clock
        self._lock = threading.Lock()
        self._made: OrderedDict[tuple[str, str, str], _Made] = OrderedDict()

    def of(self, one: SeenSequence) -> Markup | None:
        """Return the thumbnail of a sequence; None if its window is not kept, or no reasons were read."""
        if one.leading is None or not one.has_window:
            return None
        key, now_us = (one.id, one.leading, asking().language), self._clock.monotonic_us()
        with self._lock:
            made = self._made.get(key)
        if made is not None and (made.has_band or now_us - made.at_us < _FRESH_US):
            return made.picture
        case, normal = self._cases.of(one)
        picture = case.picture(normal)
        panel = None if picture is None else next((each for each in picture.panels if each.name == one.leading), None)
        if picture is None or panel is None:
            return None
        made = _Made(thumbnail(picture, panel), now_us, panel.normal is not None)
        with self._lock:
            self._made[key] = made
            while len(self._made) > _MOST_KEPT:
                self._made.popitem(last=False)
        return made.picture


def thumbnail(picture: Picture, one: Panel) -> Markup:
    """Return one channel as a small picture: of each stretch of time the point that lies furthest from normal."""
    course = one.course
    n = len(course)
    sides = [] if one.normal is None else [one.normal.low, one.normal.high]
    finite = np.concatenate([each[np.isfinite(each)] for each in (course, *sides)])
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    span = high - low if high > low else 1.0

    def place(index: int, value: float) -> str:
        return f"{index * _WIDTH / max(1, n - 1):.0f},{2 + (_HEIGHT - 4) * (high - value) / span:.0f}"

    parts = []
    outside = one.outside if len(one.outside) <= _MOST_SHADED else ()
    for segment in outside or one.segments:
        share = picture.extent / (float(picture.at[-1]) or 1.0) if n else 1.0
        left, right = (min(each * share, 1.0) * _WIDTH for each in (segment.start, segment.end))
        size = f'width="{max(right - left, 2.0):.0f}" height="{_HEIGHT}"'
        parts.append(f'<rect class="segment" x="{left:.0f}" y="0" {size}/>')
    if one.normal is not None:
        at = np.unique(np.linspace(0, n - 1, _BAND_POINTS).round().astype(int)).tolist()
        known = [index for index in at if all(math.isfinite(side[index]) for side in sides)]
        ends = [place(index, one.normal.low[index]) for index in known]
        ends += [place(index, one.normal.high[index]) for index in reversed(known)]
        parts.append(f'<polygon class="band" points="{" ".join(ends)}"/>')
    middle = np.full(n, np.nanmean(course)) if one.normal is None else one.normal.middle
    apart = np.nan_to_num(np.abs(course - middle), nan=-1.0)
    stretches = np.array_split(np.arange(n), min(_POINTS, n))
    shown = [int(each[np.argmax(apart[each])]) for each in stretches]
    line = " ".join(place(index, float(course[index])) for index in shown if math.isfinite(course[index]))
    parts.append(f'<polyline class="course" points="{line}"/>')
    label = one.name if one.normal is None else gettext("%(name)s over its normal band", name=one.name)
    return svg.thumbnail(parts, _WIDTH, _HEIGHT, label, css="thumbnail")
