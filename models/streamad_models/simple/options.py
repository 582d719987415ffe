"""The settings of the simple kinds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


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
