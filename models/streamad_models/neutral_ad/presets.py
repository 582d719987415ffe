"""The settings under which the paper's numbers come out, one per data set (public settings; see docs/model.md)."""

from __future__ import annotations

__all__ = ["PRESETS", "TABULAR_PRESETS", "PresetName", "TabularPresetName"]

from typing import Any, Final, Literal

PresetName = Literal["spoken_arabic_digits", "natops", "character_trajectories", "epilepsy", "racket_sports"]
TabularPresetName = Literal["arrhythmia", "thyroid", "kdd", "kdd_rev"]

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
}

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "spoken_arabic_digits": {**_COMMON, "n_blocks": 4, "embedding_dim": 32, "transformation": "residual"},
    "natops": {**_COMMON, "n_blocks": 4, "embedding_dim": 64, "transformation": "multiplicative"},
    "character_trajectories": {**_COMMON, "n_blocks": 6, "embedding_dim": 64, "transformation": "multiplicative"},
    "epilepsy": {**_COMMON, "n_blocks": 6, "embedding_dim": 128, "transformation": "residual", "temperature": 0.2},
    "racket_sports": {**_COMMON, "n_blocks": 3, "embedding_dim": 64, "transformation": "feed_forward"},
}

_TABULAR: Final[dict[str, Any]] = {"n_transformations": 11, "temperature": 0.1, "validation": 0.0}

# The continuous attributes of KDD are standardised with its symbolic ones made one-hot, before the detector sees them.
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
