from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamad.errors import TrainingDataError
from streamad.judge.gate import is_reserved, reserve_half
from streamad.learn.store.records import Mark, MarkKind, StoredSequence
from streamad.learn.training.selection import (
    HeldOut,
    Plan,
    Selection,
    Stored,
    plan_calibration,
    select,
    to_windows,
)
from streamad.settings.learning import LearningSettings
from tests.support.learning.inlier_cases import sequence_of

SETTINGS = LearningSettings(min_training=20)
JUDGES = frozenset({"0001"})
UNJUDGED: dict[str, Any] = {"decision": "learning", "p_value": None, "score": None, "model_version": None}


def names_of(kind: str) -> list[int]:
    """Numbers of sequences whose names the hash puts where ``kind`` says."""
    found = []
    for i in range(6000):
        stream, sequence = f"s{i % 3}", f"B-{i}"
        reserved = is_reserved(stream, sequence, SETTINGS.reserve)
        if kind == (reserve_half(stream, sequence) if reserved else "free"):
            found.append(i)
    return found


FREE, CALIBRATION, COMPARISON = names_of("free"), names_of("calibration"), names_of("comparison")


def of(numbers: list[int], **more: Any) -> list[StoredSequence]:
    return [sequence_of(i, **more) for i in numbers]


def marks_of(said: dict[StoredSequence, MarkKind]) -> dict[str, Mark]:
    return {each.id: Mark(id=each.id, judgement=judgement, at_us=1) for each, judgement in said.items()}


def chosen(
    accepted: list[StoredSequence] | None = None,
    reserve: list[StoredSequence] | None = None,
    aside: list[StoredSequence] | None = None,
    said: dict[StoredSequence, MarkKind] | None = None,
    *,
    judges: frozenset[str] = JUDGES,
    reviewed: frozenset[str] = frozenset(),
    uses_marks: bool = False,
    **changes: Any,
) -> Selection:
    stored = Stored(accepted or [], reserve or [], aside or [], marks_of(said or {}))
    settings = LearningSettings(**{"min_training": 20, **changes})
    return select(stored, settings=settings, rate=0.02, judges=judges, reviewed=reviewed, uses_marks=uses_marks)


def ids(sequences: Any) -> set[str]:
    return {each.id for each in sequences}


def test_accepted_trains_reserve_is_held_out_by_half_and_aside_does_nothing() -> None:
    accepted, aside = of(FREE[:30]), of(FREE[30:40], decision="anomalous", p_value=0.01)
    calibration, comparison = of(CALIBRATION[:7]), of(COMPARISON[:5])
    selection = chosen(accepted, calibration + comparison, aside)
    assert ids(selection.judged) == ids(accepted)
    assert (selection.uncut, selection.feedback) == ((), ())
    assert ids(selection.calibration.sequences) == ids(calibration)
    assert ids(selection.comparison.sequences) == ids(comparison)
    assert selection.n_training == 30


@pytest.mark.parametrize("mark", ["confirmed", "veto"])
def test_marks_keep_sequences_out_of_training_and_change_nothing_in_the_reserve(mark: MarkKind) -> None:
    accepted, reserve, aside = of(FREE[:30]), of(CALIBRATION[:7]), of(FREE[30:34], decision="anomalous")
    bad = [accepted[3], reserve[2], aside[0]]
    selection = chosen(accepted, reserve, aside, dict.fromkeys(bad, mark))
    assert ids((*selection.judged, *selection.uncut, *selection.feedback)) == ids(accepted) - {accepted[3].id}
    assert (selection.excluded, selection.n_capped) == ({accepted[3].id}, 0)
    assert ids(selection.calibration.sequences) == ids(reserve)
    assert not selection.calibration.is_normal.any()
    assert ids(selection.confirmed) == (ids(bad) if mark == "confirmed" else set())


