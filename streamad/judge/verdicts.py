"""The alert policy: from terms to a verdict, and from a verdict to alert and attribution, and their words. Pure.

Shapes: K transformations, C channels.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamad.ingest.windowing import Unscorable
from streamad.judge.attribution import Explanation, Segment
from streamad.judge.calibration import Calibration, score_of
from streamad.language import NO_BREAK, gettext, numeral, percent
from streamad.messages import (
    NO_METHOD,
    Alert,
    Attribution,
    ChannelSegment,
    ChannelShare,
    Direction,
    EarlyWarning,
    ModelRef,
    TermShare,
    Verdict,
)
from streamad.settings.outputs import AlertSettings
from streamad.types import FILE_OFFSETS, ChannelSpec, FinishedSequence, FloatArray, Position, Window, from_us

NAMED_SHARE = 0.05
"""A channel with a smaller share of the score is not named as the reason."""
NO_REASON = "no channel stands out"


def phrase(  # noqa: PLR0917  reads as: this channel, in this unit, this much above, from here to there
    channel: str, unit: str, size: float | None, direction: Direction, start: float, end: float
) -> str:
    """Return such as "temp_c 3.1 K above the band from 62 % to 80 %"; ``start`` and ``end`` are shares (0 to 1)."""
    return f"{phrase_of(channel, unit, size, direction)} {place(start, end)}"


def phrase_of(channel: str, unit: str, size: float | None, direction: Direction) -> str:
    """Return such as "temp_c 3.1 K above the band"."""
    if size is None or direction == "shape":
        return gettext("%(channel)s of unusual shape", channel=channel)
    return f"{channel} {beyond(size, unit, direction)}"


def beyond(size: float, unit: str, direction: Direction) -> str:
    """Return such as "3.1 K above the band"."""
    amount = f"{figure(size)} {unit}".strip()
    if direction == "below":
        return gettext("%(amount)s below the band", amount=amount)
    return gettext("%(amount)s above the band", amount=amount)


def beside_the_band(direction: Direction) -> str:
    """Return such as "above the band"."""
    return gettext("below the band") if direction == "below" else gettext("above the band")


def place(start: float, end: float) -> str:
    """Return such as "from 62 % to 80 %"."""
    return _from_to(percent(start), percent(end))


def _from_to(first: str, last: str) -> str:
    if first == last:
        return gettext("at %(at)s", at=first)
    return gettext("from %(first)s to %(last)s", first=first, last=last)


def figure(value: float) -> str:
    """Return a number with two significant digits."""
    return numeral(f"{float(f'{value:.2g}'):g}")


def span_text(seconds: float) -> str:
    """Return a stretch of time in its two largest units, such as "6 h 10 min", on one line."""
    left = round(seconds)
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        n, left = divmod(left, size)
        if n or (unit == "s" and not parts):
            parts.append(f"{n}{NO_BREAK}{unit}")
        elif parts:
            break
    return NO_BREAK.join(parts[:2])


def stretch(begin: datetime, start_time: datetime, end_time: datetime) -> str:
    """Return such as "from 5 h 40 min to 6 h 50 min", counted from ``begin``: no share is known of what still runs."""
    start, end = (span_text(max(0.0, (at - begin).total_seconds())) for at in (start_time, end_time))
    return _from_to(start, end)


def p_text(p_value: float) -> str:
    """Return a p-value for people; it is never 0."""
    return numeral(f"{p_value:.4f}" if p_value >= 0.0001 else f"{p_value:.0e}")


_MOST_LEADING = 3
_LEADING_SHARE = 0.1
_DIGITS = 6
_MOST_POWER = 22
# All exact: a whole number of six digits divided by one of them is the float nearest to the decimal number.
_POWERS_OF_TEN = np.array([10.0**power for power in range(_MOST_POWER + 1)])


def alert_id(stream: str, sequence: str, first_position: Position, start_us: int) -> str:
    """Return the id of the sequence's verdict, alert and attribution: 32 hex digits of the SHA-256 of its identity.

    The identity is hashed as a JSON array, because joined text could be ambiguous. Of joined files the offset is that
    in the file, and the time ``start_us`` of the first sample tells equal ids at equal offsets of two files apart.
    """
    offset = first_position.offset % FILE_OFFSETS
    identity = msgspec.json.encode([stream, sequence, offset, first_position.index, start_us])
    return hashlib.sha256(identity).hexdigest()[:32]


def unscorable(
    sequence: FinishedSequence,
    why: Unscorable,
    now_us: int,
    model: ModelRef | None = None,
    window: Window | None = None,
) -> Verdict:
    """Return the verdict of a sequence that has no score, with the reason; ``window`` is None if it has none."""
    return Verdict(
        decision="unscorable", detail=why.detail, model=model, **_identity(sequence, now_us), **moments(window)
    )


def learning(sequence: FinishedSequence, window: Window, detail: str, now_us: int) -> Verdict:
    """Return the verdict of a sequence that has no model yet; ``detail`` is the progress of learning."""
    return Verdict(decision="learning", detail=detail, **_identity(sequence, now_us), **moments(window))


def scored(
    sequence: FinishedSequence,
    window: Window,
    terms: FloatArray,
    *,
    calibration: Calibration,
    settings: AlertSettings,
    model: ModelRef,
    now_us: int,
    found: Moments | None = None,
) -> Verdict:
    """Return the verdict over terms [K]: anomalous if p <= ``false_alarm_rate``, unscorable if they are not finite.

    ``found`` are the moments of ``window``, if they are known.
    """
    score = score_of(terms)
    if not math.isfinite(score):
        why = Unscorable("no finite score: values far outside what the model knows")
        return unscorable(sequence, why, now_us, model, window)
    p_value, tail = calibration.p_value(score)
    return Verdict(
        decision="anomalous" if p_value <= settings.false_alarm_rate else "normal",
        score=score,
        p_value=p_value,
        tail=tail,
        model=model,
        **_identity(sequence, now_us),
        **(moments(window) if found is None else {"means": found.means, "spreads": found.spreads}),
    )


def make_alert(verdict: Verdict, settings: AlertSettings) -> Alert | None:
    """Return the alert of an anomalous verdict, None for any other."""
    return alert_of(verdict, settings) if verdict.decision == "anomalous" else None


def alert_of(verdict: Verdict, settings: AlertSettings) -> Alert:
    """Return a scored verdict as an alert, whatever its decision: reasons may be asked for a normal sequence, too."""
    assert verdict.score is not None
    assert verdict.p_value is not None
    assert verdict.tail is not None
    assert verdict.model is not None
    return Alert(
        alert_id=verdict.verdict_id,
        stream=verdict.stream,
        sequence=verdict.sequence,
        reason=verdict.reason,
        start_time=verdict.start_time,
        end_time=verdict.end_time,
        n_samples=verdict.n_samples,
        score=verdict.score,
        p_value=verdict.p_value,
        false_alarm_rate=settings.false_alarm_rate,
        tail=verdict.tail,
        model=verdict.model,
        n_merged=verdict.n_merged,
        n_late=verdict.n_late,
        batch=verdict.batch,
        created_at=verdict.created_at,
    )


def make_attribution(
    alert: Alert,
    terms: FloatArray,
    *,
    calibration: Calibration,
    explanation: Explanation,
    channels: Sequence[ChannelSpec],
    method: str,
    names: Sequence[str] = (),
    shown: float = 1.0,
) -> Attribution:
    """Return why ``alert`` was raised, from its terms [K], their ``names``, and the ``explanation`` of its window.

    The dominating transformation is the one with the largest term, as in the paper's appendix on thyroid. ``shown`` is
    the share of the sequence's time that its window holds (``shown_share``).
    """
    quantiles = calibration.term_quantiles(terms)
    members = tuple(names) if len(names) == len(terms) else (None,) * len(terms)
    largest = int(np.argmax(terms))
    shares = explanation.shares
    order = np.argsort(-shares, kind="stable")
    return Attribution(
        alert_id=alert.alert_id,
        stream=alert.stream,
        sequence=alert.sequence,
        score=alert.score,
        terms=[
            TermShare(transformation=k, term=float(term), calibration_quantile=quantile, member=member)
            for k, (term, quantile, member) in enumerate(zip(terms, quantiles, members, strict=True))
        ],
        dominating_transformation=largest,
        dominating_member=members[largest],
        nearest=list(explanation.nearest),
        leading_terms=_leading(calibration.term_excesses(terms)),
        segments=[
            _segment(alert.start_time, alert.end_time, each, channels[each.channel], shown)
            for each in explanation.segments
        ],
        detail=explanation.detail,
        channels=[ChannelShare(channel=channels[c].name, unit=channels[c].unit, share=float(shares[c])) for c in order],
        method=method,
        tail=alert.tail,
        model=alert.model,
        created_at=alert.created_at,
    )


def make_early_attribution(
    warning: EarlyWarning, explanation: Explanation | None, channels: Sequence[ChannelSpec], method: str, why: str = ""
) -> Attribution:
    """Return why ``warning`` was raised, by the ``explanation`` of what the look saw, or ``why`` there is none.

    Shares of the sequence are those of what was seen of it; words say the time since its start instead.
    """
    shares = np.zeros(len(channels)) if explanation is None else explanation.shares
    order = [] if explanation is None else np.argsort(-shares, kind="stable").tolist()
    segments = () if explanation is None else explanation.segments
    return Attribution(
        alert_id=warning.warning_id,
        stream=warning.stream,
        sequence=warning.sequence,
        score=warning.score,
        terms=[],
        dominating_transformation=0,
        nearest=[] if explanation is None else list(explanation.nearest),
        segments=[_early_segment(warning, each, channels[each.channel]) for each in segments],
        detail=why or None if explanation is None else explanation.detail,
        channels=[ChannelShare(channel=channels[c].name, unit=channels[c].unit, share=float(shares[c])) for c in order],
        method=method,
        tail=warning.tail,
        model=warning.model,
        created_at=warning.created_at,
    )


def unexplained(alert: Alert, why: str) -> Attribution:
    """Return the attribution of an alert that cannot be explained, by method "none", with the reason."""
    return Attribution(
        alert_id=alert.alert_id,
        stream=alert.stream,
        sequence=alert.sequence,
        score=alert.score,
        terms=[],
        dominating_transformation=0,
        channels=[],
        method=NO_METHOD,
        detail=why,
        tail=alert.tail,
        model=alert.model,
        created_at=alert.created_at,
    )


def _leading(excesses: Sequence[float]) -> list[int]:
    """Return the numbers of the at most three largest ``excesses`` [K] that are at least a tenth of their sum."""
    least = _LEADING_SHARE * sum(excesses)
    order = sorted(range(len(excesses)), key=lambda k: -excesses[k])
    return [k for k in order[:_MOST_LEADING] if excesses[k] > 0 and excesses[k] >= least]


def _segment(
    start_time: datetime, end_time: datetime, segment: Segment, channel: ChannelSpec, shown: float = 1.0
) -> ChannelSegment:
    start, end, span = shown * segment.start, shown * segment.end, end_time - start_time
    return ChannelSegment(
        channel=channel.name,
        unit=channel.unit,
        start=start,
        end=end,
        start_time=start_time + start * span,
        end_time=start_time + end * span,
        direction=segment.direction,
        size=segment.size,
        text=phrase(channel.name, channel.unit, segment.size, segment.direction, start, end),
    )


def _early_segment(warning: EarlyWarning, segment: Segment, channel: ChannelSpec) -> ChannelSegment:
    found = _segment(warning.start_time, warning.time, segment, channel)
    what = phrase_of(channel.name, channel.unit, segment.size, segment.direction)
    text = f"{what} {stretch(warning.start_time, found.start_time, found.end_time)}"
    return msgspec.structs.replace(found, text=text)


def _identity(sequence: FinishedSequence, now_us: int) -> dict[str, Any]:
    return {
        "verdict_id": alert_id(sequence.stream, sequence.sequence, sequence.first_position, sequence.start_us),
        "stream": sequence.stream,
        "sequence": sequence.sequence,
        "reason": sequence.reason,
        "start_time": from_us(sequence.start_us),
        "end_time": from_us(sequence.end_us),
        "n_samples": sequence.n_samples,
        "n_merged": sequence.displaced,
        "n_late": sequence.n_late,
        "batch": dict(sequence.batch),
        "created_at": from_us(now_us),
    }


class Moments(NamedTuple):
    """Mean and standard deviation of each channel of a window, without the padding, to six significant digits."""

    means: list[float]
    spreads: list[float]


def moments_of(windows: Sequence[Window]) -> list[Moments]:
    """Return the moments of windows of one shape; those of a window are the same alone and in company."""
    values = np.stack([window.values for window in windows]).astype(np.float64)
    lengths = np.array([window.length for window in windows])[:, None]
    is_sample = np.arange(values.shape[2]) < lengths[:, :, None]
    # The sums of ``mean`` and ``std``, without what these ask first; ``values`` is ours to change.
    values *= is_sample
    means = np.add.reduce(values, axis=2) / lengths
    values -= means[:, :, None]
    values *= is_sample
    values *= values
    spreads = np.sqrt(np.add.reduce(values, axis=2) / lengths)
    return list(map(Moments, _rounded(means), _rounded(spreads)))


def moments(window: Window | None) -> dict[str, Any]:
    """Return the moments of ``window`` as fields of a verdict; nothing without one."""
    return {} if window is None else moments_of([window])[0]._asdict()


def _rounded(values: npt.NDArray[np.float64]) -> list[list[float]]:
    """Return ``values`` [n, C] to six significant digits."""
    sizes = np.abs(values)
    digits = _DIGITS - 1 - np.floor(np.log10(sizes, out=np.zeros_like(sizes), where=sizes > 0)).astype(np.int64)
    scale = _POWERS_OF_TEN[np.clip(digits, 0, _MOST_POWER)]
    rounded: list[list[float]] = (np.rint(values * scale) / scale).tolist()
    for row, column in np.argwhere((digits < 0) | (digits > _MOST_POWER)).tolist():
        rounded[row][column] = float(f"{values[row, column]:.{_DIGITS}g}")
    return rounded
