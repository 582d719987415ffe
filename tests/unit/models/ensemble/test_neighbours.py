from __future__ import annotations

import numpy as np
import pytest
import torch

from streamad_models.ensemble.neighbours import Neighbours, Reference, fit_reference


def rows(n: int, n_features: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 8)) @ rng.normal(size=(8, n_features)) + 0.3 * rng.normal(size=(n, n_features))


def logs(reference: Reference, features: np.ndarray) -> np.ndarray:
    return Neighbours(reference)(torch.from_numpy(features).float()).numpy()


def by_definition(reference: Reference, known: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return the three measures of standardised ``new`` [D] among ``known`` [N, D], computed without shortcuts."""
    ridge, k = reference.ridge / (1 + 1 / len(reference.points)), reference.n_neighbours

    def deviation(at: np.ndarray, others: np.ndarray) -> float:
        """Of a Gaussian process with an unknown mean: a linear kernel plus a constant that dominates it."""
        kernel = others @ others.T + 1e6 + ridge * np.eye(len(others))
        cross = others @ at + 1e6
        return float(np.sqrt(at @ at + 1e6 - cross @ np.linalg.solve(kernel, cross) + ridge))

    def distance(at: np.ndarray, others: np.ndarray) -> float:
        squares = np.sort(((others - at) ** 2).sum(axis=1))[:k]
        return float(np.sqrt(squares + reference.floor**2).mean())

    apart = np.sqrt(((known - new) ** 2).sum(axis=1) + reference.floor**2)
    nearest = np.argsort(apart)[: reference.n_candidates]
    beyond = apart[nearest] / apart[nearest[k - 1]] - 1
    share = np.clip(1 - beyond / np.clip(beyond.max(), 1e-4, 0.02), 0, 1)  # who is nearly the k-th counts in part
    rest = [(known[j], np.delete(known, j, axis=0)) for j in nearest]
    z = new * np.sqrt(len(new))
    return np.array(
        [
            np.log(measure(new, known)) - power * np.average([np.log(measure(*each)) for each in rest], weights=share)
            for measure, power in zip((distance, deviation), reference.locality, strict=True)
        ]
        + [np.log(np.abs(z).max() + 0.1)]
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
    expected = np.array([by_definition(reference, np.delete(known, i, axis=0), known[i]) for i in range(n)])
    if n > 5:  # else fewer neighbours are left than the reference has
        np.testing.assert_allclose(reference.training_logs[:, 0], expected[:, 0], atol=0.02)
    np.testing.assert_allclose(reference.training_logs[:, 1], expected[:, 1], atol=0.05)
    rest = [np.delete(features, i, axis=0) for i in range(n)]
    largest = [
        np.abs((features[i] - each.mean(axis=0)) / np.sqrt(each.var(axis=0) + each.var(axis=0).mean())).max()
        for i, each in enumerate(rest)
    ]
    np.testing.assert_allclose(reference.training_logs[:, 2], np.log(np.array(largest) + 0.1), atol=1e-6)


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


@pytest.mark.parametrize(("max_dimensions", "most"), [(512, 0.2), (110, 1.0), (100, 1.0), (24, 0.6)])
def test_new_windows_have_the_values_of_training_windows_without_themselves(max_dimensions: int, most: float) -> None:
    """Most of these windows lies outside 24 directions; references of folds have fewer windows than the whole one."""
    apart = []
    for seed in range(6):
        features = np.random.default_rng(seed).normal(size=(160, 400))
        reference = fit_reference(features[:120], max_dimensions=max_dimensions)
        training, new = reference.training_logs, logs(reference, features[120:])
        apart.append((np.median(new, axis=0) - np.median(training, axis=0)) / training.std(axis=0))
    assert (np.abs(np.mean(apart, axis=0)) < most).all()
