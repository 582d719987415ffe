from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad_models.ensemble.neighbours import LOCALITY, Neighbours, Reference, fit_reference


def rows(n: int, n_features: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 8)) @ rng.normal(size=(8, n_features)) + 0.3 * rng.normal(size=(n, n_features))


def logs(reference: Reference, features: np.ndarray) -> np.ndarray:
    return Neighbours(reference)(torch.from_numpy(features).float()).numpy()


def by_definition(reference: Reference, known: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the two measures of standardised ``new`` [D] among ``known`` [N, D], computed without shortcuts."""
    ridge, k = reference.ridge / (1 + 1 / len(reference.points)), reference.n_neighbours

    def deviation(at: np.ndarray, others: np.ndarray) -> float:
        """Of a Gaussian process with an unknown mean: a linear kernel plus a constant that dominates it."""
        kernel = others @ others.T + 1e6 + ridge * np.eye(len(others))
        cross = others @ at + 1e6
        return float(np.sqrt(at @ at + 1e6 - cross @ np.linalg.solve(kernel, cross) + ridge))

    def distance(at: np.ndarray, others: np.ndarray) -> float:
        return float(np.sort(np.linalg.norm(others - at, axis=1))[:k].mean()) + reference.floor

    nearest = np.argsort(np.linalg.norm(known - new, axis=1))[:k]
    rest = [(known[j], np.delete(known, j, axis=0)) for j in nearest]
    return np.array(
        [
            np.log(measure(new, known)) - LOCALITY * np.mean([np.log(measure(*each)) for each in rest])
            for measure in (distance, deviation)
        ]
    )


@pytest.mark.parametrize("n", [4, 8, 30])
def test_the_measures_are_those_of_their_definition(n: int) -> None:
    features, new = rows(n), rows(5, seed=1)
    reference = fit_reference(features)
    known, others = ((part - reference.mean) * reference.factor for part in (features, new))
    expected = np.array([by_definition(reference, known, each) for each in others])
    np.testing.assert_allclose(logs(reference, new), expected, atol=0.02)


@pytest.mark.parametrize("n", [4, 8, 30])
def test_a_training_window_s_own_values_are_those_without_it(n: int) -> None:
    features = rows(n)
    reference = fit_reference(features)
    known = (features - reference.mean) * reference.factor
    expected = [by_definition(reference, np.delete(known, i, axis=0), known[i]) for i in range(n)]
    if n > 5:  # else fewer neighbours are left than the reference has
        np.testing.assert_allclose(reference.training_logs[:, 0], np.array(expected)[:, 0], atol=0.02)
    np.testing.assert_allclose(reference.training_logs[:, 1], np.array(expected)[:, 1], atol=0.05)


def test_a_window_far_from_all_others_is_far_also_where_it_trained() -> None:
    features = rows(30)
    features[7] = 10 * rows(1, seed=3)[0]
    reference = fit_reference(features)
    assert (np.argmax(reference.training_logs, axis=0) == 7).all()


def test_equal_windows_and_their_copies_give_finite_values() -> None:
    reference = fit_reference(np.ones((6, 10)))
    assert np.isfinite(reference.training_logs).all()
    found = logs(reference, np.stack([np.ones(10), np.full(10, 2.0), np.full(10, 1e30)]))
    assert np.isfinite(found).all()
    assert (np.diff(found, axis=0)[0] > 0).all()
    twice = fit_reference(np.repeat(rows(8), 2, axis=0))
    assert np.isfinite(twice.training_logs).all()


def test_a_mode_of_small_spread_has_its_own_measure() -> None:
    rng = np.random.default_rng(0)
    tight, wide = rng.normal(0, 0.05, (20, 10)), 8 + rng.normal(0, 1.0, (20, 10))
    reference = fit_reference(np.concatenate([tight, wide]))
    beside_tight, within_wide = np.full((1, 10), 0.3), 8 + rng.normal(0, 1.0, (1, 10))
    found = logs(reference, np.concatenate([beside_tight, within_wide]))
    assert found[0, 0] > found[1, 0]


@pytest.mark.parametrize("max_dimensions", [512, 110, 100, 24])
def test_new_windows_have_the_values_of_training_windows_without_themselves(max_dimensions: int) -> None:
    features = np.random.default_rng(0).normal(size=(160, 400))  # most of a window lies outside 24 directions
    reference = fit_reference(features[:120], max_dimensions=max_dimensions)
    training, new = reference.training_logs, logs(reference, features[120:])
    spread = training.std(axis=0)
    assert (np.abs(np.median(new, axis=0) - np.median(training, axis=0)) < 0.5 * spread).all()
