"""The choice of a setting on held-out training windows, without labels or test windows.

Legend: B windows, C channels, L window length.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor

from benchmarks.paper.baselines.networks.network import Network, NetworkDetector, OptionsT
from streamad.errors import DetectorError
from streamad.types import WindowSet
from streamad_models.neutral_ad.training import tensors_of

_SHARE = 0.2
_FEWEST = 10
_SEED = 20160404  # its random numbers are independent of the training's


class SelectingDetector(NetworkDetector[OptionsT], ABC):
    """A detector with an option, ``selected``, that may be "auto": the candidate with the highest ``judge`` value.

    Each candidate is trained on four fifths of the training windows and judged on the fifth left out; the model is then
    trained anew on all of them. ``progress`` reports that last training only; the summary's time covers all.
    """

    selected: str

    @abstractmethod
    def candidates(self, length: int) -> Sequence[int]:
        """Return the values to choose from for windows of ``length`` steps; a single one is taken without a search."""

    @abstractmethod
    def judge(self, network: Network, windows_BCL: Tensor, lengths_B: Tensor) -> float:
        """Return how well a candidate's ``network`` describes held-out normal windows [B, C, L]: higher is better."""

    def choose(self, data: WindowSet, seed: int, device: str) -> Self:
        """Return the detector with the best candidate, the first of equals; one that diverges does not count.

        Without "auto" it is this detector. Raises DetectorError if no candidate will do.
        """
        if getattr(self.options, self.selected) != "auto":
            return self
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
                value = self.judge(fitted.model, *tensors_of(held, fitted.model.mean_C.device))
            if math.isnan(value):
                problem = f"{self.selected} {candidate} gives NaN"
            elif value > best_value:
                best, best_value = candidate, value
        if best is None:
            tried = ", ".join(map(str, candidates))
            raise DetectorError(f"none of {self.selected} {tried} will do: {problem}")
        return self._with(best)

    def _with(self, value: int) -> Self:
        return type(self)(self.options.model_copy(update={self.selected: value}))


def hold_out(data: WindowSet, seed: int) -> tuple[WindowSet, WindowSet]:
    """Return four fifths of ``data`` to train candidates on and a fifth to judge them by; below 10, all for both."""
    if len(data) < _FEWEST:
        return data, data
    order = np.random.default_rng([_SEED, seed]).permutation(len(data))
    count = round(_SHARE * len(data))
    return data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))
