"""The settings of NeuTraL AD, and the published ones of the paper's data sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from streamad_models.neutral_ad.data import Scaling

Parametrisation = Literal["feed_forward", "residual", "multiplicative"]
PresetName = Literal["spoken_arabic_digits", "natops", "character_trajectories", "epilepsy", "racket_sports"]

MAX_AUTO_BATCH = 256

# K = 11, Adam 1e-3 with weight decay 1e-5, 100 epochs, batch = a quarter, no input scaling, in all five.
_COMMON: Final[dict[str, Any]] = {
    "n_transformations": 11,
    "temperature": 0.1,
    "scaling": "none",
    "epochs": 100,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "batch_size": "quarter",
    "validation": 0.0,
    "patience": None,
}

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "spoken_arabic_digits": {**_COMMON, "n_blocks": 4, "embedding_dim": 32, "transformation": "residual"},
    "natops": {**_COMMON, "n_blocks": 4, "embedding_dim": 64, "transformation": "multiplicative"},
    "character_trajectories": {**_COMMON, "n_blocks": 6, "embedding_dim": 64, "transformation": "multiplicative"},
    "epilepsy": {**_COMMON, "n_blocks": 6, "embedding_dim": 128, "transformation": "residual", "temperature": 0.2},
    "racket_sports": {**_COMMON, "n_blocks": 3, "embedding_dim": 64, "transformation": "feed_forward"},
}


class TrainingOptions(BaseModel):
    """Settings of the views, the loss and the training, whatever the networks are made of.

    ``preset`` takes a published data set's settings as the starting point; the keys named beside it override it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    transformation: Parametrisation = Field(default="multiplicative", description="form of T_k")
    n_transformations: int = Field(default=11, ge=2, le=64, description="K")
    temperature: PositiveFloat = Field(default=0.1, description="tau of equation 1")
    scaling: Scaling = Field(default="quantiles", description="per channel, from training windows")
    epochs: PositiveInt = 100
    learning_rate: PositiveFloat = 1e-3
    weight_decay: float = Field(default=1e-5, ge=0)
    batch_size: Literal["auto", "quarter"] | PositiveInt = Field(
        default="auto", description="quarter = a quarter of the training set; auto = the same, at most 256"
    )
    validation: Literal["auto"] | Annotated[float, Field(ge=0, le=0.5)] = Field(
        default="auto", description="share watched, not trained on"
    )
    patience: PositiveInt | None = Field(
        default=None, description="stop if the loss fell by less than 0.01 in so many epochs; null: never"
    )
    time_limit_s: PositiveFloat | None = Field(
        default=None, description="stop at the end of the epoch that reaches it; model.time_limit sets it"
    )

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, dict) else None
        return {**cls.presets[name], **values} if isinstance(name, str) and name in cls.presets else values

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Return the settings published for a data set, with ``changes`` applied."""
        return cls.model_validate({"preset": name, **changes})

    def batch_size_of(self, n_sequences: int) -> int:
        """Return the batch size for so many training sequences; never more than there are."""
        if isinstance(self.batch_size, int):
            return min(self.batch_size, n_sequences)
        quarter = max(n_sequences // 4, 1)
        return quarter if self.batch_size == "quarter" else min(quarter, MAX_AUTO_BATCH)

    def learning_rate_of(self, epoch: int) -> float:
        """Return the learning rate of ``epoch`` (the first is 1)."""
        del epoch
        return self.learning_rate


class NeutralADOptions(TrainingOptions):
    """Settings of the model of sequences and its training; docs/model/model.md has the reasons for the defaults."""

    presets = PRESETS
    preset: PresetName | None = Field(default=None, description="published settings to start from")
    embedding_dim: Literal["auto"] | PositiveInt = Field(default="auto", description="z; auto = 64")
    n_blocks: Literal["auto"] | Annotated[int, Field(ge=0, le=16)] = Field(
        default="auto", description="stride-2 blocks; auto = from the length"
    )
    base_width: PositiveInt = Field(default=32, description="width of the encoder's first blocks")
    patience: PositiveInt | None = Field(
        default=10, description="stop if the loss fell by less than 0.01 in so many epochs; null: never"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="of the encoder's products in training; scores are float32 always"
    )
