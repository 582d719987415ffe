"""Faults injected into normal windows to measure detection: faulty sensors, processes out of order.

Each kind is a pure function of window, strength and a seeded generator; docs/learning/promotion.md lists them.
Shapes: N windows, C channels, L window length, n valid samples of a window (zero from there on).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.types import FloatArray, WindowSet

Course: TypeAlias = npt.NDArray[np.float64]
"""One channel float64 [n], or all of them [C, n]."""
Rng: TypeAlias = np.random.Generator
_PHASES = 64
_LEAST_SCALE = 0.05  # of a channel's whole range of values: so much is a fault also if batches hardly differ
_N_SPIKES = 3


def _stuck(course: Course, share: float, scale: float, rng: Rng) -> Course:
    """The last good reading is repeated for a share of the sequence."""
    span = _span(len(course), share, rng)
    broken = course.copy()
    broken[span] = course[max(0, span.start - 1)]
    return broken


def _drift(course: Course, size: float, scale: float, rng: Rng) -> Course:
    """Readings move away steadily from the middle third on, by ``size`` scales at the end."""
    onset = int(len(course) * rng.uniform(1 / 3, 2 / 3))
    ramp = np.clip((np.arange(len(course)) - onset + 1) / (len(course) - onset), 0.0, 1.0)
    drifted: Course = course + _sign(rng) * size * scale * ramp
    return drifted


def _bias(course: Course, size: float, scale: float, rng: Rng) -> Course:
    """All readings from a moment in the first half on are off by ``size`` scales."""
    onset = int(len(course) * rng.uniform(0.0, 0.5))
    biased: Course = course + _sign(rng) * size * scale * (np.arange(len(course)) >= onset)
    return biased


def _gain(course: Course, share: float, scale: float, rng: Rng) -> Course:
    """The sensor exaggerates every deviation from the sequence's mean by ``share``."""
    return course + share * (course - float(course.mean()))


def _spike(course: Course, size: float, scale: float, rng: Rng) -> Course:
    """Three single readings are off by ``size`` scales."""
    broken = course.copy()
    places = rng.choice(len(course), min(_N_SPIKES, len(course)), replace=False)
    broken[places] += _sign(rng) * size * scale
    return broken


def _dropout(course: Course, share: float, scale: float, rng: Rng) -> Course:
    """The sensor reads zero for a share of the sequence."""
    broken = course.copy()
    broken[_span(len(course), share, rng)] = 0.0
    return broken


def _noise(course: Course, size: float, scale: float, rng: Rng) -> Course:
    """Noise of ``size`` scales from a moment in the first half on."""
    onset = int(len(course) * rng.uniform(0.0, 0.5))
    return course + size * scale * rng.standard_normal(len(course)) * (np.arange(len(course)) >= onset)


def _lag(course: Course, share: float, scale: float, rng: Rng) -> Course:
    """The sensor reports late, by a share of the sequence: its course is delayed against all others."""
    delayed: Course = course[np.maximum(np.arange(len(course)) - round(share * len(course)), 0)]
    return delayed


def _swapped(courses: Course, share: float, scales: Course, rng: Rng) -> Course:
    """Two channels are exchanged for a share of the sequence, as by plugs mixed up."""
    if len(courses) < 2:
        return courses
    pair = rng.choice(len(courses), 2, replace=False)
    span = _span(courses.shape[1], share, rng)
    broken = courses.copy()
    broken[pair, span] = courses[pair[::-1], span]
    return broken


def _time_warp(courses: Course, share: float, scales: Course, rng: Rng) -> Course:
    """The first half takes longer (or shorter) by ``share``, the rest makes up for it."""
    n = courses.shape[1]
    at = np.linspace(0.0, 1.0, n)
    middle = 0.5 * (1.0 + _sign(rng) * share)
    return _at(courses, np.interp(at, [0.0, middle, 1.0], [0.0, 0.5, 1.0]) * (n - 1))


def _truncated_phase(courses: Course, share: float, scales: Course, rng: Rng) -> Course:
    """A phase, a share of the sequence, is left out: the sequence is shorter by it."""
    span = _span(courses.shape[1], min(share, 0.9), rng)
    return np.delete(courses, np.r_[span], axis=1) if courses.shape[1] > 1 else courses


