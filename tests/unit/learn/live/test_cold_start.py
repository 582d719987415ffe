"""What a verdict says before there is a model."""

from __future__ import annotations

import pytest

from streamad.learn.live.learner import cold_start_text


@pytest.mark.parametrize(
    ("n_kept", "is_training", "text"),
    [
        (0, False, "0 of 200"),
        (199, False, "199 of 200"),
        (200, False, "200 of 200"),
        (4321, False, "200 of 200"),
        (200, True, "200 of 200, the first model is being trained"),
    ],
)
def test_it_counts_up_to_what_the_first_training_needs(n_kept: int, is_training: bool, text: str) -> None:
    assert cold_start_text(n_kept, 200, is_training=is_training) == text


def test_it_names_what_it_counts_where_that_is_wanted() -> None:
    said = cold_start_text(60, 60, is_training=True, unit="sequences")
    assert said == "60 of 60 sequences, the first model is being trained"
