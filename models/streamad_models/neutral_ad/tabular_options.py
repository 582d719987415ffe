"""What a user may set about NeuTraL AD for tables, with the ranges that make sense."""

from __future__ import annotations

__all__ = ["NeutralADTabularOptions"]

from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from streamad_models.neutral_ad.data import Scaling
from streamad_models.neutral_ad.options import TrainingOptions
from streamad_models.neutral_ad.presets import TABULAR_PRESETS, TabularPresetName
from streamad_models.neutral_ad.transformations import Parametrisation

Width = Literal["auto"] | PositiveInt
_NARROWEST = 24


class NeutralADTabularOptions(TrainingOptions):
    """Settings of the model and its training; defaults and their reasons are in docs/model.md.

    ``preset`` takes a published data set's settings as the starting point; what is named beside it wins.
    """

    preset: TabularPresetName | None = Field(default=None, description="published settings to start from")
    transformation: Parametrisation = Field(default="residual", description="form of T_k")
    mask_width: Width = Field(default="auto", description="hidden width of M_k; auto = D, within 24..200")
    encoder_width: Width = Field(default="auto", description="hidden width; auto = D, within 24..64")
    embedding_dim: Width = Field(default="auto", description="z; auto = D, within 24..32")
    scaling: Scaling = Field(default="range", description="per attribute, from training rows")
    batch_norm: bool = Field(default=False, description="batch norm without affine in the encoder")
    batch_size: Literal["auto", "quarter"] | PositiveInt = Field(
        default=128, description="quarter = a quarter of the training set; auto = the same, at most 256"
    )
    epochs: PositiveInt = 200
    halve_rate_after: PositiveInt | None = Field(default=None, description="epoch after which the rate is halved")

    @model_validator(mode="before")
    @classmethod
    def _start_from_preset(cls, values: Any) -> Any:
        name = values.get("preset") if isinstance(values, dict) else None
        return {**TABULAR_PRESETS[name], **values} if isinstance(name, str) and name in TABULAR_PRESETS else values

    @model_validator(mode="after")
    def _batch_norm_needs_two_rows(self) -> Self:
        if self.batch_norm and self.batch_size == 1:
            raise ValueError("batch_size 1: batch norm needs at least 2 rows a batch")
        return self

    @classmethod
    def from_preset(cls, name: TabularPresetName, **changes: Any) -> Self:
        """Return the settings published for a data set, with ``changes`` applied."""
        return cls.model_validate({"preset": name, **changes})

    def learning_rate_of(self, epoch: int) -> float:
        """Return the learning rate of ``epoch`` (the first is 1)."""
        halved = self.halve_rate_after is not None and epoch > self.halve_rate_after
        return self.learning_rate / 2 if halved else self.learning_rate

    def widths_of(self, n_attributes: int) -> dict[str, int]:
        """Return mask_width, encoder_width and embedding_dim for rows of D attributes.

        "auto" gives those of Arrhythmia (D = 274) and Thyroid (D = 6), and of KDD (D = 120) all but the mask width.

        >>> NeutralADTabularOptions().widths_of(6)
        {'mask_width': 24, 'encoder_width': 24, 'embedding_dim': 24}
        """
        widest = {"mask_width": 200, "encoder_width": 64, "embedding_dim": 32}
        chosen = {name: getattr(self, name) for name in widest}
        derived = {name: min(max(n_attributes, _NARROWEST), limit) for name, limit in widest.items()}
        return {name: derived[name] if value == "auto" else value for name, value in chosen.items()}
