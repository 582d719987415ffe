"""Draws a picture with matplotlib, of the extra ``plots``; nothing is shared between pictures, no setting changes.

Grey is normal. Colour is for what is not, never alone: a sign (▲ ▼ ◆), hatching and words say the same.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np

from streamad.errors import PluginError
from streamad.language import percent
from streamad.pictures.content import Course, NormalCourse, Panel, Picture, Scores, printable
from streamad.pictures.facts import MARKS, basis, departure, headline, score_line, when
from streamad.pictures.ticks import labels_of, log_ticks, round_ticks, unit_for
from streamad.safe_text import one_line

Format: TypeAlias = Literal["png", "svg", "pdf"]
FORMATS: tuple[Format, ...] = ("png", "svg", "pdf")
_REMEDY = "install streamad with its extra plots (pip install '.[plots]' in the clone, or pip install matplotlib)"
_INK, _SOFT, _BAND, _HULL, _ODD = "#1d1d1d", "#6b6b6b", "#c4c4c4", "#e9e9e9", "#c22f1f"
_WIDTH, _PANEL, _STRIP = 9.0, 1.45, 1.15  # inches
_LINE = 0.19  # inches of a line of text
_LEFT, _RIGHT = 0.85, 0.25
_OUT = -0.07  # of the axes' width to the left of them begin the texts above
_HEAD_CHARACTERS, _FOOT_CHARACTERS, _NAME = 84, 128, 40
_ANY = 10_000  # characters
_LEAST_SIZE = 6.0  # of letters that a text is made to fit with; then it is cut
_FURTHER_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans", "Arial Unicode MS", "Droid Sans Fallback")
_SAMPLES_MARKED = 40
_WIDE_LABEL = 8


def has_plots() -> bool:
    """Return whether matplotlib is installed, of the extra ``plots``; it is not imported yet."""
    return find_spec("matplotlib") is not None


def check_extra() -> None:
    """Raise PluginError if matplotlib is not installed; it is not imported yet."""
    if not has_plots():
        raise PluginError(f"pictures need matplotlib, which is not installed: {_REMEDY}")


def drawn(picture: Picture, kind: Format = "png", *, dpi: int = 110, is_titled: bool = True) -> bytes:
    """Return the file of ``picture``, with its headline if ``is_titled``. Raises PluginError without matplotlib."""
    check_extra()
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - large, and pictures alone need it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise PluginError(f"matplotlib cannot be loaded ({one_line(str(error))}): {_REMEDY}") from error
    head = textwrap.wrap(printable(headline(picture.facts, picture.attribution, _NAME), _ANY), _HEAD_CHARACTERS)[:2]
    feet = [line for text in _feet(picture) for line in textwrap.wrap(text, _FOOT_CHARACTERS)[:4]]
    top = (0.28 + 0.26 * len(head) + 3 * _LINE) if is_titled else 0.18 + _LINE
    bottom = 0.12 + _LINE * len(feet)
    strip = _STRIP + 0.1 if picture.scores is not None else 0.0
    height = top + _PANEL * len(picture.panels) + 0.45 + strip + bottom
    figure = Figure(figsize=(_WIDTH, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    page = _Page(figure, height)
    page.legend(picture, page.heads(picture, head) if is_titled else height - 0.2)
    below = height - top
    first = None
    for number, panel in enumerate(picture.panels):
        axes = page.axes(below - _PANEL + 0.08, _PANEL - 0.42, sharex=first)
        first = first or axes
        _draw_panel(page, axes, picture, panel, is_last=number == len(picture.panels) - 1)
        below -= _PANEL
    below -= 0.45
    if picture.scores is not None:
        _draw_scores(page, page.axes(below - 0.72, 0.4), picture.scores)
    for number, text in enumerate(reversed(feet)):
        page.text(0.2, 0.14 + _LINE * number, text, size=8, color=_SOFT)
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may hold characters that the font lacks: a box is drawn for each
        figure.savefig(content, format=kind, metadata=_METADATA[kind])
    return content.getvalue()


_METADATA: dict[Format, dict[str, Any]] = {
    "png": {"Software": "streamad"},
    "svg": {"Creator": "streamad", "Date": None},
    "pdf": {"Creator": "streamad", "CreationDate": None},
}


class _Page:
    """A figure whose places are inches from its lower left corner. No text is read as a formula."""

    def __init__(self, figure: Any, height: float) -> None:
        self._figure = figure
        self._height = height
        self._fonts = _fonts()

    def axes(self, bottom: float, height: float, *, sharex: Any = None) -> Any:
        """Return new axes over the page's width."""
        place = (_LEFT / _WIDTH, bottom / self._height, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, height / self._height)
        axes = self._figure.add_axes(place, sharex=sharex)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(_BAND)
        axes.tick_params(colors=_SOFT, labelsize=7.5, length=3)
        return axes

    def text(self, x: float, y: float, text: str, **style: Any) -> None:
        """Write ``text`` at a place of the page, made to fit its width."""
        written = self._figure.text(x / _WIDTH, y / self._height, text, parse_math=False, family=self._fonts, **style)
        self._fit(written, _WIDTH - x - 0.1)

    def above(self, axes: Any, x: float, text: str, *, most: float, **style: Any) -> float:
        """Write ``text`` over ``axes``, ``x`` of its width from the left, at most ``most`` inches; return its width."""
        written = axes.annotate(
            text, (x, 1.0), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", parse_math=False,
            annotation_clip=False, family=self._fonts, **style,
        )  # fmt: skip
        return self._fit(written, most)

    def _fit(self, written: Any, most: float) -> float:
        """Make a text at most ``most`` inches wide by smaller letters, then by cutting it; return its width."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while (width := written.get_window_extent().width / self._figure.dpi) > most:
                size, text = written.get_fontsize(), written.get_text()
                if size > _LEAST_SIZE:
                    written.set_fontsize(max(_LEAST_SIZE, size * max(most / width, 0.9)))
                elif len(text) > 1:
                    written.set_text(printable(text, max(1, min(len(text) - 1, int(len(text) * most / width)))))
                else:
                    break
        return float(width)

    def heads(self, picture: Picture, lines: Sequence[str]) -> float:
        """Write headline, score and time; return where the next line belongs."""
        y = self._height - 0.34
        for line in lines:
            self.text(0.2, y, line, size=13, weight="bold", color=_INK)
            y -= 0.26
        facts = picture.facts
        self.text(0.2, y + 0.03, printable(score_line(facts), 150), size=9, color=_ODD if facts.is_alert else _INK)
        self.text(0.2, y + 0.03 - _LINE, printable(when(facts), _ANY), size=9, color=_SOFT)
        return y + 0.02 - 2 * _LINE

    def legend(self, picture: Picture, y: float) -> None:
        """Write what the lines and areas mean."""
        from matplotlib.lines import Line2D  # noqa: PLC0415
        from matplotlib.patches import Patch  # noqa: PLC0415

        handles: list[Any] = [Line2D([], [], color=_INK, lw=1.5, label="this sequence")]
        if any(panel.normal is not None for panel in picture.panels):
            handles += [
                Line2D([], [], color=_SOFT, lw=1, ls=(0, (4, 2)), label="median of normal ones"),
                Patch(facecolor=_BAND, label="5 to 95 % of them"),
                Patch(facecolor=_HULL, label="lowest to highest"),
            ]
        if any(panel.segments for panel in picture.panels):
            handles.append(
                Patch(facecolor="#f6dcd8", edgecolor=_ODD, hatch="////", lw=0, label="▲ ▼ ◆ where it departs")
            )
        self._figure.legend(
            handles=handles, loc="center left", bbox_to_anchor=(0.12 / _WIDTH, y / self._height), ncol=len(handles),
            fontsize=8, frameon=False, handlelength=1.6, columnspacing=1.4, labelcolor=_SOFT,
        )  # fmt: skip


def _fonts() -> list[str]:
    """Return the font, and those that are installed of some that have the letters that it lacks."""
    from matplotlib.font_manager import fontManager  # noqa: PLC0415

    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FURTHER_FONTS if name in installed)]


def _draw_panel(page: _Page, axes: Any, picture: Picture, panel: Panel, *, is_last: bool) -> None:
    at, course, normal = picture.at, panel.course, panel.normal
    if len(at) == 1:  # a line needs two points
        at, course = np.array([at[0] - 0.5, at[0] + 0.5]), np.repeat(course, 2)
        normal = None if normal is None else NormalCourse(*(np.repeat(side, 2) for side in normal))
    if normal is not None:
        axes.fill_between(at, normal.lowest, normal.highest, color=_HULL, lw=0)
        axes.fill_between(at, normal.low, normal.high, color=_BAND, lw=0)
        axes.plot(at, normal.middle, color=_SOFT, lw=1, ls=(0, (4, 2)))
    marker = "o" if len(picture.at) <= _SAMPLES_MARKED else None
    axes.plot(at, course, color=_INK, lw=1.5, marker=marker, ms=2.6, zorder=3)
    low, high = panel.limits
    low, high = low - 0.08 * (high - low), high + 0.08 * (high - low)
    axes.set_ylim(low, high)
    axes.set_xlim(float(at[0]), float(at[-1]))
    _draw_segments(axes, picture, panel, at, course)
    _head_panel(page, axes, picture, panel)
    ticks = round_ticks(low, high, 4)
    labels = labels_of(ticks)
    axes.set_yticks(ticks, labels)
    if max(map(len, labels), default=0) > _WIDE_LABEL:
        axes.tick_params(axis="y", labelsize=6)
    _time_axis(axes, picture, is_labelled=is_last)


def _ends(picture: Picture, start: float, end: float) -> tuple[float, float]:
    """Return where a segment begins and ends on the axis; it is at least a hundredth of it wide."""
    first, last = (min(max(share, 0.0), 1.0) * picture.extent for share in (start, end))
    least = 0.012 * float(picture.at[-1] - picture.at[0])
    if last - first < least:
        middle = (first + last) / 2
        first, last = middle - least / 2, middle + least / 2
    return first, last


def _draw_segments(axes: Any, picture: Picture, panel: Panel, at: Course, course: Course) -> None:
    for each in panel.outside:
        axes.axvspan(*_ends(picture, each.start, each.end), facecolor=_ODD, alpha=0.06, lw=0, zorder=0.5)
    for segment in panel.segments:
        first, last = _ends(picture, segment.start, segment.end)
        axes.axvspan(first, last, facecolor=_ODD, alpha=0.1, lw=0, zorder=1)
        axes.axvspan(first, last, facecolor="none", edgecolor=_ODD, alpha=0.3, hatch="////", lw=0, zorder=1)
        inside = (at >= first) & (at <= last)
        if inside.any():
            axes.plot(at[inside], course[inside], color=_ODD, lw=2.2, zorder=4)
        axes.annotate(
            MARKS[segment.direction], ((first + last) / 2, 0.97), xycoords=("data", "axes fraction"), ha="center",
            va="top", size=9, color=_ODD, zorder=6,
        )  # fmt: skip


def _head_panel(page: _Page, axes: Any, picture: Picture, panel: Panel) -> None:
    """Write over a panel: channel and unit, share, and the segments in words."""
    name = printable(panel.name, 44) + (f"  [{printable(panel.unit, 12)}]" if panel.unit else "")
    if panel.share is not None:
        name += f"   {percent(panel.share)}" if panel.share >= 0.01 else "   below 1 %"
    written = page.above(axes, _OUT, name, most=0.5 * _WIDTH, size=9.5, weight="bold", color=_INK, ha="left")
    if not panel.segments:
        return
    segments = sorted(panel.segments, key=lambda each: each.start)
    words = [f"{MARKS[each.direction]} {departure(each)}, {_from_to(picture, each)}" for each in segments]
    room = _WIDTH - _LEFT - _RIGHT - written + 0.4
    page.above(axes, 1.0, printable("    ".join(words), _ANY), most=room, size=8.5, color=_ODD, ha="right")


def _from_to(picture: Picture, segment: Any) -> str:
    """Return where a segment lies, in the axis' unit and as shares: "41.5 to 49.8 h (83 to 100 %)"."""
    first, last = round(100 * segment.start), round(100 * segment.end)
    shares = f"{first} %" if first == last else f"{first} to {last} %"
    if not picture.is_timed:
        return f"at {shares}" if first == last else shares
    unit = unit_for(picture.facts.span_s)
    start, end = (f"{share * picture.facts.span_s / unit.seconds:.3g}" for share in (segment.start, segment.end))
    return f"{start} {unit.sign} ({shares})" if start == end else f"{start} to {end} {unit.sign} ({shares})"


