"""Faults that begin midway are injected into held-out sequences: what looks see of them, and what train says of it."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.judge.early.course import Course
from streamad.judge.early.model import early_model
from streamad.learn.early.expecting import Faulty, faulty
from streamad.learn.early.fitting import LookFitting, ages_of, usual_length
from streamad.learn.early.training import EarlyTraining, TrainedEarly
from streamad.learn.training.calibrating import folds_of
from streamad.learn.training.found import expected_of
from tests.support.learning.plant import settings_of, windows_of

RATE = 0.1
ALERTS = {"early": {"false_alarm_rate": RATE, "looks": 4}}
SETTINGS = settings_of(alerts=ALERTS, model={"detector": "mean", "device": "cpu"})


def courses_of(n: int, seed: int) -> list[Course]:
    data = windows_of(n, seed)
    return [
        Course(values[:, : length - 1], np.ones((len(values), length - 1), np.bool_))
        for values, length in zip(data.values, data.lengths.tolist(), strict=True)
    ]


@pytest.fixture(scope="module")
def fitting() -> LookFitting:
    return LookFitting(SETTINGS.window, SETTINGS.channel_specs, seed=0)


def test_until_a_fault_begins_its_sequence_is_seen_as_it_was(fitting: LookFitting) -> None:
    known, held_out = courses_of(30, 0), courses_of(10, 1)
    looks = fitting.fit(known, ages_of(usual_length(known), 4, SETTINGS.window))
    ages = [look.form.n_points for look in looks]
    odd = faulty(fitting, looks, held_out, SETTINGS, ages)
    assert odd is not None
    base = np.maximum.accumulate(fitting.z(looks, held_out), axis=1)[odd.bases]
    for place, age in enumerate(ages):
        not_begun = odd.onsets >= age
        np.testing.assert_array_equal(odd.largest[not_begun, place], base[not_begun, place])
    begun = odd.onsets < ages[-1]
    assert (odd.largest[begun, -1] > base[begun, -1]).mean() > 0.3
    assert len(set(zip(odd.bases.tolist(), odd.onsets.tolist(), strict=True))) > len(held_out), "onsets differ by kind"


def test_the_shares_are_those_of_the_p_values(fitting: LookFitting) -> None:
    looks = fitting.fit(courses_of(30, 0), (4, 8))
    largest = np.array([[-1.0, 0.0], [0.5, 4.0], [5.0, 6.0], [-1.0, 9.0]])
    maxima = np.linspace(0.0, 3.0, 40)
    odd = Faulty(largest, np.array([3, 6, 2, 8]), np.array([0, 0, 1, 2]))
    found = expected_of(TrainedEarly(looks, maxima, (), 8, odd), RATE)
    assert found is not None
    model = early_model(looks, maxima, RATE)
    shares = [float(np.mean([model.p_value(each)[0] <= RATE for each in column])) for column in largest.T.tolist()]
    assert (found.rate, found.n_faults, found.n_bases) == (RATE, 4, 3)
    assert found.warned == tuple(shares) == (0.25, 0.75)
    assert found.begun == (0.5, 0.75)
    assert found.interval[0] <= 0.75 <= found.interval[1]


@pytest.mark.parametrize("method", ["split", "out_of_fold"])
def test_a_training_says_what_its_looks_find(method: str) -> None:
    ids = [f"B-{number}" for number in range(60)]
    training = EarlyTraining(dict(zip(ids, courses_of(60, 0), strict=True)), SETTINGS)
    folds = [[ids[place] for place in fold] for fold in folds_of(60, 3)]
    trained = training.train(ids[20:], ids[:20]) if method == "split" else training.train(ids, ids, folds)
    expected = expected_of(trained, RATE)
    assert expected is not None
    assert len(expected.warned) == len(expected.begun) == len(trained.looks)
    assert list(expected.warned) == sorted(expected.warned)
    assert 0 < expected.warned[-1] <= 1


def test_where_no_fault_can_be_or_is_wanted_nothing_is_said(fitting: LookFitting) -> None:
    looks = fitting.fit(courses_of(30, 0), (4, 8))
    assert faulty(fitting, looks, courses_of(5, 1), settings_of(alerts=ALERTS), [4, 8]) is None
    assert faulty(fitting, looks, [course.up_to(3) for course in courses_of(5, 1)], SETTINGS, [4, 8]) is None
