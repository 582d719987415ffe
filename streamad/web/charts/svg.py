"""What pictures are made of. Texts come into them only by ``words``, ``title`` and ``link``, which escape them.

A picture is as wide as its place: x is in per cent of that width, y in pixels. Lines and areas of many points are
``stretched`` to the width; texts and signs keep their size. Small ones for tables (``thumbnail``) have a size of their
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from markupsafe import Markup

from streamad.language import Form, moment
from streamad.pictures.facts import elapsed, is_counted
from streamad.web.rendering import escaped

STRETCH = 10
"""Units of x in what is ``stretched`` for each per cent of the width."""
_LABEL = 6  # pixels between the names of an axis and the plot
_EDGE = 5.0  # per cent: so near to the right edge a name ends at its place
_LATE = 82.0  # per cent: from there on it does so on a phone
_WIDTHS = {True: (56.0, 34.0), False: (45.0, 26.0)}
"""Per cent of a picture on a phone that a time needs with and without its zone: a date beside lanes, a clock."""


def svg(parts: Iterable[str], height: int, label: str, *, css: str, role: str = "img") -> Markup:
    """Return a picture of ``height``; ``label`` says in words what it shows."""
    # The one place where text of our own becomes HTML: parts are numbers, and words that are escaped already.
    return Markup(f'<svg class="{css}" height="{height}" role="{role}">{title(label)}{"".join(parts)}</svg>')


def thumbnail(parts: Iterable[str], width: int, height: int, label: str, *, css: str) -> Markup:
    """Return a picture of ``width`` x ``height`` pixels, in which x counts pixels, too."""
    box = f'class="{css}" viewBox="0 0 {width} {height}" role="img"'
    return Markup(f"<svg {box}>{title(label)}{''.join(parts)}</svg>")


def stretched(shapes: Iterable[str], height: float) -> str:
    """Return shapes whose x goes from 0 to 1000 over the width, and whose y is in pixels up to ``height``."""
    box = f'viewBox="0 0 {100 * STRETCH} {height:g}" height="{height:g}" preserveAspectRatio="none"'
    return f'<svg class="stretch" {box}>{"".join(shapes)}</svg>'


def title(said: str) -> str:
    """Return what a shape shows, in words."""
    return f"<title>{escaped(said)}</title>"


def words(text: str, x: float, y: float, anchor: str = "middle", css: str = "tick", *, dx: float = 0) -> str:
    """Return ``text`` in a picture; ``anchor``: which part of it stands at ``x``, ``dx`` pixels beside it."""
    beside = f' dx="{dx:g}"' if dx else ""
    return f'<text class="{css}" x="{x:.5g}%" y="{y:g}"{beside} text-anchor="{anchor}">{escaped(text)}</text>'


def link(path: str, said: str, shapes: str) -> str:
    """Return shapes that lead to ``path``, which is quoted already; ``said``: what they show, in words."""
    return f'<a href="{path}">{title(said)}{shapes}</a>'


def sign(path: str, x: float, y: float, css: str) -> str:
    """Return a sign of fixed size at ``x`` and ``y``; its ``path`` is drawn around 0, 0."""
    return f'<svg class="at" x="{x:.5g}%" y="{y:.1f}"><path class="{css}" d="{path}"/></svg>'


def triangle(x: float, y: float) -> str:
    """Return the mark of an alert around ``x`` and ``y``."""
    return sign("M0,-6l-5,9h10z", x, y, "odd")


def triangles(places: Sequence[tuple[float, float]]) -> str:
    """Return the marks of many alerts, in as few bytes as they can have."""
    if not places:
        return ""
    xs, ys = " ".join(f"{x:.4g}%" for x, _ in places), " ".join(f"{y + 4:.0f}" for _, y in places)
    return f'<text class="odd" x="{xs}" y="{ys}" text-anchor="middle" aria-hidden="true">{"▲" * len(places)}</text>'


def rect(x: float, y: float, width: float, height: float, css: str) -> str:
    """Return a rectangle; ``x`` and ``y``: its upper left corner."""
    return f'<rect class="{css}" x="{x:.5g}%" y="{y:.1f}" width="{max(width, 0.01):.4g}%" height="{height:.1f}"/>'


def upright(x: float, top: float, bottom: float, css: str) -> str:
    """Return an upright line."""
    return f'<line class="{css}" x1="{x:.5g}%" x2="{x:.5g}%" y1="{top:g}" y2="{bottom:g}"/>'


def level(y: float, css: str, left: float = 0, right: float = 100) -> str:
    """Return a level line."""
    return f'<line class="{css}" x1="{left:.5g}%" x2="{right:.5g}%" y1="{y:.1f}" y2="{y:.1f}"/>'


def grid(labels: Iterable[tuple[str, float]]) -> list[str]:
    """Return the lines of an axis of values with their names at the left. ``labels``: each with its height."""
    return [part for label, y in labels for part in (level(y, "grid"), words(label, 0, y + 4, "end", dx=-_LABEL))]


def anchor_at(x: float) -> str:
    """Return which part of a name stands at ``x``, so that it stays within the picture."""
    return "end" if x > 100 - _EDGE else "start" if x < _EDGE / 2 else "middle"


def _late(x: float) -> str:
    """Return the class of a name that ends at its place on a phone, where it would not fit beside it."""
    return " late" if x > _LATE else ""


def with_unit(labels: Sequence[str], unit: str) -> list[str]:
    """Return the names of an axis, the last one with the unit."""
    return [*labels[:-1], *(f"{last} {unit}" for last in labels[-1:])]


def ticks_below(labels: Sequence[tuple[str, float]], y: float) -> list[str]:
    """Return the names of an axis below ``y``, each at its x."""
    parts = []
    for label, x in labels:
        parts += [upright(x, y, y + 4, "tickmark"), words(label, x, y + 18, anchor_at(x), f"tick{_late(x)}")]
    return parts


def times_below(times: Sequence[tuple[datetime, float]], y: float, form: Form) -> list[str]:
    """Return the names of an axis of time below ``y``, as pages show times (``rendering.when``), each at its x.

    A clock has the date in a second row where it changes, a date has none. The first one names the zone.
    A phone leaves out those that would lie over the one before.
    """
    parts, day = [], ""
    free = -_WIDTHS[True][0]
    for at, x in times:
        width = _WIDTHS[form == "date"][bool(day) or is_counted(at)]
        to_left = {"start": 0.0, "middle": width / 2, "end": width}["end" if _late(x) else anchor_at(x)]
        is_free = x - to_left >= free
        more = ("" if is_free else " more") + _late(x)
        free = x - to_left + width if is_free else free
        parts.append(upright(x, y, y + 4, f"tickmark{more}"))
        if is_counted(at):
            parts.append(words(elapsed(at), x, y + 18, anchor_at(x), f"tick time{more}"))
            continue
        parts.append(_time(at, x, y + 18, form, css=f"tick time{more}", is_zoned=not day))
        date = moment(at, "date", is_zoned=False)
        if form != "date" and date != day:
            parts.append(_time(at, x, y + 33, "date", css=f"tick time{more}"))
        day = date
    return parts


def _time(at: datetime, x: float, y: float, form: Form, *, css: str, is_zoned: bool = False) -> str:
    """Return a time in a picture, which the browser writes in its own format."""
    data = f'data-at="{at.isoformat()}" data-form="{form}"{"" if is_zoned else " data-unzoned"}'
    span = f"<tspan {data}>{escaped(moment(at, form, is_zoned=is_zoned))}</tspan>"
    return f'<text class="{css}" x="{x:.5g}%" y="{y:g}" text-anchor="{anchor_at(x)}">{span}</text>'
