from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.injected_faults import FAULT_KINDS, FaultKind, channel_scales, inject, injected_windows
from streamad.types import FloatArray, WindowSet
from tests.support.examples import examples
from tests.support.learning.plant import C, L, windows_of

KIND = {kind.name: kind for kind in FAULT_KINDS}
kinds = st.sampled_from(FAULT_KINDS)
seeds = st.integers(0, 2**32)


def window_of(seed: int, n_channels: int = 3, length: int = 20, width: int = 24) -> FloatArray:
    """A window in which every reading of every channel differs from every other."""
    values = np.zeros((n_channels, width), dtype=np.float32)
    readings = np.random.default_rng(seed).permutation(n_channels * length) + 1.0
    values[:, :length] = readings.reshape(n_channels, length)
    return values


def injected(kind: FaultKind, strength: float, values: FloatArray, length: int, seed: int) -> tuple[FloatArray, int]:
    scales = np.ones(len(values))
    return inject(values, length, kind, strength, scales=scales, rng=np.random.default_rng(seed))


def test_there_are_at_least_ten_kinds_each_of_several_strengths() -> None:
    named = {"stuck", "drift", "bias", "spike", "dropout", "noise", "swapped_channels", "time_warp"}
    assert named | {"truncated_phase", "wrong_order"} <= set(KIND)
    assert len(KIND) == len(FAULT_KINDS) >= 10
    assert all(len(kind.strengths) >= 3 and list(kind.strengths) == sorted(kind.strengths) for kind in FAULT_KINDS)


@given(kind=kinds, level=st.integers(0, 2), seed=seeds, length=st.integers(8, 24))
@settings(max_examples=examples(300), deadline=None)
def test_every_fault_changes_the_window_and_leaves_it_one(kind: FaultKind, level: int, seed: int, length: int) -> None:
    values = window_of(seed, length=length)
    before = values.copy()
    strength = kind.strengths[level]
    broken, n = injected(kind, strength, values, length, seed)
    assert np.array_equal(values, before)  # pure
    assert (broken.shape, broken.dtype) == (values.shape, np.float32)
    assert 1 <= n <= length
    assert not broken[:, n:].any()  # padding stays zero
    assert np.isfinite(broken).all()
    assert n != length or not np.array_equal(broken, values)
    again, _ = injected(kind, strength, values, length, seed)
    assert np.array_equal(broken, again)  # seeded


@given(kind=kinds, seed=seeds, length=st.integers(1, 24))
@settings(max_examples=examples(200), deadline=None)
def test_strength_0_changes_nothing(kind: FaultKind, seed: int, length: int) -> None:
    values = window_of(seed, length=length)
    broken, n = injected(kind, 0.0, values, length, seed)
    assert n == length
    np.testing.assert_allclose(broken, values, rtol=1e-6)


@given(kind=kinds, seed=seeds, length=st.integers(1, 3), channels=st.integers(1, 2))
@settings(max_examples=examples(200), deadline=None)
def test_windows_of_one_channel_or_hardly_a_sample_do_no_harm(
    kind: FaultKind, seed: int, length: int, channels: int
) -> None:
    values = window_of(seed, channels, length)
    for strength in kind.strengths:
        broken, n = injected(kind, strength, values, length, seed)
        assert 1 <= n <= length
        assert np.isfinite(broken).all()


@given(seed=seeds)
@settings(max_examples=50, deadline=None)
def test_a_fault_of_a_channel_touches_one_channel(seed: int) -> None:
    values = window_of(seed)
    for kind in FAULT_KINDS:
        if kind.of_channel:
            broken, _ = injected(kind, kind.strengths[-1], values, 20, seed)
            assert (broken != values).any(axis=1).sum() == 1


def test_a_channel_that_stands_still_is_not_the_one_that_gets_stuck() -> None:
    values = window_of(1)
    values[[0, 2], :20] = 5.0
    for seed in range(10):
        broken, _ = injected(KIND["stuck"], 0.5, values, 20, seed)
        assert (broken != values).any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize(("name", "in_scales"), [(kind.name, kind.in_scales) for kind in FAULT_KINDS])
