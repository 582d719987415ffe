"""A setting chosen by what a method says of held-out training windows: no label and no test window takes part.

Legend: B windows, C channels, L window length.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from streamad.errors import DetectorError
from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.baselines.data import check_windows
from streamad_models.baselines.networks.network import Network, NetworkDetector, OptionsT
from streamad_models.fitted import FittedModule

_SHARE = 0.2
_FEWEST = 10
_SEED = 20160404  # a stream of random numbers beside the training's


class SelectingDetector(NetworkDetector[OptionsT]):
    """A detector one of whose options, ``selected``, may be "auto": the candidate that its ``judge`` likes best.

    Each candidate is trained on four fifths of the training windows and judged on the fifth left out; the model is then
    trained anew on all of them. ``progress`` tells of that last training alone; the summary's time is that of all.
    """

    selected: str

    @abstractmethod
    def candidates(self, length: int) -> Sequence[int]:
        """Return what may be chosen for windows of ``length`` steps; with one, nothing is searched."""

    @abstractmethod
    def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
        """Return how well a candidate's ``network`` describes held-out normal windows [B, C, L]: higher is better."""

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedModule:
        """Choose what is "auto", then train as ``NetworkDetector.fit`` does, with its errors."""
        began_s = time.perf_counter()
        check_windows(data)
        resolved = self if getattr(self.options, self.selected) != "auto" else self._chosen(data, seed, device)
        fitted = super(SelectingDetector, resolved).fit(data, seed=seed, device=device, progress=progress)
        return FittedModule(fitted.model, replace(fitted.summary, duration_s=time.perf_counter() - began_s))

    def _chosen(self, data: WindowSet, seed: int, device: str) -> Self:
        """Return the detector with the best candidate, the first of equals; none that diverges or cannot be judged."""
        candidates = self.candidates(data.values.shape[2])
        if len(candidates) == 1:
            return self._with(candidates[0])
        training, held = hold_out(data, seed)
        best, best_value, problem = None, -math.inf, ""
        for candidate in candidates:
            try:
                fitted = self._with(candidate).fit(training, seed=seed, device=device)
            except DetectorError as error:
                problem = str(error)
                continue
            with torch.no_grad():
                value = self.judge(fitted.model, *_on(fitted.model.mean_C.device, held))
            if math.isnan(value):
                problem = f"what {self.selected} {candidate} gives cannot be judged"
            elif value > best_value:
                best, best_value = candidate, value
        if best is None:
            tried = ", ".join(map(str, candidates))
            raise DetectorError(f"none of {self.selected} {tried} will do: {problem}")
        return self._with(best)

    def _with(self, value: int) -> Self:
        return type(self)(self.options.model_copy(update={self.selected: value}))


def hold_out(data: WindowSet, seed: int) -> tuple[WindowSet, WindowSet]:
    """Return four fifths of ``data`` to train candidates on and a fifth to judge them by; all and all if below 10."""
    if len(data) < _FEWEST:
        return data, data
    order = np.random.default_rng([_SEED, seed]).permutation(len(data))
    count = round(_SHARE * len(data))
    return data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))


def _on(device: torch.device, data: WindowSet) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(data.values).to(device), torch.from_numpy(data.lengths).to(device)
