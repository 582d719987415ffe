"""Whether a plant differs from a model's training: far too many alerts, and the channels that moved.

``AlertWatch`` says once that far too many of the latest sequences alert, and once that it is over. It is a function of
the verdicts in their order; a restart begins anew, and a new version with it. ``AllowedRate`` says when more sequences
alert than the rate, its calibration and many faults explain; ``TrainingLevels``, which channels lie elsewhere than in
training, by level and spread; ``ManyAlerts`` is the message.
Shapes: M training windows, N judged sequences, C channels; 2: level, spread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.judge.attribution import Reference
from streamad.judge.calibration import Calibration
from streamad.judge.scoring import ModelInService
from streamad.judge.verdicts import moments_of
from streamad.messages import ModelRef, Verdict
from streamad.settings.places import file_path
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.events import Emit
from streamad.types import ChannelSpec, Window

Figures = npt.NDArray[np.float64]

_MARGIN = 0.1  # of the range's width, on both sides of it
_FEW = 2.0  # widths divided by M, in addition
_FACTOR = 2.0  # beyond the range of spreads
_STANDS_STILL = 5e-3  # of its values, or of its spread within a sequence: a level that varies less is constant
_ROUNDING = 1e-5  # of its values: less is no spread
_LIKE = 1.1  # beyond the range of spreads: so much may a guess of the unit be off
_SCALES: tuple[tuple[str, float, float], ...] = (
    ("10 times", 10.0, 0.0),
    ("100 times", 100.0, 0.0),
    ("1000 times", 1000.0, 0.0),
    ("a tenth", 0.1, 0.0),
    ("a hundredth", 0.01, 0.0),
    ("a thousandth", 0.001, 0.0),
)
_TEMPERATURES: tuple[tuple[str, float, float], ...] = (
    ("°F instead of °C", 1.8, 32.0),
    ("°C instead of °F", 1 / 1.8, -32 / 1.8),
    ("K instead of °C", 1.0, 273.15),
    ("°C instead of K", 1.0, -273.15),
)
"""Other units, as the scalings above: name, factor and offset that turn a value of training into one of now."""
_OF_TEMPERATURE = {"", "°C", "C", "degC", "°F", "F", "degF", "K"}


def _number(value: float) -> str:
    """Return four significant digits, and all before the point of a large number."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


@dataclass(frozen=True, slots=True)
class Range:
    """A figure of a channel now, and its lowest and highest in training."""

    now: float
    low: float
    high: float

    def text(self, unit: str) -> str:
        """Return the figures, for people."""
        low, high = _number(self.low), _number(self.high)
        in_training = low if low == high else f"{low} to {high}"
        return f"{_number(self.now)} {unit}".rstrip() + f", in training {in_training} {unit}".rstrip()


@dataclass(frozen=True, slots=True)
class MovedChannel:
    """A channel that lies elsewhere than in training: by its ``level``, its ``spread`` or both (None: it does not).

    The level is the mean over a sequence, the spread the standard deviation within it, both in ``unit``. ``hint`` is
    the unit or scaling that explains both, as a guess; "" if none does. ``size`` orders the channels.
    """

    channel: str
    unit: str
    size: float
    level: Range | None
    spread: Range | None
    hint: str = ""

    @property
    def line(self) -> str:
        """Return where it lies and where it lay in training, for people."""
        named = (("level", self.level), ("spread", self.spread))
        parts = [f"{what} {of.text(self.unit)}" for what, of in named if of is not None]
        hint = f" (another unit or scaling? it fits {self.hint})" if self.hint else ""
        return f"{self.channel}: {'; '.join(parts)}{hint}"


