"""A detector that does not score the same everywhere: what training must find before a version goes into service."""

from __future__ import annotations

__all__ = ["Uneven", "UnevenOptions"]

import json
import os
import signal
import threading
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import FloatArray, IntArray, WindowSet


class UnevenOptions(BaseModel):
    """What differs, and above which size of a term.

    ``threads``: terms are a hundredth larger for each further thread (``OMP_NUM_THREADS``). ``company``: they are a
    hundredth larger for windows that are scored together. ``dies``, ``hangs``: loading does so on one thread.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: Literal["threads", "company", "dies", "hangs"] = "threads"
    above: float = 0.0


class _Model:
    """Scorer and fitted detector in one; terms are the channels' mean squares."""

    def __init__(
        self, window_shape: tuple[int, int], options: UnevenOptions, training: WindowSet | None = None
    ) -> None:
        self.window_shape, self._options, self._training = window_shape, options, training
        self.summary = TrainingSummary(0 if training is None else len(training), 1, 1, 0.0, 0.0, "cpu")

    @property
    def n_terms(self) -> int:
        return self.window_shape[0]

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        terms = (windows.astype(np.float64) ** 2).sum(axis=2) / np.maximum(lengths, 1)[:, None]
        more = 0.0
        if self._options.by == "threads":
            more = 0.01 * (_n_threads() - 1)
        elif self._options.by == "company":
            more = 0.01 * (len(windows) > 1)
        return np.where(terms > self._options.above, terms * (1 + more), terms).astype(np.float32)

    def training_scores(self) -> FloatArray:
        assert self._training is not None
        return self.score(self._training.values, self._training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        (folder / "shape.json").write_text(json.dumps(self.window_shape))
        return ("shape.json",)


class Uneven:
    """The detector behind the kind ``uneven``."""

    options_model: type[BaseModel] = UnevenOptions

    def __init__(self, options: UnevenOptions | None = None) -> None:
        self.options = options or UnevenOptions()

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> _Model:
        return _Model(data.values.shape[1:], self.options, data)  # type: ignore[arg-type]

    def load(self, folder: Path, *, device: str) -> _Model:
        if _n_threads() == 1 and self.options.by == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if _n_threads() == 1 and self.options.by == "hangs":
            threading.Event().wait()
        channels, length = json.loads((folder / "shape.json").read_text())
        return _Model((channels, length), self.options)


def _n_threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])
