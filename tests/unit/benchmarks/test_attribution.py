"""The benchmark of attributions: what it injects, and how it counts."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.quality.attribution import KINDS, injected, overlap, pooled
from streamad.judge.attribution import Explanation, Segment


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [8, 51, 206])
def test_a_fault_changes_its_place_alone_and_at_most_a_quarter(kind: str, n: int) -> None:
    course = np.random.default_rng(0).normal(size=n).astype(np.float32)
    for seed in range(20):
        broken, (first, end) = injected(course, kind, 4.0, np.random.default_rng(seed))
        changed = np.flatnonzero(broken != course)
        assert len(changed) or (kind == "stuck" and first == 0)  # a single first reading has none before it
        assert all(first <= at < end for at in changed)
        assert 1 <= end - first <= max(1, n // 4)


def explained(channel: int, start: float, end: float) -> Explanation:
    return Explanation(np.array([0.9, 0.1]), (), (Segment(channel, start, end, "above", 1.0),))


@pytest.mark.parametrize(
    ("channel", "start", "end", "expected"),
    [
        (0, 0.4, 0.5, (True, 2 / 3, 4 / 10)),  # samples 4 and 5 of 4 to 6
        (0, 0.7, 0.8, (False, 0.0, 4 / 10)),
        (1, 0.4, 0.6, (False, 0.0, 5 / 9)),
        (0, 0.0, 1.0, (True, 3 / 11, 1.0)),
    ],
)
def test_an_overlap_counts_in_the_known_channel_alone(
    channel: int, start: float, end: float, expected: tuple[bool, float, float]
) -> None:
    assert overlap(explained(channel, start, end), 0, (4, 7), 11) == pytest.approx(expected)


def test_an_explanation_without_segments_overlaps_nothing() -> None:
    assert overlap(Explanation(np.zeros(2), ()), 0, (4, 7), 11) == (False, 0.0, 0.0)


def test_pooled_figures_count_cases_not_rows() -> None:
    nothing = {"n_detected": 0, "first": None, "overlaps": None}
    rows = [
        {"n_detected": 30, "first": 1.0, "overlaps": 0.8},
        {"n_detected": 10, "first": 0.6, "overlaps": 0.4},
        nothing,
    ]
    assert pooled(rows) == {"n_detected": 40, "first": 0.9, "overlaps": 0.7}
    assert pooled([nothing]) == {"n_detected": 0, "first": None, "overlaps": None}
