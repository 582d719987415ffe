"""A range of time to look into, of a sequence or a stream: ``from`` and ``to`` in the address, which can be shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from streamad.language import asking, gettext
from streamad.types import from_us, to_us
from streamad.web.store.warned import NEVER

Ends = tuple[float, float]
_FIRST_US, _LAST_US = (to_us(datetime(year, 6, 1, tzinfo=UTC)) for year in (1000, 9999))


@dataclass(frozen=True, slots=True)
class Zoom:
    """What the page offers beside the curves: ``steps`` by name to addresses, and the fields of a form.

    ``kept``: what else the address says. ``first`` and ``last``: the ends of the axis in what an address counts.
    """

    path: str
    kept: Mapping[str, str]
    steps: Mapping[str, str]
    is_part: bool
    first: str
    last: str
    fields: tuple[str, str]
    unit: str


def zoom_of(
    path: str, kept: Mapping[str, str], shown: Ends, whole: Ends, said: Callable[[float], str], *, is_part: bool
) -> Zoom:
    """Return the ways from the range ``shown`` to others within ``whole``; ``said`` writes an end for the address."""
    first, last = shown
    span = last - first
    ranges: dict[str, Ends] = {}
    if span > 0:
        if first > whole[0]:
            begin = max(whole[0], first - span)
            ranges[gettext("earlier")] = begin, begin + span
        if last < whole[1]:
            end = min(whole[1], last + span)
            ranges[gettext("later")] = end - span, end
        ranges[gettext("closer")] = first + span / 4, last - span / 4
    if is_part:
        ranges[gettext("wider")] = max(whole[0], first - span / 2), min(whole[1], last + span / 2)
    steps = {name: address(path, kept, (said(begin), said(end))) for name, (begin, end) in ranges.items()}
    if is_part:
        steps[gettext("whole")] = address(path, kept)
    return Zoom(
        path, kept, steps, is_part, said(first), said(last), (said(first), said(last)), gettext("%% of the sequence")
    )


def address(path: str, kept: Mapping[str, str], ends: tuple[str, str] | None = None) -> str:
    """Return the address of a page with what is ``kept`` and a range."""
    given = {**kept} if ends is None else {**kept, "from": ends[0], "to": ends[1]}
    return f"{path}?{urlencode(given)}" if given else path


def share_of(text: str) -> float | None:
    """Return the share that an end in per cent says, None for anything else."""
    try:
        share = float(text) / 100
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def part_of(given: Mapping[str, str]) -> Ends | None:
    """Return the shares from and to which a sequence is asked for, None for all of it."""
    start, end = (share_of(given.get(name, "")) for name in ("from", "to"))
    return None if start is None or end is None or start >= end else (start, end)


def percent_text(share: float) -> str:
    """Return a share as an address says it."""
    return f"{100 * share:.4g}"


def time_of(text: str) -> int | None:
    """Return the us since 1970 of an ISO 8601 time (in the plant's zone without an offset), None for anything else."""
    try:
        at = datetime.fromisoformat(text)
        return to_us(at if at.tzinfo is not None else at.replace(tzinfo=asking().zone or UTC))
    except (ValueError, OverflowError):
        return None


def time_text(time_us: float) -> str:
    """Return a time as an address says it."""
    return f"{_written(time_us):%Y-%m-%dT%H:%M:%SZ}"


def time_field(time_us: float) -> str:
    """Return a time as a field of a form has it: in the plant's zone."""
    return f"{_written(time_us).astimezone(asking().zone or UTC):%Y-%m-%dT%H:%M:%S}"


def _written(time_us: float) -> datetime:
    """Return a time in UTC, in a year that every zone has and that is written with four digits."""
    return from_us(round(min(max(time_us, _FIRST_US), _LAST_US)))


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when, in us since 1970; None: no end on this side."""

    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Span:
        """Return the one that an address names."""
        return cls(time_of(given.get("from", "")), time_of(given.get("to", "")))

    @property
    def is_part(self) -> bool:
        """Return whether it has an end."""
        return self.since_us is not None or self.until_us is not None

    @property
    def within(self) -> tuple[int, int]:
        """Return its ends; the last second counts whole, as an address names no parts of it."""
        return (
            -NEVER if self.since_us is None else self.since_us,
            NEVER if self.until_us is None else self.until_us + 999_999,
        )

    @property
    def given(self) -> dict[str, str]:
        """Return what an address says of it."""
        ends = {"from": self.since_us, "to": self.until_us}
        return {name: time_text(end) for name, end in ends.items() if end is not None}
