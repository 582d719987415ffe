"""Says when a false-alarm rate is below what the calibration certifies, and what that does to detection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.report import RunReport, is_alert
from streamad.judge.calibration import (
    OUT_OF_FOLD_BELOW,
    Calibration,
    CalibrationMethod,
    calibration_count,
    calibration_sequences_for,
    certifiable_rate,
    recordings_for,
)
from streamad.judge.evaluation import Evaluation
from streamad.language import percent
from streamad.learn.registry.manifest import Metrics
from streamad.messages import Verdict
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray

METHODS: Mapping[CalibrationMethod, str] = {
    "split": "held out",
    "out_of_fold": "scored out of fold",
    "reserve": "of the reserve, which never trains",
}
"""The words for the calibration's sequences."""
_MODELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Uncertified:
    """A configured rate below the lowest one of the ranks: which scores alert, and how many sequences it needs.

    ``n_recordings`` of normal sequences, at ``model.calibration``, hold ``n_held_out`` out, ``n_needed`` at least.

    ``rank_rate`` is the lowest rate that the ranks among ``n_calibration`` sequences reach, rounded up to two digits:
    certified unless ``method`` is out_of_fold. ``alert_score``: the lowest score that alerts, None if none can;
    ``highest_score`` of the calibration.
    """

    configured_rate: float
    rank_rate: float
    method: CalibrationMethod
    n_calibration: int
    n_needed: int
    n_recordings: int
    n_held_out: int
    alert_score: float | None
    highest_score: float

    @property
    def fact(self) -> str:
        """Return what the calibration certifies, and what an alert needs therefore."""
        if self.alert_score is None:
            needs = "no score can alert"
        else:
            needs = (
                f"an alert needs a score of {self.alert_score:.4g}, where the highest of the calibration is "
                f"{self.highest_score:.4g}"
            )
            if self.alert_score > self.highest_score:
                needs += ", and weaker faults are missed"
        extrapolated = f"{self.configured_rate:g} is extrapolated: {needs}"
        if self.method == "out_of_fold":
            can = f"{METHODS['out_of_fold']} estimate false-alarm rates from {self.rank_rate:g} on and certify none"
        else:
            can = f"certify a false-alarm rate of {self.rank_rate:g} at best"
        return f"{self.n_calibration} calibration sequences {can}; {extrapolated}"

    @property
    def remedy(self) -> str:
        """Return what to do about it."""
        raised = f"raise alerts.false_alarm_rate to {self.rank_rate:g}"
        if self.method == "reserve":
            return f"calibrate with {self.n_needed} sequences, or {raised}"
        estimate = ", an estimate as well" if self.method == "out_of_fold" else ""
        held_out = f"{self.n_held_out} of {self.n_recordings} are held out"
        return f"train on {self.n_recordings} recordings or more ({held_out}), or {raised}{estimate}"

    @property
    def line(self) -> str:
        """Return fact and remedy."""
        return f"{self.fact}; {self.remedy}"


def uncertified(calibration: Calibration, method: CalibrationMethod, settings: Settings) -> Uncertified | None:
    """Return what is known about the configured rate if it is below the lowest of the ranks' rates, else None."""
    rate, share = settings.alerts.false_alarm_rate, settings.model.calibration
    if rate >= certifiable_rate(calibration.n):
        return None
    lowest = calibration.alert_score(rate)
    n_needed = calibration_sequences_for(rate)
    n_recordings = recordings_for(n_needed, share)
    return Uncertified(
        configured_rate=rate,
        rank_rate=rounded_up(certifiable_rate(calibration.n)),
        method=method,
        n_calibration=calibration.n,
        n_needed=n_needed,
        n_recordings=n_recordings,
        # Above the fewest of the split, the share of the recordings is n_needed itself: no other count is compared.
        n_held_out=n_needed if n_recordings > OUT_OF_FOLD_BELOW else calibration_count(n_recordings, share, rate),
        alert_score=lowest if math.isfinite(lowest) else None,
        highest_score=float(calibration.scores[-1]),
    )


