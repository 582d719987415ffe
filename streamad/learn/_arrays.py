"""Arrays on disk: npy and npz without pickles, and one-line errors for what cannot be read back."""

from __future__ import annotations

__all__ = ["read_npy", "read_npz", "write_npy", "write_npz"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.errors import ArtifactError

AnyArray = npt.NDArray[Any]


def write_npy(path: Path, array: AnyArray) -> None:
    """Write one array; raises OSError."""
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: Path, arrays: dict[str, AnyArray]) -> None:
    """Write named arrays; the same arrays give the same bytes. Raises OSError."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # numpy's parser lets tokenizer, zip and codec errors through
        reason = str(error).strip().split("\n")[0]
        raise ArtifactError(f"{path} cannot be read as arrays ({reason}): restore it or train anew") from error


def read_npy(path: Path) -> AnyArray:
    """Read one array; raises ArtifactError."""
    with _readable(path), path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("holds several arrays")
        return array


def read_npz(path: Path, names: tuple[str, ...]) -> tuple[AnyArray, ...]:
    """Read the arrays ``names``, in that order; raises ArtifactError."""
    with _readable(path), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("holds one array without a name")
        with archive:
            return tuple(archive[name] for name in names)
