"""The figures as a table, and a plot of the whole life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from life.figures import PhaseFigures, Rates, best_detection
from life.monitors import KINDS, Kind
from life.plant import Batch, Phase
from life.watching import Course

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLOCKS = 9  # of a phase, for the plot
_COLOURS: dict[Kind, str] = {"streamad": "C0", "frozen": "0.45", "naive": "C3"}
_LINES: dict[Kind, str] = {"streamad": "-", "frozen": "-", "naive": "--"}


def table(figures: Sequence[PhaseFigures], rate: float) -> str:
    """Return the last third of each phase in one row per monitor, and whether its bounds hold for streamad."""
    best = best_detection(figures)
    lines = [f"{'last third of':<24} {'monitor':<9} {'faults found':>14}   false alarms among normal batches (95 %)"]
    for phase in figures:
        for kind, rates in phase.last_third.items():
            verdict = ("  holds" if phase.holds(rate, best) else "  MISSED") if kind == "streamad" else ""
            name = phase.name if kind == KINDS[0] else ""
            lines.append(f"{name:<24} {kind:<9} {_found(rates):>14}   {_alarms(rates)}{verdict}")
    return "\n".join(lines)


def _found(rates: Rates) -> str:
    return f"{rates.detected}/{rates.faulty} {_percent(rates.detection_rate)}"


def _alarms(rates: Rates) -> str:
    low, high = rates.interval or (None, None)
    share = _percent(rates.false_alarm_rate)
    return f"{rates.false_alarms:>4}/{rates.normal} {share:>6} ({_percent(low)} to {_percent(high)})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def draw(
    file: Path, phases: Sequence[Phase], batches: Sequence[Batch], courses: Mapping[Kind, Course], rate: float
) -> None:
    """Write the plot of the whole life: both rates in blocks of each phase, and when streamad changed its model."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - the extra 'plots'; without --plot nobody needs it

    figure, (alarms, found) = plt.subplots(2, 1, sharex=True, figsize=(10, 6), height_ratios=(3, 2))
    blocks = _blocks(phases)
    middles = [(block.start + block.stop) / 2 for block in blocks]
    for kind in reversed(KINDS):  # streamad above the others
        rates = [Rates.of(batches[block.start : block.stop], courses[kind].decisions) for block in blocks]
        style = {"color": _COLOURS[kind], "ls": _LINES[kind], "marker": "o", "ms": 3, "lw": 1.4}
        alarms.plot(middles, [_shown(each.false_alarm_rate) for each in rates], label=kind, **style)
        found.plot(middles, [_shown(each.detection_rate) for each in rates], **style)
    alarms.axhline(100 * rate, color="0.2", lw=0.8, ls=":", label=f"configured: {rate:.0%}")
    alarms.set_yscale("symlog", linthresh=2, linscale=0.5)
    alarms.set(ylim=(-0.4, 130), ylabel="false alarms, % of normal batches")
    alarms.set_yticks([0, 1, 2, 5, 10, 20, 50, 100], labels=["0", "1", "2", "5", "10", "20", "50", "100"])
    found.set(ylim=(60, 102), ylabel="found, % of faulty batches", xlabel="batches of the plant")
    _mark_phases(alarms, found, phases)
    _mark_models(found, courses["streamad"])
    alarms.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _blocks(phases: Sequence[Phase]) -> list[range]:
    edges, begin = [], 0
    for phase in phases:
        edges.append(np.linspace(begin, begin + phase.batches, _BLOCKS + 1).astype(int).tolist())
        begin += phase.batches
    return [range(low, high) for own in edges for low, high in pairwise(own)]


def _shown(share: float | None) -> float:
    return float("nan") if share is None else 100 * share


def _mark_phases(top: Axes, bottom: Axes, phases: Sequence[Phase]) -> None:
    begin = 0
    for place, phase in enumerate(phases):
        end = begin + phase.batches
        for axis in (top, bottom):
            if place % 2:
                axis.axvspan(begin, end, color="0.95", zorder=0)
            label = "last third of a phase" if axis is bottom and not place else None
            axis.axvspan(begin + 2 * phase.batches / 3, end, ymax=0.02, color="0.6", zorder=1, label=label)
        top.text((begin + end) / 2, 1.02, phase.name, transform=top.get_xaxis_transform(), ha="center", fontsize=8.5)
        begin = end
    top.set_xlim(0, begin)


def _mark_models(axis: Axes, course: Course) -> None:
    at = course.new_models()
    axis.plot(at, [63] * len(at), marker="^", color=_COLOURS["streamad"], ms=6, ls="", label="new model of streamad")
    axis.legend(loc="center right", fontsize=8)
