"""The rate over splits: each judges what did not train, and the stored ones keep the law."""

from __future__ import annotations

import pytest

from benchmarks.quality.split_rates import CASES, Case, line_of, read_cases, shares_of
from tests.support.walks import walks


def test_splits_judge_the_batches_that_did_not_train() -> None:
    shares = list(shares_of(list(walks(60, length=12)), "nearest", 0.25, 40, 2))
    assert len(shares) == 2
    assert all(20 * share == round(20 * share) for share in shares)


@pytest.mark.parametrize("case", read_cases(), ids=lambda case: case.detector)
def test_the_achieved_rate_of_two_hundred_splits_is_at_most_the_configured_one(case: Case) -> None:
    """Law: at most the configured rate, plus two standard errors."""
    assert (case.detector, case.rate, case.n_training) in CASES
    assert len(case.shares) == 200
    assert case.mean <= case.rate + 2 * case.error
    assert "over 200 splits" in line_of(case)
