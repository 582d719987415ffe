"""The promotion rule: whether the challenger replaces the champion. Pure.

The rule, and how often it errs: docs/learning/promotion.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from streamad.language import percent, percents
from streamad.learn.promotion.comparison import Comparison, ModelFigures
from streamad.settings.learning import PromotionSettings

MIN_MARKS = 5
"""Fewer confirmed anomalies, or false alarms, than this decide nothing: one borderline case would then block all."""
_CHANCE = 0.2
"""A figure that a model at the limit shows, or worse, at least so often is within chance and does not block."""


class Ruling(NamedTuple):
    """The decision, and the reason in one line with the figures that decided."""

    promoted: bool
    reason: str


def unopposed(former: str | None) -> str:
    """Return the reason of a promotion without a comparison; ``former``: the version in service until then."""
    if former is None:
        return "promoted, there is no champion to beat"
    return f"promoted without a comparison with {former}"


def rule(
    comparison: Comparison,
    settings: PromotionSettings,
    former: str | None = None,
    *,
    trusts_marks: bool = False,
    warning_rate: float = 0.0,
) -> Ruling:
    """Return whether the challenger of ``comparison`` is not worse than the champion beyond the tolerances.

    ``former`` is the version in service if ``comparison`` has no champion on purpose, as after a lasting change.
    ``warning_rate`` is the configured rate of false warnings of running sequences.

    It is refused if one of these holds by more than chance explains:

    - false alarms above the larger of the champion's and the configured rate + ``settings.false_alarms``;
    - injected faults found less often than by the champion by more than ``settings.detection`` (hundreds of windows,
      the same for both: no allowance for chance);
    - false warnings above the larger of the champion's and ``warning_rate`` + ``settings.false_alarms``;
    - no looks at running sequences, if the champion has some;

    with ``trusts_marks`` (``learning.feedback_trust: auto``), also:

    - confirmed anomalies found less often than by the champion by more than ``settings.detection``;
    - alerts on known false alarms more often than the champion by more than ``settings.false_alarms``.
    """
    ours, theirs = comparison.challenger, comparison.champion
    if theirs is None:
        return Ruling(True, f"{unopposed(former)}: {_summary(comparison, ours)}")
    n = _n_kept(comparison, ours)
    if n < settings.min_comparison:
        needed = f"{settings.min_comparison} are needed (learning.promotion.min_comparison)"
        return Ruling(False, f"not promoted: {n} sequences to compare on, {needed}")
    refusals = [
        *_refusals(comparison, ours, theirs, settings),
        *_refusals_by_looks(ours, theirs, warning_rate, settings),
    ]
    if trusts_marks:
        refusals += _refusals_by_marks(comparison, ours, theirs, settings)
    if refusals:
        return Ruling(False, f"not promoted: {'; '.join(refusals)}")
    return Ruling(
        True, f"promoted: {_summary(comparison, ours)}; champion {theirs.version}: {_summary(comparison, theirs)}"
    )


def _refusals(
    comparison: Comparison, ours: ModelFigures, theirs: ModelFigures, settings: PromotionSettings
) -> Iterator[str]:
    limit = max(theirs.false_alarm_rate, comparison.false_alarm_rate) + settings.false_alarms
    n = _n_kept(comparison, ours)
    if _is_above(ours.n_alerts, n, limit):
        yield f"{ours.n_alerts} false alarms on {n} normal sequences, {percent(limit, 1)} are allowed"
    if ours.detection < theirs.detection - settings.detection:
        yield (
            f"it finds {percent(ours.detection, 1)} of the injected faults, the champion "
            f"{percent(theirs.detection, 1)} (at most {percent(settings.detection, 1)} less are allowed)"
        )


def _refusals_by_looks(
    ours: ModelFigures, theirs: ModelFigures, rate: float, settings: PromotionSettings
) -> Iterator[str]:
    if theirs.has_looks and not ours.has_looks:
        yield "it has no looks at running sequences, the champion has"
    limit, n = max(theirs.warned_share, rate) + settings.false_alarms, ours.n_watched
    if _is_above(ours.n_warned, n, limit):
        yield f"{ours.n_warned} false warnings of {n} running normal sequences, {percent(limit, 1)} are allowed"


def _refusals_by_marks(
    comparison: Comparison, ours: ModelFigures, theirs: ModelFigures, settings: PromotionSettings
) -> Iterator[str]:
    n = comparison.n_confirmed
    if n >= MIN_MARKS and _is_above(n - ours.n_confirmed, n, (n - theirs.n_confirmed) / n + settings.detection):
        yield f"it finds {ours.n_confirmed} of {n} confirmed anomalies, the champion {theirs.n_confirmed}"
    n = comparison.n_false_alarms
    if n >= MIN_MARKS and _is_above(ours.n_raised, n, theirs.n_raised / n + settings.false_alarms):
        yield f"it alerts on {ours.n_raised} of {n} known false alarms, the champion on {theirs.n_raised}"


def _is_above(k: int, n: int, limit: float) -> bool:
    """Return whether ``k`` of ``n`` is more than the rate ``limit`` gives by chance."""
    from scipy.special import bdtrc  # noqa: PLC0415 - 0.15 s to import

    return k > limit * n and float(bdtrc(k - 1, n, limit)) < _CHANCE


def _n_kept(comparison: Comparison, model: ModelFigures) -> int:
    return comparison.n_sequences - model.n_presumed


def _summary(comparison: Comparison, model: ModelFigures) -> str:
    low, high = model.interval
    warned = f", {model.n_warned} of {model.n_watched} warned of while they ran" if model.has_looks else ""
    return (
        f"{model.n_alerts} false alarms on {_n_kept(comparison, model)} normal sequences ({percents(low, high, 1)}), "
        f"{percent(model.detection, 1)} of the injected faults found{warned}"
    )
