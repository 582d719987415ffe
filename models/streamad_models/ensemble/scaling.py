"""The scale of each channel, or of all channels of its unit; a channel that repeats from run to run counts more.

Legend: N training windows, C channels, G places, U channels of a unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from streamad.types import WindowSet
from streamad_models.ensemble.intervals import GRID, read_at
from streamad_models.ensemble.model import without_fills
from streamad_models.neutral_ad.data import fit_scaling

Vector: TypeAlias = npt.NDArray[np.float64]

WIDEST_RATIO = 10.0
"""Channels of one unit share a scale if the largest spread is at most so many times the smallest."""
_LEAST_WEIGHT = 0.1  # of a channel whose course repeats in nothing


@dataclass(frozen=True, slots=True, eq=False)
class ChannelScaling:
    """The origin [C] and the factor [C] of ``(x - origin) * factor``.

    ``aligned`` is how much of a channel's variance the mean course explains, the mean over the channels, 0 to 1;
    ``divided`` has, for each unit whose channels do not share one scale, the places of those that do share one.
    """

    origin: Vector
    factor: Vector
    aligned: float
    divided: tuple[tuple[tuple[int, ...], ...], ...]


def fit_channel_scaling(data: WindowSet) -> ChannelScaling:
    """Return the scaling of ``data``.

    Channels of one unit share the root mean square of their standard deviations, so that what belongs together stays
    in proportion. A channel is then weighted by the share of its deviations that repeats from run to run, plus 0.1:
    the spread of the mean course over time / (that + the spread around it).
    """
    origin, factor = (each.astype(np.float64) for each in fit_scaling(without_fills(data), "standard"))
    spread, divided = _shared(1.0 / factor, data.units)
    course, around = _course_and_rest((data.values - origin[:, None]) * factor[:, None], data)
    weight = course / np.maximum(course + around, 1e-12) + _LEAST_WEIGHT
    aligned = float(np.mean(course**2 / np.maximum(course**2 + around**2, 1e-12)))
    return ChannelScaling(origin, weight / spread, aligned, divided)


def _shared(spread: Vector, units: Sequence[str]) -> tuple[Vector, tuple[tuple[tuple[int, ...], ...], ...]]:
    """Return the spreads [C] with which to divide, and for each unit of several scales the places of each.

    From the smallest spread of a unit on, channels up to ten times of it share one scale, then from the next one on.
    """
    found, divided = spread.copy(), []
    for unit in dict.fromkeys(each for each in units if each):
        groups: list[list[int]] = []
        for place in sorted((place for place, each in enumerate(units) if each == unit), key=lambda at: spread[at]):
            if groups and spread[place] <= WIDEST_RATIO * spread[groups[-1][0]]:
                groups[-1].append(place)
            else:
                groups.append([place])
        for group in groups:
            found[group] = np.sqrt((spread[group] ** 2).mean())
        if len(groups) > 1:
            divided.append(tuple(tuple(sorted(group)) for group in groups))
    return found, tuple(divided)


def _course_and_rest(x_NCL: npt.NDArray[np.floating], data: WindowSet) -> tuple[Vector, Vector]:
    """Return the spread [C] of the mean course over time, and that of the windows around it, at 64 places."""
    scaled = torch.from_numpy(np.clip(x_NCL, -100.0, 100.0).astype(np.float32))
    places = torch.linspace(0.0, 1.0, GRID)
    readings = read_at(scaled, torch.from_numpy(data.lengths), places).numpy().astype(np.float64)
    return readings.mean(axis=0).std(axis=1), np.sqrt(readings.var(axis=0).mean(axis=1))
