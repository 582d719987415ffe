"""Tables from the archives' own files: ODDS ``.mat``, UCI's ``arrhythmia.data``, and the gzip file of KDD Cup 99.

Legend: n rows, D attributes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from benchmarks.paper.data.archive_series import Arrays
from benchmarks.paper.data.kdd import read_connections
from streamad.errors import SourceError
from streamad.types import FloatArray, IntArray
from streamad_connectors.files.formats.reading import READ_FAILURES

N_ARRHYTHMIA_ATTRIBUTES: Final = 279
INCOMPLETE_ATTRIBUTES: Final = (10, 11, 12, 13, 14)  # angles of T, P, QRST and J, and the heart rate: with gaps
OUTLIER_CLASSES: Final = (3, 4, 5, 7, 8, 9, 14, 15)  # the paper, appendix on tabular data sets
N_CONNECTIONS: Final = 494_021
N_ATTACKS: Final = 396_743


def matlab_arrays(path: Path) -> Arrays:
    """Return x and y of an ODDS file: its matrix X [n, D] and its column y, 1 for an outlier. Raises SourceError."""
    try:
        content = loadmat(path)
    except (*READ_FAILURES, MatReadError, NotImplementedError, ValueError, TypeError) as error:
        raise SourceError(f"cannot read {path} as a MATLAB file: {error}") from error
    if "X" not in content or "y" not in content:
        raise SourceError(f"{path}: holds no X and y; is it the archive's file?")
    return _table(content["X"], content["y"].ravel(), path)


def arrhythmia_text(path: Path) -> Arrays:
    """Return x and y of UCI's text, as ODDS has them: the 274 attributes without gaps, the rare classes as outliers.

    Raises SourceError.
    """
    try:
        rows = [line.split(",") for line in path.read_text(encoding="ascii").splitlines() if line.strip()]
    except (*READ_FAILURES, ValueError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    if not rows or any(len(row) != N_ARRHYTHMIA_ATTRIBUTES + 1 for row in rows):
        raise SourceError(f"{path}: a row has not {N_ARRHYTHMIA_ATTRIBUTES} attributes and a class; is it UCI's file?")
    kept = [column for column in range(N_ARRHYTHMIA_ATTRIBUTES) if column not in INCOMPLETE_ATTRIBUTES]
    try:
        values = np.array([[float(row[column]) for column in kept] for row in rows])
        classes = np.array([int(row[-1]) for row in rows])
    except ValueError as error:
        raise SourceError(f"{path}: {error}; is it UCI's file?") from error
    return _table(values, np.isin(classes, OUTLIER_CLASSES).astype(np.int64), path)


def kdd_content(path: Path) -> bytes:
    """Return the gzip file's bytes, checked line by line. Raises SourceError."""
    connections = read_connections(path)
    found = len(connections.is_attack), int(connections.is_attack.sum())
    if found != (N_CONNECTIONS, N_ATTACKS):
        raise SourceError(
            f"{path}: has {found[0]} connections, {found[1]} of them attacks; the ten per cent of KDD Cup 99 has "
            f"{N_CONNECTIONS} and {N_ATTACKS}"
        )
    return path.read_bytes()


def _table(values: FloatArray, labels: IntArray, path: Path) -> Arrays:
    if values.ndim != 2 or len(values) != len(labels) or not np.isin(labels, (0, 1)).all():
        raise SourceError(f"{path}: X must be a matrix and y 0 or 1 for each of its rows; is it the archive's file?")
    return {"x": values.astype(np.float32), "y": labels.astype(np.int32)}
