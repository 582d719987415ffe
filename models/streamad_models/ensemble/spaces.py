"""The feature spaces of the ensemble, fitted to training windows.

Legend: N training windows, C channels, L window length, D features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from streamad_models.ensemble.hydra import fit_hydra
from streamad_models.ensemble.intervals import Intervals, Moments, Readings
from streamad_models.ensemble.minirocket import fit_minirocket
from streamad_models.ensemble.options import SPACES, EnsembleOptions, SpaceName

DAMPING = {"minirocket": 1.0, "hydra": 1.0, "intervals": 0.03, "readings": 0.03, "moments": 0.03}
"""The share of the mean variance of a space's features that is added to that of each. It is large for spaces of which
many features are noise; ``benchmarks/detector`` compares it with 1 for all."""
_VALUES = 2_000_000  # of the widest array of one step: bounds its memory


def fit_spaces(x_NCL: Tensor, options: EnsembleOptions, seed: int) -> dict[SpaceName, nn.Module]:
    """Return the maps of scaled windows to features, in the order of ``SPACES``; all draws come from ``seed``."""
    n_channels, length = x_NCL.shape[1], x_NCL.shape[2]
    fits: dict[SpaceName, Callable[[], nn.Module]] = {
        "minirocket": lambda: fit_minirocket(x_NCL, options.n_minirocket, np.random.default_rng(seed)),
        "hydra": lambda: fit_hydra(x_NCL, options.n_groups, torch.Generator().manual_seed(seed)),
        "intervals": lambda: Intervals(n_channels),
        "readings": lambda: Readings(n_channels),
        "moments": lambda: Moments(n_channels, length),
    }
    return {name: fits[name]() for name in SPACES if name in options.spaces}


@torch.inference_mode()
def features_of(space: nn.Module, x_NCL: Tensor, lengths_N: Tensor) -> npt.NDArray[np.float32]:
    """Return the features float32 [N, D] of scaled windows."""
    rows = max(1, _VALUES // (x_NCL[0].numel() * 84))
    parts = zip(torch.split(x_NCL, rows), torch.split(lengths_N, rows), strict=True)
    features: npt.NDArray[np.float32] = torch.cat([space(*part) for part in parts]).numpy()
    return features
