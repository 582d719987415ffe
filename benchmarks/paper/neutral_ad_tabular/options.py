"""The settings of NeuTraL AD for the rows of a table, and the published ones of the paper's tables."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from streamad_models.neutral_ad.data import Scaling
from streamad_models.neutral_ad.options import Parametrisation, TrainingOptions

TabularPresetName = Literal["arrhythmia", "thyroid", "kdd", "kdd_rev"]
Width = Literal["auto"] | PositiveInt

_NARROWEST = 24

_TABULAR: Final[dict[str, Any]] = {"n_transformations": 11, "temperature": 0.1, "validation": 0.0, "patience": None}

# The study makes KDD's symbolic attributes one-hot and standardises the others before the detector sees them.
_KDD: Final[dict[str, Any]] = {
    **_TABULAR,
    "transformation": "multiplicative",
    "mask_width": 100,
    "encoder_width": 64,
    "embedding_dim": 32,
    "scaling": "none",
    "batch_size": 1000,
    "learning_rate": 5e-4,
    "weight_decay": 0.0,
}

TABULAR_PRESETS: Final[dict[str, dict[str, Any]]] = {
    "arrhythmia": {
        **_TABULAR,
        "transformation": "residual",
        "mask_width": 200,
        "encoder_width": 64,
        "embedding_dim": 32,
        "batch_norm": True,
        "scaling": "none",
        "batch_size": 128,
        "learning_rate": 5e-4,
        "halve_rate_after": 100,
        "epochs": 200,
        "weight_decay": 1e-5,
    },
    "thyroid": {
        **_TABULAR,
        "transformation": "residual",
        "mask_width": 24,
        "encoder_width": 24,
        "embedding_dim": 24,
        "scaling": "none",
        "batch_size": 128,
        "learning_rate": 1e-3,
        "epochs": 200,
        "weight_decay": 1e-5,
    },
    "kdd": {**_KDD, "epochs": 10},
    "kdd_rev": {**_KDD, "epochs": 30},
}


class NeutralADTabularOptions(TrainingOptions):
    """Settings of the model of rows and its training; the package says why the defaults are what they are."""

    presets = TABULAR_PRESETS
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

    @model_validator(mode="after")
    def _batch_norm_needs_two_rows(self) -> Self:
        if self.batch_norm and self.batch_size == 1:
            raise ValueError("batch_size 1: batch norm needs at least 2 rows a batch")
        return self

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
