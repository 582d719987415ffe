"""How many examples a property-based test draws: in CI half as many as elsewhere.

CI draws the same ones every time, so the second half would repeat a proof; elsewhere each run draws new ones.
"""

from __future__ import annotations

import os
from typing import Final

IS_CI: Final = os.environ.get("CI") == "true"


def examples(n: int) -> int:
    """Return how many of ``n`` examples to draw."""
    return n // 2 if IS_CI else n
