"""Which channel made a sequence anomalous: channels exchanged with stored normal windows, scored by the model itself.

Shapes: M reference windows, C channels, L window length, K transformations, R = M x C exchanges.
"""

from __future__ import annotations

__all__ = ["METHOD", "Reference", "channel_shares", "reference_windows"]

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, Window

METHOD = "channel-exchange"
"""Name of the method in attribution messages."""
_SCORE_BATCH = 256


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
    """Choose ``m`` normal windows from values [N, C, L]: those of the lowest scores, spread over the lengths."""
    order = np.argsort(scores, kind="stable")[: max(m, len(scores) // 2)]
    by_length = order[np.argsort(lengths[order], kind="stable")]
    places = np.unique(np.linspace(0, len(by_length) - 1, m).round().astype(np.int64))
    chosen = by_length[places]
    return Reference(values[chosen], lengths[chosen].astype(np.int64))


def channel_shares(scorer: Scorer, window: Window, reference: Reference) -> npt.NDArray[np.float64]:
    """Return each channel's share [C] of the score's excess over the reference; they add up to 1, or all are 0.

    For every reference window r and channel c, the excess that leaves x with c is the mean of what x loses when its
    channel is taken from r, and what r gains when its channel is taken from x: the first and the last of the
    marginals that a Shapley value averages. Negative means become 0.
    """
    values, lengths = _exchanges(window, reference)
    scores = _scores(scorer, values, lengths)
    m, n_channels = reference.values.shape[:2]
    of_x, of_reference = scores[0], scores[1 : 1 + m, None]
    removed, inserted = scores[1 + m :].reshape(2, m, n_channels)
    excesses = 0.5 * ((of_x - removed) + (inserted - of_reference))
    excess = np.maximum(excesses.mean(axis=0), 0.0)
    total = float(excess.sum())
    return excess / total if total > 0 else np.zeros(n_channels)


def _exchanges(window: Window, reference: Reference) -> tuple[FloatArray, IntArray]:
    """Return x, the M references, x with one channel of each (M x C), and each with one channel of x (M x C)."""
    m, n_channels, length = reference.values.shape
    removed = np.broadcast_to(window.values, (m, n_channels, n_channels, length)).copy()
    inserted = np.repeat(reference.values[:, None], n_channels, axis=1)
    every = np.arange(n_channels)
    for r, own_length in enumerate(reference.lengths):
        removed[r, every, every] = _stretched(reference.values[r], int(own_length), window.length)
        inserted[r, every, every] = _stretched(window.values, window.length, int(own_length))
    rows = (n_channels, length)
    values = (window.values[None], reference.values, removed.reshape(-1, *rows), inserted.reshape(-1, *rows))
    own = np.full(m * n_channels, window.length)
    lengths = ([window.length], reference.lengths, own, np.repeat(reference.lengths, n_channels))
    return np.concatenate(values).astype(np.float32), np.concatenate(lengths).astype(np.int64)


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


def _scores(scorer: Scorer, values: FloatArray, lengths: IntArray) -> npt.NDArray[np.float64]:
    parts = [
        scorer.score(values[start : start + _SCORE_BATCH], lengths[start : start + _SCORE_BATCH])
        for start in range(0, len(values), _SCORE_BATCH)
    ]
    scores: npt.NDArray[np.float64] = np.concatenate(parts).sum(axis=1, dtype=np.float64)
    return scores