def test_a_false_alarm_changes_nothing_by_itself() -> None:
    accepted, reserve = of(FREE[:40]), of(CALIBRATION[:7], p_value=0.01) + of(COMPARISON[:7], p_value=0.01)
    alarms = of(FREE[40:60], decision="anomalous", p_value=0.01)
    selection = chosen(accepted, reserve, alarms, dict.fromkeys([*alarms, *reserve], "false_alarm"))
    assert (ids(selection.judged), selection.feedback, selection.normal) == (ids(accepted), (), ())
    for half in (selection.calibration, selection.comparison):
        assert half.is_alert.all()
        assert not half.is_normal.any()


@pytest.mark.parametrize(("share", "n"), [(0.0, 0), (0.2, 10), (1.0, 20)])  # 10 of 50
def test_false_alarms_train_the_second_challenger_the_latest_first_up_to_their_share(share: float, n: int) -> None:
    alarms = of(FREE[40:60], decision="anomalous", p_value=0.01)
    said = dict.fromkeys(alarms, "false_alarm")
    selection = chosen(of(FREE[:40]), [], alarms, said, feedback_share=share, uses_marks=True)
    assert ids(selection.feedback) == set(selection.normal) == ids(alarms[len(alarms) - n :])


def test_the_second_challenger_counts_false_alarms_as_normal_in_its_calibration_alone() -> None:
    reserve = of(CALIBRATION[:7], p_value=0.01) + of(COMPARISON[:5], p_value=0.01)
    said = dict.fromkeys([reserve[0], reserve[8]], "false_alarm")
    selection = chosen(of(FREE[:40]), reserve, [], said, uses_marks=True)
    assert selection.calibration.is_normal.tolist() == [True] + [False] * 6
    assert not selection.comparison.is_normal.any()
    assert set(selection.normal) == {reserve[0].id, reserve[8].id}  # all that a review approves


def test_false_alarms_that_a_person_has_reviewed_count_for_every_later_training() -> None:
    reserve = of(CALIBRATION[:7], p_value=0.01) + of(COMPARISON[:5], p_value=0.01)
    alarms = of(FREE[40:45], decision="anomalous", p_value=0.01)
    reviewed = frozenset(ids([alarms[0], reserve[0], reserve[8]]))
    selection = chosen(of(FREE[:40]), reserve, alarms, reviewed=reviewed)
    assert ids(selection.feedback) == {alarms[0].id}
    assert selection.calibration.is_normal.tolist() == [True] + [False] * 6
    assert selection.comparison.is_normal.tolist() == [False, True, False, False, False]
    assert set(selection.normal) == reviewed
    later = chosen(of(FREE[:40]), reserve, alarms, {alarms[0]: "veto"}, reviewed=reviewed)
    assert later.feedback == ()


def test_the_marks_received_first_count_up_to_the_bound() -> None:
    accepted = of(FREE[:40])
    said = {
        each.id: Mark(id=each.id, judgement="veto", at_us=1, received_us=100 - i)
        for i, each in enumerate(accepted[:12])
    }
    stored = Stored(accepted, [], [], said)
    selection = select(stored, settings=SETTINGS, rate=0.02, judges=JUDGES)
    assert (selection.excluded, selection.n_capped) == (ids(accepted[4:12]), 4)  # 0.2 of 40
    few = select(stored, settings=LearningSettings(min_training=38), rate=0.02, judges=JUDGES)
    assert (few.excluded, few.n_capped) == (ids(accepted[10:12]), 10)  # 38 must be left


def test_reviewed_alarms_that_do_not_train_widen_no_bound() -> None:
    """100 reviewed alarms, of which 7 train beside 30 accepted: 7 may be kept out, never 26 of the 30."""
    accepted, aside = of(FREE[:30]), of(FREE[30:130], decision="anomalous", p_value=0.01)
    selection = chosen(
        accepted, [], aside, dict.fromkeys(accepted, "veto"), reviewed=frozenset(ids(aside)), min_training=20
    )
    assert (len(selection.excluded), selection.n_capped) == (7, 23)
    assert len(selection.judged) == 23
    enough = chosen(
        accepted, [], aside, dict.fromkeys(accepted, "veto"), reviewed=frozenset(ids(aside)), min_training=28
    )
    assert (len(enough.excluded), enough.n_training >= 28) == (2, True)


