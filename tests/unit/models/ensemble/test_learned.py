from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamad.ports import TrainingStep
from streamad.testing import check_detector
from streamad.types import WindowSet
from streamad_models.ensemble import Ensemble, EnsembleOptions
from streamad_models.ensemble.learned import NETWORKS
from tests.support.detectors import SEQUENCES, sequences

# Every training ends after its first epoch: the laws do not depend on how good the networks are.
NORMAL = EnsembleOptions(n_minirocket=840, n_groups=4, effort="normal", time_limit_s=1e-6)
K = 11


def test_it_keeps_the_laws_of_a_detector_with_a_network(tmp_path: Path) -> None:
    check_detector(lambda: Ensemble(NORMAL), **SEQUENCES._asdict(), folder=tmp_path)


def test_a_network_adds_a_term_a_transformation_and_one_for_its_views() -> None:
    fitted = Ensemble(NORMAL).fit(sequences(24), seed=0, device="cpu")
    summary = fitted.summary
    assert len(summary.terms) == fitted.model.n_terms == 7 + K + 1
    assert summary.terms[7] == "neutral_ad_1.transformation_0"
    assert summary.terms[-1] == "neutral_ad_1.view_distance"
    assert list(summary.settings["weights"])[-2:] == ["neutral_ad_1.contrast", "neutral_ad_1.view_distance"]
    assert (summary.n_epochs, summary.best_epoch) == (1, 1)
    assert 0 < summary.best_loss < 2
    assert summary.remarks[0] == "3 of 3 trainings of networks ended at the time limit"
    own = fitted.training_scores()
    assert own.shape == (24, fitted.model.n_terms)
    assert (own >= 0).all()


def test_neighbours_judge_as_they_do_without_networks() -> None:
    data, new = sequences(24), sequences(5, seed=1)
    quick = Ensemble(NORMAL.model_copy(update={"effort": "quick"})).fit(data, seed=0, device="cpu")
    normal = Ensemble(NORMAL).fit(data, seed=0, device="cpu")
    ours, theirs = (fitted.score(new.values, new.lengths)[:, :7] for fitted in (quick, normal))
    np.testing.assert_array_equal(ours, theirs)


def test_too_few_windows_train_no_network_and_say_so() -> None:
    few = sequences(15)
    summary = Ensemble(NORMAL).fit(few, seed=0, device="cpu").summary
    assert len(summary.terms) == 7
    assert "15 sequences are too few" in summary.remarks[0]


def test_all_trainings_are_reported_as_one() -> None:
    steps: list[TrainingStep] = []
    Ensemble(NORMAL).fit(sequences(24), seed=0, device="cpu", progress=steps.append)
    assert [step.epoch for step in steps] == [1, 2, 3]
    assert [step.n_epochs for step in steps] == [300, 201, 102]  # at most: each training may end early
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
