from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.paper.neutral_ad_tabular.options import TABULAR_PRESETS, NeutralADTabularOptions

# The published settings of tables: T_k, mask width, encoder width, z, batch, rate, epochs, weight decay, batch norm.
PUBLISHED_TABLES = {
    "arrhythmia": ("residual", 200, 64, 32, 128, 5e-4, 200, 1e-5, True),
    "thyroid": ("residual", 24, 24, 24, 128, 1e-3, 200, 1e-5, False),
    "kdd": ("multiplicative", 100, 64, 32, 1000, 5e-4, 10, 0.0, False),
    "kdd_rev": ("multiplicative", 100, 64, 32, 1000, 5e-4, 30, 0.0, False),
}


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


def test_no_table_stops_at_a_still_loss() -> None:
    assert NeutralADTabularOptions().patience is None
    assert {NeutralADTabularOptions.from_preset(name).patience for name in TABULAR_PRESETS} == {None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"mask_width": 0},
        {"halve_rate_after": 0},
        {"preset": "natops"},
        {"n_blocks": 3},
        {"batch_size": 1, "batch_norm": True},
    ],
)
def test_wrong_values_and_unknown_keys_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        NeutralADTabularOptions.model_validate(wrong)
