"""The settings of the default detector."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

Effort = Literal["distances", "quick", "normal", "thorough"]
SpaceName = Literal["minirocket", "hydra", "intervals", "readings", "moments"]
SPACES: tuple[SpaceName, ...] = get_args(SpaceName)


class EnsembleOptions(BaseModel):
    """Settings of the default detector; docs/model/detector.md has the reasons for the defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_minirocket: int = Field(
        default=5_000, ge=84, le=100_000, description="MiniRocket's features; a multiple of 84 is taken"
    )
    n_groups: int = Field(default=32, ge=2, le=256, multiple_of=2, description="Hydra's groups of kernels a dilation")
    effort: Effort = Field(
        default="quick",
        description="distances: no network; quick: one where it trains in seconds; normal: always; thorough: six",
    )
    spaces: tuple[SpaceName, ...] = Field(
        default=SPACES, min_length=1, description="the feature spaces whose distances count; default all"
    )
    time_limit_s: PositiveFloat | None = Field(
        default=None, description="of all networks together; each stops at an epoch's end; model.time_limit sets it"
    )
