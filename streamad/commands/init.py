"""``streamad init``."""

from __future__ import annotations

__all__ = ["init"]


def init() -> None:
    """Being written."""
    raise SystemExit(1)
