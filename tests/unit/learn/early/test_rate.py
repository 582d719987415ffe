"""Law: of normal sequences at most the stated share is ever warned of, by looks that are fitted once."""

from __future__ import annotations

import numpy as np

from streamad.judge.early.course import Course
from streamad.judge.early.model import NO_LOOK, Scales, early_model
from streamad.learn.early.fitting import LookFitting, ages_of, usual_length
from tests.support.learning.plant import settings_of

PLANTS, DIVISIONS = 5, 200
KNOWN, HELD_OUT, CALIBRATING = 20, 110, 79
RATE = 0.05


def courses_of(n: int, seed: int) -> list[Course]:
    """Batches around a course of the plant's own: their levels, their noise and their lengths differ."""
    rng = np.random.default_rng(seed)
    shape, found = np.sin(np.linspace(0, rng.uniform(2, 4), 40)) * np.array([[1.0], [5.0], [20.0]]), []
    for length in rng.integers(3, 41, n).tolist():
        wander = rng.normal(0, 0.1, (3, length)).cumsum(axis=1) + rng.standard_t(4, (3, 1))
        values = (shape[:, :length] + wander + rng.normal(0, 0.3, (3, length))).astype(np.float32)
        found.append(Course(values, np.ones(values.shape, np.bool_)))
    return found


def ever_warned_of(z: Scales, rng: np.random.Generator) -> float:
    """Return the share [of test sequences] that a look warns of, by a calibration of some of the sequences [n, J]."""
    order = rng.permutation(len(z))
    calibrating, tested = z[order[:CALIBRATING]], z[order[CALIBRATING:]]
    model = early_model([], calibrating.max(axis=1), RATE)
    largest = np.maximum.accumulate(tested, axis=1)
    return float(np.mean([any(model.p_value(each)[0] <= RATE for each in row) for row in largest.tolist()]))


def test_over_simulated_plants_and_divisions_the_mean_share_is_at_most_the_rate() -> None:
    settings, shares, n_without = settings_of(window={"length": 64}), [], 0
    for seed in range(PLANTS):
        plant = courses_of(KNOWN + HELD_OUT, seed)
        known, held_out = plant[:KNOWN], plant[KNOWN:]
        fitting = LookFitting(settings.window, settings.channel_specs, seed=seed)
        z = fitting.z(fitting.fit(known, ages_of(usual_length(known), 3, settings.window)), held_out)
        n_without += int((z.max(axis=1) == NO_LOOK).sum())
        rng = np.random.default_rng(seed)
        shares.append(np.mean([ever_warned_of(z, rng) for _ in range(DIVISIONS)]))
    assert n_without > 0, "some sequences end before the first look, and count"
    assert np.mean(shares) <= RATE + 2 * np.std(shares, ddof=1) / np.sqrt(PLANTS)
    assert np.mean(shares) > RATE / 2, "the rate is used"
