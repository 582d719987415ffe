"""The arrays of a version, and how far a scorer's terms lie from those that are stored.

Shapes: P probe windows, C channels, L window length, K terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError
from streamad.ports import Scorer
from streamad.types import FloatArray, IntArray

# Float32 kernels of other processors sum in another order; a wrong or damaged model deviates by far more. The stored
# terms were computed on a CPU; other devices use other kernels throughout.
PROBE_TOLERANCE = 1e-4
_PROBE_FLOOR = 0.1  # so a term near zero may be off by 1e-5 (other devices: 1e-4)
PROBE_TOLERANCE_OTHER_DEVICES = 1e-3

AnyArray = npt.NDArray[Any]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever fails while the arrays in ``path`` are read into an ArtifactError."""
    try:
        yield
    except Exception as error:  # numpy's parser lets tokenizer, zip and codec errors through
        reason = str(error).strip().split("\n")[0]
        raise ArtifactError(f"{path} cannot be read as arrays ({reason}): restore it or train anew") from error


def read_npy(path: Path) -> AnyArray:
    """Read one array; raises ArtifactError."""
    with readable(path), path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("holds several arrays")
        return array


def read_npz(path: Path, names: tuple[str, ...]) -> tuple[AnyArray, ...]:
    """Read the arrays ``names``, in that order; raises ArtifactError."""
    with readable(path), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("holds one array without a name")
        with archive:
            return tuple(archive[name] for name in names)


def probe_deviation(found: FloatArray, stored: FloatArray) -> float:
    """Return the largest deviation of terms, |found - stored| / (0.1 + |stored|): absolute near zero, relative above.

    Infinite if shapes differ or a value is not finite.
    """
    if found.shape != stored.shape or not (np.isfinite(found).all() and np.isfinite(stored).all()):
        return float("inf")
    wide = stored.astype(np.float64)
    return float(np.max(np.abs(found - wide) / (_PROBE_FLOOR + np.abs(wide)), initial=0.0))


def probe_tolerance(device: str) -> float:
    """Return the deviation of the probe that is allowed on ``device``, as the config names it."""
    return PROBE_TOLERANCE if device == "cpu" else PROBE_TOLERANCE_OTHER_DEVICES


def largest_deviation(scorer: Scorer, windows: FloatArray, lengths: IntArray, stored: FloatArray) -> float:
    """Return the largest deviation of the terms of ``windows`` from ``stored``, scored together and each alone."""
    alone = [scorer.score(windows[i : i + 1], lengths[i : i + 1]) for i in range(len(windows))]
    together = probe_deviation(scorer.score(windows, lengths), stored)
    return max([together, *(probe_deviation(each, stored[i : i + 1]) for i, each in enumerate(alone))])
