"""``streamad check``."""

from __future__ import annotations

__all__ = ["check"]


def check() -> None:
    """Being written."""
    raise SystemExit(1)
