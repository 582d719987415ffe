"""streamad monitors whole sensor sequences: calibrated alerts with reasons, from recordings or live streams."""

from __future__ import annotations

__all__ = ["subscribe"]

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamad.outputs.subscribing import subscribe


def __getattr__(name: str) -> Any:
    """Import the public names at their first use, so that the command line does not wait for them."""
    if name == "subscribe":
        from streamad.outputs.subscribing import subscribe  # noqa: PLC0415

        return subscribe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
