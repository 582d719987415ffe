"""The benchmark of few and short windows: its wrong samples, its table, and what is stored of it."""

from __future__ import annotations

import numpy as np

from benchmarks.quality.short_windows import CHOOSING, VARIANTS, Cell, read_cells, spiked, table
from streamad_models.neutral_ad import NeutralADOptions
from tests.unit.models.small import sines

DEFAULT = "multiplicative/quantiles"


def test_the_variant_that_the_page_calls_the_default_is_the_products() -> None:
    assert NeutralADOptions.model_validate(VARIANTS[DEFAULT]) == NeutralADOptions()


def test_one_sample_of_each_channel_is_wrong_and_the_others_stay() -> None:
    data = sines()
    wrong = spiked(data, 0)
    moved = np.argwhere(wrong.values != data.values)
    assert sorted(moved[:, 1].tolist()) == [0, 1, 2]
    assert all(step < data.lengths[window] for window, _, step in moved)
    assert (wrong.values - data.values).max() > 40 * data.values.std()


def test_the_table_has_the_means_of_each_set_and_says_which_sets_chose() -> None:
    cells = [
        Cell("natops", "one_vs_rest", 0, 12, DEFAULT, 0, auc=90.0, epochs=40),
        Cell("natops", "one_vs_rest", 1, 12, DEFAULT, 0, auc=80.0, epochs=50),
        Cell("ArrowHead", "one_vs_rest", 0, 0, "former", 0, auc=70.0, epochs=100, spike=True),
    ]
    assert table(cells).splitlines() == [
        "ArrowHead, one_vs_rest, all windows, spiked (reports)",
        "  former                    70.0   1 fits  100.0 epochs    0.0 s",
        "natops, one_vs_rest, 12 windows (chooses)",
        "  multiplicative/quantiles  85.0   2 fits   45.0 epochs    0.0 s",
    ]


def test_stored_cells_have_former_and_default_of_sets_that_chose_and_of_others() -> None:
    cells = read_cells()
    assert len({cell.key for cell in cells}) == len(cells)
    measured = {variant: {cell.dataset for cell in cells if cell.variant == variant} for variant in ("former", DEFAULT)}
    assert measured[DEFAULT] > set(CHOOSING)
    assert measured["former"] - set(CHOOSING)
