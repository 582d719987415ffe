"""The figures of a promotion decision or a comparison as rows of texts: champion against challenger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from streamad.injected_faults import STRENGTHS
from streamad.language import NO_BREAK, percent, percents

_Figures: TypeAlias = Mapping[str, float]
_Text: TypeAlias = Callable[[_Figures, str], str]
"""Takes the figures, and "challenger" or "champion"; returns "" if the figure is missing."""


def figure_rows(figures: _Figures, who: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the rows of ``Comparison.figures()``: a label, then a text for each of ``who`` (champion, challenger).

    Rows without any figure are left out: manifests of earlier versions have fewer figures.
    """
    rows: dict[str, _Text] = {
        "normal sequences compared on": _compared_on,
        "false alarms": _false_alarms,
        "warned of while they ran": _warned,
        f"injected faults found ({', '.join(STRENGTHS)})": partial(_percent, name="detection"),
        **{f"  {kind.replace('_', ' ')}": partial(_by_strength, kind=kind) for kind in _kinds(figures)},
        "confirmed anomalies found": partial(_part, name="confirmed_found", of="confirmed"),
        "false alarms of the half repeated": partial(_part, name="false_alarms_raised", of="false_alarms"),
        "stored alerts silenced": _silenced,
    }
    found = [(label, *(text(figures, each) for each in who)) for label, text in rows.items()]
    return [row for row in found if any(row[1:])]


def _kinds(figures: _Figures) -> list[str]:
    """Return the kinds of injected faults, in their order."""
    parts = [name.split(".") for name in figures]
    return list(dict.fromkeys(part[2] for part in parts if len(part) == 3 and part[1] == "detection"))


def _compared_on(figures: _Figures, who: str) -> str:
    n = figures.get("comparison.sequences")
    if n is None:
        return ""
    presumed = figures.get(f"{who}.presumed_anomalies", 0)
    return f"{n - presumed:.0f}" + (f" (and {presumed:.0f} presumed anomalies)" if presumed else "")


def _false_alarms(figures: _Figures, who: str) -> str:
    if f"{who}.false_alarm_rate" not in figures:
        return ""
    low, high = (figures.get(f"{who}.false_alarm_rate_{end}") for end in ("low", "high"))
    n = figures.get(f"{who}.alerts")
    interval = "" if low is None or high is None else f", 95 %: {percents(low, high, 1)}"
    counted = "" if n is None else f"{n:.0f}: "
    return f"{counted}{percent(figures[f'{who}.false_alarm_rate'], 1)}{interval}"


def _warned(figures: _Figures, who: str) -> str:
    n, n_all = figures.get(f"{who}.warned"), figures.get(f"{who}.watched")
    return "" if n is None or n_all is None else f"{n:.0f} of {n_all:.0f}"


def _percent(figures: _Figures, who: str, *, name: str) -> str:
    share = figures.get(f"{who}.{name}")
    return "" if share is None else percent(share, 1)


def _by_strength(figures: _Figures, who: str, *, kind: str) -> str:
    """Return the share of a kind, then those of its strengths: "48.3% (5 / 40 / 100 %)"."""
    share = _percent(figures, who, name=f"detection.{kind}")
    found = [figures.get(f"{who}.detection.{kind}.{strength}") for strength in STRENGTHS]
    if not share or all(each is None for each in found):
        return share
    return f"{share} ({' / '.join('-' if each is None else f'{100 * each:.0f}' for each in found)}{NO_BREAK}%)"


def _silenced(figures: _Figures, who: str) -> str:
    n, n_all = figures.get("silenced.alerts"), figures.get("silenced.of_alerts")
    if who != "challenger" or n is None or not n_all:
        return ""
    without = figures.get("silenced.without_mark", 0)
    return f"{n:.0f} of {n_all:.0f}" + (f" ({without:.0f} without any mark)" if n else "")


def _part(figures: _Figures, who: str, *, name: str, of: str) -> str:
    n, n_all = figures.get(f"{who}.{name}"), figures.get(f"comparison.{of}")
    return "" if n is None or not n_all else f"{n:.0f} of {n_all:.0f}"
