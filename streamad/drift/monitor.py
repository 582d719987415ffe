"""Drift: tells when the scores or a channel's level or spread have moved for good. Pure; one monitor per model.

Shapes: C channels, L window length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import numpy.typing as npt

from streamad.drift.shift import Shift, ShiftDetector
from streamad.settings.learning import DriftSettings
from streamad.types import ChannelSpec, Window

SCORES = "scores"
_SETTLED_AT_ONCE = 2  # detectors that adapt per sequence, in turn: what costs time is spread evenly
_LEAST_SHARE = 1e-3  # means and spreads that vary less than this share of the spread within a sequence are constant
_LEAST_P = 0.05  # p-values that vary less than this from sequence to sequence are constant


@dataclass(frozen=True, slots=True)
class Drift:
    """What moved, since when, and how strongly.

    ``what`` is "scores", "mean of CHANNEL" or "spread of CHANNEL" (the standard deviation within a sequence);
    ``since_us`` the time of the first sequence of the new state, as estimated. ``before`` and ``after`` are medians, in
    the channel's unit, of the scores those of the p-values; ``strength`` is their distance in standard deviations from
    sequence to sequence before (robustly estimated; 1000 at most).
    """

    what: str
    since_us: int
    strength: float
    before: float
    after: float


class DriftMonitor:
    """Watches the p-values and each channel's mean and spread, one detector each, for lasting shifts.

    A channel is compared with its own first ``min_sequences``; p-values with the uniform ones that the model was
    calibrated to give, so that a plant which changed while nothing ran is found too. All detectors together give at
    most ``false_events`` false events per 10,000 sequences of a plant that does not change (measured in
    docs/learning/drift.md). What was found is told once, then the new state is learned and watched in its place. The
    first monitor of a process imports river, which takes most of a second.
    """

    def __init__(self, channels: tuple[ChannelSpec, ...], settings: DriftSettings) -> None:
        self._settings = settings
        self._n_channels = len(channels)
        summaries = [f"{summary} of {channel.name}" for summary in ("mean", "spread") for channel in channels]
        self._names = [*summaries, SCORES]
        self._rate = settings.false_events / 10_000 / len(self._names)
        self._detectors: list[ShiftDetector] = []
        self._turns = cycle(range(len(self._names)))
        self.restart()

    def add(self, time_us: int, window: Window, p_value: float | None) -> list[Drift]:
        """Take one sequence (``time_us``: its end) and return what has moved, mostly nothing.

        ``p_value`` is None where no model judged it. Raises ValueError for a window of other channels.
        """
        if not self._settings.enabled:
            return []
        values = [*self._summaries(window), p_value]
        drifts = [self._add(index, time_us, value) for index, value in enumerate(values) if value is not None]
        drifts += [self._settle(next(self._turns)) for _ in range(_SETTLED_AT_ONCE)]
        return [drift for drift in drifts if drift is not None]

    def restart(self, *, scores_only: bool = False) -> None:
        """Forget what was seen, or of the scores only: that a new champion scores otherwise is no drift."""
        if not self._settings.enabled:
            return
        n_reference = self._settings.min_sequences
        scores = ShiftDetector(n_reference, self._rate, known=_uniform(n_reference))
        if scores_only:
            self._detectors[-1] = scores
        else:
            channels = [ShiftDetector(n_reference, self._rate) for _ in range(2 * self._n_channels)]
            self._detectors = [*channels, scores]

    def _summaries(self, window: Window) -> list[float]:
        """Return each channel's mean, then each channel's spread, over the window's true length."""
        if len(window.values) != self._n_channels:
            raise ValueError(f"a window of {len(window.values)} channels in a drift monitor of {self._n_channels}")
        shown = window.values[:, : max(window.length, 1)].astype(np.float64)
        means = shown.mean(axis=1)
        shown -= means[:, None]
        spreads = np.sqrt(np.einsum("cl,cl->c", shown, shown) / shown.shape[1])
        return [*means.tolist(), *spreads.tolist()]

    def _add(self, index: int, time_us: int, value: float) -> Drift | None:
        return self._drift(index, self._detectors[index].add(time_us, value))

    def _settle(self, index: int) -> Drift | None:
        detector = self._detectors[index]
        return self._drift(index, detector.settle(0.0 if detector.is_watching else self._resolution(index)))

    def _resolution(self, index: int) -> float:
        """Return the smallest variation from sequence to sequence that means anything."""
        if index == len(self._detectors) - 1:
            return _LEAST_P
        return _LEAST_SHARE * self._detectors[self._n_channels + index % self._n_channels].median

    def _drift(self, index: int, shift: Shift | None) -> Drift | None:
        if shift is None:
            return None
        return Drift(self._names[index], shift.since_us, shift.strength, shift.before, shift.after)


def _uniform(n: int) -> npt.NDArray[np.float64]:
    """Return ``n`` p-values as a calibrated model gives them, evenly mixed (golden-ratio sequence)."""
    return np.mod(np.arange(1, n + 1, dtype=np.float64) * 0.6180339887498949, 1.0)
