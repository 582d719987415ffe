from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from streamad_models.neutral_ad import NeutralADOptions, NeutralADTabularOptions
from streamad_models.neutral_ad.encoder import depth_for_length

# The published settings of sequences: L, stride-2 blocks, z, T_k, temperature.
PUBLISHED = [
    ("spoken_arabic_digits", 50, 4, 32, "residual", 0.1),
    ("natops", 51, 4, 64, "multiplicative", 0.1),
    ("character_trajectories", 182, 6, 64, "multiplicative", 0.1),
    ("epilepsy", 206, 6, 128, "residual", 0.2),
    ("racket_sports", 30, 3, 64, "feed_forward", 0.1),
]


# The published settings of tables: T_k, mask width, encoder width, z, batch, rate, epochs, weight decay, batch norm.
PUBLISHED_TABLES = {
    "arrhythmia": ("residual", 200, 64, 32, 128, 5e-4, 200, 1e-5, True),
    "thyroid": ("residual", 24, 24, 24, 128, 1e-3, 200, 1e-5, False),
    "kdd": ("multiplicative", 100, 64, 32, 1000, 5e-4, 10, 0.0, False),
    "kdd_rev": ("multiplicative", 100, 64, 32, 1000, 5e-4, 30, 0.0, False),
}


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


@pytest.mark.parametrize(("name", "expected"), PUBLISHED_TABLES.items())
def test_presets_of_tables_are_the_published_settings(name: str, expected: tuple[object, ...]) -> None:
    preset = NeutralADTabularOptions.from_preset(name)
    widths = (preset.mask_width, preset.encoder_width, preset.embedding_dim)
    training = (preset.batch_size, preset.learning_rate, preset.epochs, preset.weight_decay)
    assert (preset.transformation, *widths, *training, preset.batch_norm) == expected
    assert (preset.n_transformations, preset.temperature, preset.validation) == (11, 0.1, 0.0)
    assert preset.halve_rate_after == (100 if name == "arrhythmia" else None)


@pytest.mark.parametrize(
    ("n_attributes", "expected"), [(1, (24, 24, 24)), (6, (24, 24, 24)), (120, (120, 64, 32)), (274, (200, 64, 32))]
)
def test_widths_follow_the_number_of_attributes(n_attributes: int, expected: tuple[int, int, int]) -> None:
    assert tuple(NeutralADTabularOptions().widths_of(n_attributes).values()) == expected
    assert NeutralADTabularOptions(mask_width=3).widths_of(n_attributes)["mask_width"] == 3


SEQUENCES, TABLES = NeutralADOptions, NeutralADTabularOptions


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (SEQUENCES, {"preset": ["natops"]}),
        (SEQUENCES, {"n_transformations": 1}),
        (SEQUENCES, {"temperature": 0}),
        (SEQUENCES, {"transformation": "additive"}),
        (SEQUENCES, {"n_blocks": -1}),
        (SEQUENCES, {"n_blocks": "deep"}),
        (SEQUENCES, {"validation": 0.9}),
        (SEQUENCES, {"epochs": 0}),
        (SEQUENCES, {"batch_size": 0}),
        (SEQUENCES, {"preset": "unknown"}),
        (SEQUENCES, {"lr": 1e-3}),
        (TABLES, {"mask_width": 0}),
        (TABLES, {"halve_rate_after": 0}),
        (TABLES, {"preset": "natops"}),
        (TABLES, {"n_blocks": 3}),
        (TABLES, {"batch_size": 1, "batch_norm": True}),
    ],
)
def test_wrong_values_and_unknown_keys_are_refused(options: type[BaseModel], wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        options.model_validate(wrong)
