"""streamad: monitors whole sensor sequences; calibrated alerts that say why, from recordings or live streams."""

from __future__ import annotations

__all__ = ["subscribe"]

from streamad.subscribing import subscribe