def test_marks_called_false_alarms_do_not_widen_the_bound_of_the_second_challenger() -> None:
    accepted, aside = of(FREE[:100]), of(FREE[100:600], decision="anomalous", p_value=0.01)
    said: dict[StoredSequence, MarkKind] = {**dict.fromkeys(accepted, "veto"), **dict.fromkeys(aside, "false_alarm")}
    first, second = chosen(accepted, [], aside, said), chosen(accepted, [], aside, said, uses_marks=True)
    assert (len(first.excluded), len(first.judged)) == (20, 80)
    assert (second.excluded, second.judged) == (first.excluded, first.judged)


@pytest.mark.parametrize("mark", ["confirmed", "veto", "withdrawn"])
def test_a_review_is_taken_back_by_a_mark_and_another_review(mark: MarkKind) -> None:
    """By itself the mark changes nothing in the reserve; the second challenger counts the sequence as any other."""
    accepted, alert = of(FREE[:100]), {"decision": "anomalous", "p_value": 0.01}
    aside, reserve = of(FREE[100:105], **alert), of([*CALIBRATION[:5], *COMPARISON[:5]], **alert)
    reviewed = frozenset(ids(aside + reserve))
    said = dict.fromkeys(aside + reserve, mark)
    first = chosen(accepted, reserve, aside, said, reviewed=reviewed)
    assert not first.calibration.is_alert.any()
    second = chosen(accepted, reserve, aside, said, reviewed=reviewed, uses_marks=True)
    assert (second.feedback, second.normal) == ((), ())
    assert second.calibration.is_alert.all()


def test_known_false_alarms_are_shown_of_the_comparison_half_alone_others_may_have_trained_the_champion() -> None:
    half = of(COMPARISON[:20], decision="anomalous", p_value=0.01)
    alarms = of(FREE[40:60], decision="anomalous", p_value=0.01)
    said = dict.fromkeys([*alarms, *half[:3]], "false_alarm")
    selection = chosen(of(FREE[:40]), half, alarms, said, feedback_share=0.2)
    assert ids(selection.called("false_alarm", selection.comparison.sequences)) == ids(half[:3])
    assert ids(selection.alerts) == ids(alarms + half)


def test_alerts_are_counted_at_the_rate_of_today_and_false_alarms_are_none() -> None:
    low = of(CALIBRATION[:3], p_value=0.02, decision="normal")
    high = of(CALIBRATION[3:6], p_value=0.03, decision="anomalous")  # under a rate that was higher then
    old = of(CALIBRATION[6:9], p_value=0.01, decision="anomalous", model_version="0000")
    said = {low[0]: "false_alarm"}
    half = chosen(of(FREE[:30]), low + high + old, said=said, uses_marks=True).calibration
    assert half.is_judged.tolist() == [True] * 6 + [False] * 3
    assert half.is_alert.tolist() == [False, True, True] + [False] * 6
    assert half.is_normal.tolist() == [True] + [False] * 8
    assert half.alert_share == pytest.approx(2 / 6)


def test_what_no_version_that_counts_has_judged_trains_whatever_was_decided() -> None:
    """After a lasting change: the old champion accepted a few and alerted on most."""
    accepted, aside = of(FREE[:5]), of(FREE[5:40], decision="anomalous", p_value=0.01)
    selection = chosen(accepted, of(CALIBRATION[:7]), aside, {aside[0]: "confirmed"}, judges=frozenset())
    assert ids(selection.uncut) == ids(accepted) | ids(aside[1:])
    assert selection.excluded == {aside[0].id}
    assert selection.judged == ()
    assert not selection.calibration.is_judged.any()


# --- what is presumed to be an anomaly ----------------------------------------------------------------------------


