"""Whether a rate that was found shows what was expected: by its 95 % interval, or by the share alone."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import msgspec

from streamad.judge.evaluation import clopper_pearson

Basis: TypeAlias = Literal["bound", "estimate"]
Outcome: TypeAlias = Literal["passed", "failed", "not_shown"]
"""not_shown: the share keeps to the limit, but there are too few sequences to say so of the rate."""
_MOST_NEEDED = 10_000_000
_TAIL = 0.025
"""Of the interval on each side."""


class Rate(msgspec.Struct, frozen=True):
    """A rate of which ``k`` in ``n`` were seen."""

    k: int
    n: int

    @property
    def share(self) -> float | None:
        """Return the share; None of no sequence."""
        return self.k / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the exact 95 % interval; None of no sequence."""
        return clopper_pearson(self.k, self.n) if self.n else None


def decide(rate: Rate, limit: float, basis: Basis, *, at_most: bool) -> Outcome:
    """Return whether ``rate`` keeps to ``limit``: ``at_most``, or at least.

    ``bound``: the whole interval must; each of its bounds holds with 97.5 %. ``estimate``: the share must.
    """
    if rate.share is None or rate.interval is None:
        return "not_shown"
    if not _keeps(rate.share, limit, at_most=at_most):
        return "failed"
    bound = rate.interval[1 if at_most else 0]
    return "passed" if basis == "estimate" or _keeps(bound, limit, at_most=at_most) else "not_shown"


def _keeps(value: float, limit: float, *, at_most: bool) -> bool:
    return value <= limit if at_most else value >= limit


def fewest(limit: float, *, at_most: bool) -> int | None:
    """Return how many sequences show ``limit`` by the bound if none of them errs; None: no number does."""
    right = 1 - limit if at_most else limit
    if not 0 < right < 1:
        return None

    def shows(n: int) -> bool:
        return decide(Rate(0 if at_most else n, n), limit, "bound", at_most=at_most) == "passed"

    n = max(1, round(math.log(_TAIL) / math.log(right)) - 1)  # rounded: the bound itself decides which one it is
    while not shows(n):
        n += 1
    return n


def needed(rate: Rate, limit: float, *, at_most: bool) -> int | None:
    """Return how many sequences would show ``limit`` by the bound if the share stayed as found; None: no number does.

    The share is rounded against the monitor.
    """
    share = rate.share
    if share is None or share in (0.0, 1.0):
        return fewest(limit, at_most=at_most)
    if share == limit or not _keeps(share, limit, at_most=at_most):
        return None

    def shows(n: int) -> bool:
        k = min(n, math.ceil(share * n)) if at_most else math.floor(share * n)
        return decide(Rate(k, n), limit, "bound", at_most=at_most) == "passed"

    high = max(1, rate.n)
    while not shows(high):
        high *= 2
        if high > _MOST_NEEDED:
            return None
    low = high // 2
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high
