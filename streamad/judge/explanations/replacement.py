"""Scores a window again with parts of it replaced, within the number of windows that an attribution may score.

Shapes: R replacements, C channels, L window length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamad.judge.calibration import scores_of
from streamad.ports import Scorer
from streamad.types import Window

Course = npt.NDArray[np.float64]
MOST_WINDOWS = 160
"""Windows that one attribution scores at most, all in all."""
_SCORE_BATCH = 256
_BATCH_VALUES = 4_000_000  # bounds the memory of a batch of wide or long windows to 16 MB
_BEST_SHARE = 0.5  # of the replacements count: docs/internals/judging.md


class Replacement(NamedTuple):
    """``course`` float [n] in the place of one channel's n samples."""

    channel: int
    course: npt.NDArray[np.floating]


class Rescoring:
    """Scores ``window`` with replacements; ``before`` is its own score."""

    def __init__(self, scorer: Scorer, window: Window) -> None:
        self._scorer = scorer
        self.window = window
        self.before = float(self._scored(window.values[None])[0])

    def scores(self, replacements: Iterable[Replacement]) -> Course:
        """Return the scores [R] of the window with each of the replacements alone, in bounded batches."""
        rows = max(1, min(_SCORE_BATCH, _BATCH_VALUES // self.window.values.size))
        waiting, found = iter(replacements), [np.empty(0)]
        while batch := list(islice(waiting, rows)):
            values = np.repeat(self.window.values[None], len(batch), axis=0)
            for row, (channel, course) in zip(values, batch, strict=True):
                row[channel, : self.window.length] = course
            found.append(self._scored(values))
        return np.concatenate(found)

    def falls(self, groups: Sequence[Sequence[Replacement]]) -> Course:
        """Return by how much the score falls with each of the groups of equally many replacements.

        That is the mean over the better half of a group, since not every normal course fits the other channels; 0 if
        the score does not fall, or is not finite.
        """
        if not groups:
            return np.empty(0)
        after = self.scores(each for group in groups for each in group).reshape(len(groups), -1)
        better = np.sort(after, axis=1)[:, : math.ceil(after.shape[1] * _BEST_SHARE)].mean(axis=1)
        fall = self.before - better
        fallen: Course = np.where(np.isfinite(fall), np.maximum(fall, 0.0), 0.0)
        return fallen

    def _scored(self, values: npt.NDArray[np.float32]) -> Course:
        return scores_of(self._scorer.score(values, np.full(len(values), self.window.length, dtype=np.int64)))
