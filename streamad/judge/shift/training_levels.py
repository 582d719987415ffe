"""Which channels of judged sequences lie elsewhere than in training, by level and spread. Pure.

Shapes: M training windows, N judged sequences, C channels; 2: level, spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.judge.attribution import Reference
from streamad.judge.verdicts import moments_of
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
