"""The study's tables as tasks: half of the inliers trains; the others and all outliers test.

A row is a window of one sample. Arrhythmia and Thyroid are not scaled; the first half of the inliers in the file's
order trains, as is usual since GOAD (Bergman and Hoshen, ICLR 2020), or a half that the seed draws. In KDD the attacks
are inliers and normal connections outliers; KDDRev is the reverse, with a quarter as many attacks as normal
connections. There the seed draws everything, and the training half standardises the continuous columns.
Legend: n rows, D attributes.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.paper.data.datasets import Task, data_path
from benchmarks.paper.data.kdd import Connections, read_connections
from benchmarks.paper.protocols import LARGE_TABLES
from streamad.errors import SourceError
from streamad.types import BoolArray, FloatArray, WindowSet

KDD_FILE = "kddcup.data_10_percent.gz"
KDD_REV_OUTLIERS_PER_INLIER = 0.25


def table_task(name: str, seed: int, *, drawn: bool = False) -> Task:
    """Return the task of a table for ``seed``; with ``drawn`` the seed draws the half of Arrhythmia and Thyroid too.

    Raises SourceError if its file is absent or not as described.
    """
    draw = np.random.default_rng(seed)
    if name in LARGE_TABLES:
        return _connections_task(name, draw)
    rows, is_outlier = _read(data_path(f"{name}.npz"))
    inliers = np.flatnonzero(~is_outlier)
    train, test = _half(draw.permutation(inliers) if drawn else inliers, np.flatnonzero(is_outlier))
    return Task(as_windows(rows, train), as_windows(rows, test), is_outlier[test])


def as_windows(rows_nD: FloatArray, index: npt.NDArray[np.intp]) -> WindowSet:
    """Return the rows at ``index`` as windows of one sample: values [N, D, 1], lengths 1."""
    lengths = np.ones(len(index), np.int64)
    return WindowSet(rows_nD[index][:, :, None], lengths, tuple(f"row-{number:06d}" for number in index))


def _connections_task(name: str, draw: np.random.Generator) -> Task:
    table = _connections(data_path(KDD_FILE))
    is_outlier = table.is_attack if name == "kdd_rev" else ~table.is_attack
    inliers, outliers = np.flatnonzero(~is_outlier), np.flatnonzero(is_outlier)
    if name == "kdd_rev":
        outliers = draw.permutation(outliers)[: int(len(inliers) * KDD_REV_OUTLIERS_PER_INLIER)]
    train, test = _half(draw.permutation(inliers), outliers)
    scaled = standardised(table.continuous, train)
    rows = np.concatenate([scaled, table.one_hot.astype(np.float32)], axis=1)
    return Task(as_windows(rows, train), as_windows(rows, test), is_outlier[test])


def standardised(values_nD: FloatArray, train: npt.NDArray[np.intp]) -> FloatArray:
    """Return the columns less their mean, by their standard deviation, over the rows ``train``; constant ones: by 1."""
    known = values_nD[train].astype(np.float64)
    spread = known.std(axis=0)
    scaled: FloatArray = ((values_nD - known.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    return scaled


def _half(
    inliers: npt.NDArray[np.intp], outliers: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    n_train = len(inliers) // 2
    return inliers[:n_train], np.concatenate([inliers[n_train:], outliers])


@lru_cache(maxsize=1)
def _read(path: Path) -> tuple[FloatArray, BoolArray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            rows, labels = archive["x"].astype(np.float32), archive["y"]
    except (KeyError, ValueError) as error:
        raise SourceError(f"{path} is no table: {error}; build it anew") from error
    if rows.ndim != 2 or labels.shape != rows.shape[:1] or not np.isfinite(rows).all():
        raise SourceError(f"{path}: x must be finite [n, D] and y [n], not {rows.shape} and {labels.shape}")
    return rows, labels == 1


@lru_cache(maxsize=1)
def _connections(path: Path) -> Connections:
    return read_connections(path)
