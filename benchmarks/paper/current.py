"""Which stored cells count: those of the revision that their method has today, or a later one; and their settings."""

from __future__ import annotations

__all__ = ["has_setting", "is_current", "read_current"]

from pathlib import Path
from typing import Any

from benchmarks.paper.cells import RESULTS, Result, read_results
from benchmarks.paper.methods import METHODS


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
