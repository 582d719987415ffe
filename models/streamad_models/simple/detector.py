"""The simple kinds: one distance from the training windows each. A fit imports torch, settings do not.

Legend: n reference windows, C channels, L window length, K terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.detector import OptionsT, TorchScriptDetector
from streamad_models.simple.options import (
    MiniRocketOptions,
    MPCAOptions,
    NearestOptions,
    PCAOptions,
    PointwiseOptions,
    UnfoldedOptions,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from streamad_models.fitted import FittedReference


class SimpleDetector(TorchScriptDetector[OptionsT], ABC):
    """Fits in one step on the CPU. A score is a root mean square, or a sum of such, in standard deviations."""

    @abstractmethod
    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the names of the K terms."""

    @abstractmethod
    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance from the scaled reference windows, and the terms [n, K] of each without itself."""

    def fit(
        self,
        data: WindowSet,
        *,
        seed: int,
        device: str = "auto",
        progress: TrainingProgress | None = None,
        resume: Path | None = None,
    ) -> FittedReference:
        """Fit on ``data``: the same data, settings and seed give the same model. No epochs, nothing to resume.

        Of more than 2,000 windows, 2,000 drawn by ``seed`` are the reference. Raises TrainingDataError.
        """
        from streamad_models.simple.fitting import fit_simple  # noqa: PLC0415

        return fit_simple(self, data, seed=seed, device=device)


class Pointwise(SimpleDetector[PointwiseOptions]):
    """Robust z by channel and place, after the course of a window is stretched to a common length.

    Training windows score by medians of the other nine tenths of the windows (``cross_fitted``).
    """

    options_model: type[BaseModel] = PointwiseOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return one name for each channel, counted from 0 as in the config's order."""
        return tuple(f"channel_{channel}.robust_z" for channel in range(n_channels))

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the deviation from the median course; ``seed`` is not used."""
        from streamad_models.simple.pointwise import fit_deviation  # noqa: PLC0415

        return fit_deviation(x_nCL, lengths_n, self.options)


class PCA(SimpleDetector[PCAOptions]):
    """Principal components of the scaled windows, each stretched to a common length.

    Training windows score by components of the other nine tenths of the windows (``cross_fitted``).
    """

    options_model: type[BaseModel] = PCAOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the name of the one term."""
        del n_channels
        return ("pca.residual",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the residual; ``seed`` is not used."""
        from streamad_models.simple.pca import fit_residual  # noqa: PLC0415

        return fit_residual(x_nCL, lengths_n, self.options)


class Unfolded(SimpleDetector[UnfoldedOptions]):
    """Nearest neighbour after batch-wise unfolding (Nomikos and MacGregor 1994): for runs that are well aligned."""

    options_model: type[BaseModel] = UnfoldedOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the name of the one term."""
        del n_channels
        return ("unfolded.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance from the nearest of the standardised windows; ``seed`` is not used."""
        from streamad_models.simple.unfolded import fit_unfolded  # noqa: PLC0415

        return fit_unfolded(x_nCL, lengths_n, self.options)


class MPCA(SimpleDetector[MPCAOptions]):
    """Multiway PCA of the unfolded windows (Nomikos and MacGregor 1994): the two charts of batch monitoring.

    Training windows score by components of the other nine tenths of the windows (``cross_fitted``).
    """

    options_model: type[BaseModel] = MPCAOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the names of both charts."""
        del n_channels
        return ("mpca.t2", "mpca.spe")

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return both charts; ``seed`` is not used."""
        from streamad_models.simple.mpca import fit_multiway  # noqa: PLC0415

        return fit_multiway(x_nCL, lengths_n, self.options)


class Nearest(SimpleDetector[NearestOptions]):
    """Raw nearest neighbour (Cover and Hart 1967): sees any change of course at the same time, and no shape."""

    options_model: type[BaseModel] = NearestOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the name of the one term."""
        del n_channels
        return ("nearest.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance to the nearest of the windows; ``seed`` is not used."""
        from streamad_models.simple.nearest import fit_windows  # noqa: PLC0415

        return fit_windows(x_nCL)


class MiniRocketNearest(SimpleDetector[MiniRocketOptions]):
    """Nearest neighbour by MiniRocket's features (Dempster, Schmidt, Webb, KDD 2021): shapes, wherever they are."""

    options_model: type[BaseModel] = MiniRocketOptions

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the name of the one term."""
        del n_channels
        return ("minirocket.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance to the nearest window's features; ``seed`` draws channels and biases."""
        from streamad_models.simple.nearest import fit_features  # noqa: PLC0415

        return fit_features(x_nCL, lengths_n, self.options.n_features, seed)
