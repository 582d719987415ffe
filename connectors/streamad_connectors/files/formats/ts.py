"""Reads the UEA/aeon ``.ts`` text format: one case per line, dimensions separated by colons, the class label last.

Format: https://www.aeon-toolkit.org/en/stable/api_reference/file_specifications/ts.html
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import FloatArray
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, open_bytes, too_large_error
from streamad_connectors.files.formats.sequences import Recorded, channel_order, native_records

_MISSING = {"?", "nan", ""}


@dataclass(frozen=True, slots=True)
class _Header:
    """The lines before ``@data``: whether a label ends each line, and the known labels."""

    labelled: bool
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """One line of data: its running number, the text of each dimension, its label, and its line number."""

    index: int
    dimensions: list[str]
    label: str | None
    line: int


def read_ts(path: Path, offset: int, options: FileOptions, context: ConnectorContext) -> Iterator[ReadRecord]:
    """Yield the selected cases as native chunks; the offset is the running chunk number."""
    yield from native_records(_sequences(path, options, context), offset, path, options)


def ts_labels(path: Path, options: FileOptions) -> dict[str, str]:
    """Return sequence id -> class label of the selected cases."""
    return {_sequence_id(path, case): case.label for case in _selected_cases(path, options) if case.label is not None}


def ts_cases(path: Path) -> Iterator[tuple[FloatArray, str | None]]:
    """Yield the values float32 [C, n] of every case, NaN = missing, and its label.

    Raises SourceError for a file that is no ``.ts``, and ``reading.READ_FAILURES``.
    """
    options = FileOptions.model_validate({})
    for case in _selected_cases(path, options):
        yield _values(path, case, options), case.label


def _sequences(path: Path, options: FileOptions, context: ConnectorContext) -> Iterator[Recorded]:
    order: list[int] = []
    for case in _selected_cases(path, options):
        if not order:
            order = channel_order(None, len(case.dimensions), context.channels, path)
        if len(order) != len(case.dimensions):
            raise SourceError(f"{path}, line {case.line}: has {len(case.dimensions)} dimensions, others {len(order)}")
        values = _values(path, case, options)[order]
        if values.shape[1]:
            yield Recorded(_sequence_id(path, case), values)


def _selected_cases(path: Path, options: FileOptions) -> Iterator[_Case]:
    """Yield the cases that ``split`` and ``classes`` keep."""
    split = _split(path)
    if options.split != "all":
        if not split:
            raise SourceError(f"{path}: is no {options.split} split (its name ends in neither _TRAIN nor _TEST)")
        if split != options.split:
            return
    with io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="replace") as handle:
        lines = _bounded(handle, path, options.max_record_bytes)
        header = _read_header(lines, path)
        unknown = [name for name in options.classes if name not in header.classes]
        if unknown:
            there = ", ".join(header.classes) or "none"
            raise SourceError(f"{path}: no class {unknown[0]!r} in its @classLabel line (there are: {there})")
        for case in _cases(lines, path, header):
            if not options.classes or case.label in options.classes:
                yield case


def _split(path: Path) -> str:
    name = path.name.removesuffix(".gz").removesuffix(".ts").upper()
    return next((part for part in ("train", "test") if name.endswith(f"_{part.upper()}")), "")


def _sequence_id(path: Path, case: _Case) -> str:
    split = _split(path)
    return f"{split}-{case.index:04d}" if split else f"{case.index:04d}"


def _bounded(handle: TextIO, path: Path, limit: int) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers. Raises SourceError for one of more than ``limit`` characters."""
    for number, line in enumerate(iter(lambda: handle.readline(limit + 1), ""), 1):
        if len(line) > limit and not line.endswith("\n"):
            raise SourceError(f"{path}: line {number} is too long; raise the option max_record_bytes")
        yield number, line


def _read_header(lines: Iterator[tuple[int, str]], path: Path) -> _Header:
    """Read up to ``@data``."""
    header = _Header(labelled=False, classes=())
    for number, raw in lines:
        words = raw.split()
        if not words or words[0].startswith("#"):
            continue
        tag = words[0].lower()
        if tag == "@data":
            return header
        if not tag.startswith("@"):
            raise SourceError(f"{path}, line {number}: data before an @data line; is this a .ts recording?")
        if tag == "@timestamps" and words[1:2] and words[1].lower() == "true":
            raise _timestamps_error(path, number)
        if tag in ("@classlabel", "@targetlabel"):
            header = _Header(words[1:2] != [] and words[1].lower() == "true", tuple(words[2:]))
    raise SourceError(f"{path}: has no @data line; is this a .ts recording?")


def _cases(lines: Iterator[tuple[int, str]], path: Path, header: _Header) -> Iterator[_Case]:
    index = 0
    for number, raw in lines:
        text = raw.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("("):
            raise _timestamps_error(path, number)
        parts = text.split(":")
        label = parts.pop().strip() if header.labelled else None
        if not parts or (header.classes and label not in header.classes):
            raise SourceError(f"{path}, line {number}: does not end in a class of the @classLabel line")
        yield _Case(index, parts, label, number)
        index += 1


def _timestamps_error(path: Path, line: int) -> SourceError:
    return SourceError(
        f"{path}, line {line}: .ts files with timestamps are not read; convert the recording to CSV with a time column"
    )


def _values(path: Path, case: _Case, options: FileOptions) -> FloatArray:
    """Return float32 [C, n]; a dimension shorter than the longest is NaN at its end."""
    try:
        rows = [
            [float("nan") if cell.strip().lower() in _MISSING else float(cell) for cell in text.split(",")]
            if text.strip()
            else []
            for text in case.dimensions
        ]
    except ValueError as error:
        raise SourceError(f"{path}, line {case.line}: {error}") from error
    longest = max(len(row) for row in rows)
    if 4 * len(rows) * longest > options.max_decompressed_bytes:
        what = f"line {case.line} with {len(rows)} dimensions of up to {longest} values"
        raise too_large_error(path, what, options.max_decompressed_bytes)
    values = np.full((len(rows), longest), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite; the decoder refuses it
        for row, cells in zip(values, rows, strict=True):
            row[: len(cells)] = cells
    return values
