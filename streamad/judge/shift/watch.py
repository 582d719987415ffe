"""Watches the models in service: says once that far too many of the latest sequences alert, and once that it is over.

It is a function of the verdicts in their order. A restart begins anew, and a new version with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import numpy.typing as npt

from streamad.judge.scoring import ModelInService
from streamad.judge.shift.alert_rate import LATEST, MANY_FAULTS, AllowedRate
from streamad.judge.shift.many_alerts import ManyAlerts
from streamad.judge.shift.training_levels import TrainingLevels
from streamad.messages import ModelRef, Verdict
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import Emit
from streamad.types import ChannelSpec


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """A judged sequence as the watch keeps it; ``moments`` [2, C] are its levels and spreads."""

    is_alert: bool
    start_time: datetime
    moments: npt.NDArray[np.float32]


@dataclass(slots=True, eq=False)
class _Latest:
    """The latest judged sequences of ``model``, and what was ``found`` while far too many of them alert."""

    model: ModelInService
    allowed: AllowedRate
    judged: deque[_Judged] = field(default_factory=lambda: deque(maxlen=LATEST))
    n_alerts: int = 0
    found: ManyAlerts | None = None

    def add(self, verdict: Verdict) -> None:
        if len(self.judged) == LATEST:
            self.n_alerts -= self.judged[0].is_alert
        moments = np.array([verdict.means, verdict.spreads], np.float32)
        self.judged.append(_Judged(verdict.decision == "anomalous", verdict.start_time, moments))
        self.n_alerts += self.judged[-1].is_alert

    def many_alerts(self, channels: Sequence[ChannelSpec], *, of_normal: bool) -> ManyAlerts:
        """Return what is to say of the latest sequences, from the one on from which alerts are frequent (Page 1954)."""
        alerts = np.array([one.is_alert for one in self.judged])
        excess = np.cumsum((alerts - (self.allowed.configured + alerts.mean()) / 2)[::-1])[::-1]
        judged = list(self.judged)[int(np.argmax(excess)) :]
        moved = None
        if self.model.reference is not None:
            moments = np.stack([one.moments for one in judged]).astype(np.float64)
            moved = tuple(TrainingLevels.of(self.model.reference, channels).moved(moments))
        return ManyAlerts(
            self.model.ref,
            self.allowed,
            sum(one.is_alert for one in judged),
            len(judged),
            judged[0].start_time,
            moved,
            of_normal,
        )


class AlertWatch:
    """Takes the committed verdicts of a run; emits ``many_alerts`` and, once that is over, ``many_alerts_over``.

    ``models`` returns those in service. ``normal`` says which sequences are labelled normal: then only these count.
    ``learns``: judged sequences are stored, so that a model can relearn from them.
    """

    def __init__(
        self,
        settings: Settings,
        models: Callable[[], Collection[ModelInService]],
        emit: Emit,
        *,
        normal: Callable[[Verdict], bool] | None = None,
        learns: bool = False,
    ) -> None:
        self._settings, self._models, self._emit = settings, models, emit
        self._normal, self._learns = normal, learns
        self._latest: dict[str, _Latest] = {}
        self._over: dict[str, ManyAlerts] = {}

    @property
    def found(self) -> Mapping[str, ManyAlerts]:
        """Return by model what was found last in this run; unless it is over, as of now."""
        still = {name: self._now(latest) for name, latest in self._latest.items() if latest.found is not None}
        return {**self._over, **still}

    def judged(self, verdict: Verdict) -> None:
        """Take a verdict. One without a score, or by a version that is no longer in service, does not count."""
        if verdict.model is None or verdict.p_value is None or not (self._normal is None or self._normal(verdict)):
            return
        latest = self._latest.get(verdict.model.name)
        if latest is None or latest.model.ref != verdict.model:
            latest = self._begin(verdict.model)
        if latest is not None:
            latest.add(verdict)
            self._look(latest)

    def _begin(self, ref: ModelRef) -> _Latest | None:
        """Begin anew with a version: what was found of the former one no longer counts."""
        model = next((one for one in self._models() if one.ref == ref), None)
        if model is None:
            return None
        self._over.pop(ref.name, None)
        faults = MANY_FAULTS if self._normal is None else 0.0
        allowed = AllowedRate(self._settings.alerts.false_alarm_rate, model.calibration, faults)
        latest = self._latest[ref.name] = _Latest(model, allowed)
        return latest

    def _look(self, latest: _Latest) -> None:
        n_alerts, n_judged = latest.n_alerts, len(latest.judged)
        if latest.found is None and latest.allowed.is_exceeded_by(n_alerts, n_judged):
            latest.found = latest.many_alerts(self._settings.channel_specs, of_normal=self._normal is not None)
            self._over.pop(latest.model.ref.name, None)
            message = ". ".join(latest.found.lines(self._settings, learns=self._learns))
            self._emit("many_alerts", message, model=latest.model.ref, figures=latest.found.figures)
        elif latest.found is not None and latest.allowed.is_kept_again_by(n_alerts, n_judged):
            self._over[latest.model.ref.name] = replace(latest.found, is_over=True)
            latest.found = None
            message = f"{n_alerts} of the latest {n_judged} judged sequences alert: no longer far too many"
            self._emit("many_alerts_over", message, model=latest.model.ref, level="info")

    def _now(self, latest: _Latest) -> ManyAlerts:
        """Return what is to say now, with the beginning that was found at first."""
        assert latest.found is not None
        now = latest.many_alerts(self._settings.channel_specs, of_normal=self._normal is not None)
        return replace(now, since=min(now.since, latest.found.since))
