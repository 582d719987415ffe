"""The default detector: distances from the training windows in three feature spaces, joined into one score.

Legend: N training windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import FloatArray, WindowSet
from streamad_models.ensemble.hydra import fit_hydra
from streamad_models.ensemble.intervals import Intervals
from streamad_models.ensemble.minirocket import fit_minirocket
from streamad_models.ensemble.model import EnsembleModel, Space
from streamad_models.ensemble.neighbours import MAX_REFERENCES, MEASURES, Neighbours, Reference, fit_reference
from streamad_models.ensemble.options import EnsembleOptions
from streamad_models.fitted import FittedModule
from streamad_models.neutral_ad.data import check_training_data, fit_scaling
from streamad_models.torchscript import TorchScriptDetector, resolve_device

WEIGHTS = {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.5}
_FEATURE_VALUES = 2_000_000  # of one step: bounds its memory
_PRIOR_SPREAD = 0.15  # usual spread of a member's logarithms, counted like so many windows:
_PRIOR_WINDOWS = 5


class FittedEnsemble(FittedModule):
    """The fitted ensemble, which knows what its training windows score without themselves."""

    def __init__(
        self,
        model: EnsembleModel,
        summary: TrainingSummary,
        training: WindowSet,
        reference: npt.NDArray[np.int64],
        own_terms: FloatArray,
    ) -> None:
        super().__init__(model, summary, training)
        self._reference, self._own_terms = reference, own_terms

    def training_scores(self) -> FloatArray:
        """Return the terms float32 [N, K] of the training windows, each as if it were not in the reference."""
        terms = super().training_scores()
        terms[self._reference] = self._own_terms
        return terms


class Ensemble(TorchScriptDetector[EnsembleOptions]):
    """Local distance and leverage in MiniRocket's, Hydra's and interval features (docs/model/detector.md).

    Higher scores are more anomalous; a usual window's score is about the sum of the weights times log 2.
    """

    options_model = EnsembleOptions

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedEnsemble:
        """Fit on ``data``: the same data, settings and seed give the same model. On the CPU, in seconds, no epochs.

        Of more than 2,000 windows, 2,000 drawn by ``seed`` are the reference. Raises TrainingDataError.
        """
        check_training_data(data)
        target = resolve_device(device)
        began_s = time.perf_counter()
        rng = np.random.default_rng(seed)
        training, reference = data, np.arange(len(data))
        if len(training) > MAX_REFERENCES:
            reference = np.sort(rng.choice(len(training), MAX_REFERENCES, replace=False))
            data = training.take(reference)
        origin, factor = (torch.from_numpy(part) for part in fit_scaling(data, "standard"))
        n_channels, length = data.values.shape[1:]
        windows, lengths = torch.from_numpy(data.values), torch.from_numpy(data.lengths)
        scaler = EnsembleModel(n_channels, length, [], [])
        scaler.mean_C.copy_(origin)
        scaler.scale_C.copy_(factor)
        x_NCL = scaler.prepare(windows, lengths)
        generator = torch.Generator().manual_seed(seed)
        makers: dict[str, nn.Module] = {
            "minirocket": fit_minirocket(x_NCL, self.options.n_minirocket, rng),
            "hydra": fit_hydra(n_channels, length, self.options.n_groups, generator),
            "intervals": Intervals(n_channels, length),
        }
        references: dict[str, Reference] = {
            name: fit_reference(_features(features, x_NCL, lengths)) for name, features in makers.items()
        }
        spaces = [Space(features, Neighbours(references[name])) for name, features in makers.items()]
        model = EnsembleModel(n_channels, length, spaces, [WEIGHTS[name] for name in makers for _ in MEASURES])
        model.mean_C.copy_(origin)
        model.scale_C.copy_(factor)
        logs_NK = np.concatenate([references[name].training_logs for name in makers], axis=1)
        median, spread = common_scale(logs_NK)
        model.median_K.copy_(torch.from_numpy(median))
        model.spread_K.copy_(torch.from_numpy(spread))
        with torch.inference_mode():
            own_terms = model.terms(torch.from_numpy(logs_NK.astype(np.float32))).numpy()
        summary = TrainingSummary(
            n_sequences=len(data),
            n_epochs=0,
            best_epoch=0,
            best_loss=0.0,
            duration_s=time.perf_counter() - began_s,
            device=str(target),
            settings={**self.options.model_dump(mode="json"), "seed": seed},
            terms=tuple(f"{name}.{measure}" for name in makers for measure in MEASURES),
        )
        return FittedEnsemble(model.to(target).eval(), summary, training, reference, own_terms)


def common_scale(logs_NK: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the median and the spread [K] of the members' logarithms of training windows [N, K].

    The spread is half the width of the middle 68 %, drawn towards its usual size while there are few windows.
    """
    n = len(logs_NK)
    low, median, high = np.quantile(logs_NK, [0.16, 0.5, 0.84], axis=0)
    variance = (n * ((high - low) / 2) ** 2 + _PRIOR_WINDOWS * _PRIOR_SPREAD**2) / (n + _PRIOR_WINDOWS)
    return median, np.sqrt(variance)


@torch.inference_mode()
def _features(module: nn.Module, x_NCL: Tensor, lengths_N: Tensor) -> npt.NDArray[np.float32]:
    rows = max(1, _FEATURE_VALUES // (x_NCL[0].numel() * 84))
    parts = zip(torch.split(x_NCL, rows), torch.split(lengths_N, rows), strict=True)
    features: npt.NDArray[np.float32] = torch.cat([module(*part) for part in parts]).numpy()
    return features
