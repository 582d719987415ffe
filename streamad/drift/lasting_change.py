"""Detect a lasting change of the plant: drift together with a high share of alerts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from streamad.drift.monitor import Drift
from streamad.settings.learning import DriftSettings

_RISING = 0.75  # of changed_share: alerts more frequent than this are a run that may end in a change


@dataclass(frozen=True, slots=True)
class Changed:
    """A lasting change: its estimated beginning, the share of alerts among the latest sequences, and what drifted."""

    since_us: int
    alert_share: float
    what: tuple[str, ...]


@dataclass(slots=True)
class _AlertRun:
    """The present run of frequent alerts; it began when a cumulative sum of them last left zero (Page 1954)."""

    share: float
    excess: float = 0.0
    begin: int = 0
    begin_us: int = 0

    def add(self, number: int, time_us: int, is_alert: bool) -> None:
        if self.excess == 0:
            self.begin, self.begin_us = number, time_us
        self.excess = max(0.0, self.excess + is_alert - self.share)


@dataclass(slots=True)
class _Seen:
    """The sequences since the last restart."""

    latest: deque[bool]
    run: _AlertRun
    count: int = 0
    drifts: list[tuple[int, Drift]] = field(default_factory=list)


class ChangeGuard:
    """Reports once that drift and alerts coincide.

    More than ``changed_share`` of the latest ``changed_over`` sequences alert, and something has drifted among them or
    since alerts became frequent. Neither alone is enough: scattered faults alert without drift, and a plant drifts
    slowly without alerts. Sequences count, not time, so a plant with few sequences is judged as surely.
    """

    def __init__(self, settings: DriftSettings) -> None:
        self._share, self._over = settings.changed_share, settings.changed_over
        self._seen = self._nothing()
        self._is_active = False

    def add(self, time_us: int, is_alert: bool, drifts: Sequence[Drift]) -> Changed | None:
        """Take one judged sequence (``time_us``: its end) and its drifts; return the change once it is certain."""
        if self._is_active:
            return None
        seen = self._seen
        seen.count += 1
        seen.latest.append(is_alert)
        seen.run.add(seen.count, time_us, is_alert)
        begin = min(seen.run.begin, seen.count - self._over + 1)
        seen.drifts = [each for each in seen.drifts if each[0] >= begin]
        seen.drifts += [(seen.count, drift) for drift in drifts]
        return self._changed()

    def restart(self) -> None:
        """Start again: another model is in service, or the alerts are over."""
        self._seen = self._nothing()
        self._is_active = False

    def _changed(self) -> Changed | None:
        seen = self._seen
        share = sum(seen.latest) / self._over
        if len(seen.latest) < self._over or share <= self._share or not seen.drifts:
            return None
        self._is_active = True
        since_us = min(seen.run.begin_us, *(drift.since_us for _, drift in seen.drifts))
        return Changed(since_us, share, tuple(dict.fromkeys(drift.what for _, drift in seen.drifts)))

    def _nothing(self) -> _Seen:
        return _Seen(deque(maxlen=self._over), _AlertRun(_RISING * self._share))
