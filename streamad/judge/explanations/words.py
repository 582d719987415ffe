"""Phrases for people: when a channel departs from normal, by how much, and in which direction; p-values."""

from __future__ import annotations

from streamad.messages import Direction


def phrase(  # noqa: PLR0917  reads as: this channel, in this unit, this much above, from here to there
    channel: str, unit: str, size: float | None, direction: Direction, start: float, end: float
) -> str:
    """Return such as "temp_c 3.1 K above the band from 62 % to 80 %"; ``start`` and ``end`` are shares (0 to 1)."""
    if size is None or direction == "shape":
        what = "of unusual shape"
    else:
        what = f"{figure(size)} {unit} {direction} the band" if unit else f"{figure(size)} {direction} the band"
    return f"{channel} {what} {place(start, end)}"


def place(start: float, end: float) -> str:
    """Return such as "from 62 % to 80 %"."""
    first, last = round(100 * start), round(100 * end)
    return f"at {first} %" if first == last else f"from {first} % to {last} %"


def figure(value: float) -> str:
    """Return a number with two significant digits."""
    return f"{float(f'{value:.2g}'):g}"


def p_text(p_value: float) -> str:
    """Return a p-value for people; it is never 0."""
    return f"{p_value:.4f}" if p_value >= 0.0001 else f"{p_value:.0e}"
