"""Reads the UEA archive's ``.ts`` text: one case per line, dimensions separated by colons, the class label last.

Format: https://www.aeon-toolkit.org/en/stable/api_reference/file_specifications/ts.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamad.errors import SourceError
from streamad.types import FloatArray

_MISSING = {"?", "nan", ""}


def ts_cases(path: Path) -> Iterator[tuple[FloatArray, str]]:
    """Yield the values float32 [C, n] of every case, NaN = missing, and its label.

    Dimensions shorter than the longest end in NaN. Raises SourceError for a file without class labels, OSError.
    """
    with path.open(encoding="utf-8-sig") as lines:
        classes = _classes(lines, path)
        for line in lines:
            text = line.strip()
            if text and not text.startswith("#"):
                *dimensions, label = text.split(":")
                if not dimensions or label.strip() not in classes:
                    raise SourceError(f"{path}: the case {text[:40]!r} does not end in one of its classes")
                yield _values(dimensions, path), label.strip()


def _classes(lines: Iterator[str], path: Path) -> list[str]:
    """Return the labels that the lines before ``@data`` name."""
    classes: list[str] = []
    for line in lines:
        tag, *words = line.lower().split() or [""]
        if tag == "@data" and classes:
            return classes
        if tag == "@classlabel" and words[:1] == ["true"]:
            classes = line.split()[2:]
    raise SourceError(f"{path}: has no @classLabel and @data lines; is it the archive's file?")


def _values(dimensions: list[str], path: Path) -> FloatArray:
    try:
        rows = [
            [np.nan if cell.strip().lower() in _MISSING else float(cell) for cell in text.split(",")]
            for text in dimensions
        ]
    except ValueError as error:
        raise SourceError(f"{path}: {error}") from error
    values = np.full((len(rows), max(map(len, rows))), np.nan, dtype=np.float32)
    for row, cells in zip(values, rows, strict=True):
        row[: len(cells)] = cells
    return values