def held_out(n: int, n_alerts: int, *, n_unjudged: int = 0, normal: tuple[int, ...] = ()) -> HeldOut:
    judged = np.arange(n) >= n_unjudged
    is_normal = np.isin(np.arange(n), normal)
    alert = judged & (np.arange(n) >= n - n_alerts) & ~is_normal
    return HeldOut(tuple(of(CALIBRATION[:n])), judged, alert, is_normal)


def test_a_false_alarm_by_an_operator_s_feedback_is_never_left_out() -> None:
    scores = np.concatenate([np.random.default_rng(0).exponential(1, 180), np.linspace(20, 30, 20)])
    plain = held_out(200, 20).presumed(scores, 0.02, 0.0)
    assert set(np.flatnonzero(plain)) == set(range(180, 200))
    marked = held_out(200, 20, normal=(199,)).presumed(scores, 0.02, 0.0)
    assert set(np.flatnonzero(marked)) == set(range(180, 199))


def test_of_what_was_not_judged_the_presumed_share_is_left_out() -> None:
    left_out = held_out(100, 0, n_unjudged=50).presumed(np.arange(100.0), 0.02, 0.1)
    assert np.flatnonzero(left_out).tolist() == [95, 96, 97, 98, 99]


# --- who calibrates ------------------------------------------------------------------------------------------------


def planned(
    selection: Selection, *, has_champion: bool, rate: float = 0.02, share: float = 0.5, **changes: Any
) -> Plan:
    settings = LearningSettings(**{"min_training": 20, **changes})
    return plan_calibration(selection, settings=settings, share=share, rate=rate, seed=0, has_champion=has_champion)


def cold(n_accepted: int, n_calibration: int, n_comparison: int) -> Selection:
    reserve = of(CALIBRATION[:n_calibration], **UNJUDGED) + of(COMPARISON[:n_comparison], **UNJUDGED)
    return chosen(of(FREE[:n_accepted], **UNJUDGED), reserve)


def test_a_share_that_holds_none_out_is_an_error() -> None:
    with pytest.raises(TrainingDataError, match=r"model.calibration holds none of 200 sequences out: raise it"):
        planned(cold(200, 0, 0), has_champion=False, share=0.004)


def test_a_large_calibration_half_calibrates_alone() -> None:
    selection = chosen(of(FREE[:400]), of(CALIBRATION[:120]) + of(COMPARISON[:110]))
    plan = planned(selection, has_champion=True)
    assert plan.method == "reserve"
    assert ids(plan.calibration.sequences) == ids(selection.calibration.sequences)
    assert (len(plan.comparison), len(plan.training)) == (110, 400)


def test_a_first_training_calibrates_on_the_whole_reserve_and_on_what_a_hash_draws() -> None:
    """200 sequences at the defaults: 40 reserved, of which 20 would calibrate: too few for a rate of 0.02."""
    selection = cold(160, 20, 20)
    plan = planned(selection, has_champion=False)
    assert plan.method == "split"
    assert (len(plan.calibration), len(plan.training), len(plan.comparison)) == (99, 101, 0)
    reserved = ids((*selection.calibration.sequences, *selection.comparison.sequences))
    assert reserved < ids(plan.calibration.sequences)
    assert not ids(plan.training) & ids(plan.calibration.sequences)
    assert not reserved & ids(plan.training)


@pytest.mark.parametrize(
    ("n_accepted", "halves", "n_calibration", "n_comparison"), [(800, (100, 100), 100, 100), (600, (80, 70), 99, 51)]
)
def test_a_first_training_takes_no_more_of_the_comparison_half_than_is_missing(
    n_accepted: int, halves: tuple[int, int], n_calibration: int, n_comparison: int
) -> None:
    plan = planned(cold(n_accepted, *halves), has_champion=False)
    assert (plan.method, len(plan.calibration), len(plan.comparison)) == ("reserve", n_calibration, n_comparison)


