"""One retraining, from the inlier store to a decision, with a detector that learns in milliseconds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import ArtifactError, DetectorError, OutputError, RegistryError, StreamadError, TrainingDataError
from streamad.judge.gate import is_reserved, reserve_half
from streamad.learn.parts import store_for
from streamad.learn.registry.backends import RefusedBackend
from streamad.learn.registry.registry import Registry
from streamad.learn.store.records import StoredSequence
from streamad.learn.training.fits import FitStep
from streamad.learn.training.selection import to_windows
from streamad.plant import Plant
from streamad.types import Window, WindowSet
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import (
    NOW_US,
    C,
    FixedClock,
    L,
    MeanDetector,
    MeanModel,
    load,
    settings_of,
    train,
    windows_of,
)

HOUR_US = 3_600_000_000


def collected(tmp_path: Path, n: int = 200, **learning: Any) -> Life:
    """A plant with ``n`` batches that no model has judged."""
    life = Life(tmp_path, **learning)
    life.run(n)
    return life


def grown(tmp_path: Path, n: int = 300, **learning: Any) -> Life:
    """A plant with its first model, and ``n`` batches judged by it."""
    life = collected(tmp_path, **learning)
    assert life.retrain("first").promoted
    life.run(n)
    return life


# --- the first model -------------------------------------------------------------------------------------------------


def test_a_first_model_goes_into_service_without_a_champion(tmp_path: Path) -> None:
    life = collected(tmp_path)
    outcome = life.retrain("first")
    assert (outcome.version, outcome.promoted, life.champion) == ("0001", True, "0001")
    manifest = life.manifest("0001")
    decision = life.decision("0001")
    assert (manifest.parent, life.record("0001").reason) == (None, "first")
    assert (decision.promoted, decision.champion, decision.figures) == (True, None, outcome.figures)
    assert outcome.figures["challenger.calibration"] == manifest.metrics.n_calibration == 39


def test_reference_windows_have_the_names_of_stored_sequences_not_their_ids(tmp_path: Path) -> None:
    life = Life(tmp_path)
    kept = life.run(200)
    assert life.retrain("first").promoted
    reference = load(life.registry, settings=life.settings).reference
    name_of = {sequence.window.values.tobytes(): f"r1/{sequence.id}" for sequence, _ in kept}
    assert list(reference.names) == [name_of[window.tobytes()] for window in reference.values]
    assert len(reference.names) == 24


def test_the_reserve_never_trains(tmp_path: Path) -> None:
    life = grown(tmp_path)
    life.retrain()
    trained = {name for fit in life.detector.fits for name in fit}
    assert len(trained) > 200
    assert not [name for name in trained if is_reserved("r1", name, life.learning.reserve)]


def test_below_150_sequences_every_one_calibrates_and_none_was_seen_by_its_judge(tmp_path: Path) -> None:
    life = Life(tmp_path, rate=0.02, reserve=0.2, trim=0.1)
    kept = life.run(140)
    life.retrain("first")
    metrics = life.manifest("0001").metrics
    assert (metrics.method, metrics.n_calibration) == ("out_of_fold", 140)  # dropped and reserved ones included
    accepted = {sequence.id for sequence, share in kept if share == "accepted"}
    first, *folds, final = life.detector.fits
    assert set(first) == accepted
    assert len(final) == len(accepted) - int(0.1 * len(accepted))
    assert len(folds) == 5
    assert sorted(name for fold in folds for name in set(final) - set(fold)) == sorted(final)


def test_the_rate_of_a_first_model_is_the_configured_one(tmp_path: Path) -> None:
    """Over many plants a fresh normal sequence alerts in a tenth of the cases, also after the worst were dropped."""
    for reserve, n in ((0.4, 160), (0.2, 100)):  # split; out of fold
        rates = []
        for seed in range(25):
            life = collected(tmp_path / f"{reserve}-{seed}", n, seed=seed, reserve=reserve, trim=0.05)
            life.retrain("first")
            judge = life.judge()
            rates.append(np.mean([judge(window)[0] == "anomalous" for window in life.windows(400)]))
        # One rate's standard deviation: sqrt(0.09 / 20 + 0.09 / 400) = 0.07 for 19 sequences; of the mean of 25: 0.014.
        assert np.mean(rates) == pytest.approx(0.1, abs=0.04)


@pytest.mark.parametrize("n", [140, 400])  # out of fold; split
def test_the_first_fit_folds_and_challengers_know_the_units_of_the_channels(tmp_path: Path, n: int) -> None:
    life = Life(tmp_path, rate=0.02, reserve=0.2, trim=0.1)
    life.run(n)
    life.retrain("first")
    life.run(200)
    life.retrain()
    units = tuple(channel.unit for channel in life.settings.channel_specs)
    assert any(units)
    assert len(life.detector.units) == len(life.detector.fits) > 3
    assert set(life.detector.units) == {units}


def test_the_outcome_mentions_first_sequences_that_stand_apart(tmp_path: Path) -> None:
    """Nobody has judged them: a threshold that rests on faults would be silent about others like them."""
    life = Life(tmp_path)
    life.run(300, shift=9.0, shifted_share=0.15)
    outcome = life.retrain("first")
    assert outcome.promoted
    assert outcome.figures["challenger.calibration_standing_apart"] >= 5
    assert "calibration sequences stand apart from the others: if they were faults, set" in outcome.reason
    assert "stand apart" not in collected(tmp_path / "clean").retrain("first").reason


def test_the_outcome_repeats_the_detector_s_remarks(tmp_path: Path) -> None:
    life = collected(tmp_path)
    assert "its start" not in life.retrain("first").reason
    life.run(200)
    life.detector.remarks = ("training did not leave its start",)
    assert life.retrain().reason.endswith("; training did not leave its start")


def test_anomalies_presumed_before_any_model_neither_calibrate_nor_train(tmp_path: Path) -> None:
    life = Life(tmp_path, presumed_anomalies=0.1)
    kept = life.run(300, shift=9.0, shifted_share=0.1)
    life.retrain("first")
    faulty = {s.id for s, _ in kept if s.window.values[0].mean() > 5}
    assert len(faulty & set(life.detector.fits[-1])) <= 0.1 * len(faulty)
    assert life.manifest("0001").metrics.n_presumed == pytest.approx(0.1 * 60, abs=2)
    assert alert_rate(life, 0.0) == pytest.approx(0.1, abs=0.08)
    assert alert_rate(life, 9.0) == 1.0


# --- challenger and champion -----------------------------------------------------------------------------------------


def test_a_challenger_that_is_no_worse_takes_the_champion_s_place(tmp_path: Path) -> None:
    life = grown(tmp_path)
    outcome = life.retrain("schedule")
    assert (outcome.version, outcome.promoted, life.champion) == ("0002", True, "0002")
    assert life.manifest("0002").parent == "0001"
    assert life.manifest("0002").metrics.method == "reserve"
    decision = life.decision("0002")
    assert life.manifest("0001").challenged == (decision,)  # both manifests hold every figure
    assert decision.figures == outcome.figures
    assert {"challenger.false_alarm_rate", "champion.detection.stuck", "comparison.injected"} <= set(outcome.figures)
    assert "false alarms on" in outcome.reason


def test_calibration_is_by_its_half_of_the_reserve_and_leaves_presumed_anomalies_out(tmp_path: Path) -> None:
    life = grown(tmp_path, n=0)
    kept = life.run(500, shift=9.0, shifted_share=0.1)
    outcome = life.retrain()
    metrics = life.manifest("0002").metrics
    half = [s for s, share in kept if share == "reserve" and reserve_half(s.stream, s.sequence) == "calibration"]
    faulty = to_windows([s for s in half if s.window.values[0].mean() > 5])
    assert len(faulty) > 5
    assert metrics.n_presumed == outcome.figures["challenger.calibration_presumed_anomalies"] >= len(faulty)
    model = load(life.registry, settings=life.settings)
    scores = model.scorer.score(faulty.values, faulty.lengths).sum(axis=1)
    assert scores.min() > model.calibration_terms.sum(axis=1).max()
    assert alert_rate(life, 0.0) == pytest.approx(0.1, abs=0.08)  # without the trim: 0 or nearly so


class BlindDetector(MeanDetector):
    """Its models look at the first sample alone."""

    def fit(self, data: WindowSet, **how: Any) -> MeanModel:
        fitted = super().fit(data, **how)
        fitted.scale = np.full_like(fitted.scale, 1e3) * np.ones((1, data.values.shape[2]), np.float32)
        fitted.scale[:, 0] = 0.3
        return fitted


def test_a_challenger_that_finds_less_stays_out_and_both_manifests_give_the_reason(tmp_path: Path) -> None:
    life = grown(tmp_path)
    outcome = life.retrain(detector=BlindDetector())
    assert (outcome.version, outcome.promoted, life.champion) == ("0002", False, "0001")
    assert "of the injected faults, the champion" in outcome.reason
    decision = life.decision("0002")
    assert (decision.promoted, decision.challenger, decision.champion) == (False, "0002", "0001")
    assert decision.reason == outcome.reason
    assert life.manifest("0001").challenged == (decision,)
    assert life.manifest("0001").decision != decision


def test_too_few_to_compare_on_train_nothing(tmp_path: Path) -> None:
    life = grown(tmp_path, n=0, promotion={"min_comparison": 200})
    fits = len(life.detector.fits)
    outcome = life.retrain()
    assert (outcome.version, outcome.promoted, life.champion) == (None, False, "0001")
    assert "200 of each are needed (learning.promotion.min_comparison)" in outcome.reason
    assert len(life.detector.fits) == fits


def test_a_plant_that_has_changed_for_good_is_not_learned_by_the_way(tmp_path: Path) -> None:
    life = grown(tmp_path, n=0)
    life.run(500, shift=9.0)
    outcome = life.retrain("schedule")
    assert (outcome.version, life.champion) == (None, "0001")
    assert "streamad models relearn" in outcome.reason


# --- relearning ------------------------------------------------------------------------------------------------------


def alert_rate(life: Life, shift: float) -> float:
    judge = life.judge()
    return float(np.mean([judge(window)[0] == "anomalous" for window in life.windows(500, shift)]))


def test_relearning_and_later_trainings_use_only_sequences_since_the_change(tmp_path: Path) -> None:
    """Whatever was decided of them: the old champion's alerts do not count."""
    life = grown(tmp_path, n=100)
    since_us = life.run(300, shift=9.0)[0][0].time_us
    outcome = life.retrain("relearn", since_us=since_us)
    assert (outcome.version, outcome.promoted) == ("0002", True)
    assert "learned anew" in outcome.reason
    for version, tolerance in (("0002", 0.08), ("0003", 0.06)):
        assert life.champion == version
        assert alert_rate(life, 9.0) == pytest.approx(0.1, abs=tolerance)
        assert alert_rate(life, 0.0) == 1.0
        assert life.record(version).since_us == since_us
        if version == "0002":
            life.run(300, shift=9.0)
            assert life.retrain("schedule").promoted
    assert life.manifest("0003").metrics.n_presumed <= 3


