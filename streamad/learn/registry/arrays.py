"""The arrays of a version, and how far a scorer's terms lie from those that are stored.

Shapes: P probe windows, C channels, L window length, K terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, ZipFile

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
_format: Any = np.lib.format  # has no types


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever fails while the arrays in ``path`` are read into an ArtifactError."""
    try:
        yield
    except Exception as error:  # numpy's parser lets tokenizer, zip and codec errors through
        reason = str(error).strip().split("\n")[0]
        raise ArtifactError(f"{path} cannot be read as arrays ({reason}): restore it or train anew") from error


def read_npy(path: Path) -> AnyArray:
    """Read one array; raises ArtifactError, also if it says that it is larger than the file."""
    with readable(path), path.open("rb") as file:
        _check_header(file, path.stat().st_size)
        file.seek(0)
        array: AnyArray = _format.read_array(file, allow_pickle=False)
        return array


def read_npz(path: Path, names: tuple[str, ...]) -> tuple[AnyArray, ...]:
    """Read the arrays ``names``, in that order; raises ArtifactError, also if they take more memory than the file."""
    with readable(path), ZipFile(path) as archive:
        return tuple(_member(archive, f"{name}.npy") for name in names)


def _member(archive: ZipFile, name: str) -> AnyArray:
    info = archive.getinfo(name)
    if info.compress_type != ZIP_STORED:  # 1 MB may unpack to a thousand; numpy.savez stores
        raise ValueError(f"{name} is compressed")
    with archive.open(info) as file:
        _check_header(file, info.compress_size)
    with archive.open(info) as file:
        array: AnyArray = _format.read_array(file, allow_pickle=False)
        return array


def _check_header(file: IO[bytes], n_bytes: int) -> None:
    """Raise ValueError if the array in ``file`` says that it takes more than ``n_bytes``, or is none of numbers."""
    version = _format.read_magic(file)
    read = _format.read_array_header_1_0 if version == (1, 0) else _format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or min(shape, default=0) < 0 or prod(shape) * dtype.itemsize > n_bytes:
        raise ValueError(f"an array of shape {shape}, {dtype}, is not in {n_bytes} bytes")


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
