"""Channels that lie elsewhere than in training: by level, by spread, by another unit, at the boundaries."""

from __future__ import annotations

import numpy as np
import pytest

from streamad.judge.attribution import Reference
from streamad.judge.shift import Figures, MovedChannel, TrainingLevels
from streamad.types import ChannelSpec

TEMP = ChannelSpec("temp_c", "°C")


def levels_of(levels: list[float], spread: float = 1.0, channel: ChannelSpec = TEMP) -> TrainingLevels:
    """Training windows of one channel with these levels, and alternating samples ``spread`` above and below."""
    swing = np.tile([spread, -spread], 8)
    values = np.array([[level + swing] for level in levels], np.float32)
    return TrainingLevels.of(Reference(values, np.full(len(levels), 16)), [channel])


def now(level: float, spread: float = 1.0, n: int = 3) -> Figures:
    return np.full((n, 2, 1), [[level], [spread]])


def moved(levels: TrainingLevels, figures: Figures) -> MovedChannel | None:
    found = levels.moved(figures)
    assert len(found) <= 1
    return found[0] if found else None


TRAINED = levels_of([*np.linspace(60.0, 64.0, 16)])  # 16 windows: 1/10 + 2/16 widths of 4 on each side


@pytest.mark.parametrize("level", [59.09, 64.91])
def test_a_level_beyond_the_margin_has_moved(level: float) -> None:
    found = moved(TRAINED, now(level))
    assert found is not None
    assert found.line == f"temp_c: level {level} °C, in training 60 to 64 °C"
    assert found.spread is None


@pytest.mark.parametrize("level", [59.11, 62.0, 64.89])
def test_a_level_within_the_margin_has_not(level: float) -> None:
    assert moved(TRAINED, now(level)) is None


def test_few_training_windows_leave_more_room() -> None:
    few = levels_of([60.0, 64.0])  # 1/10 + 2/2 widths
    assert moved(few, now(68.3)) is None
    assert moved(few, now(68.5)) is not None


def test_the_median_decides_so_that_a_few_faults_do_not() -> None:
    figures = np.concatenate([now(62.0, n=6), now(1e9, n=5)])
    assert moved(TRAINED, figures) is None
    assert moved(TRAINED, np.concatenate([now(62.0, n=5), now(80.0, n=6)])) is not None


@pytest.mark.parametrize(("spread", "is_moved"), [(0.51, False), (1.99, False), (2.01, True), (0.49, True)])
def test_a_spread_twice_or_half_of_training_differs(spread: float, is_moved: bool) -> None:
    found = moved(TRAINED, now(62.0, spread))
    assert (found is not None) is is_moved
    if found is not None:
        assert found.line == f"temp_c: spread {spread} °C, in training 1 °C"


def test_both_are_on_one_line() -> None:
    found = moved(TRAINED, now(90.0, 5.0))
    assert found is not None
    assert found.line == "temp_c: level 90 °C, in training 60 to 64 °C; spread 5 °C, in training 1 °C"


def test_a_channel_constant_in_training_may_differ_by_a_little() -> None:
    constant = levels_of([5.0] * 24, spread=0.0)
    assert moved(constant, now(5.001, 0.0)) is None
    found = moved(constant, now(5.1, 0.0))
    assert found is not None
    assert found.line == "temp_c: level 5.1 °C, in training 5 °C"
    varies = moved(constant, now(5.0, 0.2))
    assert varies is not None
    assert varies.line == "temp_c: spread 0.2 °C, in training 0 °C"
    assert moved(levels_of([0.0] * 24, spread=0.0), now(0.0, 0.0)) is None


def test_a_channel_that_stands_still_now_is_named() -> None:
    found = moved(TRAINED, now(62.0, 0.0))
    assert found is not None
    assert found.line == "temp_c: spread 0 °C, in training 1 °C"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_levels_that_are_no_numbers_name_nothing(bad: float) -> None:
    assert moved(TRAINED, now(bad, bad)) is None


@pytest.mark.parametrize(
    ("level", "spread", "hint"),
    [
        (620.0, 10.0, "10 times"),
        (62_000.0, 1000.0, "1000 times"),
        (0.62, 0.01, "a hundredth"),
        (62 * 1.8 + 32, 1.8, "°F instead of °C"),
        (62 + 273.15, 1.0, "K instead of °C"),
        ((62 - 32) / 1.8, 1 / 1.8, "°C instead of °F"),
    ],
)
def test_another_unit_is_guessed_if_level_and_spread_fit_it(level: float, spread: float, hint: str) -> None:
    found = moved(TRAINED, now(level, spread))
    assert found is not None
    assert found.hint == hint
    assert found.line.endswith(f"(another unit or scaling? it fits {hint})")
    other = moved(TRAINED, now(level, 3 * spread))
    assert other is not None
    assert not other.hint


def test_temperatures_are_guessed_of_temperatures_alone() -> None:
    pressure = levels_of([*np.linspace(60.0, 64.0, 16)], channel=ChannelSpec("pressure", "bar"))
    for level, spread, hint in ((62 * 1.8 + 32, 1.8, ""), (6.2, 0.1, "a tenth")):
        found = moved(pressure, now(level, spread))
        assert found is not None
        assert found.hint == hint


def test_the_channel_that_moved_furthest_comes_first() -> None:
    specs = [ChannelSpec(name) for name in ("same", "far", "farther", "wide")]
    samples = np.random.default_rng(0).normal(size=(24, 4, 16)).astype(np.float32)
    levels = TrainingLevels.of(Reference(samples, np.full(24, 16)), specs)
    figures = np.tile(np.array([[0.0, 20.0, -90.0, 0.0], [1.0, 1.0, 1.0, 9.0]]), (5, 1, 1))
    assert [one.channel for one in levels.moved(figures)] == ["farther", "far", "wide"]


def test_the_padding_of_short_windows_does_not_count() -> None:
    values = np.zeros((8, 1, 16), np.float32)
    values[:, :, :4] = 50.0
    levels = TrainingLevels.of(Reference(values, np.full(8, 4)), [TEMP])
    assert (levels.lowest[0, 0], levels.highest[0, 0]) == (50.0, 50.0)
