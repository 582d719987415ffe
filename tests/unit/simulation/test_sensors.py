"""A broken sensor changes the reading from its onset on, by the size that was asked for."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from streamad.simulation.faults import SensorShape, sensor_error

ONSET = 20


def error(shape, severity=10.0):
    return sensor_error(shape, 220, ONSET, step=1 / 200, severity=severity, rng=np.random.default_rng(3))


@pytest.mark.parametrize("shape", get_args(SensorShape))
def test_nothing_is_added_before_the_onset(shape):
    assert not error(shape)[:ONSET].any()
    assert error(shape)[ONSET:].any() == (shape not in {"stuck", "dropout"})
    assert not sensor_error(shape, 5, 5, step=1.0, severity=1.0, rng=np.random.default_rng(0)).any()


def test_severity_is_the_offset_the_slope_the_size_of_spikes_and_the_deviation_of_noise():
    assert set(error("bias", -10.0)[ONSET:]) == {-10.0}
    np.testing.assert_allclose(np.diff(error("drift")[ONSET:]), 10.0 / 200)
    spikes = np.abs(error("spikes"))
    assert spikes[ONSET] > 0
    assert 6.0 <= spikes[spikes > 0].min() <= spikes.max() <= 14.0
    assert (spikes > 0).mean() < 0.5
    assert error("noise")[ONSET:].std() == pytest.approx(10.0, rel=0.3)
