from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from streamad.judge.evaluation import auc
from streamad.testing import check_detector
from streamad.types import WindowSet
from streamad_models import fitted as fitted_models
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.model import joined
from tests.support.detectors import SEQUENCES, sequences, windows

SMALL = EnsembleOptions(n_minirocket=840, n_groups=4, time_limit_s=1e-6)  # networks train for one epoch


def test_it_keeps_the_laws_of_a_detector(tmp_path: Path) -> None:
    check_detector(lambda: Ensemble(SMALL), **SEQUENCES._asdict(), folder=tmp_path)


def test_eight_windows_of_eight_steps_are_enough() -> None:
    data = windows(np.random.default_rng(0).normal(size=(8, 2, 8)))
    fitted = Ensemble(SMALL).fit(data, seed=0, device="cpu")
    far = windows(data.values + 30.0)
    normal, anomalous = (fitted.score(part.values, part.lengths).sum(axis=1) for part in (data, far))
    assert np.isfinite(normal).all()
    assert anomalous.min() > 2 * normal.max()


def test_what_training_windows_score_without_themselves_is_what_new_ones_of_their_kind_score() -> None:
    medians = []
    for seed in range(4):
        fitted = Ensemble(SMALL).fit(sequences(48, seed=10 + seed), seed=0, device="cpu")
        new, own = sequences(200, seed=seed), fitted.training_scores()
        assert own.shape == (48, fitted.model.n_terms)
        medians.append([np.median(terms.sum(axis=1)) for terms in (own, fitted.score(new.values, new.lengths))])
    own_median, new_median = np.mean(medians, axis=0)
    assert own_median == pytest.approx(new_median, rel=0.15)


def test_terms_have_names_and_weights() -> None:
    summary = Ensemble(SMALL).fit(sequences(48), seed=0, device="cpu").summary
    assert summary.terms[1] == "minirocket.leverage"
    assert summary.terms[-1] == "neutral_ad_1.view_distance"
    assert len(summary.terms) == 11 + 11 + 1
    weights, aligned = summary.settings["weights"], summary.settings["aligned"]
    assert weights.keys() == {*summary.terms[:11], "neutral_ad_1.contrast", "neutral_ad_1.view_distance"}
    assert weights["moments.local_distance"] == pytest.approx(0.25 + 2 / 3 * aligned, abs=0.001)


def test_of_some_spaces_the_terms_are_those_that_they_have_among_all(tmp_path: Path) -> None:
    data, detector = sequences(48), Ensemble(EnsembleOptions(effort="distances", spaces=("readings", "moments")))
    check_detector(lambda: detector, **SEQUENCES._asdict(), folder=tmp_path)
    some = detector.fit(data, seed=0, device="cpu")
    whole = Ensemble(SMALL.model_copy(update={"effort": "distances"})).fit(data, seed=0, device="cpu")
    assert {name.split(".")[0] for name in some.summary.terms} == {"readings", "moments"}
    places = [whole.summary.terms.index(name) for name in some.summary.terms]
    new = sequences(9, seed=1)
    expected = whole.score(new.values, new.lengths)[:, places]
    np.testing.assert_allclose(some.score(new.values, new.lengths), expected, rtol=1e-5)
    assert len(some.summary.terms) == 5 < len(whole.summary.terms)


def test_a_member_on_which_all_is_far_out_does_not_decide_alone() -> None:
    z = torch.tensor([-2.0, 0.0, 2.9, 3.1, 30.0, 300.0])
    terms = joined(z)
    assert (terms.diff() > 0).all()
    assert terms[2] == pytest.approx(math.log(1 + math.exp(2.9)))
    assert terms[4] == pytest.approx(3 + 3 * math.log(10), rel=1e-4)
    assert terms[5] < 17


def test_an_anomaly_among_the_training_windows_scores_highest_there() -> None:
    data, odd = sequences(30), sequences(1, anomalous=True)
    values, lengths = np.concatenate([data.values, odd.values]), np.concatenate([data.lengths, odd.lengths])
    data = WindowSet(values, lengths, tuple(map(str, range(31))))
    own = Ensemble(SMALL).fit(data, seed=0, device="cpu").training_scores().sum(axis=1)
    assert np.argmax(own) == 30
    assert own[30] > 2 * np.median(own)


@pytest.mark.parametrize(
    "make",
    [
        lambda values: np.repeat(values[:4], 4, axis=0),
        lambda values: np.repeat(values[:1], 16, axis=0),
        lambda values: values * 1e20,
        lambda values: values * 1e-5 + 5,
    ],
    ids=["each four times", "all equal", "large", "hardly moving"],
)
def test_odd_training_windows_give_finite_scores(make: Callable[[np.ndarray], np.ndarray]) -> None:
    values = np.random.default_rng(0).normal(size=(16, 2, 20))
    data = windows(make(values))
    fitted = Ensemble(SMALL).fit(data, seed=0, device="cpu")
    assert np.isfinite(fitted.training_scores()).all()
    for part in (data, windows(values), windows(np.full_like(values, 3e38)), windows(np.zeros_like(values))):
        assert np.isfinite(fitted.score(part.values, part.lengths)).all()


def test_of_many_windows_a_drawn_part_is_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted_models, "MAX_REFERENCES", 60)  # of 2,000
    data = windows(np.random.default_rng(0).normal(size=(70, 1, 12)))
    fitted = Ensemble(SMALL).fit(data, seed=0, device="cpu")
    assert fitted.summary.n_sequences == 60
    assert fitted.summary.remarks[0] == "60 of 70 sequences, drawn by the seed, are the reference"
    assert np.isfinite(fitted.score(data.values[:5], data.lengths[:5])).all()


def test_it_tells_the_natops_classes_from_the_rest(data_file: Callable[[str], Path]) -> None:
    with np.load(data_file("natops.npz"), allow_pickle=False) as arrays:
        train, test = (np.nan_to_num(arrays[f"{part}_x"]).astype(np.float32) for part in ("train", "test"))
        y, test_y = arrays["train_y"], arrays["test_y"]
    found, unknown = [], windows(test)
    for normal in range(6):
        fitted = Ensemble().fit(windows(train[y == normal]), seed=0, device="cpu")
        scores = fitted.score(unknown.values, unknown.lengths).sum(axis=1, dtype=np.float64)
        found.append(auc(scores, test_y != normal))
    assert np.mean(found) > 0.92


def test_a_shifted_level_is_found_on_a_plant_of_three_recipes() -> None:
    """Shapes tell recipes apart; levels alone tell this fault, and no choice may take their weight."""

    def batches(n: int, seed: int, shift: float = 0.0) -> WindowSet:
        rng = np.random.default_rng(seed)
        speed = np.array([0.15, 0.3, 0.6])[np.arange(n) % 3, None, None]
        values = np.sin(speed * np.arange(80) + rng.uniform(0, 6.3, (n, 2, 1))) + rng.normal(0, 0.2, (n, 2, 80))
        values[:, 0] += shift
        return windows(values)

    fitted = Ensemble().fit(batches(60, seed=0), seed=0, device="cpu")
    normal, shifted = batches(150, seed=1), batches(150, seed=2, shift=0.7)
    scores = [fitted.score(part.values, part.lengths).sum(axis=1) for part in (normal, shifted)]
    assert auc(np.concatenate(scores), np.arange(300) >= 150) > 0.95
