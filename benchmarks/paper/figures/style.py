"""Colours, sizes and names that the figures share."""

from __future__ import annotations

from typing import Final

from matplotlib.figure import Figure

NORMAL: Final = "C0"
ANOMALY: Final = "C1"
VIEWS: Final = ("C0", "C1", "C2", "C3", "C4")
"""The original first, then T_1 to T_4."""


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """Return an empty figure with a constrained layout; it needs no window system."""
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def view_name(k: int) -> str:
    """Return the name of view ``k``; 0 is the original."""
    return f"$T_{k}(x)$" if k else "$x$"
