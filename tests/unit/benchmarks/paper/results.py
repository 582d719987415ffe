"""Made-up results of the study for the tests of what is built from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.paper.results_table import Result, Tables


def result(dataset: str = "racket_sports", normal_name: str = "0", **changes: Any) -> Result:
    """Return a result of LOF on one task; ``changes`` are fields of ``Result``."""
    fields: dict[str, Any] = {
        "dataset": dataset,
        "protocol": "one_vs_rest",
        "normal": (int(normal_name),) if normal_name.isdecimal() else (),
        "normal_name": normal_name,
        "method": "lof",
        "variant": "",
        "seed": 0,
        "auc": 0.5,
        "ap": 0.5,
        "f1": 0.5,
        "fit_s": 1.0,
        "score_s": 0.5,
        "peak_memory_mb": 300.0,
        "device": "cpu",
        "machine": "a machine",
        "threads": 1,
        "n_train": 30,
        "n_test": 100,
        "n_anomalies": 75,
        "options": {},
        "versions": {},
        "git_commit": None,
        "finished_at": "2026-01-01T00:00:00Z",
    }
    return Result(**{**fields, **changes})


def stored(folder: Path, *results: Result) -> None:
    """Add ``results`` to the tables of ``folder``."""
    Tables(folder).add(results)
