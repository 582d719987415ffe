"""The fit of the default detector: distances in four feature spaces from the training windows, and their join.

Legend: N training windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.learned import CONTRAST, FEWEST_WINDOWS, VIEW_DISTANCE, Learned, LearnedFits
from streamad_models.ensemble.model import EnsembleModel, Space
from streamad_models.ensemble.neighbours import MEASURES, Neighbours, Reference, fit_reference
from streamad_models.ensemble.options import EnsembleOptions
from streamad_models.ensemble.spaces import SPACES, features_of, fit_spaces
from streamad_models.fitted import FittedReference, reference_indexes
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.torchscript import resolve_device

WEIGHTS = {"minirocket": (1.0, 1.0), "hydra": (1.0, 1.0), "intervals": (0.5, 0.5), "readings": (0.5, 0.0)}
"""The weights of a space's two measures; a member of weight 0 is left out."""
LEARNED_WEIGHT = 0.25
"""The weight of all networks' contrasts together, and that of their view distances."""
_ALL_WEIGHTS = np.array([weight for pair in WEIGHTS.values() for weight in pair])
_MEMBERS = np.flatnonzero(_ALL_WEIGHTS).tolist()
_PRIOR_SPREAD = 0.15  # of a member's logarithms; it has the weight of five windows
_PRIOR_WINDOWS = 5


def fit_ensemble(
    options: EnsembleOptions,
    data: WindowSet,
    *,
    seed: int,
    device: str,
    progress: TrainingProgress | None,
    resume: Path | None,
) -> FittedReference:
    """Fit all members on ``data``, as ``Ensemble.fit`` says."""
    check_training_data(data)
    target = resolve_device(device)
    began_s = time.perf_counter()
    kept = reference_indexes(len(data), seed)
    known = data.take(kept)
    fits = LearnedFits(options.effort, options.time_limit_s, progress)
    learned = fits.run(known, seed=seed, device=device, resume=resume)
    n_channels, length = data.values.shape[1:]
    model = EnsembleModel(n_channels, length, _MEMBERS, [each.member for each in learned])
    references = _fit_spaces(options, model, known, seed)
    of_networks = np.full(2 * len(learned), LEARNED_WEIGHT / max(len(learned), 1))
    weights = np.concatenate([_ALL_WEIGHTS[_MEMBERS], of_networks])
    logs = np.concatenate([each.training_logs for each in references.values()], axis=1)[:, _MEMBERS]
    logs = np.concatenate([logs, *(each.logs for each in learned)], axis=1)
    model.set_common_scale(*common_scale(logs), weights)
    with torch.inference_mode():
        shares = [torch.from_numpy(each.shares) for each in learned]
        own_terms = model.terms(torch.from_numpy(logs.astype(np.float32)), shares).numpy()
    summary = TrainingSummary(
        n_sequences=len(known),
        n_epochs=learned[0].summary.n_epochs if learned else 0,
        best_epoch=learned[0].summary.best_epoch if learned else 0,
        best_loss=learned[0].summary.best_loss if learned else 0.0,
        duration_s=time.perf_counter() - began_s,
        device=str(target),
        settings={
            **options.model_dump(mode="json"),
            "seed": seed,
            "weights": dict(zip(_log_names(len(learned)), np.round(weights, 3).tolist(), strict=True)),
        },
        remarks=_remarks(options, fits, len(data), len(known)),
        terms=_term_names(learned),
    )
    return FittedReference(model.to(target).eval(), summary, data, kept, own_terms)


def _fit_spaces(options: EnsembleOptions, model: EnsembleModel, known: WindowSet, seed: int) -> dict[str, Reference]:
    """Fit scaling and spaces of ``model`` to ``known``; return the references in their order."""
    model.set_scaling(known)
    lengths = torch.from_numpy(known.lengths)
    x_NCL = model.prepare(torch.from_numpy(known.values), lengths)
    references = {}
    for name, space in fit_spaces(x_NCL, options, seed).items():
        references[name] = fit_reference(features_of(space, x_NCL, lengths))
        model.spaces.append(Space(space, Neighbours(references[name])))
    return references


def _remarks(options: EnsembleOptions, fits: LearnedFits, n: int, n_known: int) -> tuple[str, ...]:
    found = fits.remarks
    if n_known < n:
        found = (f"{n_known} of {n} sequences, drawn by the seed, are the reference", *found)
    if options.effort != "quick" and n < FEWEST_WINDOWS:
        few = f"{n} sequences are too few to train networks ({FEWEST_WINDOWS} are needed): neighbours alone judge"
        found = (few, *found)
    return found


def _log_names(n_learned: int) -> list[str]:
    names = [f"{name}.{measure}" for name in SPACES for measure in MEASURES]
    return [names[place] for place in _MEMBERS] + [
        f"{_network_name(place)}.{measure}" for place in range(n_learned) for measure in (CONTRAST, VIEW_DISTANCE)
    ]


def _term_names(learned: Sequence[Learned]) -> tuple[str, ...]:
    """Return the names of the terms: a network's contrast is divided among its transformations."""
    names = _log_names(0)
    for place, each in enumerate(learned):
        names += [f"{_network_name(place)}.transformation_{k}" for k in range(each.shares.shape[1])]
        names.append(f"{_network_name(place)}.{VIEW_DISTANCE}")
    return tuple(names)


def _network_name(place: int) -> str:
    return f"neutral_ad_{place + 1}"


def common_scale(logs_NK: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the median and the spread [K] of the members' logarithms of training windows [N, K].

    The spread is half the width of the middle 68 %, drawn towards its usual size while there are few windows.
    """
    n = len(logs_NK)
    low, median, high = np.quantile(logs_NK, [0.16, 0.5, 0.84], axis=0)
    variance = (n * ((high - low) / 2) ** 2 + _PRIOR_WINDOWS * _PRIOR_SPREAD**2) / (n + _PRIOR_WINDOWS)
    return median, np.sqrt(variance)
