"""Drift and lasting changes as notices for an operator: when to emit them, and their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from streamad.drift.lasting_change import Changed, ChangeGuard
from streamad.drift.monitor import SCORES, Drift, DriftMonitor
from streamad.language import percent
from streamad.settings.learning import DriftSettings
from streamad.telemetry.events import Level
from streamad.types import ChannelSpec, Window, from_us

_AGAIN_AFTER_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice for an operator: kind (a stable identifier), message, figures, log level."""

    kind: str
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    level: Level = "warning"


class PlantWatch:
    """Drift monitor and change guard of one model. Pure: the caller passes the time.

    A lasting change is reported when it is certain, and again every hour until ``restart`` (a new champion) or until it
    has ended. ``relearn`` is the command that the notice recommends.
    """

    def __init__(
        self, channels: tuple[ChannelSpec, ...], settings: DriftSettings, *, relearn: str = "streamad models relearn"
    ) -> None:
        self._relearn = relearn
        self._units = {channel.name: channel.unit for channel in channels}
        self._settings = settings
        self._channels = channels
        self._guard = ChangeGuard(settings)
        self._reported_us: int | None = None

    @cached_property
    def _monitor(self) -> DriftMonitor:
        return DriftMonitor(self._channels, self._settings)  # on first use, in a thread: it takes a second

    def add(self, time_us: int, window: Window, p_value: float | None, *, is_alert: bool) -> list[Drift]:
        """Take one sequence (``time_us``: its end) and return its drifts.

        ``p_value`` is the champion's; without it (another version or none judged) the alert does not count.
        """
        drifts = self._monitor.add(time_us, window, p_value)
        if p_value is not None:
            self._guard.add(time_us, is_alert, drifts)
        return drifts

    @property
    def changed(self) -> Changed | None:
        """Return the lasting change, if there is one now."""
        return self._guard.changed

    @property
    def alert_share(self) -> float:
        """Return the share of alerts among the latest sequences; those that are missing count as none."""
        return self._guard.alert_share

    def restart(self) -> None:
        """Start again with another champion: its other scores are no drift, and it may know the changed plant."""
        self._monitor.restart_scores()
        self._guard.restart()
        self._reported_us = None

    def alarm(self, now_us: int) -> Notice | None:
        """Return the notice due at the monotonic time ``now_us``: a lasting change, or its end."""
        if self.changed is None:
            was_reported, self._reported_us = self._reported_us is not None, None
            return self._back() if was_reported else None
        if self._reported_us is not None and now_us - self._reported_us < _AGAIN_AFTER_US:
            return None
        self._reported_us = now_us
        return self._alarm(self.changed)

    def drift_notice(self, drift: Drift) -> Notice:
        """Return the notice of ``drift``."""
        if drift.what == SCORES:
            moved = f"p-values moved from {drift.before:.3g} to {drift.after:.3g}"
        else:
            unit = self._units.get(drift.what.partition(" of ")[2], "")
            moved = f"{drift.what} moved from {drift.before:.5g} to {drift.after:.5g} {unit}".rstrip()
        return Notice(
            "drift",
            f"{moved} since {_text(drift.since_us)} ({drift.strength:.1f} standard deviations)",
            {
                "strength": drift.strength,
                "before": drift.before,
                "after": drift.after,
                "since_unix_s": drift.since_us / 1e6,
            },
        )

    def _alarm(self, changed: Changed) -> Notice:
        since, share = _text(changed.since_us), self.alert_share
        what = f"{', '.join(changed.what)} drifted and {percent(share)} of the latest sequences alert"
        return Notice(
            "plant_changed",
            f"since {since} {what}: the plant has changed for good, or something is broken. Nothing is accepted, so "
            f"nothing new is learned. If this is the new normal: {self._relearn} --since {since}",
            {"alert_share": share, "since_unix_s": changed.since_us / 1e6},
            "error",
        )

    def _back(self) -> Notice:
        return Notice(
            "plant_back",
            f"alerts are no more than {percent(self._settings.changed_share)} of the latest sequences again: the plant "
            "no longer counts as changed for good",
            level="info",
        )


def _text(time_us: int) -> str:
    return from_us(time_us).isoformat(timespec="seconds").replace("+00:00", "Z")
