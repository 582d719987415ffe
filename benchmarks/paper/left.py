"""What of the study is not stored yet with one seed, and how long it would take."""

from __future__ import annotations

__all__ = ["left_section"]

from collections.abc import Sequence

import msgspec

from benchmarks.paper.cells import Cell, Result
from benchmarks.paper.choosing import Choice, jobs_of
from benchmarks.paper.markdown import markdown_table
from benchmarks.paper.names import DATASET_NAMES, METHOD_NAMES
from benchmarks.paper.protocols import FIGURES, TABLES
from benchmarks.paper.telling import Estimate

_PARTS = {
    **{f"table {number}": Choice(tables=(number,)) for number in TABLES},
    **{name: Choice(figures=(name,)) for name in FIGURES},
}
_SECONDS_PER_HOUR = 3600
_MOST_NAMES = 8


def left_section(results: Sequence[Result]) -> str:
    """Return, for each part and data set, the methods whose cells lack and the hours of CPU time that they may take."""
    stored = {one.cell for one in results}
    estimate = Estimate(msgspec.structs.replace(one, fit_s=one.seconds, score_s=0.0) for one in results)
    rows = []
    for part, choice in _PARTS.items():
        by_dataset: dict[str, list[Cell]] = {}
        for cell in (cell for job in jobs_of(choice) for cell in job.cells if cell not in stored):
            by_dataset.setdefault(cell.dataset, []).append(cell)
        for dataset, cells in by_dataset.items():
            methods = _told([METHOD_NAMES[name] for name in dict.fromkeys(cell.method for cell in cells)])
            left_s = estimate.left_s(cells, 1)
            hours = "" if left_s is None else f"{left_s / _SECONDS_PER_HOUR:.1f}"
            rows.append([part, DATASET_NAMES[dataset], methods, str(len(cells)), hours])
    if not rows:
        return "Nothing is left of the study with one seed."
    return markdown_table(["part", "data set", "methods", "models left", "hours left"], rows)


def _told(names: list[str]) -> str:
    return "; ".join(names) if len(names) <= _MOST_NAMES else f"{len(names)} methods"
