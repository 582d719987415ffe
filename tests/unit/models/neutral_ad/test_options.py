from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from streamad_models.neutral_ad import NeutralADOptions
from streamad_models.neutral_ad.networks import depth_for_length

# The published settings of sequences: L, stride-2 blocks, z, T_k, temperature.
PUBLISHED = [
    ("spoken_arabic_digits", 50, 4, 32, "residual", 0.1),
    ("natops", 51, 4, 64, "multiplicative", 0.1),
    ("character_trajectories", 182, 6, 64, "multiplicative", 0.1),
    ("epilepsy", 206, 6, 128, "residual", 0.2),
    ("racket_sports", 30, 3, 64, "feed_forward", 0.1),
]


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda published: published[0])
def test_presets_are_the_published_settings(published: tuple[str, int, int, int, str, float]) -> None:
    name, length, n_blocks, z, transformation, temperature = published
    preset = NeutralADOptions.from_preset(name)
    assert (preset.n_blocks, preset.embedding_dim) == (n_blocks, z)
    assert (preset.transformation, preset.temperature) == (transformation, temperature)
    assert (preset.n_transformations, preset.scaling, preset.epochs) == (11, "none", 100)
    assert (preset.learning_rate, preset.weight_decay, preset.batch_size) == (1e-3, 1e-5, "quarter")
    assert depth_for_length(length) == n_blocks


def test_what_is_named_beside_a_preset_wins() -> None:
    chosen = NeutralADOptions.model_validate({"preset": "natops", "epochs": 7})
    assert (chosen.epochs, chosen.transformation, chosen.scaling) == (7, "multiplicative", "none")


@pytest.mark.parametrize(
    "wrong",
    [
        {"preset": ["natops"]},
        {"n_transformations": 1},
        {"temperature": 0},
        {"transformation": "additive"},
        {"n_blocks": -1},
        {"n_blocks": "deep"},
        {"validation": 0.9},
        {"epochs": 0},
        {"batch_size": 0},
        {"preset": "unknown"},
        {"lr": 1e-3},
    ],
)
def test_wrong_values_and_unknown_keys_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        NeutralADOptions.model_validate(wrong)
