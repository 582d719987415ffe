"""The false-alarm rate over ten retrainings in a row in a simulated plant (benchmarks/quality/reserve.py)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.quality.reserve import measure

RATE = 0.02
# The standard deviation of one plant's rate is about 0.01, that of the mean over 8 plants 0.004, and over the last five
# trainings of them (which share half of their calibration sequences with their neighbours) about 0.003.
CHANCE = 0.009


@cache
def found(scenario: str, way: str) -> dict[str, Any]:
    by_scenario = measure(8, 10, noise="normal", scenarios=[scenario], ways=[way], seed=1)
    figures: dict[str, Any] = by_scenario[scenario][way]
    assert len(figures["false_alarm_rate"]) == 11  # the first training, and ten retrainings
    return figures


def late(figures: list[float]) -> float:
    """The mean after the last five retrainings."""
    return float(np.mean(figures[-5:]))


SCENARIOS = ["steady", "steady, 10 % faults", "drift", "drift, 10 % faults"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_naive_calibration_inflates_the_rate_with_every_retraining(scenario: str) -> None:
    rates = found(scenario, "naive")["false_alarm_rate"]
    assert late(rates) > 0.07
    assert np.mean(rates[9:]) > np.mean(rates[5:7]) > np.mean(rates[1:3]) > RATE


def test_calibrating_on_accepted_sequences_inflates_it_most() -> None:
    assert late(found("steady", "accepted")["false_alarm_rate"]) > 0.15


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ours_keeps_the_rate_and_goes_on_finding_faults(scenario: str) -> None:
    figures = found(scenario, "ours")
    assert late(figures["false_alarm_rate"]) < (RATE + CHANCE if "faults" not in scenario else 2 * RATE)
    assert late(figures["detection_rate"]) > figures["detection_rate"][0] - 0.05


def test_without_leaving_anything_out_unlabelled_faults_blind_the_monitor() -> None:
    detection = found("steady, 10 % faults", "whole reserve")["detection_rate"]
    assert detection[10] < detection[0] - 0.3


def test_leaving_the_whole_excess_out_inflates_the_rate_under_drift() -> None:
    """A champion that falls behind alerts on normal sequences; to leave those out makes the next one do so as well."""
    assert late(found("drift", "whole excess")["false_alarm_rate"]) > 0.06
    assert late(found("drift", "what stands apart")["false_alarm_rate"]) < RATE + CHANCE