# --- dropping the worst ----------------------------------------------------------------------------------------------


def test_the_worst_of_a_first_fit_do_not_train_the_model(tmp_path: Path) -> None:
    life = Life(tmp_path, trim=0.1)
    kept = life.run(400, shift=9.0, shifted_share=0.05)
    life.retrain("first")
    first, final = life.detector.fits
    odd = {s.id for s, share in kept if share == "accepted" and s.window.values[0].mean() > 5} & set(first)
    assert len(odd) > 5
    assert not odd & set(final)
    assert len(first) - len(final) == int(0.1 * len(first)) == life.record("0001").n_dropped
    envelope = load(life.registry, settings=life.settings).envelope
    assert set(envelope.phase_n.tolist()) == {len(final)}
    assert envelope.phase[-1, 0].mean() < 5  # the highest readings of the first channel


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_an_empty_store_is_an_error_with_the_number_needed(tmp_path: Path) -> None:
    life = Life(tmp_path)
    with pytest.raises(TrainingDataError, match=r"model default: 0 sequences .* may train, 20 are needed") as caught:
        life.retrain("first")
    assert "\n" not in str(caught.value)
    life.run(20)
    with pytest.raises(TrainingDataError, match=r"model default: \d+ sequences .* 20 are needed"):
        life.retrain("first")
    assert life.registry.versions(MODEL) == ()


