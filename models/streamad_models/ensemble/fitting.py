"""The fit of the default detector: distances in five feature spaces from the training windows, and their join.

Legend: N training windows, C channels, L window length, K terms.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from streamad.errors import some_of
from streamad.ports import TrainingProgress, TrainingSummary
from streamad.types import WindowSet
from streamad_models.ensemble.learned import CONTRAST, VIEW_DISTANCE, Learned, LearnedFits
from streamad_models.ensemble.model import EnsembleModel, Space
from streamad_models.ensemble.neighbours import MEASURES, Neighbours, Reference, fit_reference
from streamad_models.ensemble.options import EnsembleOptions, SpaceName
from streamad_models.ensemble.scaling import WIDEST_RATIO, ChannelScaling, fit_channel_scaling
from streamad_models.ensemble.spaces import DAMPING, features_of, fit_spaces
from streamad_models.fitted import FittedReference, reference_indexes
from streamad_models.neutral_ad.data import check_training_data
from streamad_models.torchscript import resolve_device

# Which member counts how much: a rule on measured facts of the training windows, no choice by scores. It was read off
# recordings of three families (docs/model/detector.md): batches that follow one course are judged by levels and by the
# course itself, movements by their shapes.
Weights: TypeAlias = dict[str, tuple[float, float, float]]

_LEARNED = (0.25, 0.75)
_FEW_WINDOWS, _MANY_WINDOWS = 40, 120
_LEAST_ALIGNED = 0.01  # so that the number of channels alone decides which members there are
_FEW_CHANNELS, _MANY_CHANNELS = 10, 50


def weights_of(n_channels: int, aligned: float) -> Weights:
    """Return the weights of a space's local distance, leverage and largest z; a member of weight 0 is left out.

    ``aligned`` is the share of the variance that the mean course explains, 0 to 1. If it is large and there are several
    channels, windows are runs of one process: a fault is a level or a course that a channel never has. The more
    channels there are, the more a single one that is far off counts, because distances over all channels hide it.
    """
    course = max(aligned, _LEAST_ALIGNED) * (1.0 - 1.0 / n_channels)
    many = min(max((n_channels - _FEW_CHANNELS) / (_MANY_CHANNELS - _FEW_CHANNELS), 0.0), 1.0)
    return {
        "minirocket": (1.0, 1.0, 0.0),
        "hydra": (1.0, 1.0, 0.0),
        "intervals": (0.25 + 0.5 * course, 0.25 + 0.5 * course, 0.0),
        "readings": (0.25 + 0.5 * course, 0.5 * course, 0.0),
        "moments": (0.25 + course, 0.25 + course, 0.25 + course + 0.75 * many),
    }


def learned_weight(n: int) -> float:
    """Return the weight of all networks' contrasts together, and that of their view distances, for ``n`` windows.

    On few windows a network sees what distances do not; on many it says little new (docs/model/detector.md).
    """
    few = min(max((_MANY_WINDOWS - n) / (_MANY_WINDOWS - _FEW_WINDOWS), 0.0), 1.0)
    return _LEARNED[0] + (_LEARNED[1] - _LEARNED[0]) * few


_LEAST_SPREAD = 0.03  # of a member's logarithms: rounding must not become a term
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
    fits = LearnedFits(options, progress)
    learned = fits.run(known, seed=seed, device=device, resume=resume)
    n_channels, length = data.values.shape[1:]
    scaling = fit_channel_scaling(known)
    weights: Weights = {
        name: each for name, each in weights_of(n_channels, scaling.aligned).items() if name in options.spaces
    }
    members = _Members(weights, learned, len(known))
    model = EnsembleModel(n_channels, length, members.places, [each.member for each in learned])
    model.set_channel_scaling(scaling.origin, scaling.factor)
    references = _fit_spaces(options, model, known, seed)
    logs = np.concatenate([each.training_logs for each in references.values()], axis=1)[:, members.places]
    logs = np.concatenate([logs, *(each.logs for each in learned)], axis=1)
    model.set_common_scale(*common_scale(logs), members.weights)
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
            "aligned": round(scaling.aligned, 3),
            "weights": dict(zip(members.names, np.round(members.weights, 3).tolist(), strict=True)),
        },
        remarks=(*_remarks_on_units(scaling, known), *_remarks(fits, len(data), len(known))),
        terms=members.terms,
    )
    return FittedReference(model.to(target).eval(), summary, data, kept, own_terms)


def _fit_spaces(
    options: EnsembleOptions, model: EnsembleModel, known: WindowSet, seed: int
) -> dict[SpaceName, Reference]:
    """Fit the spaces of ``model`` to ``known``; return their references by name."""
    lengths = torch.from_numpy(known.lengths)
    x_NCL = model.prepare(torch.from_numpy(known.values), lengths)
    references: dict[SpaceName, Reference] = {}
    for name, space in fit_spaces(x_NCL, options, seed).items():
        references[name] = fit_reference(features_of(space, x_NCL, lengths), damping=DAMPING[name])
        model.spaces.append(Space(space, Neighbours(references[name])))
    return references


class _Members:
    """Places among the spaces' logarithms, names and weights of the members that count, networks last."""

    def __init__(self, weights: Weights, learned: Sequence[Learned], n: int) -> None:
        of_spaces = [weight for each in weights.values() for weight in each]
        of_networks = [learned_weight(n) / max(len(learned), 1)] * (2 * len(learned))
        self.places = [place for place, weight in enumerate(of_spaces) if weight > 0.0]
        self.weights = np.array([*(of_spaces[place] for place in self.places), *of_networks])
        every = [f"{name}.{measure}" for name in weights for measure in MEASURES]
        neighbours = [every[place] for place in self.places]
        self.names = [*neighbours]
        self.terms = (*neighbours,)
        for place, each in enumerate(learned):
            network = f"neutral_ad_{place + 1}"
            self.names += [f"{network}.{CONTRAST}", f"{network}.{VIEW_DISTANCE}"]
            transformations = (f"{network}.transformation_{k}" for k in range(each.shares.shape[1]))
            self.terms = (*self.terms, *transformations, f"{network}.{VIEW_DISTANCE}")


def _remarks_on_units(scaling: ChannelScaling, data: WindowSet) -> tuple[str, ...]:
    """Return a remark for each unit whose channels do not share one scale."""
    names = data.channels or tuple(f"channel {place}" for place in range(data.values.shape[1]))
    return tuple(
        f"channels of the unit {data.units[groups[0][0]]} do not share one scale, because their spreads lie more than "
        f"{WIDEST_RATIO:g} times apart: {' | '.join(some_of([names[place] for place in group]) for group in groups)}; "
        "correct a unit that is wrong"
        for groups in scaling.divided
    )


def _remarks(fits: LearnedFits, n: int, n_known: int) -> tuple[str, ...]:
    if n_known < n:
        return (f"{n_known} of {n} sequences, drawn by the seed, are the reference", *fits.remarks)
    return fits.remarks


def common_scale(logs_NK: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the median and the spread [K] of the members' logarithms of training windows [N, K].

    The spread is half the width of the middle 68 %, drawn towards its usual size while there are few windows, and never
    so small that rounding would show.
    """
    n = len(logs_NK)
    low, median, high = np.quantile(logs_NK, [0.16, 0.5, 0.84], axis=0)
    variance = (n * ((high - low) / 2) ** 2 + _PRIOR_WINDOWS * _PRIOR_SPREAD**2) / (n + _PRIOR_WINDOWS)
    return median, np.maximum(np.sqrt(variance), _LEAST_SPREAD)
