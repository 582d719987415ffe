from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from streamad.judge.evaluation import clopper_pearson
from streamad.learn.promotion.comparison import Comparison, ModelFigures
from streamad.learn.promotion.rule import MIN_MARKS, rule
from streamad.outputs.versions.figures import figure_rows
from streamad.settings.learning import PromotionSettings

SETTINGS = PromotionSettings()


def model(
    n_alerts: int,
    n: int,
    *,
    detection: float = 0.7,
    confirmed: int = 0,
    raised: int = 0,
    warned: tuple[int, int] | None = None,
) -> ModelFigures:
    """Figures of a model; ``warned``: of how many of the watched sequences it warned, None without looks."""
    n_warned, n_watched = warned or (0, 0)
    return ModelFigures(
        version="0001",
        n_presumed=0,
        n_alerts=n_alerts,
        false_alarm_rate=n_alerts / n,
        interval=clopper_pearson(n_alerts, n),
        detection=detection,
        by_fault={"stuck": detection},
        n_confirmed=confirmed,
        n_raised=raised,
        has_looks=warned is not None,
        n_watched=n_watched,
        n_warned=n_warned,
    )


def promoted(ours: ModelFigures, theirs: ModelFigures | None, n: int = 100, rate: float = 0.02, **counts: Any) -> bool:
    return ruling(ours, theirs, n, rate, **counts).promoted


def ruling(
    ours: ModelFigures,
    theirs: ModelFigures | None,
    n: int = 100,
    rate: float = 0.02,
    *,
    trusts_marks: bool = False,
    **counts: Any,
) -> Any:
    given_counts = {"n_injected": 720, "n_confirmed": 0, "n_false_alarms": 0, **counts}
    comparison = Comparison(false_alarm_rate=rate, n_sequences=n, challenger=ours, champion=theirs, **given_counts)
    return rule(comparison, SETTINGS, trusts_marks=trusts_marks, warning_rate=0.01)


def test_without_a_champion_it_goes_into_service_and_the_reason_has_the_figures() -> None:
    found = ruling(model(3, 100), None)
    assert found.promoted
    assert (
        "3 false alarms on 100 normal sequences (0.6\u00a0% to 8.5\u00a0%), 70.0\u00a0% of the injected faults found"
        in found.reason
    )


@pytest.mark.parametrize(
    ("n", "most"),
    [(20, 1), (40, 2), (100, 4), (400, 15)],  # of so many, so many false alarms pass at a configured rate of 0.02
)
def test_false_alarms_within_chance_pass_and_one_more_does_not(n: int, most: int) -> None:
    champion = model(0, n)
    assert promoted(model(most, n), champion, n)
    refused = ruling(model(most + 1, n), champion, n)
    assert not refused.promoted
    assert f"{most + 1} false alarms on {n} normal sequences, 3.0\u00a0% are allowed" in refused.reason


@pytest.mark.parametrize(
    ("n", "good", "bad"), [(20, 0.07, 0.6), (40, 0.05, 0.77), (100, 0.06, 0.97), (400, 0.01, 0.99)]
)
def test_how_often_the_rule_errs(n: int, good: float, bad: float) -> None:
    """Refused, of challengers with the configured rate of 0.02: at most ``good``; with 0.1: at least ``bad``."""
    passes = [k for k in range(n + 1) if promoted(model(k, n), model(0, n), n)]
    assert passes == list(range(len(passes)))
    refused_good, refused_bad = (float(binom.sf(passes[-1], n, rate)) for rate in (0.02, 0.1))
    assert refused_good <= good
    assert refused_bad >= bad


def test_a_champion_that_alerts_often_lets_the_challenger_do_as_much_and_a_tolerance_more() -> None:
    assert promoted(model(31, 300), model(30, 300), 300)
    assert not promoted(model(45, 300), model(30, 300), 300)
    assert promoted(model(6, 300), model(30, 300), 300)


@pytest.mark.parametrize(("ours", "passes"), [(0.80, True), (0.65, True), (0.64, False)])
def test_detection_may_fall_by_its_tolerance(ours: float, passes: bool) -> None:
    found = ruling(model(2, 100, detection=ours), model(2, 100, detection=0.70))
    assert found.promoted == passes
    assert passes or "it finds 64.0\u00a0% of the injected faults, the champion 70.0\u00a0%" in found.reason


