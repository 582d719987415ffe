"""Which stored cells count: those of the revision that their method has today, or of a later one."""

from __future__ import annotations

__all__ = ["is_current", "read_current"]

from pathlib import Path

from benchmarks.paper.cells import RESULTS, Result, read_results
from benchmarks.paper.methods import METHODS


def is_current(result: Result) -> bool:
    """Say whether ``result`` counts; one of a method that is not of the study does."""
    return result.method not in METHODS or result.revision >= METHODS[result.method].revision


def read_current(folder: Path = RESULTS) -> tuple[list[Result], int]:
    """Return the results under ``folder`` that count, in the order of their paths, and how many others there are."""
    stored = list(read_results(folder))
    current = [one for one in stored if is_current(one)]
    return current, len(stored) - len(current)