def line_below_certified(terms: FloatArray, method: CalibrationMethod, settings: Settings) -> str | None:
    """Return the line about the configured rate if ``terms`` [n, K] do not reach it. Raises ArtifactError."""
    below = uncertified(Calibration.from_terms(terms, settings.alerts.false_alarm_rate), method, settings)
    return None if below is None else below.line


def calibration_text(metrics: Metrics) -> str:
    """Return what a version's calibration is, and which rates it certifies or estimates."""
    presumed = f"; {metrics.n_presumed} presumed anomalies left out" if metrics.n_presumed else ""
    lowest = f"{rounded_up(certifiable_rate(metrics.n_calibration)):g}"
    if metrics.method == "out_of_fold":
        can = f"estimates false-alarm rates from {lowest} on and certifies none"
    else:
        can = f"certifies a false-alarm rate of {lowest} at best"
    return f"{metrics.n_calibration} sequences {METHODS[metrics.method]}{presumed}; {can}"


def rounded_up(rate: float) -> float:
    """Return ``rate`` rounded up to two significant digits: the result is certified as well."""
    rounded = float(f"{rate:.2g}")
    return rounded if rounded >= rate else float(f"{rate + 10.0 ** (math.floor(math.log10(rate)) - 1) / 2:.2g}")


@dataclass(frozen=True, slots=True)
class Certification:
    """The models of a run, by name, whose configured rate is below the lowest one of their calibration's ranks.

    ``found`` and ``at_rank_rate`` compare the run with labels: at the configured rate, and at each model's lowest one.
    """

    models: Mapping[str, Uncertified]
    found: Evaluation | None = None
    at_rank_rate: Evaluation | None = None

    @property
    def lines(self) -> list[str]:
        """Return lines for people, one a model; the only or last one has the detection at the lowest rates."""
        if len(self.models) == 1:
            (one,) = self.models.values()
            measured = self._measured(f"{one.rank_rate:g}")
            return ["; ".join(part for part in (one.fact, measured, one.remedy) if part)]
        lines = [f"{name}: {one.line}" for name, one in list(self.models.items())[:_MODELS_SHOWN]]
        if len(self.models) > _MODELS_SHOWN:
            lines.append(f"{len(self.models) - _MODELS_SHOWN} more models have such a calibration: streamad check")
        return [*lines, *filter(None, [self._measured("the lowest rates")])]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines; nothing if no rate is extrapolated."""
        if not self.models:
            return {}
        figures = {"uncertified": {name: asdict(one) for name, one in self.models.items()}}
        return figures if self.at_rank_rate is None else {**figures, "at_rank_rate": asdict(self.at_rank_rate)}

    def _measured(self, rates: str) -> str:
        found, there = self.found, self.at_rank_rate
        if found is None or there is None:
            return ""
        parts = []
        if found.detection_rate is not None and there.detection_rate is not None:
            parts.append(
                f"{percent(there.detection_rate, 1)} of the anomalous (now {percent(found.detection_rate, 1)})"
            )
        if found.false_alarm_rate is not None and there.false_alarm_rate is not None:
            parts.append(
                f"{percent(there.false_alarm_rate, 1)} of the normal (now {percent(found.false_alarm_rate, 1)})"
            )
        return f"at {rates} {' and '.join(parts)} would alert" if parts else ""


def certification_of(
    report: RunReport, settings: Settings, labels: Labels | None = None, found: Evaluation | None = None
) -> Certification:
    """Return for which models of a run the configured rate is extrapolated.

    With ``labels`` also what that does to detection; ``found``: the run's own comparison with ``labels``.
    """
    of = {name: uncertified(model.calibration, model.method, settings) for name, model in report.in_service.items()}
    models = {name: one for name, one in of.items() if one is not None}
    if not models or labels is None or found is None:
        return Certification(models)

    def would_alert(verdict: Verdict) -> bool:
        name = "" if verdict.model is None else verdict.model.name
        if name not in models or verdict.score is None:
            return is_alert(verdict)
        return verdict.score > models[name].highest_score

    return Certification(models, found, report.evaluation(labels, would_alert))
