"""Reads NumPy archives of recorded sequences: x [N, C, L] padded at the end, len [N], and what else is known of them.

The arrays may come in two parts, ``train_x`` ... and ``test_x`` ...
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import FloatArray, IntArray
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord
from streamad_connectors.files.formats.sequences import Recorded, channel_order, native_records

_SEQUENCE_DIMENSIONS = 3


@dataclass(frozen=True, slots=True)
class _Selected:
    """One sequence that the options keep: its place in its part of the archive, id, length and label."""

    index: int
    sequence: str
    length: int
    label: str | None


def read_npz(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the selected sequences as native chunks; the offset is the running chunk number."""
    with _opened(path) as archive:
        yield from native_records(_sequences(archive, path, options, context), offset, path, options)


def npz_labels(path: Path, options: FileOptions) -> dict[str, str]:
    """Return sequence id -> class name (its number where the file names no classes) of the selected sequences."""
    with _opened(path) as archive:
        return {
            item.sequence: item.label
            for prefix in _parts(archive, path, options)
            for item in _select(archive, prefix, path, options)
            if item.label is not None
        }


def npz_channels(path: Path) -> tuple[str, ...] | None:
    """Return the names of the channels in the file's order, None where it names none."""
    with _opened(path) as archive:
        return _channels(archive, path)


def _channels(archive: Mapping[str, npt.NDArray[Any]], path: Path) -> tuple[str, ...] | None:
    return tuple(str(name) for name in _array(archive, "channels", path)) if "channels" in archive else None


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, npt.NDArray[Any]]]:
    try:
        archive = np.load(path, allow_pickle=False)
    except (ValueError, zipfile.BadZipFile, EOFError) as error:
        raise SourceError(f"{path}: is no NumPy archive; write it with numpy.savez_compressed") from error
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise SourceError(f"{path}: is a single array; write an archive with numpy.savez_compressed(x=..., len=...)")
    with archive:
        yield archive


def _array(archive: Mapping[str, npt.NDArray[Any]], key: str, path: Path) -> npt.NDArray[Any]:
    try:
        return archive[key]
    except ValueError as error:
        raise SourceError(
            f"{path}: array {key!r} cannot be read without pickle ({error}); save plain numbers and text"
        ) from error


def _parts(archive: Mapping[str, npt.NDArray[Any]], path: Path, options: FileOptions) -> list[str]:
    """Return the key prefixes of the parts to read."""
    there = [part for part in ("train", "test") if f"{part}_x" in archive]
    if there and (options.split == "all" or options.split in there):
        return [f"{part}_" for part in there if options.split in ("all", part)]
    if "x" in archive and options.split == "all":
        return [""]
    if there or "x" in archive:
        raise SourceError(
            f"{path}: has no {options.split} split ({', '.join(there) or 'one part only'}); use split=all"
        )
    raise SourceError(f"{path}: has no array x, train_x or test_x (found: {', '.join(sorted(archive)) or 'nothing'})")


def _sequences(
    archive: Mapping[str, npt.NDArray[Any]], path: Path, options: FileOptions, context: ConnectorContext
) -> Iterator[Recorded]:
    names = _channels(archive, path)
    for prefix in _parts(archive, path, options):
        x = _values(archive, prefix, path)
        order = channel_order(names, x.shape[1], context.channels, path)
        for item in _select(archive, prefix, path, options, x):
            yield Recorded(item.sequence, x[item.index, :, : item.length][order])


def _values(archive: Mapping[str, npt.NDArray[Any]], prefix: str, path: Path) -> FloatArray:
    x = _array(archive, f"{prefix}x", path)
    if x.ndim != _SEQUENCE_DIMENSIONS or x.dtype.kind not in "fiub":
        raise SourceError(
            f"{path}: {prefix}x is {x.dtype} with shape {x.shape}; needed are numbers, sequences x channels x samples"
        )
    with np.errstate(over="ignore"):  # too large for float32 becomes infinite, and the decoder refuses that
        return x.astype(np.float32, copy=False)


