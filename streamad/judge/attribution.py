"""Which channel made a sequence anomalous: channels replaced by those of normal windows, scored by the model itself.

Shapes: M reference windows, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["METHOD", "Reference", "channel_shares", "reference_windows"]

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, Window

METHOD = "channel-replacement"
"""Name of the method in attribution messages."""
_SCORE_BATCH = 256
_BATCH_VALUES = 4_000_000  # bounds the memory of a batch of wide or long windows to 16 MB
_BEST_SHARE = 0.5  # docs/judging.md: measured against the mean, the median and exchanges in both directions


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Normal windows to compare with: ``values`` float32 [M, C, L] in engineering units, ``lengths`` int64 [M]."""

    values: FloatArray
    lengths: IntArray

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or self.lengths.shape != self.values.shape[:1] or not len(self.lengths):
            raise ArtifactError(
                f"reference windows {self.values.shape} with lengths {self.lengths.shape} do not fit: train again"
            )


def reference_windows(values: FloatArray, lengths: IntArray, scores: npt.NDArray[np.floating], m: int = 8) -> Reference:
    """Choose at most ``m`` windows of values [N, C, L] to stand for the normal ones.

    They are spread over the lengths within the half of the lowest ``scores`` [N], where no anomaly hides.
    """
    lowest = np.argsort(scores, kind="stable")[: max(m, len(scores) // 2)]
    by_length = lowest[np.argsort(lengths[lowest], kind="stable")]
    chosen = by_length[np.unique(np.linspace(0, len(by_length) - 1, m).round().astype(np.int64))]
    return Reference(values[chosen], lengths[chosen].astype(np.int64))


def channel_shares(scorer: Scorer, window: Window, reference: Reference) -> npt.NDArray[np.float64]:
    """Return each channel's share [C] in how far the score falls when channels become normal; sum 1, or all 0.

    Counterfactual: each channel in turn is replaced by that of each reference window, stretched to this window's
    length, and the model scores the result. A channel counts with the fall of the score under its better half of
    replacements, since not every normal course fits the other channels; one whose replacement does not help counts 0.
    """
    before = float(_scores(scorer, window.values[None], np.array([window.length], dtype=np.int64))[0])
    fall = np.maximum(before - _best_scores(scorer, window, reference), 0.0)
    total = float(fall.sum())
    return fall / total if total > 0 and np.isfinite(total) else np.zeros(len(fall))


def _best_scores(scorer: Scorer, window: Window, reference: Reference) -> npt.NDArray[np.float64]:
    """Return for each channel [C] the mean score of the better half of its replacements."""
    m, n_channels, length = reference.values.shape
    stretched = np.stack(
        [_stretched(*pair, window.length) for pair in zip(reference.values, reference.lengths.tolist(), strict=True)]
    )
    scores = np.empty(m * n_channels)
    rows = max(1, min(_SCORE_BATCH, _BATCH_VALUES // (n_channels * length)))
    for start in range(0, len(scores), rows):
        place = np.arange(start, min(start + rows, len(scores)))
        replaced = np.repeat(window.values[None], len(place), axis=0)
        which, channel = np.divmod(place, n_channels)
        replaced[np.arange(len(place)), channel] = stretched[which, channel]
        scores[place] = _scores(scorer, replaced, np.full(len(place), window.length, dtype=np.int64))
    ordered = np.sort(scores.reshape(m, n_channels), axis=0)
    best: npt.NDArray[np.float64] = ordered[: math.ceil(m * _BEST_SHARE)].mean(axis=0)
    return best


def _scores(scorer: Scorer, values: FloatArray, lengths: IntArray) -> npt.NDArray[np.float64]:
    scores: npt.NDArray[np.float64] = scorer.score(values, lengths).sum(axis=1, dtype=np.float64)
    return scores


def _stretched(values: FloatArray, length: int, to_length: int) -> FloatArray:
    """Return values [C, L] of ``length`` stretched in time to ``to_length``, so that the phases of both meet."""
    if length == to_length:
        return values
    stretched = np.zeros_like(values)
    at = np.linspace(0.0, length - 1, to_length)
    points = np.arange(length)
    for channel, row in enumerate(values):
        stretched[channel, :to_length] = np.interp(at, points, row[:length])
    return stretched
