"""The default detector: distances from the training windows in three feature spaces, joined into one score.

Legend: N training windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.model import EnsembleModel, Space
from streamad_models.ensemble.neighbours import MEASURES, Neighbours, fit_reference
from streamad_models.ensemble.options import EnsembleOptions
from streamad_models.ensemble.spaces import SPACES, features_of, fit_spaces
from streamad_models.fitted import FittedReference, reference_indexes
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.torchscript import TorchScriptDetector, resolve_device

WEIGHTS = {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.5}
_PRIOR_SPREAD = 0.15  # usual spread of a member's logarithms, counted like so many windows:
_PRIOR_WINDOWS = 5


class Ensemble(TorchScriptDetector[EnsembleOptions]):
    """Local distance and leverage in MiniRocket's, Hydra's and interval features (docs/model/detector.md).

    Higher scores are more anomalous; a usual window's score is about the sum of the weights times log 2.
    """

    options_model: type[BaseModel] = EnsembleOptions  # as the protocol has it: it is invariant

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedReference:
        """Fit on ``data``: the same data, settings and seed give the same model. On the CPU, in seconds, no epochs.

        Of more than 2,000 windows, 2,000 drawn by ``seed`` are the reference. Raises TrainingDataError.
        """
        check_training_data(data)
        target = resolve_device(device)
        began_s = time.perf_counter()
        kept = reference_indexes(len(data), seed)
        known = data.take(kept)
        n_channels, length = data.values.shape[1:]
        model = EnsembleModel(n_channels, length, [WEIGHTS[name] for name in SPACES for _ in MEASURES])
        model.set_scaling(known)
        lengths = torch.from_numpy(known.lengths)
        x_NCL = model.prepare(torch.from_numpy(known.values), lengths)
        logs = []
        for space in fit_spaces(x_NCL, self.options, seed).values():
            reference = fit_reference(features_of(space, x_NCL, lengths))
            model.spaces.append(Space(space, Neighbours(reference)))
            logs.append(reference.training_logs)
        logs_NK = np.concatenate(logs, axis=1)
        model.set_common_scale(*common_scale(logs_NK))
        with torch.inference_mode():
            own_terms = model.terms(torch.from_numpy(logs_NK.astype(np.float32))).numpy()
        summary = TrainingSummary(
            n_sequences=len(known),
            n_epochs=0,
            best_epoch=0,
            best_loss=0.0,
            duration_s=time.perf_counter() - began_s,
            device=str(target),
            settings={**self.options.model_dump(mode="json"), "seed": seed},
            terms=tuple(f"{name}.{measure}" for name in SPACES for measure in MEASURES),
        )
        return FittedReference(model.to(target).eval(), summary, data, kept, own_terms)


def common_scale(logs_NK: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the median and the spread [K] of the members' logarithms of training windows [N, K].

    The spread is half the width of the middle 68 %, drawn towards its usual size while there are few windows.
    """
    n = len(logs_NK)
    low, median, high = np.quantile(logs_NK, [0.16, 0.5, 0.84], axis=0)
    variance = (n * ((high - low) / 2) ** 2 + _PRIOR_WINDOWS * _PRIOR_SPREAD**2) / (n + _PRIOR_WINDOWS)
    return median, np.sqrt(variance)
