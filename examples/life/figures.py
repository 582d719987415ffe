"""Detection and false alarms of the monitors, by phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from life.monitors import KINDS, Kind
from life.plant import Batch, Phase, thirds
from life.watching import Course
from streamad.judge.evaluation import clopper_pearson
from streamad.messages import Decision


@dataclass(frozen=True, slots=True)
class Rates:
    """Detection and false alarms among batches that a model judged; a rate is None without batches of its kind."""

    detected: int
    faulty: int
    false_alarms: int
    normal: int

    @classmethod
    def of(cls, batches: Iterable[Batch], decisions: Sequence[Decision]) -> Rates:
        """Count ``batches`` by their ``decisions``, which are in the order of numbers."""
        judged = [(bool(batch.fault), decisions[batch.number]) for batch in batches]
        judged = [(is_faulty, decision) for is_faulty, decision in judged if decision != "learning"]
        alerts = [is_faulty for is_faulty, decision in judged if decision == "anomalous"]
        faulty = sum(is_faulty for is_faulty, _ in judged)
        return cls(sum(alerts), faulty, len(alerts) - sum(alerts), len(judged) - faulty)

    @property
    def detection_rate(self) -> float | None:
        """Return the share of faulty batches that alerted."""
        return self.detected / self.faulty if self.faulty else None

    @property
    def false_alarm_rate(self) -> float | None:
        """Return the share of normal batches that alerted."""
        return self.false_alarms / self.normal if self.normal else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the false-alarm rate (Clopper-Pearson)."""
        return clopper_pearson(self.false_alarms, self.normal) if self.normal else None

    def as_dict(self) -> dict[str, Any]:
        """Return rates and counts for JSON."""
        rates = {"detection_rate": self.detection_rate, "false_alarm_rate": self.false_alarm_rate}
        return {**rates, "false_alarm_interval": self.interval, **asdict(self)}


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """The monitors' rates in one phase: in its last third and in the whole of it."""

    name: str
    last_third: dict[Kind, Rates]
    whole: dict[Kind, Rates]

    def holds(self, rate: float, best_detection: float) -> bool:
        """Return whether both bounds hold in the last third.

        The lower 95 % bound of streamad's false-alarm rate is at most twice the configured ``rate``, and it found at
        most 5 points less of the faults than ``best_detection``.
        """
        ours = self.last_third["streamad"]
        if ours.interval is None or ours.detection_rate is None:
            return False
        return ours.interval[0] <= 2 * rate and ours.detection_rate >= best_detection - 0.05

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for JSON: those of the last third by monitor, of the whole phase under "whole"."""
        monitors: dict[str, Any] = {kind: rates.as_dict() for kind, rates in self.last_third.items()}
        whole = {kind: rates.as_dict() for kind, rates in self.whole.items()}
        return {"name": self.name, **monitors, "whole": whole}


def best_detection(figures: Sequence[PhaseFigures], kind: Kind = "frozen") -> float:
    """Return the best detection rate of a monitor in any last third: 1 for one that alerts on everything."""
    return max(each.last_third[kind].detection_rate or 0.0 for each in figures)


def by_phase(phases: Sequence[Phase], batches: Sequence[Batch], courses: Mapping[Kind, Course]) -> list[PhaseFigures]:
    """Return the figures of each phase."""
    figures = []
    for place, phase in enumerate(phases):
        own = [batch for batch in batches if batch.phase == place]
        last = [own[i] for i in thirds(len(own))[2]]
        figures.append(PhaseFigures(phase.name, _rates(last, courses), _rates(own, courses)))
    return figures


def _rates(batches: Sequence[Batch], courses: Mapping[Kind, Course]) -> dict[Kind, Rates]:
    return {kind: Rates.of(batches, courses[kind].decisions) for kind in KINDS}
