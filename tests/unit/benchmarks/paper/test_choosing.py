"""The jobs that the options of ``run`` choose, their order and their settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.paper.choosing import Choice, check_modules, jobs_of, together
from benchmarks.paper.methods import METHODS, Method, make
from benchmarks.paper.results_table import Cell
from streamad.errors import DetectorError, UsageError


def cells(choice: Choice) -> list[Cell]:
    return [job.cells[0] for job in jobs_of(choice)]


def test_seeds_come_one_after_the_other_and_deterministic_methods_have_the_first_alone() -> None:
    found = cells(Choice((1,), datasets=("epilepsy",), methods=("lof", "neutral_ad"), n_seeds=2))
    order = [("neutral_ad", 0), ("lof", 0), ("neutral_ad", 1)]
    assert [(cell.method, cell.seed) for cell in found] == [each for each in order for _ in range(4)]
    assert [cell.normal_name for cell in found[:4]] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("choice", "n"),
    [
        (Choice((3,), datasets=("thyroid",), n_seeds=3), 1),
        (Choice((3,), datasets=("kdd",), n_seeds=3), 3),
        (Choice(figures=("halves",), datasets=("thyroid",), n_seeds=3), 3),
    ],
)
def test_a_deterministic_method_has_all_seeds_if_they_draw_the_training_rows(choice: Choice, n: int) -> None:
    assert [cell.seed for cell in cells(replace(choice, methods=("lof",)))] == [*range(n)]


def test_a_table_has_the_methods_that_can_read_it() -> None:
    found = {cell.method for cell in cells(Choice((3,)))}
    assert {"neutral_ad", "oc_svm", "isolation_forest", "lof", "deep_svdd", "dagmm", "goad", "drocc"} <= found
    assert not found & {"rnn", "lstm_ed", "fixed_transformations", "minirocket", "rockad"}


def test_value_goes_before_seed() -> None:
    found = cells(Choice(methods=("neutral_ad",), datasets=("natops", "spoken_arabic_digits"), n_seeds=2))
    order = list(dict.fromkeys((cell.protocol, cell.dataset, cell.seed) for cell in found))
    assert order[:4] == [
        ("one_vs_rest", "natops", 0),
        ("one_vs_rest", "natops", 1),
        ("one_vs_rest", "spoken_arabic_digits", 0),
        ("one_vs_rest", "spoken_arabic_digits", 1),
    ]
    assert order[-1] == ("n_vs_rest", "spoken_arabic_digits", 1)


def test_the_ablation_is_of_neutral_ad_alone_and_its_jobs_carry_their_settings() -> None:
    jobs = jobs_of(Choice(figures=("ablation",), datasets=("arrhythmia",), methods=("neutral_ad", "lof")))
    assert {job.cells[0].method for job in jobs} == {"neutral_ad"}
    assert len(jobs) == 42
    assert jobs[0].cells[0].variant == "feed_forward-k02"
    assert jobs[0].settings == {"transformation": "feed_forward", "n_transformations": 2}


@pytest.mark.parametrize(
    ("choice", "method", "expected"),
    [
        (Choice((2,), datasets=("character_trajectories",)), "neutral_ad", {"epochs": 20, "batch_size": 64}),
        (Choice((2,), datasets=("character_trajectories",)), "fixed_transformations", {"epochs": 20, "batch_size": 64}),
        (Choice((1,), datasets=("character_trajectories",)), "fixed_transformations", {}),
        (Choice((2,), datasets=("character_trajectories",)), "minirocket", {}),
        (Choice((2,), datasets=("spoken_arabic_digits",)), "neutral_ad", {"epochs": 20, "batch_size": 256}),
        (
            Choice(figures=("sweep",), datasets=("spoken_arabic_digits",), normal=("8to1",)),
            "neutral_ad",
            {"epochs": 20, "batch_size": 113},
        ),
        (Choice(figures=("sweep",), datasets=("natops",)), "neutral_ad", {}),
        (Choice((1,), datasets=("character_trajectories",)), "neutral_ad", {}),
    ],
)
def test_shortened_trainings_have_their_settings_in_their_jobs(
    choice: Choice, method: str, expected: dict[str, Any]
) -> None:
    found = jobs_of(replace(choice, methods=(method,)))
    assert found
    assert all(job.settings == expected for job in found)


def test_groups_stand_for_their_methods() -> None:
    found = {cell.method for cell in cells(Choice((1,), methods=("peers", "simclr")))}
    assert found == {"nearest", "minirocket", "rockad", "simclr"}


def test_models_that_can_be_trained_at_once_are_joined_over_classes_and_seeds_of_one_data_set() -> None:
    choice = Choice((1,), datasets=("epilepsy", "racket_sports"), methods=("neutral_ad", "lof"), n_seeds=2)
    jobs = jobs_of(choice)
    joined = together(jobs, 6)
    assert sorted(cell for job in joined for cell in job.cells) == sorted(cell for job in jobs for cell in job.cells)
    of_model = [job.cells for job in joined if job.cells[0].method == "neutral_ad"]
    assert [len(cells) for cells in of_model] == [6, 6, 2, 2]
    assert all(len({(cell.dataset, cell.method) for cell in cells}) == 1 for cells in of_model)
    assert [len(job.cells) for job in joined if job.cells[0].method == "lof"] == [1] * 8
    assert together(jobs, 1) == jobs


def test_variants_are_not_joined_they_differ_in_settings() -> None:
    joined = together(jobs_of(Choice(figures=("ablation",), datasets=("natops",), methods=("neutral_ad",))), 100)
    assert len(joined) == 42
    for job in joined:
        assert len(job.cells) == 6
        assert f"k{job.settings['n_transformations']:02d}" in job.cells[0].variant


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        (Choice((1,), datasets=("kdd",)), "kdd: not in these tables"),
        (Choice((3,), methods=("rnn",)), "rnn: not for these data sets"),
        (Choice((2,), datasets=("epilepsy",), normal=("7",)), "--normal 7: there are not-0, not-1, not-2, not-3"),
    ],
)
def test_nothing_chosen_is_an_error_with_its_reason(choice: Choice, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        jobs_of(choice)


def test_a_method_without_a_module_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "goad", Method("benchmarks.paper.baselines.gone:Goad"))
    with pytest.raises(DetectorError, match=r"no module for goad \(benchmarks.paper.baselines.gone\): leave them out"):
        check_modules(cells(Choice((1,), methods=("lof", "goad"))))
    with pytest.raises(DetectorError, match=r"goad cannot be had \(benchmarks.paper.baselines.gone:Goad\)"):
        make("goad", "natops")
    check_modules(cells(Choice((1,), methods=("lof",))))


def test_settings_that_a_method_refuses_are_one_line() -> None:
    with pytest.raises(DetectorError, match="lof refuses its settings for natops: neighbours: Extra inputs"):
        make("lof", "natops", {"neighbours": 3})
    with pytest.raises(UsageError, match="minirocket is for sequences, and thyroid is a table"):
        make("minirocket", "thyroid")
