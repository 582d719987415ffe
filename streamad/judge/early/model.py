"""Looks at running sequences: each on its own scale, and one p-value for the largest of a sequence's looks so far.

Law (tests/unit/judge/early/test_model.py): with calibration sequences that are treated like the others, a normal
sequence is ever warned of with a probability of at most the configured rate, however many looks there are. M_j, the
largest z of the looks so far, never falls and never exceeds M, the largest of all looks of the sequence. So a sequence
is ever warned of only if the p-value of its M is at most the rate, and that is a conformal p-value (Vovk et al. 2005,
Algorithmic Learning in a Random World). The law is exact for split calibration without an extrapolated tail; it holds
over all sequences, not for those of one length.

Shapes: N windows, C channels, n points, J looks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.judge.attribution import Explanation, Reference, explain
from streamad.judge.calibration import Calibration, scores_of
from streamad.messages import Tail
from streamad.ports import FittedDetector, Scorer
from streamad.types import CONSTANT_SHARE, ChannelSpec, FloatArray, IntArray, Window

Scales = npt.NDArray[np.float64]
NO_LOOK = -1e6
"""The largest z of a sequence without a look; it is no p-value's reason, but counts in n."""
HIGHEST_Z = 1e3
"""The z of a look whose detector gives no number."""
_LEAST_SPREAD = 0.02  # of logarithms of scores: rounding must not become a z
_LEAST_SCORE = 1e-12
_STEP = 1 / 1024  # of z: what is scored together, or as which float, must not decide a p-value; a float32 holds it


class LookForm(msgspec.Struct, frozen=True, kw_only=True):
    """One look: its age in points, and how the logarithm of its score becomes a z.

    ``still`` maps the indexes of the channels that stood still up to here in all training sequences to their readings:
    the detector does not see them. ``weight`` is added to z: looks that find little must not spend the rate.
    """

    n_points: int
    median: float
    spread: float
    still: dict[int, float] = {}
    weight: float = 0.0


def form_of(n_points: int, still: Mapping[int, float], own_terms: FloatArray, weight: float = 0.0) -> LookForm:
    """Return the form of a look by the terms [N, K] of the training windows, each without itself."""
    logs = _logs(own_terms)
    low, median, high = np.quantile(logs, [0.16, 0.5, 0.84])
    spread = max(float(high - low) / 2, _LEAST_SPREAD)
    return LookForm(n_points=n_points, median=float(median), spread=spread, still=dict(still), weight=weight)


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A look: its form and the detector of its windows, loaded or just trained."""

    form: LookForm
    scorer: Scorer | FittedDetector

    def z(self, windows: Sequence[Window]) -> Scales:
        """Return the z [N] of ``windows`` [C, n] in engineering units."""
        values = np.stack([window.values for window in windows])
        logs = _logs(self.scorer.score(*self.scored(values)))
        found: Scales = (logs - self.form.median) / self.form.spread + self.form.weight
        found = np.clip(np.nan_to_num(found, nan=HIGHEST_Z, posinf=HIGHEST_Z), NO_LOOK, HIGHEST_Z)
        return np.round(found / _STEP) * _STEP

    def scored(self, values: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return windows [N, C, n] without the channels that stood still, and their lengths [N], for the scorer."""
        kept = [channel for channel in range(values.shape[1]) if channel not in self.form.still]
        return np.ascontiguousarray(values[:, kept]), np.full(len(values), self.form.n_points, dtype=np.int64)

    def explained(self, window: Window, reference: Reference, channels: Sequence[ChannelSpec]) -> Explanation | None:
        """Return why a look at ``window`` [C, n] is odd, by the beginnings of the ``reference`` windows.

        None if no reference window is as long as the look.
        """
        n = self.form.n_points
        enough = np.flatnonzero(reference.lengths >= n)
        if not len(enough):
            return None
        names = tuple(reference.names[place] for place in enough) if reference.names else ()
        begun = Reference(reference.values[enough, :, :n], np.full(len(enough), n, dtype=np.int64), names)
        scorer = _OfWhole(self, (len(channels), n), 1)
        return explain(scorer, window, begun)

    def moved(self, window: Window) -> set[int]:
        """Return the indexes of the channels that have moved in ``window`` [C, n] and stood still in all of training.

        The detector does not see them. They have no z: one such calibration sequence would be the largest of all, and
        with it no p-value could be below 2/(n + 1).
        """
        usual = self.form.still
        by = np.abs(window.values[[*usual]] - np.array([*usual.values()], dtype=np.float64)[:, None]).max(axis=1)
        return {channel for channel, far in zip(usual, by, strict=True) if far > CONSTANT_SHARE * abs(usual[channel])}


@dataclass(frozen=True, slots=True, eq=False)
class _OfWhole:
    """Scores windows of all channels by a look's scorer, as ``explain`` needs them."""

    look: Look
    window_shape: tuple[int, int]
    n_terms: int

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        """Return the terms [N, K] of windows [N, C, n]; ``lengths`` are n, as for any look."""
        del lengths
        return self.look.scorer.score(*self.look.scored(windows))


@dataclass(frozen=True, slots=True, eq=False)
class EarlyModel:
    """The looks of a model, by rising age, and the largest z of each calibration sequence.

    ``usual`` and ``longest`` are the median length of the training sequences in points, and the largest if it is known.
    """

    looks: tuple[Look, ...]
    calibration: Calibration
    usual: int = 1
    longest: int | None = None

    @property
    def due_at(self) -> tuple[int, ...]:
        """Return the points at which the looks are due; last where a sequence is longer than all in training."""
        ages = tuple(look.form.n_points for look in self.looks)
        return ages if self.longest is None else (*ages, max(self.longest + 1, *ages))

    def n_due(self, n_points: int) -> int:
        """Return how many looks are due at ``n_points``, and one more if no training sequence was that long."""
        return bisect_right(self.due_at, n_points)

    def p_value(self, largest_z: float) -> tuple[float, Tail]:
        """Return the p-value of the largest z of a sequence's looks so far: it never rises from look to look."""
        return self.calibration.p_value(largest_z)


def early_model(
    looks: Sequence[Look], maxima: Scales, rate: float, *, usual: int = 1, longest: int | None = None
) -> EarlyModel:
    """Return the model by the largest z [n] of each calibration sequence; the tail is extrapolated below 1/(n + 1)."""
    calibration = Calibration.from_terms(maxima.astype(np.float32)[:, None], rate)
    return EarlyModel(tuple(looks), calibration, usual, longest)


def _logs(terms: FloatArray) -> Scales:
    logs: Scales = np.log(np.maximum(scores_of(terms), _LEAST_SCORE))
    return logs
