"""``streamad simulate``."""

from __future__ import annotations

__all__ = ["simulate"]


def simulate() -> None:
    """Being written."""
    raise SystemExit(1)
