"""A detector without torch that learns: each training gives other scores, so tests can tell versions apart.

Terms are the channels' mean squared distances to the mean course of training, in its standard deviations.
"""

from __future__ import annotations

__all__ = ["Mean", "MeanOptions", "MeanScorer"]

import time
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from streamad.errors import ArtifactError
from streamad.ports import TrainingProgress, TrainingStep, TrainingSummary
from streamad.types import FloatArray, IntArray, WindowSet
from streamad_test_detector.kills import die_as_told

N_EPOCHS = 3

die_as_told()


class MeanOptions(BaseModel):
    """``epoch_ms``, ``batch_ms``: how long an epoch of training and a batch of scoring take at least."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epoch_ms: float = 0.0
    batch_ms: float = 0.0


class MeanScorer:
    """Scorer and fitted detector in one: ``mean`` [C, L], ``spread`` [C, 1]."""

    training: WindowSet

    def __init__(self, mean: FloatArray, spread: FloatArray, summary: TrainingSummary, batch_ms: float = 0.0) -> None:
        self._mean, self._spread, self.summary = mean, spread, summary
        self._batch_s = batch_ms / 1e3

    @property
    def window_shape(self) -> tuple[int, int]:
        channels, length = self._mean.shape
        return channels, length

    @property
    def n_terms(self) -> int:
        return len(self._mean)

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        if self._batch_s:
            time.sleep(self._batch_s)
        valid = np.arange(windows.shape[2]) < lengths[:, None]
        squares = np.where(valid[:, None, :], ((windows - self._mean) / self._spread) ** 2, 0)
        return np.asarray(squares.sum(axis=2) / lengths[:, None], dtype=np.float32)

    def training_scores(self) -> FloatArray:
        return self.score(self.training.values, self.training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        with (folder / "mean.npz").open("wb") as file:
            np.savez(file, mean=self._mean, spread=self._spread)
        return ("mean.npz",)


class Mean:
    """The detector behind the kind ``mean``."""

    options_model: type[BaseModel] = MeanOptions

    def __init__(self, options: MeanOptions | None = None) -> None:
        self.options = options or MeanOptions()

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> MeanScorer:
        for epoch in range(1, N_EPOCHS + 1):
            time.sleep(self.options.epoch_ms / 1e3)
            if progress is not None:
                progress(TrainingStep(epoch, N_EPOCHS, 1.0 / epoch))
        valid = (np.arange(data.values.shape[2]) < data.lengths[:, None])[:, None, :]
        n = np.maximum(valid.sum(axis=0), 1)
        mean = np.where(valid, data.values, 0).sum(axis=0, dtype=np.float64) / n
        squares = np.where(valid, (data.values - mean) ** 2, 0).sum(axis=(0, 2)) / valid.sum()
        spread = np.sqrt(squares)[:, None] + 1e-6
        summary = TrainingSummary(len(data), N_EPOCHS, N_EPOCHS, 0.0, 0.0, "cpu")
        fitted = MeanScorer(mean.astype(np.float32), spread.astype(np.float32), summary)
        fitted.training = data
        return fitted

    def load(self, folder: Path, *, device: str) -> MeanScorer:
        try:
            with np.load(folder / "mean.npz", allow_pickle=False) as arrays:
                summary = TrainingSummary(0, N_EPOCHS, N_EPOCHS, 0.0, 0.0, "cpu")
                return MeanScorer(arrays["mean"], arrays["spread"], summary, self.options.batch_ms)
        except (OSError, ValueError, KeyError) as error:
            raise ArtifactError(f"mean.npz cannot be read: {error}") from error