@dataclass(frozen=True, slots=True, eq=False)
class TrainingLevels:
    """The ``lowest`` and ``highest`` levels and spreads [2, C] of ``n`` training windows of ``channels``."""

    channels: tuple[ChannelSpec, ...]
    lowest: Figures
    highest: Figures
    n: int

    @classmethod
    def of(cls, reference: Reference, channels: Sequence[ChannelSpec]) -> TrainingLevels:
        """Return the levels of the training windows that a version keeps, at most 24 of them."""
        windows = [Window(values, int(n)) for values, n in zip(reference.values, reference.lengths, strict=True)]
        figures = np.array(moments_of(windows))  # [M, 2, C]
        return cls(tuple(channels), figures.min(axis=0), figures.max(axis=0), len(windows))

    def moved(self, figures: Figures) -> list[MovedChannel]:
        """Return the channels whose medians of ``figures`` [N, 2, C] lie outside of training, the furthest first.

        A level is outside if it lies beyond the range of training by more than a share of its width, 1/10 + 2/M on each
        side; a spread if it is more than twice the highest or less than half the lowest.
        """
        now = np.median(figures, axis=0)
        found = [self._moved(channel, now[:, channel]) for channel in range(len(self.channels))]
        return sorted((one for one in found if one is not None), key=lambda one: -one.size)

    def _moved(self, channel: int, now: Figures) -> MovedChannel | None:
        """Return the channel if it has moved to the level and spread ``now`` [2]."""
        (low, least), (high, most) = self.lowest[:, channel], self.highest[:, channel]
        level, spread = now
        if not np.isfinite(now).all():
            return None
        usual = max(high - low, _STANDS_STILL * max(abs(low), abs(high), most), np.finfo(np.float32).tiny)
        beyond = max(low - level, level - high) / usual
        has_moved = beyond > self._margin
        nothing = max(_ROUNDING * max(abs(level), abs(low), abs(high)), np.finfo(np.float32).tiny)
        times = max(spread, nothing) / max(most, nothing), max(least, nothing) / max(spread, nothing)
        is_wide = max(times) > _FACTOR
        if not has_moved and not is_wide:
            return None
        return MovedChannel(
            self.channels[channel].name,
            self.channels[channel].unit,
            float(max(beyond if has_moved else 0.0, max(times) if is_wide else 0.0)),
            Range(float(level), float(low), float(high)) if has_moved else None,
            Range(float(spread), float(least), float(most)) if is_wide else None,
            self._hint(channel, now) if has_moved else "",
        )

    @property
    def _margin(self) -> float:
        return _MARGIN + _FEW / self.n

    def _hint(self, channel: int, now: Figures) -> str:
        """Return the unit or scaling that makes of a level and spread of training those of ``now`` [2]; "" if none."""
        (low, least), (high, most) = self.lowest[:, channel], self.highest[:, channel]
        room = self._margin * (high - low) + _STANDS_STILL * max(abs(low), abs(high))
        units = _TEMPERATURES if self.channels[channel].unit in _OF_TEMPERATURE else ()
        for what, factor, offset in _SCALES + units:
            level, spread = (now[0] - offset) / factor, now[1] / factor
            if low - room <= level <= high + room and least / _LIKE <= spread <= most * _LIKE:
                return what
        return ""


LATEST = 100
"""The share of alerts is that of so many of the latest judged sequences of a model."""
FEWEST = 10
"""Fewer judged sequences say nothing."""
MANY_FAULTS = 0.3
"""The share of sequences that a plant like its training may have of real faults."""
_UNLUCKY = 1e-3  # of the calibrations
_BY_CHANCE = 1e-6  # of the windows of such a calibration


@dataclass(frozen=True, eq=False)
class AllowedRate:
    """The share of sequences that may alert at a ``configured`` false-alarm rate with a ``calibration``.

    ``faults``: the share of sequences that may be real faults; 0 if all are labelled normal.
    """

    configured: float
    calibration: Calibration
    faults: float = MANY_FAULTS

    @cached_property
    def highest(self) -> float:
        """Return the false-alarm rate that one of 1,000 calibrations by as many exchangeable scores exceeds.

        If m of n calibration scores would alert themselves, a new normal one alerts with a probability that is
        Beta(m + 1, n - m) distributed (Vovk 2012, Conditional validity of inductive conformal predictors). Counting
        them serves extrapolated rates, too; to scores out of fold the law does not apply strictly.
        """
        from scipy.special import betaincinv  # noqa: PLC0415 - 0.15 s, and most plants never need it

        scores, n = self.calibration.scores, self.calibration.n
        n_below = int(np.searchsorted(scores, self.calibration.alert_score(self.configured), side="left"))
        return float(betaincinv(n - n_below + 1, n_below, 1 - _UNLUCKY))  # the lowest score never alerts: rate < 1

    def is_exceeded_by(self, n_alerts: int, n_judged: int) -> bool:
        """Return whether ``n_alerts`` of ``n_judged`` sequences, ``FEWEST`` at least, are far more than allowed.

        At the highest plausible share (the faults, and the ``highest`` rate of the others) so many alert by chance in
        at most one of a million such windows. Among M independent sequences of a plant like its training with at most
        so many faults, the probability of a false answer is therefore at most 0.001 + M / 1,000,000.
        """
        if n_judged < FEWEST or n_alerts <= self.faults * n_judged:
            return False
        from scipy.special import bdtrc  # noqa: PLC0415 - as above

        return float(bdtrc(n_alerts - 1, n_judged, self._plausible)) <= _BY_CHANCE

    def is_kept_again_by(self, n_alerts: int, n_judged: int) -> bool:
        """Return whether no more than the highest plausible share of the sequences alert."""
        return n_alerts <= self._plausible * n_judged

    @property
    def _plausible(self) -> float:
        return self.faults + (1 - self.faults) * self.highest


