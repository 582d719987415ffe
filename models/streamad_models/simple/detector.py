"""The simple kinds: one distance from the training windows each. A fit imports torch, settings do not.

Legend: n reference windows, C channels, L window length, K terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from streamad.ports import TrainingProgress
from streamad.types import WindowSet
from streamad_models.detector import OptionsT, TorchScriptDetector

if TYPE_CHECKING:
    from torch import Tensor, nn

    from streamad_models.fitted import FittedReference


class _SimpleOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _PlacesOptions(_SimpleOptions):
    n_places: int = Field(
        default=64, ge=2, le=1024, description="places, from the first to the last sample, at which a window is read"
    )


class PointwiseOptions(_PlacesOptions):
    """Settings of the robust z."""

    floor: float = Field(
        default=0.05,
        ge=1e-4,
        le=10,
        description="added to the spread at each place, in standard deviations of the channel",
    )


class _ComponentsOptions(_SimpleOptions):
    explained: float = Field(
        default=0.9, gt=0, lt=1, description="share of the variance that the leading components explain at least"
    )


class PCAOptions(_ComponentsOptions, _PlacesOptions):
    """Settings of the principal components."""


class UnfoldedOptions(_PlacesOptions):
    """Settings of the readings that are standardised by channel and place."""

    floor: float = Field(
        default=0.1,
        ge=1e-2,
        le=10,
        description="added to the spread at each place, as a share of the channel's spread around its mean course",
    )


class MPCAOptions(_ComponentsOptions, UnfoldedOptions):
    """Settings of the multiway principal components."""


class NearestOptions(_SimpleOptions):
    """The raw nearest neighbour has no settings."""


class MiniRocketOptions(_SimpleOptions):
    """Settings of the features."""

    n_features: int = Field(
        default=5_000, ge=84, le=100_000, description="MiniRocket's features; a multiple of 84 is taken"
    )


class SimpleDetector(TorchScriptDetector[OptionsT], ABC):
    """Fits in one step on the CPU. A score is a root mean square, or a sum of such, in standard deviations."""

    terms: tuple[str, ...]
    """Names of the K terms."""

    def term_names(self, n_channels: int) -> tuple[str, ...]:
        """Return the names of the K terms for windows of so many channels."""
        del n_channels
        return self.terms

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

        return fit_simple(self.fit_distance, self.term_names, self.options, data, seed=seed, device=device)


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
        from streamad_models.simple.by_place import fit_deviation  # noqa: PLC0415

        return fit_deviation(x_nCL, lengths_n, n_places=self.options.n_places, floor=self.options.floor)


class PCA(SimpleDetector[PCAOptions]):
    """Principal components of the scaled windows, each stretched to a common length.

    Training windows score by components of the other nine tenths of the windows (``cross_fitted``).
    """

    options_model: type[BaseModel] = PCAOptions
    terms = ("pca.residual",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the residual; ``seed`` is not used."""
        from streamad_models.simple.components import fit_residual  # noqa: PLC0415

        return fit_residual(x_nCL, lengths_n, n_places=self.options.n_places, explained=self.options.explained)


class Unfolded(SimpleDetector[UnfoldedOptions]):
    """Nearest neighbour after batch-wise unfolding (Nomikos and MacGregor 1994): for runs that are well aligned."""

    options_model: type[BaseModel] = UnfoldedOptions
    terms = ("unfolded.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance from the nearest of the standardised windows; ``seed`` is not used."""
        from streamad_models.simple.by_place import fit_unfolded  # noqa: PLC0415

        return fit_unfolded(x_nCL, lengths_n, n_places=self.options.n_places, floor=self.options.floor)


class MPCA(SimpleDetector[MPCAOptions]):
    """Multiway PCA of the unfolded windows (Nomikos and MacGregor 1994): the two charts of batch monitoring.

    Training windows score by components of the other nine tenths of the windows (``cross_fitted``).
    """

    options_model: type[BaseModel] = MPCAOptions
    terms = ("mpca.t2", "mpca.spe")

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return both charts; ``seed`` is not used."""
        from streamad_models.simple.components import fit_multiway  # noqa: PLC0415

        options = self.options
        return fit_multiway(
            x_nCL, lengths_n, n_places=options.n_places, floor=options.floor, explained=options.explained
        )


class Nearest(SimpleDetector[NearestOptions]):
    """Raw nearest neighbour (Cover and Hart 1967): sees any change of course at the same time, and no shape."""

    options_model: type[BaseModel] = NearestOptions
    terms = ("nearest.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance to the nearest of the windows; ``seed`` is not used."""
        from streamad_models.simple.nearest import fit_windows  # noqa: PLC0415

        return fit_windows(x_nCL)


class MiniRocketNearest(SimpleDetector[MiniRocketOptions]):
    """Nearest neighbour by MiniRocket's features (Dempster, Schmidt, Webb, KDD 2021): shapes, wherever they are."""

    options_model: type[BaseModel] = MiniRocketOptions
    terms = ("minirocket.distance",)

    def fit_distance(self, x_nCL: Tensor, lengths_n: Tensor, seed: int) -> tuple[nn.Module, Tensor]:
        """Return the distance to the nearest window's features; ``seed`` draws channels and biases."""
        from streamad_models.simple.nearest import fit_features  # noqa: PLC0415

        return fit_features(x_nCL, lengths_n, self.options.n_features, seed)
