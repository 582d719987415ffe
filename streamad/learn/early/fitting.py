"""Fits looks at fixed ages to the courses of training sequences, and finds each sequence's largest z of all looks.

Shapes: N training sequences, n sequences that are looked at, C channels, J looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from streamad.judge.early.course import FEWEST_POINTS, Course, look_at
from streamad.judge.early.model import NO_LOOK, Look, Scales, form_of
from streamad.plugins import make_detector
from streamad.settings.plant_yaml import WindowSettings
from streamad.types import ChannelSpec, IntArray, Window, WindowSet

FEWEST_SEQUENCES: Final = 8
"""A look that fewer training sequences reach is dropped."""
KIND: Final = "ensemble"
OPTIONS: Final = {"effort": "distances", "spaces": ["moments", "readings"]}
"""The detector of a look: the default's distances of levels and courses alone, because there are ten of them."""


def usual_length(courses: Sequence[Course]) -> int:
    """Return the median length of ``courses`` in points."""
    return int(np.median([len(course) for course in courses]))


def ages_of(usual: int, looks: int | Sequence[int], window: WindowSettings) -> tuple[int, ...]:
    """Return the ages of ``looks`` in points, rising: so many, evenly spaced up to the ``usual`` length, or at times.

    Those beyond the window's length are left out: what is squeezed has no points of its own.
    """
    if isinstance(looks, int):
        ages = [round(usual * look / looks) for look in range(1, looks + 1)]
    else:
        assert window.resample is not None  # else the config is refused
        ages = [age_us // window.resample.period + 1 for age_us in looks]
    return tuple(sorted({age for age in ages if FEWEST_POINTS <= age <= window.length}))


class LookFitting:
    """Fits looks of a plant's ``channels`` and windows."""

    def __init__(
        self,
        settings: WindowSettings,
        channels: tuple[ChannelSpec, ...],
        *,
        seed: int,
        device: str = "auto",
    ) -> None:
        self._settings = settings
        self._channels = channels
        self._seed, self._device = seed, device

    def fit(self, courses: Sequence[Course], ages: Sequence[int]) -> tuple[Look, ...]:
        """Return the looks at ``ages`` fitted to ``courses`` [N]; those that too few of them reach are dropped.

        The first looks see little, and their z has heavy tails: with a weight below 0 they do not spend the rate.

        Raises TrainingDataError, DetectorError.
        """
        looks = [self._look(courses, age, age / max(ages) - 1.0) for age in ages]
        return tuple(look for look in looks if look is not None)

    def largest_z(self, looks: Sequence[Look], courses: Sequence[Course]) -> Scales:
        """Return the largest z of all ``looks`` at each of the ``courses`` [n]; ``NO_LOOK`` of one without a look."""
        found: Scales = np.max(self.z(looks, courses), axis=1, initial=NO_LOOK)
        return found

    def z(self, looks: Sequence[Look], courses: Sequence[Course]) -> Scales:
        """Return the z [n, J] of ``looks`` at ``courses``; ``NO_LOOK`` where there is no look."""
        found = np.full((len(courses), len(looks)), NO_LOOK)
        for place, look in enumerate(looks):
            taken, windows = self._windows(courses, look.form.n_points)
            if windows:
                found[taken, place] = look.z(windows)
        return found

    def _windows(self, courses: Sequence[Course], age: int) -> tuple[IntArray, list[Window]]:
        """Return which of ``courses`` have a look at ``age``, and its windows."""
        seen = [look_at(course, age, self._settings, self._channels) for course in courses]
        taken = np.array([place for place, window in enumerate(seen) if window is not None], dtype=np.int64)
        return taken, [window for window in seen if window is not None]

    def _look(self, courses: Sequence[Course], age: int, weight: float) -> Look | None:
        _, windows = self._windows(courses, age)
        if len(windows) < FEWEST_SEQUENCES:
            return None
        data = WindowSet(
            np.stack([window.values for window in windows]),
            np.full(len(windows), age, dtype=np.int64),
            tuple(map(str, range(len(windows)))),
            channels=tuple(channel.name for channel in self._channels),
            units=tuple(channel.unit for channel in self._channels),
        )
        still = data.constant_channels()
        if len(still) == len(self._channels):  # nothing has happened yet
            return None
        usual = {int(channel): float(data.values[0, channel, 0]) for channel in still}
        fitted = make_detector(KIND, OPTIONS).fit(without(data, still), seed=self._seed, device=self._device)
        return Look(form_of(age, usual, fitted.training_scores(), weight), fitted)


def without(data: WindowSet, channels: IntArray) -> WindowSet:
    """Return ``data`` without some of its ``channels``."""
    kept = np.setdiff1d(np.arange(data.values.shape[1]), channels)
    units = tuple(data.units[channel] for channel in kept)
    return replace(
        data,
        values=np.ascontiguousarray(data.values[:, kept]),
        units=units if any(units) else (),
        channels=tuple(data.channels[channel] for channel in kept),
    )
