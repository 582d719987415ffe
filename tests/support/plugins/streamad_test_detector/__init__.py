"""A detector without torch, as a third party would plug it in: processes that only it needs start in a second.

Terms are the mean squares of the channels of a window; nothing is learned.
"""

from __future__ import annotations

__all__ = ["MeanSquare", "MeanSquareOptions"]

import fcntl
import json
import os
import signal
import time
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import FloatArray, IntArray, WindowSet

_LOOK_S = 0.005


class MeanSquareOptions(BaseModel):
    """``delay_ms``: how long a batch takes, so that tests can stop a worker while it is scoring.

    ``hold``: while this file is there, a batch after the probe waits. ``deaths``: the number in this file is how many
    of them end their process by SIGKILL; each lowers it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_ms: float = 0.0
    hold: Path | None = None
    deaths: Path | None = None


def _die_if_told(deaths: Path, *, is_probe: bool) -> None:
    """End this process if ``deaths`` has one left; processes take turns, or one would read what another writes."""
    with deaths.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if (left := int(file.read())) and not is_probe:
            file.seek(0)
            file.truncate()
            file.write(str(left - 1))
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)


class _Scorer:
    def __init__(
        self, window_shape: tuple[int, int], delay_ms: float, hold: Path | None = None, deaths: Path | None = None
    ) -> None:
        self.window_shape = window_shape
        self._hold, self._deaths = hold, deaths
        self._is_probed = False
        self._delay_s = delay_ms / 1e3

    @property
    def n_terms(self) -> int:
        return self.window_shape[0]

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        if self._delay_s:
            time.sleep(self._delay_s)
        is_probe = not self._is_probed  # windows alone, then all of them together
        self._is_probed = self._is_probed or len(windows) > 1
        while self._hold is not None and not is_probe and self._hold.exists():
            time.sleep(_LOOK_S)
        if self._deaths is not None:
            _die_if_told(self._deaths, is_probe=is_probe)
        terms = (windows.astype(np.float64) ** 2).sum(axis=2) / np.maximum(lengths, 1)[:, None]
        return np.asarray(terms, dtype=np.float32)


class _Fitted:
    def __init__(self, training: WindowSet, summary: TrainingSummary) -> None:
        channels, length = training.values.shape[1:]
        self._scorer = _Scorer((channels, length), 0.0)
        self._training, self.summary = training, summary

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return self._scorer.score(windows, lengths)

    def training_scores(self) -> FloatArray:
        return self.score(self._training.values, self._training.lengths)

    def export(self, folder: Path) -> tuple[str, ...]:
        (folder / "shape.json").write_text(json.dumps(self._scorer.window_shape))
        return ("shape.json",)


class MeanSquare:
    """The detector behind the kind ``mean_square``."""

    options_model: type[BaseModel] = MeanSquareOptions

    def __init__(self, options: MeanSquareOptions | None = None) -> None:
        self.options = options or MeanSquareOptions()

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str,
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> _Fitted:
        return _Fitted(data, TrainingSummary(len(data), 1, 1, 0.0, 0.0, "cpu"))

    def load(self, folder: Path, *, device: str) -> _Scorer:
        channels, length = json.loads((folder / "shape.json").read_text())
        return _Scorer((channels, length), self.options.delay_ms, self.options.hold, self.options.deaths)
