"""The default detector: distances from the training windows in four feature spaces, joined into one score.

Legend: N training windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.model import EnsembleModel, Space
from streamad_models.ensemble.neighbours import MEASURES, Neighbours, Reference, distances_of, fit_reference
from streamad_models.ensemble.options import EnsembleOptions
from streamad_models.ensemble.selection import MAX_WINDOWS, weights_of
from streamad_models.ensemble.spaces import SPACES, features_of, fit_spaces
from streamad_models.fitted import FittedReference, reference_indexes
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.torchscript import TorchScriptDetector, resolve_device

PRIOR_WEIGHTS = {"minirocket": (1.0, 1.0), "hydra": (1.0, 1.0), "intervals": (0.5, 0.5), "readings": (0.5, 0.0)}
"""The weights of a space's two measures, before training windows move them; a member of weight 0 is left out."""
_PRIOR_SPREAD = 0.15  # usual spread of a member's logarithms, counted like so many windows:
_PRIOR_WINDOWS = 5


class Ensemble(TorchScriptDetector[EnsembleOptions]):
    """Local distance and leverage in MiniRocket's, Hydra's and interval features and readings (docs/model/detector.md).

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
        members = [place for place, weight in enumerate(_prior()) if weight]
        model = EnsembleModel(n_channels, length, members)
        model.set_scaling(known)
        lengths = torch.from_numpy(known.lengths)
        x_NCL = model.prepare(torch.from_numpy(known.values), lengths)
        references = {}
        for name, space in fit_spaces(x_NCL, self.options, seed).items():
            references[name] = fit_reference(features_of(space, x_NCL, lengths))
            model.spaces.append(Space(space, Neighbours(references[name])))
        logs_NK = np.concatenate([reference.training_logs for reference in references.values()], axis=1)[:, members]
        weights_K = chosen_weights(references, seed)[members]
        model.set_common_scale(*common_scale(logs_NK), weights_K)
        with torch.inference_mode():
            own_terms = model.terms(torch.from_numpy(logs_NK.astype(np.float32))).numpy()
        names = [f"{name}.{measure}" for name in SPACES for measure in MEASURES]
        terms = tuple(names[place] for place in members)
        summary = TrainingSummary(
            n_sequences=len(known),
            n_epochs=0,
            best_epoch=0,
            best_loss=0.0,
            duration_s=time.perf_counter() - began_s,
            device=str(target),
            settings={
                **self.options.model_dump(mode="json"),
                "seed": seed,
                "weights": {name: round(float(weight), 3) for name, weight in zip(terms, weights_K, strict=True)},
            },
            terms=terms,
        )
        return FittedReference(model.to(target).eval(), summary, data, kept, own_terms)


def chosen_weights(references: Mapping[str, Reference], seed: int) -> npt.NDArray[np.float64]:
    """Return the weights of all measures, two a space in the order of ``PRIOR_WEIGHTS``, chosen by training windows.

    Of more than 300 reference windows 300 drawn by ``seed`` decide.
    """
    any_reference = next(iter(references.values()))
    drawn = np.random.default_rng(seed).permutation(len(any_reference.points))[:MAX_WINDOWS]
    distances = {name: distances_of(each.points[drawn], each.squares[drawn]) for name, each in references.items()}
    k, locality = any_reference.n_neighbours, any_reference.locality
    return weights_of(distances, PRIOR_WEIGHTS, n_neighbours=k, locality=locality)


def _prior() -> list[float]:
    return [weight for pair in PRIOR_WEIGHTS.values() for weight in pair]


def common_scale(logs_NK: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the median and the spread [K] of the members' logarithms of training windows [N, K].

    The spread is half the width of the middle 68 %, drawn towards its usual size while there are few windows.
    """
    n = len(logs_NK)
    low, median, high = np.quantile(logs_NK, [0.16, 0.5, 0.84], axis=0)
    variance = (n * ((high - low) / 2) ** 2 + _PRIOR_WINDOWS * _PRIOR_SPREAD**2) / (n + _PRIOR_WINDOWS)
    return median, np.sqrt(variance)
