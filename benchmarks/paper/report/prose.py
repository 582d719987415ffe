"""The figures of cells, as sentences of docs/model/paper.md name them: ``${natops_1_neutral_ad}``, in percent.

A name is the data set, the table (0: drawn halves) and the method; ``_pm`` behind it adds the deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from benchmarks.paper.report.markdown import number
from benchmarks.paper.report.names import METHOD_NAMES
from benchmarks.paper.report.summary import HALVES, TABLES, Entry

NOT_RUN: Final = "(not run)"


def named(entries: Iterable[Entry]) -> dict[str, str]:
    """Return name -> figure; those of cells that have none say so."""
    figures = {
        f"{dataset}_{table.number}_{method}{end}": NOT_RUN
        for table in (*TABLES, HALVES)
        for dataset in table.datasets
        for method in METHOD_NAMES
        for end in ("", "_pm")
    }
    for entry in entries:
        if entry.ours is not None:
            name = f"{entry.dataset}_{entry.table}_{entry.method}"
            figures |= {name: number(entry.ours, None), f"{name}_pm": number(entry.ours, entry.summary.std)}
    return figures
