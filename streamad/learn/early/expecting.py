"""What to expect of warnings: faults that begin midway are injected into held-out sequences, and looked at.

Shapes: N held-out and F faulty sequences, J looks, C channels, G points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamad.injected_faults import UNSEEN_KINDS, channel_scales, injected_windows
from streamad.judge.early.course import Course, look_at
from streamad.judge.early.model import NO_LOOK, Look, Scales
from streamad.learn.early.fitting import LookFitting
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, IntArray, WindowSet

_ONSETS = (0.2, 0.7)
_BASES = 10
"""Sequences with injected faults: 180 faults, which take as long as the looks at so many sequences."""
_MOST_HELD_OUT = 200
_FEWEST_POINTS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Faulty:
    """The largest z so far [F, J] at each look, the faults' first points [F], and the sequences [F] they are in."""

    largest: Scales
    onsets: IntArray
    bases: IntArray


def faulty(
    fitting: LookFitting, looks: Sequence[Look], held_out: Sequence[Course], settings: Settings, ages: Sequence[int]
) -> Faulty | None:
    """Return what ``looks`` see at ``ages`` of faults in the first ``held_out`` sequences.

    None if there are none, or none are wanted (``model.references: []``). A fault begins between 20 and 70 % of its
    sequence; until then the looks are those of the sequence without it.
    """
    if not settings.model.references:
        return None
    channels = settings.channel_specs
    kept = [(each, each.values.shape[1]) for each in held_out[:_MOST_HELD_OUT]]
    seen = [look_at(course, n, settings.window, channels) for course, n in kept if n >= _FEWEST_POINTS]
    whole = [window.values for window in seen if window is not None]
    if not whole:
        return None
    bases, scales = whole[:_BASES], channel_scales(_set_of(whole))
    rng, courses, places, onsets = np.random.default_rng(settings.model.seed), [], [], []
    for kind in UNSEEN_KINDS:
        begins = [round(base.shape[1] * rng.uniform(*_ONSETS)) for base in bases]
        tails = _set_of([base[:, begin:] for base, begin in zip(bases, begins, strict=True)])
        for _, _, odd in injected_windows(tails, scales, seed=settings.model.seed, kinds=[kind]):
            for tail, length, place in zip(odd.values, odd.lengths.tolist(), map(int, odd.ids), strict=True):
                onsets.append(begins[place])
                places.append(place)
                courses.append(_course(np.concatenate([bases[place][:, : onsets[-1]], tail[:, :length]], axis=1)))
    if not courses:
        return None
    of, first = np.array(places, dtype=np.int64), np.array(onsets, dtype=np.int64)
    z = np.full((len(courses), len(ages)), NO_LOOK)
    for look in looks:
        found = fitting.z([look], [_course(base) for base in bases])[of, 0]
        begun = np.flatnonzero(first < look.form.n_points)
        found[begun] = fitting.z([look], [courses[place] for place in begun.tolist()])[:, 0]
        z[:, list(ages).index(look.form.n_points)] = found
    return Faulty(np.maximum.accumulate(z, axis=1), first, of)


def _set_of(windows: Sequence[FloatArray]) -> WindowSet:
    """Return windows [C, n] of different lengths as a set; its ids are their places."""
    lengths = np.array([values.shape[1] for values in windows], dtype=np.int64)
    values = np.zeros((len(windows), len(windows[0]), int(lengths.max())), dtype=np.float32)
    for place, window in enumerate(windows):
        values[place, :, : window.shape[1]] = window
    return WindowSet(values, lengths, tuple(map(str, range(len(windows)))))


def _course(values: FloatArray) -> Course:
    return Course(values, np.ones(values.shape, dtype=np.bool_))
