"""The data of the figures that are no curves: measured once and kept as NPZ files beside the results.

Each store is of one small model with seed 0 and class 0 normal; none was chosen by its looks.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.paper.data.datasets import read_sequences
from benchmarks.paper.data.tables import table_task
from benchmarks.paper.figures import models
from streamad.system.files import write_atomically, writing

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

STORES: Final[dict[str, Callable[[], Arrays]]] = {
    "sad_scores": lambda: models.scores_before_and_after(read_sequences("spoken_arabic_digits"), models.SAD),
    "sad_views": lambda: models.views_of_classes(read_sequences("spoken_arabic_digits"), models.SAD_FOUR),
    "natops_views": lambda: models.views_of_classes(read_sequences("natops"), models.NATOPS_FOUR),
    "thyroid_terms": lambda: models.table_terms(table_task("thyroid", models.SEED), models.THYROID_FOUR),
}
_OF_FIGURE: Final = {
    "histogram": "sad_scores",
    "pca": "sad_views",
    "masks": "sad_views",
    "sad_transformations": "sad_views",
    "natops_transformations": "natops_views",
    "thyroid_masks": "thyroid_terms",
    "simplex": "thyroid_terms",
}


def stored(name: str, results: Path) -> Arrays:
    """Return the arrays of a store; missing ones are measured and kept. Raises SourceError, OutputError."""
    path = _path(name, results)
    if not path.is_file():
        print(f"measuring {name}", file=sys.stderr)
        _keep(path, STORES[name]())
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def forget(results: Path, figures: Iterable[str]) -> None:
    """Remove the stores of ``figures`` (modules)."""
    for figure in figures:
        if figure in _OF_FIGURE:
            _path(_OF_FIGURE[figure], results).unlink(missing_ok=True)


def _path(name: str, results: Path) -> Path:
    return results / f"{name}.npz"


def _keep(path: Path, arrays: dict[str, Any]) -> None:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, stream.getvalue())
