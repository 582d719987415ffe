"""The progress report of a run, and its estimate of the time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.paper.progress import Estimate, ProgressReport, duration
from benchmarks.paper.workers import Failure, Job, Outcome
from tests.unit.benchmarks.paper.results import result


def test_a_cell_takes_as_long_as_the_likest_that_were_measured() -> None:
    same = result(normal_name="1", fit_s=10, score_s=2)
    estimate = Estimate([same, result(normal_name="2", fit_s=20, score_s=0), result("epilepsy", fit_s=99, score_s=1)])
    assert estimate.of(result(normal_name="3").cell) == pytest.approx(16)
    assert estimate.of(result(normal_name="not-3", protocol="n_vs_rest").cell) == pytest.approx(16)
    assert estimate.of(result("epilepsy", method="goad").cell) == pytest.approx(100)
    assert estimate.of(result("natops", method="goad").cell) == pytest.approx(132 / 3)
    assert Estimate([]).of(same.cell) is None


def test_without_a_guess_no_other_method_estimates_how_long_one_takes() -> None:
    estimate = Estimate([result(fit_s=10, score_s=2)])
    assert estimate.of(result(normal_name="3").cell, guess=False) == 12
    assert estimate.of(result(method="goad").cell, guess=False) is None
    assert estimate.of(result(method="goad").cell) == 12


def test_a_shortened_training_is_taken_for_its_share() -> None:
    estimate = Estimate([result("character_trajectories", method="neutral_ad", fit_s=100, score_s=0)])
    short = result("character_trajectories", method="neutral_ad", normal_name="not-3", protocol="n_vs_rest")
    assert estimate.of(short.cell) == pytest.approx(20)


def test_n_normal_classes_are_taken_to_need_n_times_as_long() -> None:
    estimate = Estimate([result(fit_s=10, score_s=0)])
    three = result(normal_name="not-3", normal=(0, 1, 2), protocol="n_vs_rest")
    assert estimate.of(three.cell) == 30
    estimate.learn(result(normal_name="not-3", normal=(0, 1, 2), protocol="n_vs_rest", fit_s=60, score_s=0))
    assert estimate.of(three.cell) == 60


def test_workers_share_the_time_left() -> None:
    estimate = Estimate([result(fit_s=10, score_s=0)])
    assert estimate.left_s([result().cell] * 6, 2) == pytest.approx(30)
    assert estimate.left_s([], 2) == 0
    assert Estimate([]).left_s([result().cell], 1) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (125, "2 min"), (5399, "90 min"), (9000, "2.5 h")]
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_every_cell_is_a_line_with_its_place_its_figures_and_the_time_left() -> None:
    file = io.StringIO()
    ones = [result(normal_name=str(number), auc=0.875, f1=0.5, fit_s=200, score_s=40) for number in range(3)]
    report = ProgressReport(Console(file=file, width=200), [one.cell for one in ones], Estimate([]), 2)
    with report:
        report.show(Outcome(Job((ones[0].cell,)), (ones[0],)))
        report.show(Outcome(Job((ones[1].cell,)), Failure("too few [sequences]")))
        report.show(Outcome(Job((ones[2].cell,)), (ones[2],)))
    assert file.getvalue().splitlines() == [
        "1/3 racket_sports one_vs_rest lof, normal 0, seed 0: AUC 0.875, F1 0.500, 240.0 s; about 4 min left",
        "2/3 failed racket_sports one_vs_rest lof, normal 1, seed 0: too few [sequences]; about 2 min left",
        "3/3 racket_sports one_vs_rest lof, normal 2, seed 0: AUC 0.875, F1 0.500, 240.0 s",
    ]
