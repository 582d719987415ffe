"""Why an alert was raised: channels and parts of them are replaced by those of normal windows, and scored again.

Shapes: M reference windows, R of them used, C channels, L window length, n samples of the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ingest.decode_values import MAX_ID_CHARACTERS
from streamad.judge.explanations.envelope import Band, Envelope, stretched
from streamad.judge.explanations.replacement import MOST_WINDOWS, Replacement, Rescoring
from streamad.judge.explanations.segments import N_COURSES, N_PARTS, Segment, segments_of
from streamad.messages import NearestSequence
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray, Window

METHOD = "channel-replacement"
"""Name of the method in attribution messages."""
# Chosen by measurement: docs/internals/judging.md
_NEAREST = 8  # reference windows at most replace a channel
_FEWEST = 2  # at least; if the windows to score do not suffice for that, channels are screened
_SCREENED = 4  # replace each of the screened channels
_MOST_CHANNELS = 3  # have segments
_LEAST_SHARE = 0.05  # of a channel with segments
_FOR_CHANNELS = MOST_WINDOWS - 1 - _MOST_CHANNELS * N_PARTS * N_COURSES
_NAMED = 3  # normal sequences are named in the message
_NAME_CHARACTERS = 2 * MAX_ID_CHARACTERS + 1  # a stream's id, "/", and a sequence's


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Normal windows to compare with: ``values`` float32 [M, C, L] in engineering units, ``lengths`` int64 [M].

    ``names`` [M] are the sequences' printable names ("stream/sequence"); empty in versions of former releases.
    """

    values: FloatArray
    lengths: IntArray
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fits = self.values.ndim == 3 and self.lengths.shape == self.values.shape[:1] and len(self.lengths) > 0
        if not fits or self.lengths.min() < 1 or self.lengths.max() > self.values.shape[2]:
            raise ArtifactError(
                f"reference windows {self.values.shape} with lengths {self.lengths.shape} do not fit: train again"
            )
        if len(self.names) not in (0, len(self.lengths)):
            raise ArtifactError(f"{len(self.lengths)} reference windows with {len(self.names)} names: train again")

    def stretched(self, index: int, to_length: int) -> FloatArray:
        """Return the channels of one window, float32 [C, ``to_length``], stretched in time to that length."""
        return stretched(self.values[index], int(self.lengths[index]), to_length).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Each channel's share [C] of the fall of the score when channels are replaced; sum 1, or all 0.

    ``nearest`` names normal sequences that the channels were replaced from: three at most, the nearest first.
    ``segments`` say when the channels with the largest shares depart from normal, in the order of the shares.
    ``detail`` says what the explanation leaves out, None if nothing.
    """

    shares: npt.NDArray[np.float64]
    nearest: tuple[NearestSequence, ...]
    segments: tuple[Segment, ...] = ()
    detail: str | None = None


def printable(name: str) -> str:
    """Return ``name`` cut to 513 characters, each that cannot be printed (control, direction) replaced by U+FFFD.

    Names come from recordings and go to terminals, messages and numpy's text, which ends at trailing zeros.
    """
    cut = name if len(name) <= _NAME_CHARACTERS else name[: _NAME_CHARACTERS - 1] + "…"
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)


def reference_windows(
    values: FloatArray,
    lengths: IntArray,
    scores: npt.NDArray[np.floating],
    names: Sequence[str] = (),
    *,
    m: int = 24,
) -> Reference:
    """Choose at most ``m`` normal windows of values [N, C, L] with ``names`` [N].

    They are spread over the lengths within the half with the lowest ``scores`` [N], which holds no anomaly.
    """
    lowest = np.argsort(scores, kind="stable")[: max(m, len(scores) // 2)]
    by_length = lowest[np.argsort(lengths[lowest], kind="stable")]
    chosen = by_length[np.unique(np.linspace(0, len(by_length) - 1, m).round().astype(np.int64))]
    chosen_names = tuple(printable(names[i]) for i in chosen) if names else ()
    return Reference(values[chosen], lengths[chosen].astype(np.int64), chosen_names)


def explain(scorer: Scorer, window: Window, reference: Reference, envelope: Envelope | None = None) -> Explanation:
    """Return why ``window`` has its score, in comparison with the nearest of the reference windows.

    It is a pure function and scores at most ``MOST_WINDOWS`` windows. Without ``envelope`` the normal band is that of
    the reference windows.
    """
    normal = envelope if envelope is not None else Envelope.of(reference.values, reference.lengths)
    band = normal.band(window.length)
    distances = _distances(window, reference)
    used = np.argsort(distances, kind="stable")[:_NEAREST]
    named = used[: _NAMED if reference.names else 0].tolist()
    nearest = tuple(NearestSequence(sequence=reference.names[i], distance=float(distances[i])) for i in named)
    courses = np.stack([reference.stretched(i, window.length) for i in used.tolist()])
    rescoring = Rescoring(scorer, window)
    channels, detail = _screened(window, band, len(courses))
    shares = _channel_shares(rescoring, courses, channels)
    segments = [
        segment
        for channel in np.argsort(-shares, kind="stable")[:_MOST_CHANNELS].tolist()
        if shares[channel] >= _LEAST_SHARE
        for segment in segments_of(rescoring, channel, courses[0, channel], band)
    ]
    return Explanation(shares, nearest, tuple(segments), detail)


def _screened(window: Window, band: Band, n_courses: int) -> tuple[IntArray, str | None]:
    """Return the channels that are replaced, and what the message says if these are not all.

    If each channel cannot be replaced twice, those that lie furthest from the band can be four times.
    """
    n_channels = len(window.values)
    if min(_FEWEST, n_courses) * n_channels <= _FOR_CHANNELS:
        return np.arange(n_channels), None
    n_kept = _FOR_CHANNELS // _SCREENED
    oddest = np.argsort(-band.deviation(window.values[:, : window.length]), kind="stable")[:n_kept]
    return np.sort(oddest), (
        f"{n_channels} channels are too many to replace each: the shares are of the {n_kept} that lie furthest from "
        "their normal band"
    )


def _channel_shares(rescoring: Rescoring, courses: FloatArray, channels: IntArray) -> npt.NDArray[np.float64]:
    """Return each channel's share [C]; 0 for those not among ``channels``.

    Counterfactual: each channel in turn is replaced by that of the nearest normal windows, courses [R, C, n] of this
    window's length, and the model scores the results. A channel counts with the mean fall over its better half of
    replacements, since not every normal course fits the other channels, and 0 if the score does not fall.
    """
    n_courses = min(len(courses), _FOR_CHANNELS // len(channels))
    fall = np.zeros(courses.shape[1])
    fall[channels] = rescoring.falls(
        [[Replacement(channel, course[channel]) for course in courses[:n_courses]] for channel in channels.tolist()]
    )
    total = float(fall.sum())
    return fall / total if total > 0 and np.isfinite(total) else np.zeros(len(fall))


def _distances(window: Window, reference: Reference) -> npt.NDArray[np.float64]:
    """Return the distances [M] of the stretched reference windows from ``window``, in spreads of a channel.

    Root mean square differences over time; their median over channels ignores anomalous ones. One reference window
    after the other is stretched, which bounds the memory of wide and long windows.
    """
    ours = window.values[:, : window.length].astype(np.float64)
    squares, means, variances = [], [], []
    for index in range(len(reference.lengths)):
        theirs = reference.stretched(index, window.length).astype(np.float64)
        squares.append(np.square(theirs - ours).mean(axis=1))
        means.append(theirs.mean(axis=1))
        variances.append(theirs.var(axis=1))
    variance = np.mean(variances, axis=0) + np.var(means, axis=0)  # of all of them together: they are of one length
    distances: npt.NDArray[np.float64] = np.sqrt(np.median(squares / np.where(variance > 0, variance, 1.0), axis=1))
    return distances
