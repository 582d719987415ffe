"""Looks on their own scales, and the share of normal sequences that is ever warned of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.early.model import HIGHEST_Z, NO_LOOK, Look, early_model, form_of
from streamad.types import FloatArray, IntArray, Window


class Levels:
    """Scores each window by the mean of its first kept channel."""

    window_shape = (1, 3)
    n_terms = 1

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        assert (lengths == windows.shape[2]).all()
        return np.asarray(windows[:, 0].mean(axis=1, keepdims=True), dtype=np.float32)


def windows_of(*courses: list[list[float]]) -> list[Window]:
    return [Window(np.array(course, dtype=np.float32), len(course[0])) for course in courses]


def test_a_z_is_the_distance_of_the_logarithm_from_the_median_in_spreads_of_training() -> None:
    own = np.exp(np.linspace(-1, 1, 101)).astype(np.float32)[:, None]
    form = form_of(3, {}, own)
    assert form.median == pytest.approx(0.0, abs=1e-6)
    assert form.spread == pytest.approx(0.68, abs=1e-6)
    look = Look(form, Levels())
    found = look.z(windows_of([[1, 1, 1]], [[np.e] * 3]))
    assert found.tolist() == [0.0, round(1024 / 0.68) / 1024]


def test_equal_training_scores_make_no_huge_z() -> None:
    form = form_of(3, {}, np.ones((20, 1), np.float32))
    assert Look(form, Levels()).z(windows_of([[1.01] * 3])) == [round(np.log(1.01) / 0.02 * 1024) / 1024]


def test_a_calibration_sequence_that_is_looked_at_again_counts_itself() -> None:
    rng = np.random.default_rng(0)
    look = Look(form_of(3, {}, np.exp(rng.normal(0, 1, (50, 1))).astype(np.float32), -0.7), Levels())
    levels = np.exp(np.sort(rng.normal(0, 2, 40)))
    again = levels * (1 + 1e-7 * rng.standard_normal(40))  # as scored in another batch
    calibrating, found = (
        look.z(windows_of(*[[[level] * 3] for level in each])) for each in (levels.tolist(), again.tolist())
    )
    model = early_model([look], calibrating, rate=0.5)
    assert [model.p_value(each)[0] for each in found.tolist()] == [(41 - rank) / 41 for rank in range(40)]


def test_a_channel_that_stood_still_in_training_is_not_scored_and_said_to_have_moved() -> None:
    look = Look(form_of(3, {0: 250.0}, np.ones((20, 1), np.float32)), Levels())
    still, moved = windows_of([[250, 250, 250], [1, 1, 1]], [[250, 250, 251], [1, 1, 1]])
    assert look.z([still, moved]) == pytest.approx([0.0, 0.0], abs=1e-6)
    assert (look.moved(still), look.moved(moved)) == (set(), {0})
    rounded = float(np.float32(250) * np.float32(1 + 2e-7))
    assert look.moved(windows_of([[250, 250, rounded], [1, 1, 1]])[0]) == set()


def test_the_p_value_is_that_of_the_largest_z_of_whole_sequences() -> None:
    model = early_model([], np.array([NO_LOOK, 1.0, 2.0, 3.0]), rate=0.5)
    assert model.p_value(0.5) == (4 / 5, "empirical")
    assert model.p_value(3.5) == (1 / 5, "empirical")
    assert early_model([], np.array([1.0, 2.0, 3.0]), rate=0.01).p_value(9.0)[1] == "extrapolated"


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.integers(1, 60), st.integers(0, 2**32))
def test_the_p_value_never_rises_from_look_to_look(zs: list[float], n: int, seed: int) -> None:
    maxima = np.random.default_rng(seed).normal(2, 1, n)
    for rate in (0.9, 0.001):
        model = early_model([], maxima, rate)
        found = [model.p_value(largest)[0] for largest in np.maximum.accumulate(zs).tolist()]
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("n_looks", [1, 10, 40])
def test_a_normal_sequence_is_ever_warned_of_at_most_at_the_rate_whatever_the_number_of_looks(n_looks: int) -> None:
    rng, rate, n = np.random.default_rng(n_looks), 0.05, 79
    shares = []
    for _ in range(200):
        # Looks of a sequence hang together; a third of the sequences ends early, and so has fewer looks.
        z = rng.standard_t(5, (n + 200, n_looks)).cumsum(axis=1) / np.sqrt(np.arange(1, n_looks + 1))
        z[rng.random(n + 200) < 1 / 3, n_looks // 2 + 1 :] = NO_LOOK
        model = early_model([], z[:n].max(axis=1), rate)
        so_far = np.maximum.accumulate(z[n:], axis=1)
        warned = [any(model.p_value(largest)[0] <= rate for largest in row) for row in so_far.tolist()]
        shares.append(np.mean(warned))
    assert np.mean(shares) <= rate + 2 * np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) > rate / 2


@pytest.mark.parametrize(
    ("longest", "due"), [(None, [0, 1, 1, 2, 2, 2]), (6, [0, 1, 1, 2, 2, 3]), (5, [0, 1, 1, 2, 3, 3])]
)
def test_beyond_the_longest_training_sequence_one_more_is_due(longest: int | None, due: list[int]) -> None:
    forms = [form_of(age, {}, np.ones((20, 1), np.float32)) for age in (3, 5)]
    model = early_model([Look(form, Levels()) for form in forms], np.zeros(9), 0.1, longest=longest)
    assert [model.n_due(n) for n in (2, 3, 4, 5, 6, 7)] == due


class Broken(Levels):
    """Scores nothing that is a number."""

    def score(self, windows: FloatArray, lengths: IntArray) -> FloatArray:
        return np.array([[np.nan], [np.inf], [0.0]], dtype=np.float32)


def test_a_z_is_always_a_number() -> None:
    form = form_of(3, {}, np.ones((20, 1), np.float32))
    odd, beyond, none = Look(form, Broken()).z(windows_of(*[[[1, 1, 1]]] * 3))
    assert (odd, beyond) == (HIGHEST_Z, HIGHEST_Z)
    assert NO_LOOK <= none < 0