@pytest.mark.parametrize(
    ("n", "ours", "passes"),
    [(4, 0, True), (5, 4, True), (5, 3, False), (40, 37, True), (40, 35, False)],  # the champion found all
)
def test_confirmed_anomalies_must_still_be_found_where_marks_are_trusted(n: int, ours: int, passes: bool) -> None:
    models = model(2, 100, confirmed=ours), model(2, 100, confirmed=n)
    assert ruling(*models, n_confirmed=n).promoted
    found = ruling(*models, trusts_marks=True, n_confirmed=n)
    assert found.promoted == passes
    assert passes or f"it finds {ours} of {n} confirmed anomalies, the champion {n}" in found.reason


@pytest.mark.parametrize(("ours", "passes"), [(0, True), (2, True), (4, False)])
def test_known_false_alarms_must_not_come_back_where_marks_are_trusted(ours: int, passes: bool) -> None:
    models = model(2, 100, raised=ours), model(2, 100, raised=1)
    assert ruling(*models, n_false_alarms=10).promoted
    found = ruling(*models, trusts_marks=True, n_false_alarms=10)
    assert found.promoted == passes
    assert passes or "it alerts on 4 of 10 known false alarms, the champion on 1" in found.reason


def test_too_few_sequences_decide_nothing() -> None:
    assert promoted(model(0, 20), model(0, 20), 20)
    refused = ruling(model(0, 19, detection=1.0), model(9, 19, detection=0.0), 19)
    assert not refused.promoted
    assert "19 sequences to compare on, 20 are needed (learning.promotion.min_comparison)" in refused.reason


def test_every_reason_is_given() -> None:
    n = MIN_MARKS
    ours, theirs = model(30, 100, detection=0.1, raised=n), model(2, 100, confirmed=n)
    reason = ruling(ours, theirs, trusts_marks=True, n_confirmed=n, n_false_alarms=n).reason
    assert reason.count(";") == 3
    assert "\n" not in reason


labels = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))


@given(n=st.integers(20, 400), k=st.integers(0, 400), detection=st.floats(0, 1), counts=labels)
def test_law_a_challenger_like_its_champion_passes_and_a_better_one_does_not_do_worse(
    n: int, k: int, detection: float, counts: tuple[int, int, int]
) -> None:
    n_labels, found, raised = counts
    k, found, raised = min(k, n), min(found, n_labels), min(raised, n_labels)
    same = model(k, n, detection=detection, confirmed=found, raised=raised)
    given_counts: dict[str, Any] = {"n_confirmed": n_labels, "n_false_alarms": n_labels, "trusts_marks": True}
    assert promoted(same, same, n, **given_counts)
    better = model(k // 2, n, detection=min(1.0, detection + 0.1), confirmed=n_labels, raised=0)
    assert promoted(better, same, n, **given_counts)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ((3, 100), (1, 100), None),  # within chance of 1 % and a tolerance of 1 %
        ((4, 100), (1, 100), "4 false warnings of 100 running normal sequences, 2.0\u00a0% are allowed"),
        ((31, 300), (30, 300), None),
        ((45, 300), (30, 300), "45 false warnings of 300 running normal sequences, 11.0\u00a0% are allowed"),
        ((0, 0), (1, 100), None),  # nothing to compare on
        ((4, 100), None, "4 false warnings of 100 running normal sequences, 2.0\u00a0% are allowed"),
        (None, (1, 100), "it has no looks at running sequences, the champion has"),
        (None, None, None),
    ],
)
def test_false_warnings_block_as_false_alarms_do_and_looks_must_not_be_lost(
    ours: tuple[int, int] | None, theirs: tuple[int, int] | None, why: str | None
) -> None:
    found = ruling(model(2, 100, warned=ours), model(2, 100, warned=theirs))
    assert found.promoted == (why is None), found.reason
    assert why is None or why in found.reason
    assert not found.promoted or ours is None or f"{ours[0]} of {ours[1]} warned of while they ran" in found.reason


def test_what_a_person_compares_says_of_how_many_running_sequences_each_would_have_warned() -> None:
    ours, theirs = model(2, 100, warned=(1, 90)), model(2, 100, warned=None)
    given = {"n_injected": 720, "n_confirmed": 0, "n_false_alarms": 0}
    comparison = Comparison(false_alarm_rate=0.02, n_sequences=100, challenger=ours, champion=theirs, **given)
    rows = {label: texts for label, *texts in figure_rows(comparison.figures(), ("champion", "challenger"))}
    assert rows["warned of while they ran"] == ["", "1 of 90"]
