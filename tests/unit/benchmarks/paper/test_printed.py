"""The paper's numbers as data: all of them, at their places."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.paper.report.printed import METHODS, PRINTED, REMARKS, TABULAR_METHODS, Printed, printed


@pytest.mark.parametrize(
    ("table", "dataset", "method", "mean", "std"),
    [
        (1, "spoken_arabic_digits", "oc_svm", 95.3, None),
        (1, "natops", "neutral_ad", 94.5, 0.8),
        (1, "epilepsy", "fixed_transformations", 80.4, 2.2),
        (2, "character_trajectories", "lof", 90.3, None),
        (2, "racket_sports", "dagmm", 47.8, 3.5),
        (3, "arrhythmia", "drocc", 46.0, None),
        (3, "kdd_rev", "neutral_ad", 99.1, 0.1),
    ],
)
def test_numbers_stand_at_their_places(table: int, dataset: str, method: str, mean: float, std: float | None) -> None:
    assert printed(table, dataset, method) == Printed(mean, std)


def test_a_number_that_the_paper_does_not_print_is_none() -> None:
    assert printed(3, "kdd", "drocc") is None
    assert printed(1, "natops", "minirocket") is None


def test_no_number_is_missing() -> None:
    assert Counter(place.table for place in PRINTED) == {
        1: 5 * len(METHODS),
        2: 5 * 11,
        3: 4 * len(TABULAR_METHODS) - 2,
    }


def test_the_exchanged_columns_are_remarked_on() -> None:
    assert {(place.dataset, place.method) for place in REMARKS} == {("natops", "oc_svm"), ("natops", "lof")}