def _wrong_order(courses: Course, share: float, scales: Course, rng: Rng) -> Course:
    """Two successive phases, each a share of the sequence, change places."""
    n = courses.shape[1]
    size = min(round(share * n), n // 2)
    start = int(rng.integers(0, n - 2 * size + 1))
    broken = courses.copy()
    broken[:, start : start + 2 * size] = np.roll(broken[:, start : start + 2 * size], size, axis=1)
    return broken


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault: of one ``channel``, or of the whole process; ``strengths`` from weak to strong.

    A strength is a multiple of the channel's scale if ``in_scales``, else a share of the sequence or of the signal.
    At 0 nothing changes.
    """

    name: str
    apply: Callable[..., Course]
    strengths: tuple[float, ...]
    of_channel: bool = True
    in_scales: bool = False


STRENGTHS = ("weak", "medium", "strong")
"""The names of the ``strengths`` of each kind."""
FAULT_KINDS: tuple[FaultKind, ...] = (
    FaultKind("stuck", _stuck, (0.2, 0.4, 0.7)),
    FaultKind("drift", _drift, (2.0, 5.0, 10.0), in_scales=True),
    FaultKind("bias", _bias, (1.0, 3.0, 6.0), in_scales=True),
    FaultKind("gain", _gain, (0.3, 0.6, 1.0)),
    FaultKind("spike", _spike, (5.0, 10.0, 20.0), in_scales=True),
    FaultKind("dropout", _dropout, (0.05, 0.1, 0.2)),
    FaultKind("noise", _noise, (1.0, 2.0, 4.0), in_scales=True),
    FaultKind("lag", _lag, (0.1, 0.2, 0.4)),
    FaultKind("swapped_channels", _swapped, (0.05, 0.2, 1.0), of_channel=False),
    FaultKind("time_warp", _time_warp, (0.2, 0.3, 0.4), of_channel=False),
    FaultKind("truncated_phase", _truncated_phase, (0.05, 0.1, 0.2), of_channel=False),
    FaultKind("wrong_order", _wrong_order, (0.1, 0.2, 0.4), of_channel=False),
)
SELECTION_KINDS = frozenset({"stuck", "bias", "noise", "lag", "time_warp", "wrong_order"})
"""The only kinds by which a detector may choose anything about itself."""
UNSEEN_KINDS: tuple[FaultKind, ...] = tuple(kind for kind in FAULT_KINDS if kind.name not in SELECTION_KINDS)
"""The others: figures on them owe nothing to such a choice."""


def channel_scales(windows: WindowSet) -> Course:
    """Return the usual deviation of each channel [C] from its typical course, from normal ``windows`` [N].

    It is the root mean square deviation between windows at equal phase, at least 5 % of the channel's range.
    """
    grid = np.stack(
        [
            _at(values[:, :length].astype(np.float64), np.linspace(0.0, length - 1, _PHASES))
            for values, length in zip(windows.values, windows.lengths.tolist(), strict=True)
        ]
    )
    spread = np.sqrt(grid.var(axis=0).mean(axis=1))
    extent = grid.max(axis=(0, 2)) - grid.min(axis=(0, 2))
    floor = np.where(extent > 0, _LEAST_SCALE * extent, 1.0)
    scales: Course = np.maximum(spread, floor)
    return scales


def inject(
    values: FloatArray, length: int, kind: FaultKind, strength: float, *, scales: Course, rng: Rng
) -> tuple[FloatArray, int]:
    """Return a copy of the window float32 [C, L] with a fault of ``kind``, and its length.

    A fault of a channel goes into the first, in random order, that it changes (a sensor that stands still cannot be
    stuck). If it changes none, or the window is too short for it, window and length are returned unchanged.
    """
    course = values[:, :length].astype(np.float64)
    if kind.of_channel:
        for channel in rng.permutation(len(course)):
            broken = course.copy()
            broken[channel] = kind.apply(course[channel], strength, scales[channel], rng)
            if _differs(course, broken):
                break
    else:
        broken = kind.apply(course, strength, scales, rng)
    window = np.zeros_like(values)
    window[:, : broken.shape[1]] = broken
    return window, broken.shape[1]


def injected_windows(
    windows: WindowSet, scales: Course, *, seed: int, kinds: Sequence[FaultKind] = FAULT_KINDS
) -> Iterator[tuple[FaultKind, float, WindowSet]]:
    """Yield each of ``kinds`` at each strength in ``windows``; windows that it cannot change are left out.

    The random draws depend only on ``seed``, kind, strength and a window's id.
    """
    for kind in kinds:
        for strength in kind.strengths:
            broken, lengths = np.empty_like(windows.values), windows.lengths.copy()
            ids: list[str] = []
            for values, length, name in zip(windows.values, windows.lengths.tolist(), windows.ids, strict=True):
                rng = _rng(seed, kind.name, strength, name)
                window, n = inject(values, length, kind, strength, scales=scales, rng=rng)
                if n != length or _differs(values, window):
                    broken[len(ids)], lengths[len(ids)] = window, n
                    ids.append(name)
            n = len(ids)
            yield kind, strength, replace(windows, values=broken[:n], lengths=lengths[:n], ids=tuple(ids))


def _differs(one: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> bool:
    """Return whether two courses differ as float32."""
    return not np.array_equal(one.astype(np.float32), other.astype(np.float32))


def _rng(*parts: object) -> Rng:
    return np.random.default_rng(int.from_bytes(blake2b(repr(parts).encode(), digest_size=16).digest()))


def _span(n: int, share: float, rng: Rng) -> slice:
    """Return a random stretch of ``share`` of n samples: none for 0, all for 1, else at least one and not all."""
    size = 0 if share <= 0 else min(n, max(1, round(share * n)))
    if share < 1.0:
        size = min(size, n - 1)
    start = int(rng.integers(0, n - size + 1))
    return slice(start, start + size)


def _sign(rng: Rng) -> float:
    return 1.0 if rng.random() < 0.5 else -1.0


def _at(courses: Course, places: Course) -> Course:
    """Return the courses [C, n] read at fractional ``places`` [m]."""
    points = np.arange(courses.shape[1])
    return np.stack([np.interp(places, points, course) for course in courses])
