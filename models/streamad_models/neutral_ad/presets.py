"""The settings under which the paper's numbers come out, one per data set (public settings; see docs/model.md)."""

from __future__ import annotations

__all__ = ["PRESETS", "PresetName"]

from typing import Any, Final, Literal

PresetName = Literal["spoken_arabic_digits", "natops", "character_trajectories", "epilepsy", "racket_sports"]

# K = 11, Adam 1e-3 with weight decay 1e-5, 100 epochs, batch = a quarter, no input scaling, in all five.
_COMMON: Final[dict[str, Any]] = {
    "n_transformations": 11,
    "temperature": 0.1,
    "scaling": "none",
    "epochs": 100,
    "learning_rate": 1e-3,
    "weight_decay": 1e-5,
    "validation": 0.0,
}

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "spoken_arabic_digits": {**_COMMON, "n_blocks": 4, "embedding_dim": 32, "transformation": "residual"},
    "natops": {**_COMMON, "n_blocks": 4, "embedding_dim": 64, "transformation": "multiplicative"},
    "character_trajectories": {**_COMMON, "n_blocks": 6, "embedding_dim": 64, "transformation": "multiplicative"},
    "epilepsy": {**_COMMON, "n_blocks": 6, "embedding_dim": 128, "transformation": "residual", "temperature": 0.2},
    "racket_sports": {**_COMMON, "n_blocks": 3, "embedding_dim": 64, "transformation": "feed_forward"},
}
