"""Drift: lasting shifts of the scores or of a channel's level or spread. Pure; one monitor per model.

Shapes: C channels, L window length.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import numpy.typing as npt

from streamad.drift.detector import Shift, ShiftDetector
from streamad.settings.learning import DriftSettings
from streamad.types import ChannelSpec, Window

SCORES = "scores"
_ADAPTED_AT_ONCE = 2  # detectors that adapt per sequence, in turn, which spreads the cost evenly
_LEAST_SHARE = 1e-3  # means and spreads that vary less than this share of the spread within a sequence are constant
_LEAST_P = 0.05  # p-values that vary less than this from sequence to sequence are constant


@dataclass(frozen=True, slots=True)
class Drift:
    """A lasting shift of ``what``: "scores", "mean of CHANNEL" or "spread of CHANNEL" (deviation within a sequence).

    ``since_us`` is the estimated time of the first sequence of the new state. ``before`` and ``after`` are medians, in
    the channel's unit, for scores of the p-values; ``strength`` is their distance in standard deviations from sequence
    to sequence before (robustly estimated; at most 1000).
    """

    what: str
    since_us: int
    strength: float
    before: float
    after: float


class DriftMonitor:
    """Watches the p-values and each channel's mean and spread for lasting shifts, with one detector each.

    A channel is compared with its own first ``min_sequences``; p-values with the uniform distribution of a calibrated
    model, so that a change while nothing ran is found too. All detectors together give at most ``false_events`` false
    events per 10,000 sequences of a plant that does not change (measured in docs/learning/drift.md). A shift is
    reported once; then the new state is the reference.
    """

    def __init__(self, channels: tuple[ChannelSpec, ...], settings: DriftSettings) -> None:
        self._settings = settings
        self._n_channels = len(channels)
        summaries = [f"{summary} of {channel.name}" for summary in ("mean", "spread") for channel in channels]
        self._names = [*summaries, SCORES]
        self._rate = settings.false_events / 10_000 / len(self._names)
        self._turns = cycle(range(len(self._names)))
        self._detectors: list[ShiftDetector] = []
        if settings.enabled:
            self._detectors = [ShiftDetector(settings.min_sequences, self._rate) for _ in summaries]
            self._detectors.append(self._of_scores())

    def add(self, time_us: int, window: Window, p_value: float | None) -> list[Drift]:
        """Take one sequence (``time_us``: its end) and return the shifts that it completes.

        ``p_value`` is None if no model judged it. Raises ValueError for a window of other channels.
        """
        if not self._settings.enabled:
            return []
        values = [*self._summaries(window), p_value]
        drifts = [self._add(index, time_us, value) for index, value in enumerate(values) if value is not None]
        drifts += [self._adapt(next(self._turns)) for _ in range(_ADAPTED_AT_ONCE)]
        return [drift for drift in drifts if drift is not None]

    def restart_scores(self) -> None:
        """Start again with the scores: other scores of a new champion are no drift."""
        if self._settings.enabled:
            self._detectors[-1] = self._of_scores()

    def _of_scores(self) -> ShiftDetector:
        n_reference = self._settings.min_sequences
        return ShiftDetector(n_reference, self._rate, known=_uniform(n_reference))

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

    def _adapt(self, index: int) -> Drift | None:
        detector = self._detectors[index]
        return self._drift(index, detector.adapt(0.0 if detector.is_watching else self._resolution(index)))

    def _resolution(self, index: int) -> float:
        """Return the smallest relevant variation from sequence to sequence."""
        if index == len(self._detectors) - 1:
            return _LEAST_P
        return _LEAST_SHARE * self._detectors[self._n_channels + index % self._n_channels].median

    def _drift(self, index: int, shift: Shift | None) -> Drift | None:
        if shift is None:
            return None
        return Drift(self._names[index], shift.since_us, shift.strength, shift.before, shift.after)


def _uniform(n: int) -> npt.NDArray[np.float64]:
    """Return ``n`` uniform p-values, evenly mixed (golden-ratio sequence)."""
    return np.mod(np.arange(1, n + 1, dtype=np.float64) * 0.6180339887498949, 1.0)
