"""streamad: monitors whole sensor sequences; calibrated alerts that say why, from recordings or live streams."""

from __future__ import annotations

__all__ = ["subscribe"]

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamad.runtime.subscribing import subscribe


def __getattr__(name: str) -> Any:
    """Load what is exported at its first use: the command line must not wait for it."""
    if name == "subscribe":
        from streamad.runtime.subscribing import subscribe  # noqa: PLC0415

        return subscribe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