@pytest.mark.parametrize(("n_accepted", "method"), [(119, "out_of_fold"), (120, "split")])
def test_below_150_sequences_a_first_training_calibrates_out_of_fold(n_accepted: int, method: str) -> None:
    plan = planned(cold(n_accepted, 15, 15), has_champion=False)
    assert plan.method == method
    assert len(plan.calibration) == (30 if method == "out_of_fold" else 49)
    assert len(plan.training) == (119 if method == "out_of_fold" else 101)


def test_a_first_training_takes_none_that_training_cannot_spare() -> None:
    assert planned(cold(160, 20, 20), has_champion=False, min_training=101).method == "split"
    assert planned(cold(160, 20, 20), has_champion=False, min_training=102).method == "out_of_fold"


def test_with_a_champion_only_what_no_decision_has_cut_may_help_out() -> None:
    """Accepted sequences lack the upper tail: they must not calibrate, however few the reserve has."""
    uncut, judged = of(FREE[:40], **UNJUDGED), of(FREE[40:200])
    reserve = of(CALIBRATION[:30]) + of(COMPARISON[:25])
    plan = planned(chosen(uncut + judged, reserve), has_champion=True)
    assert plan.method == "split"
    assert ids(plan.calibration.sequences) == ids(uncut) | ids(of(CALIBRATION[:30]))
    assert ids(plan.training) == ids(judged)
    assert len(plan.comparison) == 25
    alone = planned(chosen(judged, reserve), has_champion=True)
    assert (alone.method, len(alone.calibration), len(alone.training)) == ("reserve", 30, 160)


def test_presumed_anomalies_are_taken_on_top() -> None:
    plan = planned(cold(400, 20, 20), has_champion=False, presumed_anomalies=0.1)
    assert len(plan.calibration) == 110  # 99 without the highest tenth


def test_what_may_be_left_out_of_the_calibration_half_is_taken_on_top() -> None:
    """99 less one would certify no more than 49."""
    alerts = of(CALIBRATION[:12], decision="anomalous", p_value=0.01)
    selection = chosen(of(FREE[:60], **UNJUDGED), alerts + of(CALIBRATION[12:100]) + of(COMPARISON[:50]))
    plan = planned(selection, has_champion=True)
    assert selection.calibration.most_presumed(0.02) == 13  # 1.25 times the excess of 10
    assert len(plan.calibration) == 99 + 13


def test_feedback_is_protected_and_the_rest_counted_as_judged_or_not() -> None:
    alarms = of(FREE[300:305], decision="anomalous", p_value=0.01)
    reserve = of(CALIBRATION[:120]) + of(COMPARISON[:110])
    selection = chosen(
        of(FREE[:100]) + of(FREE[100:130], **UNJUDGED),
        reserve,
        alarms,
        dict.fromkeys(alarms, "false_alarm"),
        uses_marks=True,
    )
    plan = planned(selection, has_champion=True)
    assert plan.protected == ids(alarms)
    assert (len(plan.training), plan.n_unjudged) == (135, 30)


def test_windows_go_under_the_ids_of_their_verdicts() -> None:
    sequences = of(FREE[:3])
    windows = to_windows(sequences)
    assert windows.ids == tuple(each.id for each in sequences)
    assert windows.lengths.tolist() == [each.window.length for each in sequences]
    assert np.array_equal(windows.values[1], sequences[1].window.values)


def test_a_champion_is_compared_on_what_cannot_have_calibrated_it() -> None:
    """The first model borrowed from the comparison half of its time, on which nothing was decided yet."""
    lent = of(COMPARISON[:20], **UNJUDGED)
    reserve = of(CALIBRATION[:120]) + lent
    enough = planned(chosen(of(FREE[:100]), reserve + of(COMPARISON[20:40])), has_champion=True)
    assert ids(enough.comparison.sequences) == ids(of(COMPARISON[20:40]))
    few = planned(chosen(of(FREE[:100]), reserve + of(COMPARISON[20:39])), has_champion=True)
    assert len(few.comparison) == 39