def _select(
    archive: Mapping[str, npt.NDArray[Any]],
    prefix: str,
    path: Path,
    options: FileOptions,
    x: FloatArray | None = None,
) -> list[_Selected]:
    lengths = _lengths(archive, prefix, path, x)
    ids = _ids(archive, prefix, path, len(lengths))
    numbers = _class_numbers(archive, prefix, path, len(lengths))
    names = [str(name) for name in _array(archive, "classes", path)] if "classes" in archive else []
    labels = None if numbers is None else [_label(number, names) for number in numbers.tolist()]
    kept = _kept_classes(archive, names, path, options)
    return [
        _Selected(index, ids[index], int(length), labels[index] if labels else None)
        for index, length in enumerate(lengths)
        if length > 0 and (kept is None or (numbers is not None and numbers[index] in kept))
    ]


def _label(number: Any, names: list[str]) -> str:
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else str(number)


def _per_sequence(
    archive: Mapping[str, npt.NDArray[Any]], key: str, path: Path, n_sequences: int
) -> npt.NDArray[Any] | None:
    if key not in archive:
        return None
    array = _array(archive, key, path)
    if array.shape != (n_sequences,):
        raise SourceError(
            f"{path}: {key} has shape {array.shape}, needed is one value for each of {n_sequences} sequences"
        )
    return array


def _class_numbers(
    archive: Mapping[str, npt.NDArray[Any]], prefix: str, path: Path, n_sequences: int
) -> npt.NDArray[Any] | None:
    numbers = _per_sequence(archive, f"{prefix}y", path, n_sequences)
    return None if numbers is None else _whole(numbers)


def _whole(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return class numbers that were stored as 0.0, 1.0, ... as integers."""
    if numbers.dtype.kind == "f" and np.equal(numbers, np.rint(numbers)).all():
        return numbers.astype(np.int64)
    return numbers


def _lengths(archive: Mapping[str, npt.NDArray[Any]], prefix: str, path: Path, x: FloatArray | None) -> IntArray:
    """Return the lengths as stored, else up to each sequence's last sample that is not all NaN."""
    key = f"{prefix}len"
    if key in archive:
        lengths = _array(archive, key, path)
        if lengths.ndim != 1 or lengths.dtype.kind not in "fiu":
            raise SourceError(f"{path}: {key} is {lengths.dtype} with shape {lengths.shape}; needed is one number each")
        if x is not None and (len(lengths) != len(x) or (lengths < 0).any() or (lengths > x.shape[2]).any()):
            raise SourceError(f"{path}: {key} does not fit {prefix}x with shape {x.shape}")
        return lengths.astype(np.int64)
    x = _values(archive, prefix, path) if x is None else x
    there = np.logical_not(np.isnan(x).all(axis=1))  # [N, L]
    return np.where(there.any(axis=1), x.shape[2] - there[:, ::-1].argmax(axis=1), 0).astype(np.int64)


def _ids(archive: Mapping[str, npt.NDArray[Any]], prefix: str, path: Path, n_sequences: int) -> list[str]:
    """Return ``batch_id`` as text where the file has it, else the running number."""
    given = _per_sequence(archive, f"{prefix}batch_id", path, n_sequences)
    if given is None:
        return [f"{prefix[:-1]}-{index:04d}" if prefix else f"{index:04d}" for index in range(n_sequences)]
    ids = [str(item) for item in given.tolist()]
    if len(set(ids)) != len(ids):
        raise SourceError(f"{path}: {prefix}batch_id names a sequence twice; give every sequence its own id")
    return ids


def _kept_classes(
    archive: Mapping[str, npt.NDArray[Any]], names: list[str], path: Path, options: FileOptions
) -> set[Any] | None:
    """Return the class numbers that the option ``classes`` names.

    Names go before numbers, and 1 means the name 1.0, as it does among the labels of a replay.
    """
    if not options.classes:
        return None
    keys = [key for key in ("y", "train_y", "test_y") if key in archive]
    if not keys:
        raise SourceError(f"{path}: has no classes (array y); leave the option classes out")
    numbers = {number for key in keys for number in _whole(_array(archive, key, path)).tolist()}
    by_text = {str(number): number for number in [*range(len(names)), *sorted(numbers)]}
    by_text |= {name.removesuffix(".0"): number for number, name in enumerate(names)}
    by_text |= {name: number for number, name in enumerate(names)}
    unknown = [item for item in options.classes if item not in by_text]
    if unknown:
        raise SourceError(f"{path}: no class {unknown[0]!r} (there are: {', '.join(by_text)})")
    return {by_text[item] for item in options.classes}
