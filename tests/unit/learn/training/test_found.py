"""The share of injected faults found at the configured rate: what is said is what the published calibration does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.judge.calibration import Calibration
from streamad.judge.verdicts import scored as verdict_of
from streamad.learn.registry.manifest import FoundAtRate, References
from streamad.learn.registry.registry import Registry
from streamad.learn.training.calibrating import folds_of, hash_order
from streamad.learn.training.fits import score_windows
from streamad.learn.training.found import Judged, exact_count, rank_at
from streamad.learn.training.references import Trial
from streamad.messages import ModelRef
from streamad.plugins import make_detector
from streamad.ports import Scorer
from streamad.settings.outputs import AlertSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import FinishedSequence, FloatArray, IntArray, Position, Window, WindowSet
from tests.support.learning.plant import C, MeanDetector, settings_of, train, windows_of

REF = ModelRef("default", "0001")
SEQUENCE = FinishedSequence("s", "1", "marker", np.zeros(1, np.int64), np.zeros((1, C), np.float32), Position(0, 0))
WINDOW = Window(np.zeros((C, 4), np.float32), 2)


def judged(scores: list[float] | FloatArray, calibration: list[float] | FloatArray, rate: float = 0.02) -> Judged:
    """Faults of windows of their own, by a calibration of one term."""
    terms = np.asarray(calibration, np.float32)[:, None]
    return Judged(np.asarray(scores, np.float64), np.arange(len(scores)), terms, rate)


def anomalous(terms: FloatArray, calibration: FloatArray, rate: float) -> list[bool]:
    """What a worker says of sequences with ``terms`` [F, K], by a calibration with terms [n, K]."""
    settings = AlertSettings(false_alarm_rate=rate)
    table = Calibration.from_terms(calibration, rate)
    said = [
        verdict_of(SEQUENCE, WINDOW, each, calibration=table, settings=settings, model=REF, now_us=0) for each in terms
    ]
    return [verdict.decision == "anomalous" for verdict in said]


# --- the law ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.125, 8, width=16), min_size=1, max_size=80),
    st.lists(st.floats(0.125, 32, width=16), min_size=1, max_size=20),
    st.sampled_from([0.001, 0.02, 1 / 21, 0.1, 0.5]),
)
def test_a_fault_is_found_if_its_verdict_would_be_anomalous(
    calibration: list[float], scores: list[float], rate: float
) -> None:
    one = judged(scores, calibration, rate)
    expected = anomalous(np.array(scores, np.float32)[:, None], one.terms, rate)
    assert one.found.tolist() == expected
    assert one.share == np.mean(expected)
    assert (one.scores >= one.calibration.alert_score(rate)).tolist() == expected  # by which calibrations are drawn


def settings_at(rate: float, references: list[str]) -> Settings:
    model = {"detector": "mean", "device": "cpu", "references": references}
    return settings_of(model=model, alerts={"false_alarm_rate": rate})


def record_of(root: Path) -> tuple[References, FoundAtRate]:
    record = Registry(root).manifest("default", "0001").references
    assert record is not None
    assert record.found is not None
    return record, record.found


@pytest.mark.parametrize(("n", "rate"), [(30, 0.02), (60, 0.1), (150, 0.02), (200, 0.05)])
def test_the_share_said_is_the_share_that_the_published_version_would_alert_on(
    tmp_path: Path, n: int, rate: float
) -> None:
    settings, data = settings_at(rate, ["nearest"]), windows_of(n)
    train(tmp_path, data=data, settings=settings)
    record, found = record_of(tmp_path)
    registry = Registry(tmp_path)
    calibration = registry.calibration_terms("default", "0001")
    ordered = data.take(hash_order(data.ids, settings.model.seed))
    model: Scorer
    if n < 150:  # the first fold's model, which saw none of the trial, and the calibration of all folds
        held_out = folds_of(n, settings.model.folds)[0]
        model = MeanDetector().fit(ordered.take(np.setdiff1d(np.arange(n), held_out)), seed=0, device="cpu")
    else:
        held_out = np.arange(len(calibration))
        model = registry.load("default", "0001", settings=settings, detector=MeanDetector()).scorer
    trial = Trial.of(ordered.take(held_out), settings.model.seed)
    assert trial is not None
    terms = score_windows(model, trial.windows)[trial.n_normal :]
    expected = np.array(anomalous(terms, calibration, rate))
    assert (found.share, found.rate, found.n_calibration) == (expected.mean(), rate, len(calibration))
    assert found.by_fault == {kind: expected[trial.kinds == kind].mean() for kind in dict.fromkeys(trial.kinds)}
    assert found.interval[0] <= found.share <= found.interval[1]
    assert record.n_bases == trial.n_bases
    assert 0 < found.share < 1


@pytest.mark.parametrize("n", [40, 150])
def test_the_threshold_of_a_kind_beside_is_that_of_its_own_held_out_scores(tmp_path: Path, n: int) -> None:
    settings, data = settings_at(0.05, ["nearest"]), windows_of(n)
    train(tmp_path, data=data, settings=settings)
    (nearest,), (_, ours) = record_of(tmp_path)[0].others, record_of(tmp_path)
    ordered, every = data.take(hash_order(data.ids, settings.model.seed)), np.arange(n)
    n_held_out = ours.n_calibration
    parts = folds_of(n, settings.model.folds) if n < 150 else [np.arange(n_held_out)]

    def fit(held_out: IntArray) -> Scorer:
        known: WindowSet = ordered.take(np.setdiff1d(every, held_out))
        return make_detector("nearest", {}).fit(known, seed=0, device="cpu")

    calibration = np.concatenate([score_windows(fit(part), ordered.take(part)) for part in parts])
    trial = Trial.of(ordered.take(parts[0]), settings.model.seed)
    assert trial is not None
    expected = anomalous(score_windows(fit(parts[0]), trial.windows)[trial.n_normal :], calibration, 0.05)
    assert nearest.found is not None
    assert nearest.gain_interval is not None
    assert (nearest.found.share, nearest.found.n_calibration) == (np.mean(expected), n_held_out)
    assert nearest.gain == nearest.found.share - ours.share
    assert nearest.gain_interval[0] <= nearest.gain_interval[1]


# --- the interval ----------------------------------------------------------------------------------------------------


def test_of_none_found_and_of_all_found_the_limit_is_exact() -> None:
    calibration = np.linspace(1, 2, 99)
    assert judged([1.0] * 20, calibration).interval() == (0.0, pytest.approx(1 - 0.05 ** (1 / 20)))
    assert judged([9.0] * 20, calibration).interval() == (pytest.approx(0.05 ** (1 / 20)), 1.0)
    one = Judged(np.full(18, 1.0), np.zeros(18, np.int64), calibration.astype(np.float32)[:, None], 0.02)
    assert one.interval() == (0.0, pytest.approx(0.95))  # one sequence says almost nothing


def test_faults_of_one_sequence_count_as_one_draw() -> None:
    calibration, rng = np.linspace(1, 2, 99).astype(np.float32)[:, None], np.random.default_rng(0)
    alike, mixed = np.repeat(rng.random(20) < 0.5, 18), rng.random(360) < 0.5
    bases = np.repeat(np.arange(20), 18)
    wide, narrow = (Judged(np.where(odd, 9.0, 1.0), bases, calibration, 0.02).interval() for odd in (alike, mixed))
    assert wide[1] - wide[0] > 3 * (narrow[1] - narrow[0])


@pytest.mark.parametrize("n", [20, 60, 99])
def test_the_interval_holds_what_the_same_threshold_finds_in_further_sequences(n: int) -> None:
    rng, n_bases, inside = np.random.default_rng(n), min(20, n), 0
    for _ in range(100):
        normal = np.exp(rng.normal(0, 0.2, n))
        shift = np.tile(np.linspace(0, 1, 18), n_bases) * np.repeat(rng.normal(1, 0.4, n_bases), 18)
        scores = np.repeat(normal[:n_bases], 18) * np.exp(np.maximum(shift, 0))
        one = Judged(scores, np.repeat(np.arange(n_bases), 18), normal.astype(np.float32)[:, None], 0.02)
        further = np.exp(rng.normal(0, 0.2, (4000, 1)) + np.maximum(rng.normal(1, 0.4, (4000, 1)), 0) * shift_of())
        truth = (further >= one.calibration.alert_score(0.02)).mean()
        inside += one.interval()[0] <= truth <= one.interval()[1]
    assert 80 <= inside <= 98


def shift_of() -> FloatArray:
    return np.linspace(0, 1, 18, dtype=np.float32)


def test_a_gain_that_hangs_on_the_highest_calibration_score_is_uncertain() -> None:
    """Both find alike but for one normal sequence, which puts the threshold of the first above all faults."""
    rng = np.random.default_rng(0)
    normal = rng.normal(10, 1, 49)
    unlucky = normal.copy()
    unlucky[7] = 40.0
    faults = rng.normal(15, 1, 200)
    ours, theirs = judged(faults, unlucky), judged(faults, normal)
    assert (ours.share, theirs.share > 0.9) == (0.0, True)
    low, high = ours.gain_of(theirs)
    assert low <= 0 < high
    better = judged(faults, normal)
    worse = judged(faults - 4, normal)
    assert worse.gain_of(better)[0] > 0.5
    assert better.gain_of(worse)[1] < -0.5


# --- more sequences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at_least", "rate", "n"),
    [(10, 0.02, 49), (49, 0.02, 49), (50, 0.02, 99), (100, 0.01, 199), (7, 0.1, 9), (200, 0.003, 333), (1, 0.5, 1)],
)
def test_the_counts_said_are_those_whose_ranks_reach_the_rate(at_least: int, rate: float, n: int) -> None:
    assert exact_count(at_least, rate) == n
    rank = rank_at(n, rate)
    assert rank >= 1
    assert rate * 0.99 < rank / (n + 1) <= rate + 1e-12


@pytest.mark.parametrize(("n", "spread"), [(20, 0.2), (45, 0.3)])
def test_the_estimate_for_more_sequences_is_right_on_average(n: int, spread: float) -> None:
    rng, errors = np.random.default_rng(n), []
    faults = np.exp(rng.uniform(0, 1.2, 500))  # of all strengths

    def share(size: int) -> float:
        normal = np.exp(rng.normal(0, spread, size))
        return judged(faults, normal).share

    truth = np.mean([share(exact_count(2 * n, 0.02)) for _ in range(400)])
    for _ in range(40):
        (one, *_) = judged(faults, np.exp(rng.normal(0, spread, n))).with_more()
        assert one.n_calibration == exact_count(2 * n, 0.02)
        errors.append(one.share - truth)
    assert abs(np.mean(errors)) < 0.05


def test_nothing_is_estimated_if_the_threshold_is_sure_or_no_law_can_be_fitted() -> None:
    rng = np.random.default_rng(0)
    assert judged([9.0], rng.normal(5, 1, 248)).with_more()
    assert judged([9.0], rng.normal(5, 1, 249)).with_more() == ()  # 5 of 250 may alert
    assert judged([9.0], [1.0] * 30).with_more() == ()
    assert judged([9.0], rng.normal(0, 1, 30)).with_more()  # scores below 0 have another law


def test_terms_without_spread_give_figures_without_an_error() -> None:
    terms = np.ones((12, C), np.float32)
    one = Judged(np.array([3.0, 4.0]), np.array([0, 1]), terms, 0.02)
    assert (one.share, one.interval()[0]) == (0.0, 0.0)
    assert one.gain_of(one) == (0.0, 0.0)
