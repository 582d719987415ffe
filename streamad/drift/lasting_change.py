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
    """Finds that drift and alerts coincide: ``changed``.

    More than ``changed_share`` of the latest ``changed_over`` sequences alert, and something has drifted among them or
    since alerts became frequent. Neither alone is enough: scattered faults alert without drift, and a plant drifts
    slowly without alerts. Sequences count, not time, so a plant with few sequences is judged as surely. A change ends
    at the sequence from which on no larger share alerts, so that a repaired fault is not learned.
    """

    def __init__(self, settings: DriftSettings) -> None:
        self._share, self._over = settings.changed_share, settings.changed_over
        self.changed: Changed | None = None
        self._seen = self._nothing()

    @property
    def alert_share(self) -> float:
        """Return the number of alerts among the latest ``changed_over`` sequences, divided by ``changed_over``."""
        return sum(self._seen.latest) / self._over

    def add(self, time_us: int, is_alert: bool, drifts: Sequence[Drift]) -> None:
        """Take one judged sequence (``time_us``: its end) and its drifts."""
        seen = self._seen
        seen.latest.append(is_alert)
        if self.changed is not None:
            if self.alert_share <= self._share:
                self.restart()
            return
        seen.count += 1
        seen.run.add(seen.count, time_us, is_alert)
        begin = min(seen.run.begin, seen.count - self._over + 1)
        seen.drifts = [each for each in seen.drifts if each[0] >= begin]
        seen.drifts += [(seen.count, drift) for drift in drifts]
        if len(seen.latest) == self._over and self.alert_share > self._share and seen.drifts:
            since_us = min(seen.run.begin_us, *(drift.since_us for _, drift in seen.drifts))
            what = tuple(dict.fromkeys(drift.what for _, drift in seen.drifts))
            self.changed = Changed(since_us, self.alert_share, what)

    def restart(self) -> None:
        """Start again: another model is in service, or the alerts are over."""
        self.changed = None
        self._seen = self._nothing()

    def _nothing(self) -> _Seen:
        return _Seen(deque(maxlen=self._over), _AlertRun(_RISING * self._share))
