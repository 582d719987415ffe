"""Why an alert was raised: each channel in turn is replaced by that of the nearest normal windows, and scored again.

Shapes: M reference windows, C channels, L window length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ingest.decode_values import MAX_ID_CHARACTERS
from streamad.judge.calibration import scores_of
from streamad.messages import NearestSequence
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, Window

METHOD = "channel-replacement"
"""Name of the method in attribution messages."""
_SCORE_BATCH = 256
_BATCH_VALUES = 4_000_000  # bounds the memory of a batch of wide or long windows to 16 MB
# Chosen by measurement: docs/guide/judging.md
_NEAREST = 8  # reference windows used for one attribution
_BEST_SHARE = 0.5  # of their replacements count
_NAMED = 3  # of them are named in the message
_NAME_CHARACTERS = 2 * MAX_ID_CHARACTERS + 1  # a stream's id, "/", and a sequence's


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Normal windows to compare with: ``values`` float32 [M, C, L] in engineering units, ``lengths`` int64 [M].

    ``names`` [M] are the sequences' printable names ("stream/sequence"); empty in versions of former releases.
    """

    values: FloatArray
    lengths: IntArray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fits = self.values.ndim == 3 and self.lengths.shape == self.values.shape[:1] and len(self.lengths) > 0
        if not fits or self.lengths.min() < 1 or self.lengths.max() > self.values.shape[2]:
            raise ArtifactError(
                f"reference windows {self.values.shape} with lengths {self.lengths.shape} do not fit: train again"
            )
        if len(self.names) not in (0, len(self.lengths)):
            raise ArtifactError(f"{len(self.lengths)} reference windows with {len(self.names)} names: train again")


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Each channel's share [C] of the fall of the score when channels are replaced; sum 1, or all 0.

    ``nearest`` names normal sequences that the channels were replaced from: three at most, the nearest first.
    """

    shares: npt.NDArray[np.float64]
    nearest: tuple[NearestSequence, ...]


def printable(name: str) -> str:
    """Return ``name`` cut to 513 characters, each that cannot be printed (control, direction) replaced by U+FFFD.

    Names come from recordings and go to terminals, messages and numpy's text, which ends at trailing zeros.
    """
    cut = name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)


def reference_windows(
    values: FloatArray,
    lengths: IntArray,
    scores: npt.NDArray[np.floating],
    names: Sequence[str] = (),
    *,
    m: int = 24,
) -> Reference:
    """Choose at most ``m`` normal windows of values [N, C, L] with ``names`` [N].

    They are spread over the lengths within the half with the lowest ``scores`` [N], which holds no anomaly.
    """
    lowest = np.argsort(scores, kind="stable")[: max(m, len(scores) // 2)]
    by_length = lowest[np.argsort(lengths[lowest], kind="stable")]
    chosen = by_length[np.unique(np.linspace(0, len(by_length) - 1, m).round().astype(np.int64))]
    chosen_names = tuple(printable(names[i]) for i in chosen) if names else ()
    return Reference(values[chosen], lengths[chosen].astype(np.int64), chosen_names)


def explain(scorer: Scorer, window: Window, reference: Reference) -> Explanation:
    """Return why ``window`` has its score, in comparison with the nearest of the reference windows."""
    candidates = _stretched(reference, window.length)
    distances = _distances(window, candidates)
    used = np.argsort(distances, kind="stable")[:_NEAREST]
    named = used[: _NAMED if reference.names else 0].tolist()
    nearest = tuple(NearestSequence(sequence=reference.names[i], distance=float(distances[i])) for i in named)
    return Explanation(_channel_shares(scorer, window, candidates[used]), nearest)


def _channel_shares(scorer: Scorer, window: Window, normal: FloatArray) -> npt.NDArray[np.float64]:
    """Return each channel's share [C].

    Counterfactual: each channel in turn is replaced by that of the ``normal`` windows [M, C, L] of this window's
    length, and the model scores the results. A channel counts with the mean fall over its better half of
    replacements, since not every normal course fits the other channels, and 0 if the score does not fall.
    """
    before = float(_scores(scorer, window.values[None], window.length)[0])
    after = _scores_replaced(scorer, window, normal)
    better = np.sort(after, axis=0)[: math.ceil(len(after) * _BEST_SHARE)].mean(axis=0)
    fall = np.maximum(before - better, 0.0)
    total = float(fall.sum())
    return fall / total if total > 0 and np.isfinite(total) else np.zeros(len(fall))


def _distances(window: Window, candidates: FloatArray) -> npt.NDArray[np.float64]:
    """Return the distances [M] of the candidates [M, C, L] from ``window``, in spreads of a channel.

    Root mean square differences over time; their median over channels ignores anomalous ones.
    """
    ours, theirs = window.values[:, : window.length], candidates[:, :, : window.length].astype(np.float64)
    spread = theirs.std(axis=(0, 2))
    distance_per_channel = np.square(theirs - ours).mean(axis=2) / np.where(spread > 0, spread, 1.0) ** 2
    distances: npt.NDArray[np.float64] = np.sqrt(np.median(distance_per_channel, axis=1))
    return distances


def _scores_replaced(scorer: Scorer, window: Window, normal: FloatArray) -> npt.NDArray[np.float64]:
    """Return the score [M, C] of ``window`` with channel c of normal window m of [M, C, L], in bounded batches."""
    m, n_channels, length = normal.shape
    scores = np.empty(m * n_channels)
    rows = max(1, min(_SCORE_BATCH, _BATCH_VALUES // (n_channels * length)))
    for start in range(0, len(scores), rows):
        place = np.arange(start, min(start + rows, len(scores)))
        which, channel = np.divmod(place, n_channels)
        replaced = np.repeat(window.values[None], len(place), axis=0)
        replaced[np.arange(len(place)), channel] = normal[which, channel]
        scores[place] = _scores(scorer, replaced, window.length)
    return scores.reshape(m, n_channels)


def _scores(scorer: Scorer, values: FloatArray, length: int) -> npt.NDArray[np.float64]:
    terms = scorer.score(values, np.full(len(values), length, dtype=np.int64))
    return scores_of(terms)


def _stretched(reference: Reference, to_length: int) -> FloatArray:
    """Return the reference windows [M, C, L] stretched in time to ``to_length``."""
    stretched = np.zeros_like(reference.values)
    for values, length, target in zip(reference.values, reference.lengths.tolist(), stretched, strict=True):
        at, points = np.linspace(0.0, length - 1, to_length), np.arange(length)
        for channel, course in enumerate(values):
            target[channel, :to_length] = np.interp(at, points, course[:length])
    return stretched
