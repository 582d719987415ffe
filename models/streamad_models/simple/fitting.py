"""The fit that the simple kinds share: scaled windows, one distance from the training windows, one file.

Legend: N training windows, n reference windows, B windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from streamad.ports import TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.model import WindowModel
from streamad_models.fitted import FittedReference, reference_indexes
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.torchscript import resolve_device

N_FOLDS = 10


class SimpleModel(WindowModel):
    """Scaling, then ``distance``: scaled windows [B, C, L] with lengths [B] to terms [B, K]."""

    def __init__(self, n_channels: int, length: int, n_terms: int) -> None:
        super().__init__(n_channels, length, n_terms)
        self.distance: nn.Module = nn.Identity()

    def forward(self, windows_BCL: Tensor, lengths_B: Tensor) -> Tensor:
        """Return terms [B, K] of windows float32 [B, C, L] in engineering units with true lengths int64 [B]."""
        terms_BK: Tensor = self.distance(self.prepare(windows_BCL, lengths_B), lengths_B)
        return terms_BK


FitDistance: TypeAlias = Callable[[Tensor, Tensor, int], tuple[nn.Module, Tensor]]
"""From scaled reference windows [n, C, L], lengths and a seed to the distance from them and their own terms [n, K]."""


def fit_simple(
    fit_distance: FitDistance,
    term_names: Callable[[int], tuple[str, ...]],
    options: BaseModel,
    data: WindowSet,
    *,
    seed: int,
    device: str,
) -> FittedReference:
    """Fit a kind on ``data``, as ``SimpleDetector.fit`` says; ``term_names`` takes the number of channels."""
    check_training_data(data)
    target = resolve_device(device)
    began_s = time.perf_counter()
    kept = reference_indexes(len(data), seed)
    known = data.take(kept)
    n_channels, length = data.values.shape[1:]
    names = term_names(n_channels)
    model = SimpleModel(n_channels, length, len(names))
    model.set_scaling(known)
    lengths = torch.from_numpy(known.lengths)
    with torch.inference_mode():
        x_nCL = model.prepare(torch.from_numpy(known.values), lengths)
        model.distance, own_terms = fit_distance(x_nCL, lengths, seed)
    summary = TrainingSummary(
        n_sequences=len(known),
        n_epochs=0,
        best_epoch=0,
        best_loss=0.0,
        duration_s=time.perf_counter() - began_s,
        device=str(target),
        settings={**options.model_dump(mode="json"), "seed": seed},
        terms=names,
    )
    return FittedReference(model.to(target).eval(), summary, data, kept, own_terms.numpy())


def cross_fitted(readings: Tensor, fit: Callable[[Tensor], Callable[[Tensor], Tensor]]) -> Tensor:
    """Return the terms [n, K] of ``readings`` [n, ...], each by a fit that did not see it.

    Every tenth window is left out together, so up to ten windows are left out one by one.
    """
    n = len(readings)
    n_folds, fold_n = min(n, N_FOLDS), torch.arange(n) % N_FOLDS
    parts = [fit(readings[fold_n != fold])(readings[fold_n == fold]) for fold in range(n_folds)]
    terms = torch.empty(n, parts[0].shape[1])
    for fold, part in enumerate(parts):
        terms[fold_n == fold] = part
    return terms