def test_sequences_of_other_channels_are_left_alone_and_named(tmp_path: Path) -> None:
    life = collected(tmp_path)
    former = settings_of(channels=[{"name": name} for name in "abc"], learning=life.learning.model_dump())
    other = store_for(Plant(former, tmp_path, FixedClock()), MODEL)
    window = Window(np.zeros((C, L), np.float32), L)
    other.offer(StoredSequence("other", "s", "B", NOW_US, NOW_US, window, "normal"), "accepted")
    other.flush()
    outcome = life.retrain("first")
    assert outcome.promoted
    assert "1 sequences of default left alone, they have other channels or windows" in outcome.reason


@pytest.mark.parametrize("broken", ["model.npz", "manifest.json", "calibration.npy", None])
def test_a_champion_that_cannot_be_loaded_does_not_keep_a_challenger_out(tmp_path: Path, broken: str | None) -> None:
    """One of its files is damaged, or it was trained for other channels."""
    if broken is None:
        life = collected(tmp_path)
        train(life.registry, settings=settings_of(channels=[{"name": name} for name in "abc"]))
    else:
        life = grown(tmp_path)
        (life.registry.folder(MODEL, "0001") / broken).write_bytes(b"damaged")
    outcome = life.retrain()
    assert (outcome.version, outcome.promoted, life.champion) == ("0002", True, "0002")
    assert "not compared, for the champion cannot be loaded" in outcome.reason
    assert broken is not None or "never saw channel" in outcome.reason or "lacks" in outcome.reason
    assert "champion.detection" not in outcome.figures


