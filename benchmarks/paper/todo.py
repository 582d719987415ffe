"""What of the study is not stored yet with one seed, and how long it would take; and the whole of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.paper.choosing import Choice, jobs_of
from benchmarks.paper.methods import METHODS
from benchmarks.paper.progress import Estimate
from benchmarks.paper.protocols import FIGURES, TABLES
from benchmarks.paper.report.markdown import markdown_table
from benchmarks.paper.report.names import DATASET_NAMES, METHOD_NAMES
from benchmarks.paper.results_table import RESULTS, Cell, Result, read_results


def is_current(result: Result) -> bool:
    """Say whether ``result`` counts; one of a method that is not of the study does."""
    return result.method not in METHODS or result.revision >= METHODS[result.method].revision_on(result.dataset)


def has_setting(result: Result, key: str, wanted: Any) -> bool:
    """Say whether ``result`` was measured with ``wanted``, which its options hold as the training resolved it.

    What "auto" stands for is the method's to choose, so any value is. A batch is never more than there is to train.
    """
    had = result.options.get(key)
    if key == "batch_size" and wanted == "quarter":
        return bool(had == max(result.n_train // 4, 1))
    if key == "batch_size" and isinstance(wanted, int):
        return bool(had == min(wanted, result.n_train))
    return wanted in ("auto", had)


def read_current(folder: Path = RESULTS) -> tuple[list[Result], int]:
    """Return the results under ``folder`` that count, in the order of their paths, and how many others there are."""
    stored = list(read_results(folder))
    current = [one for one in stored if is_current(one)]
    return current, len(stored) - len(current)


_PARTS = {
    **{f"table {number}": Choice(tables=(number,)) for number in TABLES},
    **{name: Choice(figures=(name,)) for name in FIGURES},
}
_SECONDS_PER_HOUR = 3600


def left_section(results: Sequence[Result]) -> str:
    """Return, for each part and data set, the methods whose cells lack and the hours of CPU time that they may take.

    A method that was never measured on a data set has none: what others take there says nothing of it.
    """
    stored = {one.cell for one in results}
    estimate = Estimate(msgspec.structs.replace(one, fit_s=one.seconds, score_s=0.0) for one in results)
    whole_s, all_known, rows = sum(one.seconds for one in results if one.seed == 0), True, []
    for part, choice in _PARTS.items():
        by_dataset: dict[str, list[Cell]] = {}
        for cell in (cell for job in jobs_of(choice) for cell in job.cells if cell not in stored):
            by_dataset.setdefault(cell.dataset, []).append(cell)
        for dataset, cells in by_dataset.items():
            methods = "; ".join(METHOD_NAMES[name] for name in dict.fromkeys(cell.method for cell in cells))
            times_s = [estimate.of(cell, guess=False) for cell in cells]
            known_s = [each for each in times_s if each is not None]
            whole_s, all_known = whole_s + sum(known_s), all_known and len(known_s) == len(times_s)
            rows.append([part, DATASET_NAMES[dataset], methods, str(len(cells)), _hours(known_s, len(times_s))])
    told = f"{whole_s / _SECONDS_PER_HOUR:.0f} hours of one core{'' if all_known else ', and what is not known'}"
    if not rows:
        return f"Nothing is left of the study with one seed, which takes {told}."
    table = markdown_table(["part", "data set", "methods", "models left", "hours left"], rows)
    return f"{table}\n\nWith one seed the whole study takes {told}: what is stored of seed 0, and these."


def _hours(known_s: Sequence[float], n_models: int) -> str:
    """Return the hours of ``known_s``; of the other models no time is known."""
    if not known_s:
        return "not known"
    hours = f"{sum(known_s) / _SECONDS_PER_HOUR:.1f}"
    return hours if len(known_s) == n_models else f"{hours} for {len(known_s)} of them"
