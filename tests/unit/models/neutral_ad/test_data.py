from __future__ import annotations

import numpy as np
import pytest

from streamad.errors import TrainingDataError
from streamad.types import WindowSet
from streamad_models.neutral_ad.data import (
    MIN_SEQUENCES,
    check_training_data,
    fit_scaling,
    split_validation,
)
from tests.support.detectors import rows
from tests.unit.models.small import sines


def test_the_fewest_sequences_that_train_and_one_less() -> None:
    check_training_data(sines(MIN_SEQUENCES))
    with pytest.raises(TrainingDataError, match="7 training sequences: at least 8"):
        check_training_data(sines(MIN_SEQUENCES - 1))


def test_a_constant_channel_is_named_by_its_index() -> None:
    data = sines()
    data.values[:, 1] = np.where(data.values[:, 1] == 0, 0, 21.5)  # constant where valid; the padding is not looked at
    with pytest.raises(TrainingDataError, match="channel 1 never changes"):
        check_training_data(data)
    data.values[:, 2] = 3.0
    with pytest.raises(TrainingDataError, match="channels 1, 2 never changes"):
        check_training_data(data)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    data = sines()
    data.values[3, 2, 0] = value
    with pytest.raises(TrainingDataError, match="NaN or infinite values in channel 2"):
        check_training_data(data)


@pytest.mark.parametrize("length", [0, 17])
def test_lengths_outside_the_window_are_refused(length: int) -> None:
    data = sines()
    data.lengths[0] = length
    with pytest.raises(TrainingDataError, match=r"within 1\.\.16"):
        check_training_data(data)


def test_wrong_shapes_and_single_steps_are_refused() -> None:
    flat = np.zeros((10, 16), np.float32)
    with pytest.raises(TrainingDataError, match=r"\[N, C, L\]"):
        check_training_data(WindowSet(flat, np.full(10, 16), ()))
    with pytest.raises(TrainingDataError, match="at least 2 steps"):
        check_training_data(WindowSet(flat[:, :, None], np.full(10, 1), ()))


def test_scaling_is_fitted_on_valid_samples_only() -> None:
    values = np.zeros((2, 1, 4), np.float32)
    values[0, 0, :3], values[1, 0, :1] = [10.0, 12.0, 14.0], [16.0]
    mean, scale = fit_scaling(WindowSet(values, np.array([3, 1]), ("a", "b")), "standard")
    assert mean.tolist() == [13.0]
    assert scale == pytest.approx([1 / np.std([10, 12, 14, 16])])


def test_validation_split_is_disjoint_complete_and_seeded() -> None:
    data = sines(40)
    training, watched = split_validation(data, 0.25, 5)
    assert watched is not None
    assert len(watched) == 10
    assert sorted(training.ids + watched.ids) == sorted(data.ids)
    assert split_validation(data, 0.25, 5)[0].ids == training.ids
    assert split_validation(data, 0.25, 6)[0].ids != training.ids


def test_validation_auto_takes_a_tenth_from_200_sequences_on() -> None:
    assert split_validation(sines(199, 1, 8), "auto", 0)[1] is None
    watched = split_validation(sines(200, 1, 8), "auto", 0)[1]
    assert watched is not None
    assert len(watched) == 20


def test_validation_that_leaves_too_few_to_train_on_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="8 must stay"):
        split_validation(sines(9), 0.3, 0)


def test_range_scaling_maps_each_attribute_onto_zero_to_one() -> None:
    data = rows()
    data.values[:, 1] = 3.0
    origin, factor = fit_scaling(data, "range")
    scaled = (data.values[:, :, 0] - origin) * factor
    np.testing.assert_allclose(scaled.min(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.max(axis=0), [1, 0, 1, 1, 1, 1], atol=1e-6)


def test_quantile_scaling_is_not_stretched_by_a_spike_and_falls_back_to_the_range() -> None:
    steps = np.tile(np.linspace(0.0, 1.0, 101, dtype=np.float32), (10, 3, 1))
    steps[:, 1] = 0.0
    steps[0, 1, 7] = 4.0  # a valve that opened once: both quantiles are 0
    steps[:, 2] = 3.0
    data = WindowSet(steps, np.full(10, 101), tuple("abcdefghij"))
    origin, factor = fit_scaling(data, "quantiles")
    np.testing.assert_allclose(origin, [0.01, 0.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(4 / factor, [0.98, 4.0, 4.0], rtol=1e-6)  # onto 0..4; the constant one's factor is 1
    data.values[3, 0, 50] = 1000.0
    spiked_origin, spiked_factor = fit_scaling(data, "quantiles")
    np.testing.assert_allclose(spiked_origin, origin, atol=1e-6)
    np.testing.assert_allclose(spiked_factor[0], factor[0], rtol=0.02)
    assert 1 / fit_scaling(data, "range")[1][0] == pytest.approx(1000.0)
