"""The tasks of the study: which classes are normal, how many there are, in which order they are run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from benchmarks.paper.protocols import CLASSES, FIGURES, TABLES, Block, blocks_of, normal_sets, variants_of
from benchmarks.paper.results_table import Cell


def test_one_against_the_rest_takes_each_class_in_turn() -> None:
    sets = normal_sets(Block("character_trajectories", "one_vs_rest", 1))
    assert list(sets.values()) == [(number,) for number in range(1, 21)]
    assert list(sets) == [str(number) for number in range(1, 21)]


def test_n_against_the_rest_leaves_each_class_out_in_turn() -> None:
    assert normal_sets(Block("epilepsy", "n_vs_rest", 2)) == {
        "not-0": (1, 2, 3),
        "not-1": (0, 2, 3),
        "not-2": (0, 1, 3),
        "not-3": (0, 1, 2),
    }


@pytest.mark.parametrize("dataset", ["natops", "spoken_arabic_digits"])
def test_the_sweep_has_every_run_of_consecutive_classes_between_the_two_protocols(dataset: str) -> None:
    sets, n_classes = normal_sets(Block(dataset, "sweep", 3)), len(CLASSES[dataset])
    assert len(sets) == n_classes * (n_classes - 3)
    assert {len(normal) for normal in sets.values()} == set(range(2, n_classes - 1))
    assert len({frozenset(normal) for normal in sets.values()}) == len(sets)
    for name, normal in sets.items():
        assert all((b - a) % n_classes == 1 for a, b in pairwise(normal))
        assert name == f"{normal[0]}to{normal[-1]}"


def test_a_table_has_one_task_and_the_ablation_all_pairs_of_k_and_parametrisation() -> None:
    assert normal_sets(Block("kdd", "tabular", 1)) == {"inliers": ()}
    variants = variants_of(Block("arrhythmia", "ablation", 3))
    assert len(variants) == 3 * 14
    assert variants["feed_forward-k15"] == {"transformation": "feed_forward", "n_transformations": 15}
    assert variants_of(Block("arrhythmia", "tabular", 0)) == {"": {}}


def test_blocks_come_by_value_small_data_sets_of_tables_1_and_3_first_the_large_of_table_2_last() -> None:
    blocks = [(block.dataset, block.protocol) for block in blocks_of([], [])]
    assert len(blocks) == len(set(blocks)) == sum(map(len, [*TABLES.values(), *FIGURES.values()]))
    assert set(blocks[:5]) == {
        *((name, "one_vs_rest") for name in ("racket_sports", "epilepsy", "natops")),
        *((name, "tabular") for name in ("arrhythmia", "thyroid")),
    }
    assert {protocol for _, protocol in blocks[5:9]} == {"one_vs_rest", "tabular"}
    assert {protocol for _, protocol in blocks[9:12]} == {"n_vs_rest"}
    assert set(blocks[-2:]) == {("character_trajectories", "n_vs_rest"), ("spoken_arabic_digits", "n_vs_rest")}
    assert [block.protocol for block in blocks_of([3], [])] == ["tabular"] * 4
    assert {block.protocol for block in blocks_of([2], ["ablation"])} == {"n_vs_rest", "ablation"}


def test_no_two_cells_of_the_study_are_alike() -> None:
    cells = [
        Cell(block.dataset, block.protocol, "neutral_ad", 0, normal, name, variant)
        for block in blocks_of([], [])
        for name, normal in normal_sets(block).items()
        for variant in variants_of(block)
    ]
    assert len(set(cells)) == len(cells)
