"""Looks of versions that the learner makes: on the sequences of the model, and compared with those of the champion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.judge.early.model import EarlyModel
from streamad.learn.early.stored import courses_of
from streamad.learn.early.training import EarlyTraining
from streamad.learn.training import publishing
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import load

EARLY = {"false_alarm_rate": 0.1, "looks": 3}


def collected(root: Path, n: int = 200, **more: Any) -> Life:
    """A plant with ``n`` batches that no model has judged, and what looks at them have seen."""
    life = Life(root, early=EARLY, **more)
    life.run(n)
    return life


def early_of(life: Life, version: str | None = None) -> EarlyModel | None:
    return load(life.registry, version, settings=life.settings).early


@pytest.mark.parametrize(
    ("n", "method", "more"),
    [(200, "reserve", {}), (140, "out_of_fold", {"rate": 0.02, "reserve": 0.2}), (200, "split", {"reserve": 0.1})],
)
def test_a_learned_version_has_looks_calibrated_by_the_sequences_that_calibrate_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, method: str, more: dict[str, Any]
) -> None:
    calibrated: list[publishing.Calibrated] = []
    of = publishing.Calibrated.__init__

    def noted(self: publishing.Calibrated, *args: Any, **more: Any) -> None:
        of(self, *args, **more)
        calibrated.append(self)

    monkeypatch.setattr(publishing.Calibrated, "__init__", noted)
    life = collected(tmp_path, n, presumed_anomalies=0.1, trim=0.05, **more)
    outcome = life.retrain("first")
    (made,) = calibrated
    assert (outcome.promoted, outcome.without_looks, made.method) == (True, "", method)
    assert made.n_presumed > 0
    early, metrics = early_of(life), life.manifest("0001").metrics
    assert early is not None
    assert early.calibration.n == len(made.ids) == len(set(made.ids)) == metrics.n_calibration
    trained = life.detector.fits[-1]
    stored = [one for share in ("accepted", "reserve") for one in life.open_store().read(share)]  # type: ignore[arg-type]
    again = EarlyTraining(courses_of(stored), life.settings).train(trained, made.ids, made.folds)
    assert [look.form for look in again.looks] == [look.form for look in early.looks]
    np.testing.assert_allclose(np.sort(again.maxima), np.sort(early.calibration.scores), rtol=1e-6)


def test_without_enough_courses_a_version_is_learned_without_looks_and_says_why(tmp_path: Path) -> None:
    life = Life(tmp_path, early=EARLY)
    life.keeps_courses = False
    life.run(190)
    life.keeps_courses = True
    life.run(10)
    outcome = life.retrain("first")
    assert outcome.promoted
    assert early_of(life) is None
    assert "sequences that train it ended since alerts.early is set, 20 are needed" in outcome.without_looks
    assert outcome.without_looks in life.decision("0001").reason


def test_looks_are_made_of_the_sequences_that_have_a_course(tmp_path: Path) -> None:
    life = Life(tmp_path, early=EARLY)
    life.keeps_courses = False
    life.run(100)
    life.keeps_courses = True
    life.run(200)
    assert life.retrain("first").without_looks == ""
    early = early_of(life)
    assert early is not None
    assert early.calibration.n < life.manifest("0001").metrics.n_calibration


def test_a_champion_with_looks_waits_until_a_challenger_can_have_some(tmp_path: Path) -> None:
    # Which share of 49 sequences it warns of is chance (1 to 9 of them by eight seeds): by this one it is no refusal.
    life = collected(tmp_path, seed=3)
    assert life.retrain("first").promoted
    life.store.purge()
    life.keeps_courses = False
    life.run(300)
    outcome = life.retrain()
    assert (outcome.version, outcome.promoted, life.champion) == (None, False, "0001")
    assert "0001 looks at running sequences, and 0 of the" in outcome.reason
    life.keeps_courses = True
    life.run(300)
    outcome = life.retrain()
    assert (outcome.version, outcome.promoted, outcome.without_looks) == ("0002", True, ""), outcome.reason
    assert outcome.figures["challenger.watched"] == outcome.figures["champion.watched"] > 20


def test_looks_do_not_change_the_model(tmp_path: Path) -> None:
    terms = []
    for name, early in (("with", EARLY), ("without", None)):
        life = Life(tmp_path / name, early=early)
        life.run(200)
        assert life.retrain("first").promoted
        terms.append(life.registry.calibration_terms(MODEL, "0001"))
    assert np.array_equal(*terms)
