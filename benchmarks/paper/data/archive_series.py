"""Sequences from the archives' own files: UEA ``.ts``, and the text of UCI's Spoken Arabic Digit.

Legend: N sequences, C channels, L the longest sequence of a split.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from benchmarks.paper.data.ts_file import ts_cases
from streamad.errors import SourceError
from streamad.types import FloatArray
from streamad_connectors.files.formats.reading import READ_FAILURES

Arrays: TypeAlias = dict[str, npt.NDArray[np.generic]]
"""The content of an NPZ file."""

Labelled: TypeAlias = list[tuple[FloatArray, str]]

N_DIGITS: Final = 10
N_COEFFICIENTS: Final = 13


def series_arrays(train: Path, test: Path, *, with_names: bool, first_class: int = 0) -> Arrays:
    """Return the arrays of a data set's NPZ file from its two ``.ts`` files.

    Classes are numbered from ``first_class`` in the order of their labels (as numbers if all are); ``with_names``
    keeps the labels as ``classes``. Raises SourceError.
    """
    splits = {"train": _read_ts(train), "test": _read_ts(test)}
    labels = sorted({label for cases in splits.values() for _, label in cases}, key=_by_number)
    names: Arrays = {"classes": np.array(labels)} if with_names else {}
    return names | _arrays(splits, {label: number for number, label in enumerate(labels, first_class)})


def arabic_digits(train: Path, test: Path) -> Arrays:
    """Return the same for UCI's text: 13 coefficients a line, a blank line between utterances, the digits in order.

    Each digit has a tenth of a file's utterances. Raises SourceError.
    """
    splits = {"train": _read_utterances(train), "test": _read_utterances(test)}
    return _arrays(splits, {str(digit): digit for digit in range(N_DIGITS)})


def _by_number(label: str) -> tuple[float, str]:
    try:
        return float(label), label
    except ValueError:
        return np.inf, label


def _read_ts(path: Path) -> Labelled:
    try:
        return [(_without_padding(values), label) for values, label in ts_cases(path)]
    except READ_FAILURES as error:
        raise SourceError(f"cannot read {path}: {error}") from error


def _without_padding(values_Cn: FloatArray) -> FloatArray:
    """Return ``values`` up to its last step with a value: some releases pad sequences with missing ones."""
    there = np.flatnonzero(~np.isnan(values_Cn).all(axis=0))
    return values_Cn[:, : there[-1] + 1 if len(there) else 0]


def _read_utterances(path: Path) -> Labelled:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
        found = [np.array(block, dtype=np.float32).T for block in _blocks(lines)]
    except (*READ_FAILURES, ValueError) as error:
        raise SourceError(f"cannot read {path}: {error}") from error
    if not found or len(found) % N_DIGITS or any(len(values) != N_COEFFICIENTS for values in found):
        raise SourceError(
            f"{path}: has {len(found)} utterances; there must be as many of each of {N_DIGITS} digits, "
            f"with {N_COEFFICIENTS} coefficients a line; is it the archive's file?"
        )
    a_digit = len(found) // N_DIGITS
    return [(values, str(index // a_digit)) for index, values in enumerate(found)]


def _blocks(lines: Iterable[str]) -> Iterator[list[list[float]]]:
    for is_blank, block in groupby(lines, key=lambda line: not line.strip()):
        if not is_blank:
            yield [[float(cell) for cell in line.split()] for line in block]


def _arrays(splits: dict[str, Labelled], numbers: dict[str, int]) -> Arrays:
    arrays: Arrays = {}
    for split, cases in splits.items():
        arrays[f"{split}_x"] = _padded([values for values, _ in cases])
        arrays[f"{split}_len"] = np.array([values.shape[1] for values, _ in cases], dtype=np.int32)
        arrays[f"{split}_y"] = np.array([numbers[label] for _, label in cases], dtype=np.int32)
    return arrays


def _padded(sequences: Sequence[FloatArray]) -> FloatArray:
    """Return the sequences as one array [N, C, L], NaN after their ends. Raises SourceError if C differs."""
    channels = {len(values) for values in sequences}
    if len(channels) != 1:
        raise SourceError(f"sequences of {sorted(channels)} channels in one file: is it the archive's?")
    padded = np.full((len(sequences), channels.pop(), max(v.shape[1] for v in sequences)), np.nan, dtype=np.float32)
    for row, values in zip(padded, sequences, strict=True):
        row[:, : values.shape[1]] = values
    return padded
