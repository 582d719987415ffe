from __future__ import annotations

import numpy as np
import pytest

from benchmarks.detector.modes import chosen_weights, held_out_modes, measures, weights_of
from streamad_models.ensemble.fitting import WEIGHTS
from streamad_models.ensemble.neighbours import LOCALITY, N_NEIGHBOURS, distances_of, fit_reference

PRIOR = {"minirocket": (1.0, 1.0), "hydra": (1.0, 1.0), "readings": (0.5, 0.0)}


def distances(points: np.ndarray) -> np.ndarray:
    return distances_of(points, (points**2).sum(axis=1))


def three_modes(n: int = 60, n_features: int = 10) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, n_features)) + 6 * np.eye(3, n_features)[np.arange(n) % 3]


def chosen(**points: np.ndarray) -> np.ndarray:
    spaces = {name: distances(each) for name, each in points.items()}
    return weights_of(spaces, PRIOR, n_neighbours=N_NEIGHBOURS, locality=LOCALITY)


def test_a_space_that_finds_a_held_out_mode_gains_weight_from_one_that_does_not() -> None:
    modes, noise = three_modes(), np.random.default_rng(1).normal(size=(60, 10))
    aligned = chosen(minirocket=modes, hydra=modes, readings=modes)
    shuffled = chosen(minirocket=modes, hydra=modes, readings=noise)
    assert aligned[4] > 0.4
    assert shuffled[4] < 0.05
    assert aligned.sum() == pytest.approx(4.5) == shuffled.sum()


def test_a_member_without_prior_weight_stays_out() -> None:
    modes = three_modes()
    assert chosen(minirocket=modes, hydra=modes, readings=modes)[5] == 0


@pytest.mark.parametrize("n", [3, 7, 8])
def test_too_few_windows_for_clusters_leave_the_prior(n: int) -> None:
    points = np.random.default_rng(0).normal(size=(n, 5))
    weights = chosen(minirocket=points, hydra=points, readings=points)
    assert np.isfinite(weights).all()
    if n < 8:
        assert weights.tolist() == [1, 1, 1, 1, 0.5, 0]


def test_equal_windows_and_copies_give_finite_weights() -> None:
    for points in (np.ones((40, 5)), np.repeat(np.random.default_rng(0).normal(size=(10, 5)), 4, axis=0)):
        weights = chosen(minirocket=points, hydra=points, readings=points)
        assert np.isfinite(weights).all()
        assert weights.sum() == pytest.approx(4.5)


def test_held_out_clusters_are_neither_single_windows_nor_most_of_them() -> None:
    points = np.concatenate([three_modes(), 100 + np.zeros((1, 10))])  # an outlier is a cluster of its own
    splits = list(held_out_modes({"minirocket": distances(points), "hydra": distances(points)}))
    assert splits
    for known, held_out in splits:
        assert 3 <= len(held_out) <= len(points) / 2
        assert sorted([*known, *held_out]) == list(range(len(points)))


def test_the_measures_from_distances_are_those_of_the_detector() -> None:
    rng = np.random.default_rng(0)
    reference = fit_reference(rng.normal(size=(40, 8)) @ rng.normal(size=(8, 30)))
    known = distances_of(reference.points, reference.squares)
    own, _ = measures(known, np.arange(40), np.arange(1), n_neighbours=N_NEIGHBOURS, locality=LOCALITY)
    for column in range(2):
        assert np.corrcoef(own[:, column], reference.training_logs[:, column])[0, 1] > 0.95


def test_the_choice_is_a_function_of_the_references_and_the_seed() -> None:
    points = three_modes(400)
    references = {name: fit_reference(points) for name in WEIGHTS}
    first, again = chosen_weights(references, 0), chosen_weights(references, 0)
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != chosen_weights(references, 1).tobytes()  # other 300 of 400 windows decide
