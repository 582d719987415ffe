"""What pictures are made of. Texts come into them only by ``words``, ``title`` and ``link``, which escape them."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from streamad.web.rendering import escaped

WIDTH = 760
"""Of every picture of a page's width, in units of its own."""
LEFT, RIGHT = 56, 10
"""Free of curves, for the labels of the axes."""


def svg(parts: Iterable[str], height: int, label: str, *, css: str, role: str = "img", width: int = WIDTH) -> Markup:
    """Return a picture of ``width`` x ``height``; ``label`` says in words what it shows."""
    box = f'class="{css}" viewBox="0 0 {width} {height}" role="{role}"'
    # The one place where text of our own becomes HTML: parts are numbers, and words that are escaped already.
    return Markup(f"<svg {box}>{title(label)}{''.join(parts)}</svg>")


def title(said: str) -> str:
    """Return what a shape shows, in words."""
    return f"<title>{escaped(said)}</title>"


def words(text: str, x: float, y: float, anchor: str = "middle", css: str = "tick") -> str:
    """Return ``text`` in a picture; ``anchor``: which part of it stands at ``x``."""
    return f'<text class="{css}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escaped(text)}</text>'


def link(path: str, said: str, shapes: str) -> str:
    """Return shapes that lead to ``path``, which is quoted already; ``said``: what they show, in words."""
    return f'<a href="{path}">{title(said)}{shapes}</a>'


def triangle(x: float, y: float) -> str:
    """Return the mark of an alert around ``x`` and ``y``."""
    return f'<path class="odd" d="M{x:.1f},{y - 6:.1f} l-5,9 h10 z"/>'


def rect(x: float, y: float, width: float, height: float, css: str) -> str:
    """Return a rectangle; ``x`` and ``y``: its upper left corner."""
    return f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def pinned(names: Iterable[str], width: float, height: float) -> str:
    """Return the names at the left edge of a picture as a group that stays in sight while its box scrolls."""
    return f'<g class="pinned">{rect(0, 0, width - 2, height, "pin")}{"".join(names)}</g>'


def grid(labels: Iterable[tuple[str, float]]) -> tuple[list[str], list[str]]:
    """Return the lines of an axis of values, and its names to pin at the left. ``labels``: each with its height."""
    lines, names = [], []
    for label, y in labels:
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        names.append(words(label, LEFT - 6, y + 4, "end"))
    return lines, names
