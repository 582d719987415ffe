"""What operators' marks can do to a model: keep sequences out of training; all else waits for a person."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamad.errors import DetectorError
from streamad.judge.gate import is_reserved, reserve_half
from streamad.learn.promotion.review import waiting_version
from streamad.learn.store.records import Mark, MarkKind, StoredSequence, TrainingReason, TrainingRequest
from streamad.learn.trainer.child import TrainerSpec
from streamad.learn.trainer.job import MAX_ATTEMPTS, run_job
from streamad.learn.trainer.results import TrainingFailed, TrainingOutcome, TrainingResult
from streamad.learn.trainer.status import TrainingStatus
from streamad.learn.training.fits import FitStep
from streamad.messages import Share
from streamad.types import WindowSet
from tests.support.learning.life import MODEL, Life
from tests.support.learning.plant import NOW_US, FixedClock, MeanDetector, MeanModel

FAULT = 9.0
RECIPE = 2.5
JUDGEMENTS: tuple[MarkKind, ...] = ("false_alarm", "confirmed", "veto", "withdrawn")


def grown(folder: Path, n: int = 300, *, n_cold: int = 200, **learning: Any) -> Life:
    """A plant with its first model, and ``n`` batches judged by it."""
    life = Life(folder, **learning)
    life.run(n_cold)
    assert life.retrain("first").promoted
    life.run(n)
    return life


def alert_rate(life: Life, shift: float) -> float:
    judge = life.judge()
    return float(np.mean([judge(window)[0] == "anomalous" for window in life.windows(500, shift)]))


def alerts_of(made: list[tuple[StoredSequence, Any]]) -> list[StoredSequence]:
    return [sequence for sequence, _ in made if sequence.decision == "anomalous"]


# --- the law ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_a_training_with_any_marks_is_the_one_without_marks_and_the_excluded(seed: int, tmp_path: Path) -> None:
    """Bit for bit: the model, its calibration, the comparison and the decision."""
    rng = np.random.default_rng(seed)
    said = grown(tmp_path / "said", 0, trim=0.05)
    made = said.run(300, shift=FAULT, shifted_share=0.15)
    shutil.copytree(said.root, tmp_path / "silent")
    silent = Life(tmp_path / "silent", trim=0.05)
    spoken = [made[i] for i in rng.permutation(len(made))[: rng.integers(1, 250)]]
    for received_us, (sequence, _) in enumerate(spoken):
        mark = JUDGEMENTS[rng.integers(len(JUDGEMENTS))]
        said.store.mark(Mark(id=sequence.id, judgement=mark, at_us=int(rng.integers(NOW_US)), received_us=received_us))
    marks = said.store.marks()
    kept_out = [
        sequence.id
        for sequence, share in spoken
        if share == "accepted" and marks[sequence.id].judgement in {"confirmed", "veto"}
    ]
    n_free = len(said.store.read("accepted"))
    excluded = kept_out[: int(0.2 * n_free)]
    silent.store.purge(ids=excluded)
    with_marks, without = said.retrain(), silent.retrain()
    assert with_marks.n_excluded == len(excluded)
    assert with_marks.n_capped == len(kept_out) - len(excluded)
    assert without.second is None
    assert (with_marks.version, with_marks.promoted, with_marks.reason) == ("0002", without.promoted, without.reason)
    assert with_marks.figures == without.figures
    ours, theirs = (life.registry.folder(MODEL, "0002") for life in (said, silent))
    for name in ("model.npz", "calibration.npy"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    assert said.decision("0002") == silent.decision("0002")
    without_counts = msgspec.structs.replace(said.record("0002"), n_excluded=0, n_capped=0)
    assert without_counts == silent.record("0002")


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("first", {}),
        ("relearn", {}),
        ("command", {"max_training": 75, "promotion": {"min_comparison": 10}}),
    ],
)
def test_the_law_holds_for_first_models_for_relearning_and_beyond_the_bounds(
    reason: TrainingReason, more: dict[str, Any], tmp_path: Path
) -> None:
    """Marks on every sequence; those beyond the bounds stay for their marks, and take no part."""
    rng, n_cold = np.random.default_rng(3), 0 if reason == "first" else 200
    said = Life(tmp_path / "said", **more)
    if n_cold:
        said.run(n_cold)
        assert said.retrain("first").promoted
    shutil.copytree(said.root, tmp_path / "silent")
    silent = Life(tmp_path / "silent", **more)
    made = said.make(300, shift=FAULT, shifted_share=0.15)
    words = {sequence.id: JUDGEMENTS[rng.integers(len(JUDGEMENTS))] for sequence, _ in made}
    for begin in range(0, 300, 50):
        for sequence, share in made[begin : begin + 50]:
            assert said.store.offer(sequence, share) == silent.store.offer(sequence, share) is True
            said.store.mark(Mark(id=sequence.id, judgement=words[sequence.id], at_us=1, received_us=said.n))
        said.store.flush()
        silent.store.flush()
    if more:
        assert any(each.only_marked for share in ("accepted", "aside") for each in said.store.read(share))
    since_us = 0 if reason == "relearn" else None
    with_marks = said.retrain(reason, since_us=since_us)
    shares: tuple[Share, ...] = ("accepted", "aside") if reason == "relearn" else ("accepted",)
    trained = {each.id for share in shares for each in silent.store.read(share)}
    kept_out = sorted(each for each in trained if words.get(each) in {"confirmed", "veto"})
    assert with_marks.n_excluded == int(0.2 * len(trained))
    silent.store.purge(ids=kept_out[: with_marks.n_excluded])
    without = silent.retrain(reason, since_us=since_us)
    assert (with_marks.version, with_marks.reason) == (without.version, without.reason)
    assert (with_marks.promoted, with_marks.figures) == (without.promoted, without.figures)
    version = without.version or ""
    ours, theirs = (life.registry.folder(MODEL, version) for life in (said, silent))
    for name in ("model.npz", "calibration.npy"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()


def test_every_alert_of_a_fault_called_false_leaves_detection_as_it_was(tmp_path: Path) -> None:
    """The attack: 102 marks on one fault, then ten retrainings with ten marks each."""
    life = grown(tmp_path, 300, n_cold=300, reserve=0.3)
    life.run(150, shift=FAULT)
    alerts = alerts_of([(each, None) for each in (*life.store.read("aside"), *life.store.read("reserve"))])
    faults = [each for each in alerts if each.window.values[0].mean() > FAULT / 2][:102]
    assert len(faults) == 102
    life.mark(faults, "false_alarm")
    assert alert_rate(life, FAULT) == 1.0
    promoted = [life.retrain().promoted]
    for _ in range(10):
        life.mark(alerts_of(life.run(40, shift=FAULT, shifted_share=0.4))[:10], "false_alarm")
        promoted.append(life.retrain("schedule").promoted)
        assert alert_rate(life, FAULT) == 1.0
    assert any(promoted)


def test_false_confirmed_marks_do_not_freeze_the_promotion(tmp_path: Path) -> None:
    life = grown(tmp_path)
    normal = life.store.read("reserve")
    life.mark(normal[:60], "confirmed")
    outcome = life.retrain()
    assert (outcome.promoted, life.champion) == (True, "0002")
    assert outcome.figures["comparison.confirmed"] == 0


class TwoKinds(MeanDetector):
    """Its models know two kinds of batches: those near the mean of all, and those near the farthest one from it."""

    def fit(self, data: WindowSet, **how: Any) -> MeanModel:
        fitted = super().fit(data, **how)
        values = data.values
        centres = np.stack([fitted.mean, values[np.argmax(np.abs(values - fitted.mean).sum(axis=(1, 2)))]])
        for _ in range(5):
            kind = np.abs(values[:, None] - centres).sum(axis=(2, 3)).argmin(axis=1)
            centres = np.stack([values[kind == i].mean(axis=0) if (kind == i).any() else centres[i] for i in (0, 1)])
        fitted.mean = centres.astype(np.float32)
        return fitted


# --- the second challenger -------------------------------------------------------------------------------------------


def with_new_recipe(folder: Path, **learning: Any) -> Life:
    """A plant whose new recipe, a fifth of its batches, alerts, and operators who say so of each alert."""
    life = Life(folder, **learning)
    life.detector = TwoKinds()
    life.run(400)
    assert life.retrain("first").promoted
    made = life.run(600, shift=RECIPE, shifted_share=0.2)
    life.mark([each for each in alerts_of(made) if each.window.values[0].mean() > RECIPE / 2], "false_alarm")
    assert alert_rate(life, RECIPE) > 0.9
    return life


def test_honest_marks_make_a_version_that_waits_and_holds_the_rate_once_it_is_promoted(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path)
    outcome = life.retrain("schedule")
    second = outcome.second
    assert second is not None
    assert (second.version, second.promoted, second.waits) == ("0003", False, True)
    assert life.champion == "0002"
    assert outcome.promoted
    assert alert_rate(life, RECIPE) > 0.9
    assert "waits for review: " in second.reason
    assert "called false alarms train it, it would silence " in second.reason
    assert "streamad models compare 0002 0003`; if the silenced alerts were false, `streamad models promote 0003`" in (
        second.reason
    )
    waiting = waiting_version(life.registry, MODEL, life.champion)
    assert waiting is not None
    assert waiting.version == "0003"
    life.registry.promote(MODEL, "0003", expected="0002")
    assert waiting_version(life.registry, MODEL, "0003") is None
    assert alert_rate(life, RECIPE) == pytest.approx(0.1, abs=0.08)
    assert alert_rate(life, 0.0) == pytest.approx(0.1, abs=0.08)
    assert alert_rate(life, FAULT) == 1.0


def test_what_a_person_has_reviewed_stays_learned(tmp_path: Path) -> None:
    """The next training has no marks of its own, and must not bring the false alarms back."""
    life = with_new_recipe(tmp_path)
    life.retrain("schedule")
    life.registry.promote(MODEL, "0003", expected="0002")
    outcome = life.retrain("schedule")
    assert (outcome.promoted, outcome.second) == (True, None)
    assert life.record("0004").feedback == life.record("0003").feedback
    assert alert_rate(life, RECIPE) == pytest.approx(0.1, abs=0.08)


class BlindAtFirst(TwoKinds):
    """Its first model looks at the first sample alone: it is refused, and the champion stays."""

    def fit(self, data: WindowSet, **how: Any) -> MeanModel:
        fitted = super().fit(data, **how)
        return blind(fitted) if len(self.fits) == 1 else fitted


def blind(fitted: MeanModel) -> MeanModel:
    fitted.scale = np.full_like(fitted.scale, 1e3) * np.ones((1, fitted.mean.shape[-1]), np.float32)
    fitted.scale[:, 0] = 0.3
    return fitted


def test_a_review_does_not_make_the_champion_worse_by_alerts_that_it_still_raises(tmp_path: Path) -> None:
    """Nobody saw them silenced: false marks on a fault, hidden in the comparison half beside honest ones."""
    life = with_new_recipe(tmp_path)
    made = life.run(300, shift=FAULT, shifted_share=0.5)
    reserved = alerts_of([one for one in made if one[1] == "reserve"])
    life.mark([each for each in reserved if reserve_half(each.stream, each.sequence) == "comparison"], "false_alarm")
    assert life.retrain("schedule").second is not None
    life.registry.promote(MODEL, "0003", expected="0002")
    assert alert_rate(life, FAULT) == 1.0
    outcome = life.retrain("schedule", detector=BlindAtFirst())
    assert (outcome.version, outcome.promoted) == ("0004", False)
    assert outcome.figures["champion.alerts"] < 25, "its false alarms, and none of the faults"
    assert outcome.figures["champion.presumed_anomalies"] >= 25


def test_a_version_waits_once_for_the_same_marks(tmp_path: Path) -> None:
    """While the champion stays, only another mark makes another challenger."""
    life = with_new_recipe(tmp_path)
    first = life.retrain("schedule").second
    assert first is not None
    assert first.waits
    again = life.retrain("schedule", detector=BlindAtFirst())
    assert (again.version, again.promoted, again.second) == ("0004", False, None)
    waiting = waiting_version(life.registry, MODEL, life.champion)
    assert waiting is not None
    assert waiting.version == "0003"
    made = life.run(100, shift=RECIPE)
    life.mark([each for each, share in made if share == "aside"][:1], "false_alarm")
    once_more = life.retrain("schedule", detector=BlindAtFirst()).second
    assert once_more is not None
    assert once_more.waits
    waiting = waiting_version(life.registry, MODEL, life.champion)
    assert waiting is not None
    assert waiting.version == once_more.version == "0006"


def test_a_version_that_a_person_declined_comes_back_only_for_other_marks(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path)
    first = life.retrain("schedule").second
    assert first is not None
    assert first.waits
    assert life.registry.decline(MODEL, "0003")
    assert not life.registry.decline(MODEL, "0002")
    again = life.retrain("schedule")
    assert (again.promoted, again.second) == (True, None)  # although another champion serves
    made = life.run(100, shift=RECIPE)
    life.mark([each for each, share in made if share == "aside"][:1], "false_alarm")
    other = life.retrain("schedule").second
    assert other is not None
    assert other.waits


def test_a_withdrawn_mark_asks_for_nothing(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path)
    for each in life.store.marks().values():
        life.store.mark(msgspec.structs.replace(each, judgement="withdrawn", at_us=each.at_us + 1_000_000))
    assert life.retrain().second is None


@pytest.mark.parametrize("trust", ["person", "auto"])
def test_marks_promote_nothing_that_was_compared_with_nothing(trust: str, tmp_path: Path) -> None:
    """A damaged champion lets the first challenger into service without a comparison, but never the second."""
    life = with_new_recipe(tmp_path, feedback_trust=trust)
    life.store.purge(share="reserve")
    (life.registry.folder(MODEL, "0001") / "model.npz").write_bytes(b"damaged")
    outcome = life.retrain("schedule")
    assert (outcome.version, outcome.promoted, life.champion) == ("0002", True, "0002")
    second = outcome.second
    assert second is not None
    assert (second.version, second.promoted, second.waits) == (None, False, False)
    assert "0 to compare on, 20 of each are needed" in second.reason


def test_trusted_marks_are_promoted_by_the_rule(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path, feedback_trust="auto")
    outcome = life.retrain("schedule")
    assert outcome.second is not None
    assert (outcome.second.promoted, outcome.second.waits, life.champion) == (True, False, "0003")
    assert outcome.figures["comparison.false_alarms"] == 0
    assert outcome.second.figures["comparison.false_alarms"] > 0
    assert alert_rate(life, RECIPE) == pytest.approx(0.1, abs=0.08)


def test_a_second_challenger_that_finds_less_does_not_wait(tmp_path: Path) -> None:
    class BlindAtLast(TwoKinds):
        def fit(self, data: WindowSet, **how: Any) -> MeanModel:
            fitted = super().fit(data, **how)
            return blind(fitted) if len(self.fits) > 1 else fitted

    life = with_new_recipe(tmp_path)
    second = life.retrain("schedule", detector=BlindAtLast()).second
    assert second is not None
    assert (second.version, second.waits, second.promoted) == ("0003", False, False)
    assert "of the injected faults, the champion" in second.reason
    assert waiting_version(life.registry, MODEL, life.champion) is None


def test_an_interrupted_second_challenger_resumes_without_the_first(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path)
    seen: list[str] = []

    def interrupt(step: FitStep) -> None:
        seen.append(step.phase)
        if seen.count("comparison") and step.phase == "final" and step.step.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        life.retrain("schedule", progress=interrupt)
    assert life.champion == "0002"
    detector = TwoKinds()
    outcome = life.retrain("schedule", detector=detector, resumes=True)
    assert (outcome.version, outcome.promoted) == ("0002", True)
    assert outcome.second is not None
    assert outcome.second.waits
    assert len(detector.epochs) == 1  # the rest of the second's only fit


def test_a_process_that_dies_over_the_second_again_and_again_leaves_the_first_one_s_outcome(tmp_path: Path) -> None:
    """Marks must not turn a training that has promoted its challenger into a failed one."""
    life = with_new_recipe(tmp_path)

    def die(step: FitStep) -> None:
        if step.phase == "final" and life.champion == "0002":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        life.retrain("schedule", progress=die)
    request = TrainingRequest(reason="schedule", requested_us=NOW_US)
    spec = TrainerSpec(
        settings=life.settings,
        base_dir=life.root,
        model=MODEL,
        request=request,
    )
    result = of_the_fourth_attempt(life, spec)
    assert isinstance(result, TrainingOutcome)
    assert (result.version, result.promoted) == ("0002", True)
    assert result.second is not None
    assert result.second.version is None
    assert "the training process died 3 times" in result.second.reason
    other = dataclasses.replace(spec, request=msgspec.structs.replace(request, requested_us=1))
    assert isinstance(of_the_fourth_attempt(life, other), TrainingFailed)


def of_the_fourth_attempt(life: Life, spec: TrainerSpec) -> TrainingResult:
    """The result after three processes have died over the training."""
    status = TrainingStatus(state="running", request=spec.request, attempt=MAX_ATTEMPTS)
    training = life.registry.training_folder(MODEL)
    training.mkdir(parents=True, exist_ok=True)
    (training / "status.json").write_bytes(msgspec.json.encode(status))
    return run_job(spec, FixedClock())


@pytest.mark.parametrize("trust", ["person", "auto"])
def test_a_process_that_died_after_the_decision_on_the_second_makes_no_third(trust: str, tmp_path: Path) -> None:
    """The resumed training reports what was decided, so that the events are not lost."""
    life = with_new_recipe(tmp_path, feedback_trust=trust)
    before = life.retrain("schedule")
    versions = life.registry.versions(MODEL)
    detector = TwoKinds()
    outcome = life.retrain("schedule", detector=detector, resumes=True)
    assert (detector.fits, life.registry.versions(MODEL)) == ([], versions)
    assert (outcome.version, outcome.promoted) == (before.version, before.promoted)
    assert before.second is not None
    assert outcome.second is not None
    assert outcome.second == msgspec.structs.replace(before.second, reason=outcome.second.reason)
    assert outcome.second.reason == life.decision(versions[-1]).reason


@pytest.mark.parametrize("error", [ValueError("no fit"), DetectorError("no fit"), MemoryError("no fit")])
def test_a_second_challenger_that_fails_leaves_the_outcome_of_the_first(error: Exception, tmp_path: Path) -> None:
    """Else marks would make a failed training of a promoted version, which is then repeated."""

    class Broken(TwoKinds):
        def fit(self, data: WindowSet, **how: Any) -> MeanModel:
            if self.fits:
                raise error
            return super().fit(data, **how)

    life = with_new_recipe(tmp_path)
    outcome = life.retrain("schedule", detector=Broken())
    assert (outcome.version, outcome.promoted, life.champion) == ("0002", True, "0002")
    assert outcome.second is not None
    assert (outcome.second.version, outcome.second.waits) == (None, False)
    assert outcome.second.reason == "it could not be trained: no fit"


def test_silenced_alerts_are_counted_with_and_without_a_mark(tmp_path: Path) -> None:
    life = with_new_recipe(tmp_path)
    alerts = [each for each in life.store.read("aside") if each.window.values[0].mean() > RECIPE / 2]
    for each in alerts[:3]:
        mark = life.store.marks()[each.id]
        life.store.mark(msgspec.structs.replace(mark, judgement="withdrawn", at_us=mark.at_us + 1_000_000))
    second = life.retrain("schedule").second
    assert second is not None
    figures = second.figures
    assert figures["silenced.alerts"] <= figures["silenced.of_alerts"]
    assert figures["silenced.alerts"] > 50
    assert figures["silenced.without_mark"] >= 3


def test_a_fault_that_no_person_was_shown_is_not_reviewed_with_an_honest_version(tmp_path: Path) -> None:
    """The attack: few enough marks on a fault that the honest version still finds it, so it is not shown as silenced.

    Then the older part of the reserve ages, the marked part weighs more, and trainings without marks went blind.
    """
    life = with_new_recipe(tmp_path, reserve=0.3)
    made = life.run(300, shift=FAULT, shifted_share=0.5)
    faults = [each for each in alerts_of(made) if each.window.values[0].mean() > FAULT / 2]
    held = [each for each in faults if is_reserved(each.stream, each.sequence, 0.3)]
    calibrating = [each for each in held if reserve_half(each.stream, each.sequence) == "calibration"][:18]
    comparing = [each for each in held if reserve_half(each.stream, each.sequence) == "comparison"]
    life.mark([*calibrating, *comparing], "false_alarm")
    second = life.retrain("schedule").second
    assert second is not None
    assert second.waits
    assert second.version is not None
    assert {each.id for each in (*calibrating, *comparing)} <= {*(life.decision(second.version).still_raised or ())}
    life.registry.promote(MODEL, second.version, expected=life.champion)
    assert alert_rate(life, FAULT) == 1.0
    life.store.purge(before_us=made[0][0].time_us)
    for _ in range(3):
        life.run(150, shift=RECIPE, shifted_share=0.2)
        life.retrain("schedule")
        assert alert_rate(life, FAULT) == 1.0
