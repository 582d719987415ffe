"""Says when a false-alarm rate is below what the calibration certifies, and what that does to detection."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamad.commands.shared.figures.labels import Labels
from streamad.commands.shared.figures.report import RunReport, is_alert
from streamad.judge.calibration import Calibration, calibration_sequences_for, certifiable_rate
from streamad.judge.evaluation import Evaluation
from streamad.messages import Verdict
from streamad.types import FloatArray

_MODELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Uncertified:
    """A configured rate below the certified one: which scores alert, and how many sequences would certify it.

    ``certified_rate`` is the smallest certified rate rounded up to two digits. ``alert_score``: the lowest score that
    alerts, None if none can; ``highest_score`` of the ``n_calibration`` sequences.
    """

    configured_rate: float
    certified_rate: float
    n_calibration: int
    n_needed: int
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
                f"{self.highest_score:.4g}, and weaker faults are missed"
            )
        certified = f"certify a false-alarm rate of {self.certified_rate:g} at best"
        extrapolated = f"{self.configured_rate:g} is extrapolated: {needs}"
        return f"{self.n_calibration} calibration sequences {certified}; {extrapolated}"

    @property
    def remedy(self) -> str:
        """Return what to do about it."""
        return f"calibrate with {self.n_needed} sequences, or raise alerts.false_alarm_rate to {self.certified_rate:g}"

    @property
    def line(self) -> str:
        """Return fact and remedy."""
        return f"{self.fact}; {self.remedy}"


def uncertified(calibration: Calibration, rate: float) -> Uncertified | None:
    """Return what is known about ``rate`` if ``calibration`` cannot certify it, else None."""
    if rate >= certifiable_rate(calibration.n):
        return None
    lowest = calibration.alert_score(rate)
    return Uncertified(
        configured_rate=rate,
        certified_rate=rounded_up(certifiable_rate(calibration.n)),
        n_calibration=calibration.n,
        n_needed=calibration_sequences_for(rate),
        alert_score=lowest if math.isfinite(lowest) else None,
        highest_score=float(calibration.scores[-1]),
    )


def line_below_certified(terms: FloatArray, rate: float) -> str | None:
    """Return the line about ``rate`` if calibration ``terms`` [n, K] cannot certify it. Raises ArtifactError."""
    below = uncertified(Calibration.from_terms(terms, rate), rate)
    return None if below is None else below.line


def rounded_up(rate: float) -> float:
    """Return ``rate`` rounded up to two significant digits: the result is certified as well."""
    rounded = float(f"{rate:.2g}")
    return rounded if rounded >= rate else float(f"{rate + 10.0 ** (math.floor(math.log10(rate)) - 1) / 2:.2g}")


@dataclass(frozen=True, slots=True)
class Certification:
    """The models of a run, by name, whose configured rate is below the certified one.

    ``found`` and ``at_certified`` compare the run with labels: at the configured rate, and at each model's certified
    one.
    """

    models: Mapping[str, Uncertified]
    found: Evaluation | None = None
    at_certified: Evaluation | None = None

    @property
    def lines(self) -> list[str]:
        """Return lines for people, one a model; the detection at the certified rates is in the only or last one."""
        if len(self.models) == 1:
            (one,) = self.models.values()
            measured = self._measured(f"{one.certified_rate:g}")
            return ["; ".join(part for part in (one.fact, measured, one.remedy) if part)]
        lines = [f"{name}: {one.line}" for name, one in list(self.models.items())[:_MODELS_SHOWN]]
        if len(self.models) > _MODELS_SHOWN:
            lines.append(f"{len(self.models) - _MODELS_SHOWN} more models have such a calibration: streamad check")
        return [*lines, *filter(None, [self._measured("the certified rates")])]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines; nothing if all rates are certified."""
        if not self.models:
            return {}
        figures = {"uncertified": {name: asdict(one) for name, one in self.models.items()}}
        return figures if self.at_certified is None else {**figures, "at_certified_rate": asdict(self.at_certified)}

    def _measured(self, rates: str) -> str:
        found, certified = self.found, self.at_certified
        if found is None or certified is None:
            return ""
        parts = []
        if found.detection_rate is not None and certified.detection_rate is not None:
            parts.append(f"{certified.detection_rate:.1%} of the anomalous (now {found.detection_rate:.1%})")
        if found.false_alarm_rate is not None and certified.false_alarm_rate is not None:
            parts.append(f"{certified.false_alarm_rate:.1%} of the normal (now {found.false_alarm_rate:.1%})")
        return f"at {rates} {' and '.join(parts)} would alert" if parts else ""


def certification_of(
    report: RunReport, rate: float, labels: Labels | None = None, found: Evaluation | None = None
) -> Certification:
    """Return which models of a run cannot certify ``rate``; with ``labels`` also what that does to detection.

    ``found``: the run's own comparison with ``labels``.
    """
    of = {name: uncertified(calibration, rate) for name, calibration in report.calibrations.items()}
    models = {name: one for name, one in of.items() if one is not None}
    if not models or labels is None or found is None:
        return Certification(models)

    def would_alert(verdict: Verdict) -> bool:
        name = "" if verdict.model is None else verdict.model.name
        if name not in models or verdict.score is None:
            return is_alert(verdict)
        return verdict.score > models[name].highest_score

    return Certification(models, found, report.evaluation(labels, would_alert))