def _time_axis(axes: Any, picture: Picture, *, is_labelled: bool) -> None:
    first, last = (float(end) for end in axes.get_xlim())
    unit = unit_for(picture.facts.span_s) if picture.is_timed else None
    scale = 1.0 if unit is None else unit.seconds
    ticks = round_ticks(first / scale, last / scale, 8)
    if len(picture.at) == 1:
        ticks = [0.0]
    axes.set_xticks([tick * scale for tick in ticks], labels_of(ticks))
    axes.tick_params(labelbottom=is_labelled)
    if is_labelled:
        what = "points since the start" if unit is None else f"{unit.name} since the start"
        axes.set_xlabel(what, fontsize=8.5, color=_SOFT, labelpad=2)


def _draw_scores(page: _Page, axes: Any, scores: Scores) -> None:
    """Draw a stroke for each calibration score, the lowest score that alerts, and the score itself."""
    normal, score = scores.strokes, scores.drawn
    low, high, is_log = scores.axis()
    if is_log:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(0, 1)
    axes.vlines(normal, 0, 0.55, color=_SOFT, lw=0.8, alpha=0.7)
    if np.isfinite(scores.alerts_from):
        axes.axvspan(min(max(scores.alerts_from, low), high), high, facecolor=_ODD, alpha=0.07, lw=0)
        if low < scores.alerts_from < high:
            axes.axvline(scores.alerts_from, color=_ODD, lw=1.2, ls=(0, (3, 2)))
    colour = _ODD if scores.is_alert else _INK
    axes.vlines([score], 0, 0.75, color=colour, lw=2)
    sign = MARKS["above"] if scores.is_alert else "●"
    axes.annotate(sign, (score, 0.98), ha="center", va="top", size=9, color=colour)
    axes.spines["left"].set_visible(False)
    axes.set_yticks([])
    _score_ticks(axes, low, high, is_log=is_log)
    limit = scores.limit + (" (dashed)" if np.isfinite(scores.alerts_from) else "")
    page.above(axes, _OUT, f"score {scores.score:.4g}", most=2.0, size=9.5, weight="bold", color=_INK, ha="left")
    page.above(axes, 0.17, f"{scores.words}; {limit}", most=6.5, size=8.5, color=_SOFT, ha="left")
    axes.set_xlabel(
        "score: a stroke for each calibration sequence, all of them normal" + (" (logarithmic)" if is_log else ""),
        fontsize=8.5, color=_SOFT, labelpad=2,
    )  # fmt: skip


def _score_ticks(axes: Any, low: float, high: float, *, is_log: bool) -> None:
    from matplotlib.ticker import NullLocator  # noqa: PLC0415

    if is_log:
        ticks = log_ticks(math.log10(low), math.log10(high), 12)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        return
    ticks = round_ticks(low, high, 8)
    axes.set_xticks(ticks, labels_of(ticks))


def _feet(picture: Picture) -> list[str]:
    """Return the lines below: who spoke, the nearest normal sequences, channels without a panel, what is missing."""
    lines = []
    attribution = picture.attribution
    if attribution is not None:
        lines += basis(attribution)
    if picture.others:
        lines.append(picture.others)
    return [printable(line, _ANY) for line in [*lines, *(f"note: {note}" for note in picture.notes)]]
