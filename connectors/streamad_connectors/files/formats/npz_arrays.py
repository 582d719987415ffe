"""The arrays of an NPZ file: each is checked by what its header declares before memory is taken for it.

Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, in a ZIP file.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from streamad.errors import SourceError
from streamad_connectors.files.formats.reading import read_error, too_large_error

_ENDING = ".npy"
_KINDS = "biufUSMm"  # numbers, text, times; no objects, which would need pickle, and no records
_ENTRY_BYTES = 256  # of Python's objects for each entry of the first axis: an id, a length, a label
_VALUE_BYTES = 4  # values are kept as float32
_VERSIONS = ((1, 0), (2, 0), (3, 0))
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_OLD_HEADER = "Reading `.npy` or `.npz` file required additional header parsing"  # of Python 2
_format: Any = np.lib.format  # has no types

Array: TypeAlias = npt.NDArray[Any]


@contextmanager
def opened_arrays(path: Path, limit: int) -> Iterator[NpzArrays]:
    """Open ``path``; ``limit``: bytes that the arrays which are read may take together.

    Raises SourceError, and OSError for a file that is missing or forbidden.
    """
    try:
        file = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise SourceError(_why_no_archive(path, error)) from error
    with file:
        yield NpzArrays(path, file, limit)


class NpzArrays:
    """The arrays by name; a broken one is an error only when it is read."""

    def __init__(self, path: Path, file: zipfile.ZipFile, limit: int) -> None:
        self._path, self._file, self._limit = path, file, limit
        self._members = {name.removesuffix(_ENDING): name for name in file.namelist() if name.endswith(_ENDING)}
        self._declared: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._members

    @property
    def names(self) -> list[str]:
        """Return the names of the arrays, sorted."""
        return sorted(self._members)

    def read(self, name: str) -> Array:
        """Return the array ``name``: numbers, text or times. Raises SourceError."""
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", _OLD_HEADER)
                with self._file.open(self._members[name]) as member:
                    self._check(name, *_header(member))
                with self._file.open(self._members[name]) as member:
                    array: Array = _format.read_array(member, allow_pickle=False)
        except SourceError:
            raise
        except MemoryError as error:
            raise read_error(self._path, error) from error
        except Exception as error:  # encrypted, of an unknown compression, or a header with which numpy's parser fails
            raise SourceError(
                f"{self._path}: array {name!r} cannot be read ({_reason(error)}); save it anew"
            ) from error
        self._check_text(name, array)
        return array

    def _check(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raise SourceError for what cannot be an array of recordings, and for more than the limit."""
        if dtype.kind not in _KINDS:
            what = "objects, which need pickle" if dtype.hasobject else f"values of type {str(dtype)[:80]}"
            raise SourceError(f"{self._path}: array {name!r} holds {what}; save plain numbers and text")
        if any(length < 0 for length in shape):
            raise SourceError(f"{self._path}: array {name!r} has the shape {shape}; save it anew")
        # An empty array of a huge shape takes no memory itself, but what is computed from its lengths does.
        lengths = [max(1, length) for length in shape]
        n_entries = lengths[0] if lengths else 1
        self._declared[name] = prod(lengths) * max(dtype.itemsize, _VALUE_BYTES) + n_entries * _ENTRY_BYTES
        if sum(self._declared.values()) > self._limit:
            raise too_large_error(self._path, f"array {name!r} with the shape {shape}", self._limit)

    def _check_text(self, name: str, array: Array) -> None:
        if array.dtype.kind != "U" or not array.dtype.itemsize or not array.size:
            return
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if (codes > _LAST_CHARACTER).any() or ((codes >= _SURROGATES[0]) & (codes <= _SURROGATES[1])).any():
            raise SourceError(f"{self._path}: array {name!r} has text that is no Unicode; save it anew")


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and type that the header declares. Raises ValueError."""
    version = _format.read_magic(member)
    if version not in _VERSIONS:
        raise ValueError(f"its format has the unknown version {version[0]}.{version[1]}")
    # 3.0 is 2.0 with other names of a record's fields, and records are refused.
    read = _format.read_array_header_1_0 if version == (1, 0) else _format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _why_no_archive(path: Path, error: BaseException) -> str:
    try:
        with path.open("rb") as file:
            is_array = file.read(6) == b"\x93NUMPY"
    except OSError:
        is_array = False
    if is_array:
        return f"{path}: is a single array; write an archive with numpy.savez_compressed(x=..., len=...)"
    return f"{path}: is no NumPy archive ({_reason(error)}); write it with numpy.savez_compressed"