_NAMED = 5
_MODELS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ManyAlerts:
    """Of the latest ``n_judged`` sequences of ``model`` ``n_alerts`` alert, far more than ``allowed``.

    ``since``: the start of the first of them. ``moved``: the channels whose level or spread differs from training, the
    furthest first; None if the version keeps no training windows. ``of_normal``: only sequences labelled normal count.
    ``is_over``: fewer alert by now.
    """

    model: ModelRef
    allowed: AllowedRate
    n_alerts: int
    n_judged: int
    since: datetime
    moved: tuple[MovedChannel, ...] | None
    of_normal: bool = False
    is_over: bool = False

    @property
    def fact(self) -> str:
        """Return how many sequences alert and how many may, and what that can mean."""
        judged = f"{self.n_judged} {'sequences labelled normal' if self.of_normal else 'judged sequences'}"
        many = f"{self.n_alerts} of the latest {judged} alert, since {self.since_text}"
        if self.is_over:
            many = f"{self.n_alerts} of {judged} in a row alerted from {self.since_text} on"
        n, highest = self.allowed.calibration.n, self.allowed.highest
        allowed = f"the configured rate is {self.allowed.configured:g}, and {n} calibration scores allow {highest:.2g}"
        if self.of_normal:
            means = "the plant differs from its training, or the labels are wrong"
        else:
            means = "either many sequences are really anomalous, or the plant differs from its training"
        over = "; fewer alert by now" if self.is_over else ""
        return f"{many}, far too many: {allowed} at most; {means}{over}"

    @property
    def since_text(self) -> str:
        """Return ``since`` as options take it."""
        return self.since.isoformat(timespec="seconds").replace("+00:00", "Z")

    @property
    def channel_lines(self) -> Iterator[str]:
        """Yield a line for each channel that moved, five at most; or one that says that there is none."""
        if self.moved is None:
            return
        yield from (one.line for one in self.moved[:_NAMED])
        if len(self.moved) > _NAMED:
            yield f"further channels that differ from training in level or spread: {len(self.moved) - _NAMED}"
        if not self.moved:
            yield "no channel differs from training in level or spread: its shape or order may, see streamad explain"

    def remedy(self, settings: Settings, *, learns: bool) -> str:
        """Return what to do; ``learns``: the sequences were stored by a monitor with ``learning``."""
        if (path := file_path(settings.source.url)) is not None:
            train = f"streamad train 'FOLDER/*{PurePath(path).suffix}'"
        else:
            train = f"streamad record --since {self.since_text} --out FOLDER, then streamad train FOLDER"
        these = "the normal ones of these" if self.of_normal else "these"
        normal = f"check units and scaling, or train with FOLDER holding {these} and the former recordings: {train}"
        if learns:
            model = "" if self.model.name == settings.model.name else f" --model {self.model.name}"
            normal += f"; or streamad models relearn --since {self.since_text}{model}"
        return f"if these sequences are normal, {normal}; if they are faults, keep the model"

    def lines(self, settings: Settings, *, learns: bool) -> Iterator[str]:
        """Yield all that is to say, in lines."""
        named = f"{self.model.name}: " if settings.models is not None else ""
        yield f"{named}{self.fact}"
        yield from (f"{named}{line}" for line in self.channel_lines)
        if not self.is_over:
            yield f"{named}{self.remedy(settings, learns=learns)}"

    @property
    def figures(self) -> dict[str, float]:
        """Return the numbers of its event."""
        return {
            "n_alerts": self.n_alerts,
            "n_judged": self.n_judged,
            "configured_rate": self.allowed.configured,
            "highest_rate": self.allowed.highest,
            "n_calibration": self.allowed.calibration.n,
            "since_unix_s": self.since.timestamp(),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the figures for machines."""
        channels = None if self.moved is None else [asdict(one) for one in self.moved]
        return {"version": self.model.version, **self.figures, "channels": channels, "is_over": self.is_over}


def lines_of(found: Mapping[str, ManyAlerts], settings: Settings, *, learns: bool) -> Iterator[str]:
    """Yield for people all that is to say of the models of a run, in lines; of five models at most."""
    for one in list(found.values())[:_MODELS_SHOWN]:
        yield from one.lines(settings, learns=learns)
    if len(found) > _MODELS_SHOWN:
        yield f"far too many sequences of {len(found) - _MODELS_SHOWN} more models alert: see the events many_alerts"


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