def test_sizes_are_multiples_of_the_channel_s_scale_if_so_defined(name: str, in_scales: bool) -> None:
    """Doubling the scale doubles the deviation of such faults, and changes nothing about the others."""
    values, kind = window_of(5).astype(np.float32), KIND[name]
    one, two = (
        inject(values, 20, kind, kind.strengths[0], scales=np.full(3, scale), rng=np.random.default_rng(3))[0]
        for scale in (1.0, 2.0)
    )
    if in_scales:
        np.testing.assert_allclose(two - values, 2 * (one - values), atol=1e-4)
    else:
        np.testing.assert_array_equal(one, two)


def ramp(length: int = 10) -> FloatArray:
    values = np.zeros((2, 12), dtype=np.float32)
    values[:, :length] = np.arange(1, length + 1) * np.array([[1.0], [100.0]])
    return values


def test_wrong_order_exchanges_two_phases() -> None:
    broken, n = injected(KIND["wrong_order"], 0.5, ramp(), 10, 0)
    assert n == 10
    assert broken[0, :10].tolist() == [6, 7, 8, 9, 10, 1, 2, 3, 4, 5]
    assert broken[1].tolist() == (100 * broken[0]).tolist()  # the whole process, not one sensor


def test_a_truncated_phase_shortens_the_sequence() -> None:
    broken, n = injected(KIND["truncated_phase"], 0.3, ramp(), 10, 4)
    assert n == 7
    assert (np.diff(broken[0, :7]) >= 1).all()
    assert (np.diff(broken[0, :7]) == 4).sum() <= 1
    assert not broken[:, 7:].any()


def test_swapped_channels_read_each_other() -> None:
    broken, _ = injected(KIND["swapped_channels"], 1.0, ramp(), 10, 0)
    assert np.array_equal(broken, ramp()[::-1])


def test_a_lag_delays_one_channel() -> None:
    broken, _ = injected(KIND["lag"], 0.2, ramp(), 10, 0)
    late = int(np.flatnonzero((broken != ramp()).any(axis=1))[0])
    assert broken[late, :10].tolist() == (ramp()[late, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]]).tolist()


def test_a_drift_ends_at_its_size_and_a_dropout_at_zero() -> None:
    drifted, _ = injected(KIND["drift"], 8.0, ramp(), 10, 0)
    assert abs(drifted - ramp()).max() == pytest.approx(8.0)
    assert abs(drifted - ramp())[:, 9].max() == pytest.approx(8.0)
    dropped, _ = injected(KIND["dropout"], 0.2, ramp(), 10, 0)
    assert (dropped[:, :10] == 0).sum() == 2


def test_scales_are_deviations_from_the_typical_course_not_the_course_itself() -> None:
    rng = np.random.default_rng(0)
    values, lengths = np.zeros((400, 2, 32), np.float32), rng.integers(16, 33, 400)
    for window, length in zip(values, lengths, strict=True):
        window[0, :length] = np.linspace(0, 4, length) + 0.5 * rng.normal()
        window[1, :length] = np.linspace(0, 100, length)  # every batch the same
    scales = channel_scales(WindowSet(values, lengths.astype(np.int64), tuple(map(str, range(400)))))
    assert scales[0] == pytest.approx(0.5, rel=0.1)
    assert scales[1] == pytest.approx(5.0, rel=0.01)  # 5 % of its range


def test_every_kind_at_every_strength_in_windows_of_a_plant() -> None:
    windows = windows_of(6)
    scales = channel_scales(windows)
    found = list(injected_windows(replace(windows, units=("degC", "bar", "")), scales, seed=1))
    assert {faulty.units for _, _, faulty in found} == {("degC", "bar", "")}
    assert [(kind.name, strength) for kind, strength, _ in found] == [
        (kind.name, strength) for kind in FAULT_KINDS for strength in kind.strengths
    ]
    for _, _, faulty in found:
        assert faulty.values.shape[1:] == (C, L)
        assert len(faulty) == len(faulty.values) == len(faulty.lengths) <= 6
        original = windows.take([windows.ids.index(name) for name in faulty.ids])
        same = (faulty.values == original.values).all(axis=(1, 2)) & (faulty.lengths == original.lengths)
        assert not same.any()


def test_what_is_drawn_for_a_window_does_not_depend_on_the_others() -> None:
    windows = windows_of(6)
    scales = channel_scales(windows)
    alone = list(injected_windows(windows.take([4]), scales, seed=1))
    for (_, _, faulty), (_, _, one) in zip(injected_windows(windows, scales, seed=1), alone, strict=True):
        if one.ids:
            assert np.array_equal(faulty.values[faulty.ids.index(one.ids[0])], one.values[0])
