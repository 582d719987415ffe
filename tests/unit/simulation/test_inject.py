"""An injected fault changes the named channel, from one sample on, and nothing else."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from tests.support.sensor_faults import InjectedKind, inject_sensor_fault

KINDS = get_args(InjectedKind)


def recorded(n=100, n_channels=4):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, n_channels)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_named_channel_changes_and_only_from_one_sample_on(kind):
    values = recorded()
    kept = values.copy()
    broken = inject_sensor_fault(values, 2, kind, np.random.default_rng(1), 6.0, 1.0)
    np.testing.assert_array_equal(values, kept)
    assert broken.dtype == np.float32
    np.testing.assert_array_equal(np.delete(broken, 2, axis=1), np.delete(values, 2, axis=1))
    changed = np.flatnonzero(broken[:, 2] != values[:, 2])
    assert 10 <= changed[0] < 62
    assert np.abs(broken[:, 2] - values[:, 2]).max() > 0.5


def test_sizes_are_in_the_channels_standard_deviations():
    values = np.zeros((200, 1), dtype=np.float32)

    def error(kind, seed=3):
        return inject_sensor_fault(values, 0, kind, np.random.default_rng(seed), 5.0, 2.0)[:, 0]

    bias = error("bias")
    assert set(np.abs(bias).tolist()) == {0.0, 10.0}
    assert abs(error("drift")[-1]) == pytest.approx(10.0)
    spikes = np.abs(error("spike"))
    assert 6.0 <= spikes[spikes > 0].min() <= spikes.max() <= 14.0
    assert (spikes > 0).mean() < 0.5
    noise = error("noise")
    assert noise[noise != 0].std() == pytest.approx(10.0, rel=0.3)


def test_stuck_repeats_the_last_good_reading():
    values = recorded()
    values[:, 1] = np.arange(100)
    values[5:70:2, 1] = np.nan
    broken = inject_sensor_fault(values, 1, "stuck", np.random.default_rng(4), 1.0, 1.0)
    level = broken[-1, 1]
    start = int(np.argmax(broken[:, 1] == level))
    assert level == np.nanmax(broken[: start + 1, 1])
    assert (broken[62:, 1] == level).all()


def test_missing_values_stay_missing():
    values = recorded()
    values[80, 0] = np.nan
    for kind in ("bias", "drift", "spike", "noise"):
        assert np.isnan(inject_sensor_fault(values, 0, kind, np.random.default_rng(2), 3.0, 1.0)[80, 0])


def test_same_generator_same_fault():
    values = recorded()
    first, second = (inject_sensor_fault(values, 0, "noise", np.random.default_rng(9), 3.0, 1.0) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("channel", "kind"), [(4, "bias"), (-1, "bias"), (0, "melted")])
def test_nonsense_is_refused(channel, kind):
    with pytest.raises(ValueError, match=r"kind|channel"):
        inject_sensor_fault(recorded(), channel, kind, np.random.default_rng(0), 1.0, 1.0)
