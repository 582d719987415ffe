"""Reads NumPy archives of recorded sequences: x [N, C, L] padded at the end, len [N], and optional arrays.

The arrays may come in two parts, ``train_x`` ... and ``test_x`` ...
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import FloatArray, IntArray
from streamad_connectors.files.formats.npz_arrays import Array, NpzArrays, opened_arrays
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord
from streamad_connectors.files.formats.sequences import Recorded, channel_order, native_records

_SEQUENCE_DIMENSIONS = 3
_SHOWN_NAMES = 20
_LARGEST_WHOLE = 2.0**53


def read_npz(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the selected sequences as native chunks; the offset is the running chunk number."""
    with _opened(path, options) as archive:
        yield from native_records(archive.sequences(options, context), offset, path, options)


def npz_labels(path: Path, options: FileOptions) -> dict[str, str]:
    """Return sequence id -> class name (its number if the file names no classes) of the selected sequences."""
    with _opened(path, options) as archive:
        return {
            item.sequence: item.label
            for prefix in archive.parts(options)
            for item in archive.selected(prefix, options)
            if item.label is not None
        }


def npz_channels(path: Path, options: FileOptions) -> tuple[str, ...] | None:
    """Return the names of the channels in the file's order, None if it names none."""
    with _opened(path, options) as archive:
        return archive.channels()


@contextmanager
def _opened(path: Path, options: FileOptions) -> Iterator[_Archive]:
    with opened_arrays(path, options.max_decompressed_bytes) as arrays:
        yield _Archive(path, arrays)


@dataclass(frozen=True, slots=True)
class _Selected:
    """One sequence that the options keep: its place in its part of the archive, id, length and label."""

    index: int
    sequence: str
    length: int
    label: str | None


