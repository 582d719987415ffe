from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamad.ports import TrainingStep
from streamad.testing import check_detector
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.learned import MOST_SECONDS, NETWORKS, cpu_seconds
from tests.support.detectors import SEQUENCES, sequences

# Every training ends after its first epoch: the laws do not depend on how good the networks are.
NORMAL = EnsembleOptions(n_minirocket=840, n_groups=4, effort="normal", time_limit_s=1e-6)
K, N_NEIGHBOURS = 11, 11


def test_it_keeps_the_laws_of_a_detector_with_a_network(tmp_path: Path) -> None:
    check_detector(lambda: Ensemble(NORMAL), **SEQUENCES._asdict(), folder=tmp_path)


def test_a_network_adds_a_term_a_transformation_and_one_for_its_views() -> None:
    fitted = Ensemble(NORMAL).fit(sequences(24), seed=0, device="cpu")
    summary = fitted.summary
    assert len(summary.terms) == fitted.model.n_terms == N_NEIGHBOURS + K + 1
    assert summary.terms[N_NEIGHBOURS] == "neutral_ad_1.transformation_0"
    assert summary.terms[-1] == "neutral_ad_1.view_distance"
    assert list(summary.settings["weights"])[-2:] == ["neutral_ad_1.contrast", "neutral_ad_1.view_distance"]
    assert (summary.n_epochs, summary.best_epoch) == (1, 1)
    assert 0 < summary.best_loss < 2
    assert summary.remarks[0] == "3 of 3 trainings of networks ended at the time limit"
    own = fitted.training_scores()
    assert own.shape == (24, fitted.model.n_terms)
    assert (own >= 0).all()


def wide(n: int = 24) -> WindowSet:
    """Windows whose network takes longer than a quick fit may."""
    values = np.random.default_rng(0).normal(size=(n, 10, 200)).astype(np.float32)
    return WindowSet(values, np.full(n, 200, np.int64), tuple(map(str, range(n))))


def test_a_quick_fit_has_a_network_where_it_trains_in_seconds() -> None:
    quick = NORMAL.model_copy(update={"effort": "quick"})
    terms = {n: Ensemble(quick).fit(sequences(n), seed=0, device="cpu").summary.terms for n in (8, 24)}
    assert terms[8] == terms[24]  # fits on all sequences and without a fold have the same terms
    assert len(terms[8]) == N_NEIGHBOURS + K + 1
    data = wide()
    ours, theirs = (Ensemble(options).fit(data, seed=0, device="cpu") for options in (quick, NORMAL))
    assert len(ours.summary.terms) == N_NEIGHBOURS
    found, expected = (each.score(data.values, data.lengths)[:, :N_NEIGHBOURS] for each in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-5)  # neighbours judge as they do beside networks


def test_numbers_decide_whether_a_network_trains_and_no_clock() -> None:
    assert cpu_seconds(6, 15) < cpu_seconds(6, 30) < MOST_SECONDS < cpu_seconds(24, 51) < cpu_seconds(9, 128)


def test_all_trainings_are_reported_as_one() -> None:
    steps: list[TrainingStep] = []
    Ensemble(NORMAL).fit(sequences(24), seed=0, device="cpu", progress=steps.append)
    assert [step.epoch for step in steps] == [1, 2, 3]
    assert [step.n_epochs for step in steps] == [96, 65, 26]  # at most: each training may end early
    assert [step.is_last for step in steps] == [False, False, True]


def test_an_interrupted_training_gives_the_same_model(tmp_path: Path) -> None:
    data, whole = sequences(24), Ensemble(NORMAL).fit(sequences(24), seed=0, device="cpu")
    seen: list[TrainingStep] = []

    def interrupt(step: TrainingStep) -> None:
        seen.append(step)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ensemble(NORMAL).fit(data, seed=0, device="cpu", progress=interrupt, resume=tmp_path / "run")
    resumed: list[TrainingStep] = []
    fitted = Ensemble(NORMAL).fit(data, seed=0, device="cpu", progress=resumed.append, resume=tmp_path / "run")
    assert [step.epoch for step in resumed] == [3]
    np.testing.assert_array_equal(fitted.training_scores(), whole.training_scores())


def test_the_own_terms_of_training_windows_come_from_networks_that_did_not_see_them() -> None:
    data, odd = sequences(24), sequences(1, anomalous=True)
    data = WindowSet(
        np.concatenate([data.values, odd.values]),
        np.concatenate([data.lengths, odd.lengths]),
        tuple(map(str, range(25))),
    )
    fitted = Ensemble(NORMAL).fit(data, seed=0, device="cpu")
    own, again = fitted.training_scores()[:, -1], fitted.score(data.values, data.lengths)[:, -1]
    assert own[24] > again[24]  # a window has distance 0 from itself


def test_a_thorough_training_has_networks_of_all_forms_and_two_seeds() -> None:
    assert len(set(NETWORKS["thorough"])) == 6
    assert {form for form, _ in NETWORKS["thorough"]} == {"multiplicative", "residual", "feed_forward"}
