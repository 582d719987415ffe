"""Limits of cumulative sums agree with published tables, and sums of related values vary as theory says."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest

from streamad.drift.detector import long_run_variance, run_length_limit


@pytest.mark.parametrize(("limit", "run_length"), [(4, 168), (5, 465)])
def test_limits_agree_with_tabulated_run_lengths(limit: float, run_length: float) -> None:
    """Montgomery, Introduction to Statistical Quality Control, table of the tabular cusum with k = 0.5."""
    assert run_length_limit(1 / run_length, 0.5) == pytest.approx(limit, abs=0.05)


def test_fewer_false_crossings_and_less_slack_need_a_higher_limit() -> None:
    assert run_length_limit(1e-6, 0.5) > run_length_limit(1e-5, 0.5) + 2
    assert run_length_limit(1e-5, 0.4) > run_length_limit(1e-5, 0.5)


def autoregression(n: int, coefficient: float, seed: int) -> npt.NDArray[np.float64]:
    values = np.random.default_rng(seed).normal(size=n)
    for place in range(1, n):
        values[place] = coefficient * values[place - 1] + np.sqrt(1 - coefficient**2) * values[place]
    return values


@pytest.mark.parametrize(("coefficient", "truth"), [(0.0, 1.0), (0.5, 3.0), (0.8, 9.0)])
def test_sums_of_related_values_vary_more(coefficient: float, truth: float) -> None:
    estimate = long_run_variance(autoregression(50_000, coefficient, 3))
    assert 0.95 * truth < estimate < 1.35 * truth  # leaning upwards


def test_slow_wandering_under_noise_counts_though_neighbours_hardly_resemble_each_other() -> None:
    rng = np.random.default_rng(5)
    values = 0.5 * autoregression(20_000, 0.95, 6) + rng.normal(size=20_000)
    truth = 0.25 * 1.95 / 0.05 + 1
    correlation = np.corrcoef(values[1:], values[:-1])[0, 1]
    assert (1 + correlation) / (1 - correlation) * values.var() < truth / 4  # what the first neighbours tell
    assert 0.8 * truth < long_run_variance(values) < 1.8 * truth


def test_short_series_err_upwards_and_constant_ones_have_none() -> None:
    short = [long_run_variance(autoregression(100, 0.5, seed)) for seed in range(200)]
    assert 3.0 < np.median(short) < 6.0
    assert long_run_variance(np.full(100, 7.5)) == 0.0
    assert np.isfinite(long_run_variance(np.array([1.0, 2.0])))


LEARN_AND_SHIFT = """
import json, sys
import numpy as np
from streamad.drift.detector import ShiftDetector
levels = np.random.default_rng(3).normal(size=400) + 3.0 * (np.arange(400) >= 300)
detector, found = ShiftDetector(100, 1e-6), []
for number, level in enumerate(levels):
    found += [number] * (detector.add(number, float(level)) is not None)
    if number == 200:
        assert detector.adapt() is None
print(json.dumps([found, sorted({"pandas", "sklearn", "river.drift"} & set(sys.modules))]))
"""


def test_a_shift_is_found_without_the_libraries_of_river_s_data_sets() -> None:
    """They take more than a second to import, at every start of a learner."""
    command = [sys.executable, "-c", LEARN_AND_SHIFT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, imported = json.loads(done.stdout)
    assert len(found) == 1
    assert 300 <= found[0] < 320
    assert imported == []