@dataclass(frozen=True, slots=True)
class _Archive:
    """The arrays of a file; ``prefix`` names a part of it: "train_", "test_" or ""."""

    path: Path
    arrays: NpzArrays

    def parts(self, options: FileOptions) -> list[str]:
        """Return the prefixes of the parts to read."""
        there = [part for part in ("train", "test") if f"{part}_x" in self.arrays]
        if there and (options.split == "all" or options.split in there):
            return [f"{part}_" for part in there if options.split in ("all", part)]
        if "x" in self.arrays and options.split == "all":
            return [""]
        if there or "x" in self.arrays:
            splits = ", ".join(there) or "one part only"
            raise SourceError(f"{self.path}: has no {options.split} split ({splits}); use split=all")
        names = self.arrays.names
        found = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "") or "nothing"
        raise SourceError(f"{self.path}: has no array x, train_x or test_x (found: {found})")

    def channels(self) -> tuple[str, ...] | None:
        """Return the names of the channels, None if there are none."""
        return self._names("channels")

    def sequences(self, options: FileOptions, context: ConnectorContext) -> Iterator[Recorded]:
        """Yield the sequences that the options keep."""
        names = self.channels()
        for prefix in self.parts(options):
            x = self._values(prefix)
            order = channel_order(names, x.shape[1], context.channels, self.path)
            for item in self.selected(prefix, options, x):
                yield Recorded(item.sequence, x[item.index, :, : item.length][order])

    def selected(self, prefix: str, options: FileOptions, x: FloatArray | None = None) -> list[_Selected]:
        """Return the sequences of a part that the options keep; ``x``, if at hand, is checked against the lengths."""
        lengths = self._lengths(prefix, x)
        ids = self._ids(prefix, len(lengths))
        numbers = self._per_sequence(f"{prefix}y", len(lengths))
        numbers = None if numbers is None else _whole(numbers)
        names = list(self._names("classes") or ())
        labels = None if numbers is None else [_label(number, names) for number in numbers.tolist()]
        kept = self._kept_classes(names, options)
        return [
            _Selected(index, ids[index], int(length), labels[index] if labels else None)
            for index, length in enumerate(lengths)
            if length > 0 and (kept is None or (numbers is not None and numbers[index] in kept))
        ]

    def _names(self, key: str) -> tuple[str, ...] | None:
        """Return the texts of a list of names, None without one."""
        if key not in self.arrays:
            return None
        names = self.arrays.read(key)
        if names.ndim != 1:
            raise SourceError(f"{self.path}: {key} has shape {names.shape}, needed is one list of names")
        return tuple(str(name) for name in names.tolist())

    def _values(self, prefix: str) -> FloatArray:
        x = self.arrays.read(f"{prefix}x")
        if x.ndim != _SEQUENCE_DIMENSIONS or x.dtype.kind not in "fiub":
            raise SourceError(
                f"{self.path}: {prefix}x is {x.dtype} with shape {x.shape}; "
                "needed are numbers, sequences x channels x samples"
            )
        if not x.shape[1]:
            raise SourceError(f"{self.path}: {prefix}x with shape {x.shape} has no channel; save it anew")
        with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite; the decoder refuses it
            return x.astype(np.float32, copy=False)

    def _per_sequence(self, key: str, n_sequences: int) -> Array | None:
        if key not in self.arrays:
            return None
        array = self.arrays.read(key)
        if array.shape != (n_sequences,):
            raise SourceError(
                f"{self.path}: {key} has shape {array.shape}, needed is one value for each of {n_sequences} sequences"
            )
        return array

    def _lengths(self, prefix: str, x: FloatArray | None) -> IntArray:
        """Return the lengths as stored, else up to each sequence's last sample that is not all NaN."""
        key = f"{prefix}len"
        if key in self.arrays:
            lengths = self.arrays.read(key)
            if lengths.ndim != 1 or lengths.dtype.kind not in "fiu":
                raise SourceError(
                    f"{self.path}: {key} is {lengths.dtype} with shape {lengths.shape}; needed is one number each"
                )
            if x is not None and (len(lengths) != len(x) or not ((lengths >= 0) & (lengths <= x.shape[2])).all()):
                raise SourceError(f"{self.path}: {key} does not fit {prefix}x with shape {x.shape}")
            if not ((lengths >= 0) & (lengths <= _LARGEST_WHOLE)).all():
                raise SourceError(f"{self.path}: {key} holds what is no length (NaN, negative or too large)")
            return lengths.astype(np.int64)
        x = self._values(prefix) if x is None else x
        if not x.shape[2]:
            return np.zeros(len(x), dtype=np.int64)
        there = np.logical_not(np.isnan(x).all(axis=1))  # [N, L]
        return np.where(there.any(axis=1), x.shape[2] - there[:, ::-1].argmax(axis=1), 0).astype(np.int64)

    def _ids(self, prefix: str, n_sequences: int) -> list[str]:
        """Return ``batch_id`` as text if the file has it, else the running number."""
        given = self._per_sequence(f"{prefix}batch_id", n_sequences)
        if given is None:
            return [f"{prefix[:-1]}-{index:04d}" if prefix else f"{index:04d}" for index in range(n_sequences)]
        ids = [str(item) for item in given.tolist()]
        if len(set(ids)) != len(ids):
            raise SourceError(f"{self.path}: {prefix}batch_id names a sequence twice; give every sequence its own id")
        return ids

    def _kept_classes(self, names: list[str], options: FileOptions) -> set[Any] | None:
        """Return the class numbers of the option ``classes``, None if it is not given.

        Names go before numbers, and 1 means the name 1.0, as among the labels of a replay.
        """
        if not options.classes:
            return None
        keys = [key for key in ("y", "train_y", "test_y") if key in self.arrays]
        if not keys:
            raise SourceError(f"{self.path}: has no classes (array y); leave the option classes out")
        numbers = {number for key in keys for number in _whole(self.arrays.read(key)).tolist()}
        by_text = {str(number): number for number in [*range(len(names)), *sorted(numbers)]}
        by_text |= {name.removesuffix(".0"): number for number, name in enumerate(names)}
        by_text |= {name: number for number, name in enumerate(names)}
        unknown = [item for item in options.classes if item not in by_text]
        if unknown:
            raise SourceError(f"{self.path}: no class {unknown[0]!r} (there are: {', '.join(by_text)})")
        return {by_text[item] for item in options.classes}


def _label(number: Any, names: list[str]) -> str:
    return names[number] if isinstance(number, int) and 0 <= number < len(names) else str(number)


def _whole(numbers: Array) -> Array:
    """Return class numbers that were stored as 0.0, 1.0, ... as integers."""
    if numbers.dtype.kind == "f" and (np.equal(numbers, np.rint(numbers)) & (np.abs(numbers) <= _LARGEST_WHOLE)).all():
        return numbers.astype(np.int64)
    return numbers
