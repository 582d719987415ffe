"""Which time the lines of Now show: one sequence with a wrong clock must not press all others into one point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

from streamad.language import gettext
from streamad.web.rendering import duration
from streamad.web.store.view import SeenEvent, SeenSequence

SKEW_US: Final = 5 * 60_000_000
"""By so much a clock may be ahead of the page's own without a remark."""
_FAR = 100


class Span(NamedTuple):
    """From ``first_us`` to ``last_us``; ``n_before`` of the sequences given lie wholly before it."""

    first_us: int
    last_us: int
    n_before: int


def span_of(sequences: Sequence[SeenSequence]) -> Span | None:
    """Return what is shown of ``sequences``; None if none of them has a time.

    A minority that began long before all others, 100 times the rest's span, is left out: that is a wrong clock (1970).
    """
    timed = [one for one in sequences if one.end_us is not None and one.start_us is not None]
    if not timed:
        return None
    last_us = max(one.end_us or 0 for one in timed)
    starts = sorted((one.start_us or 0 for one in timed), reverse=True)
    first_us = starts[-1]
    for n, (later, earlier) in enumerate(pairwise(starts), 1):
        if 2 * n > len(starts) and later - earlier > _FAR * max(1, last_us - later):
            first_us = later
            break
    return Span(first_us, last_us, sum((one.end_us or 0) < first_us for one in timed))


def ahead(time_us: int, now_us: int) -> str | None:
    """Return the remark about a time that lies after ``now_us``, the page's own; None if there is nothing to say."""
    if time_us - now_us <= SKEW_US:
        return None
    return gettext("its clock is ahead by %(time)s", time=duration((time_us - now_us) / 1e6))


def remarked(one: SeenSequence, now_us: int) -> SeenSequence:
    """Return the sequence with the remark beside its reason, if it ended after ``now_us``."""
    remark = ahead(one.end_us or 0, now_us)
    why = one.why or gettext("reasons follow")
    return one if remark is None else replace(one, why=f"{why} ({remark})")


def remarked_event(one: SeenEvent, now_us: int) -> SeenEvent:
    """Return the event with the remark beside its text, if it was made after ``now_us``."""
    remark = ahead(one.created_us, now_us)
    return one if remark is None else replace(one, message=f"{one.message} ({remark})")