def test_a_model_whose_own_training_sequences_would_alert_stays_out(tmp_path: Path) -> None:
    class Forgetful(MeanDetector):
        def fit(self, data: WindowSet, **how: Any) -> MeanModel:
            fitted = super().fit(data, **how)
            fitted.mean = fitted.mean + (3.0 if len(self.fits) > 5 else 0.0)  # after the folds, the model itself
            return fitted

    life = collected(tmp_path, rate=0.02, reserve=0.05, n=100)
    outcome = life.retrain("first", detector=Forgetful())
    assert (outcome.version, outcome.promoted, life.champion) == ("0001", False, None)
    assert "most normal sequences would alert" in outcome.reason


def test_a_challenger_that_no_worker_could_use_is_not_published_and_the_champion_stays(tmp_path: Path) -> None:
    life = grown(tmp_path)
    refused = RefusedBackend("torchscript", "scores its probe otherwise")
    with pytest.raises(DetectorError, match="the new version is not published"):
        life.retrain(prove=lambda *_: (refused,))
    assert (life.registry.versions(MODEL), life.champion) == (("0001",), "0001")


@pytest.mark.parametrize("error", [ArtifactError, OutputError, RegistryError])
def test_a_decision_that_cannot_be_kept_is_carried_out_and_reported(
    error: type[StreamadError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("no room")

    life = collected(tmp_path)
    monkeypatch.setattr(Registry, "record_decision", refuse)
    outcome = life.retrain("first")
    assert (outcome.promoted, life.champion) == (True, "0001")
    assert "the decision is not kept in the manifests (no room)" in outcome.reason


def test_a_lost_race_is_an_outcome(tmp_path: Path) -> None:
    life = grown(tmp_path)

    def overtake(step: FitStep) -> None:
        if (step.phase, step.step.epoch) == ("final", 1):
            train(life.registry, data=windows_of(30, seed=5), settings=life.settings)

    outcome = life.retrain(progress=overtake)
    assert (outcome.version, outcome.promoted, life.champion) == ("0003", False, "0002")
    assert "0002 is in service where 0001 was expected" in outcome.reason
    assert not life.decision("0003").promoted


@pytest.mark.parametrize("at", [("first", 2), ("final", 2), ("comparison", 5)])
def test_an_interrupted_retraining_goes_on_where_it_was(tmp_path: Path, at: tuple[str, int]) -> None:
    """Also while more sequences flow in: what comes after the request is not for it."""

    def interrupt(step: FitStep) -> None:
        if (step.phase, step.step.epoch) == at:
            raise KeyboardInterrupt

    for folder in ("a", "b"):
        grown(tmp_path / folder, trim=0.1)
    life = Life(tmp_path / "a", trim=0.1)
    life.n = 500
    with pytest.raises(KeyboardInterrupt):
        life.retrain(progress=interrupt)
    assert life.champion == "0001"
    for sequence, share in life.make(20):
        life.store.offer(replace(sequence, stored_us=NOW_US + 1), share)
    life.store.flush()
    detector = MeanDetector()
    outcome = life.retrain(detector=detector)
    assert outcome.promoted
    epochs = {"first": [3, 1, 2, 3], "final": [3], "comparison": []}[at[0]]
    assert detector.epochs == epochs
    assert list((life.registry.training_folder(MODEL)).iterdir()) == []
    other = Life(tmp_path / "b", trim=0.1)
    again = other.retrain()
    ours, theirs = (
        each.registry.folder(MODEL, version) for each, version in ((life, outcome.version), (other, again.version))
    )
    for name in ("model.npz", "calibration.npy"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()


def test_a_clock_that_was_set_back_does_not_hide_the_store(tmp_path: Path) -> None:
    """Sequences then bear later times than the request; without them there would be too few."""
    life = Life(tmp_path)
    kept = life.run(200)
    shutil.rmtree(tmp_path / "inliers")
    life.store = life.open_store()
    for sequence, share in kept:
        life.store.offer(replace(sequence, stored_us=NOW_US + HOUR_US), share)
    life.store.flush()
    assert life.retrain("first").promoted


def test_progress_reports_every_phase_in_order(tmp_path: Path) -> None:
    life = grown(tmp_path, trim=0.1)
    steps: list[FitStep] = []
    life.retrain(progress=steps.append)
    phases = list(dict.fromkeys(step.phase for step in steps))
    assert phases == ["first", "final", "proof", "comparison"]
    assert {step.n_fits for step in steps} == {2}
    comparison = [step.step for step in steps if step.phase == "comparison"]
    assert [step.epoch for step in comparison] == list(range(1, comparison[0].n_epochs + 1))
