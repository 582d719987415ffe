"""An output in one file, or in several: the first has its name, each later one the offset of its first byte as well.

Offsets count the bytes of all of them from the first one on, also of those that were deleted since. Each file begins
where the one before it ends: one that somebody else put among them does not, and is refused.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

_DIGITS = 20
_MOST_OFFSET = 1 << 60  # an exabyte: positions and checkpoints hold no more
_OFFSET = re.compile(rf"[0-9]{{{_DIGITS}}}")


class OutputFile(NamedTuple):
    """A file of an output, and the offset of its first byte."""

    start: int
    path: Path


def output_files(path: Path) -> list[OutputFile]:
    """Return the files of the output ``path`` that are there, the oldest first; none if there are none.

    A folder, FIFO or link to nothing in the place of a later file is none of them: only the first is made by others.
    """
    found = [OutputFile(0, path)] if path.exists() else []
    prefix = f"{path.name}."
    try:
        with os.scandir(path.parent) as beside:
            for other in beside:
                offset = other.name[len(prefix) :]
                if not (other.name.startswith(prefix) and _OFFSET.fullmatch(offset)):
                    continue
                if 0 < int(offset) <= _MOST_OFFSET and _is_regular(other):
                    found.append(OutputFile(int(offset), path.with_name(other.name)))
    except OSError:  # who opens the file says why
        return found[:1]
    return sorted(found)


def _is_regular(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that this user may not follow
        return True


def foreign_file(files: list[OutputFile]) -> str | None:
    """Return which of ``files`` is none of the output because it begins amid another one, in words; None if none is.

    Raises OSError.
    """
    for file, later in pairwise(files):
        if (size := _size(file)) is not None and file.start + size > later.start:
            return f"{later.path} begins amid {file.path.name}, so it is no file of this output: move it away"
    return None


def gap_from(files: list[OutputFile], offset: int) -> str | None:
    """Return before which of ``files``, from the one with ``offset`` on, bytes are missing, in words; else None.

    Those before may be deleted in any order once they are read. Raises OSError.
    """
    holder = file_with(files, offset)
    for file, later in pairwise(files[files.index(holder) :] if holder else files):
        if (size := _size(file)) is not None and file.start + size < later.start:
            n_bytes = later.start - file.start - size
            return (
                f"{file.path} ends {n_bytes} bytes before {later.path} begins: put back what is missing, or move that "
                "file away if it is no file of this output"
            )
    return None


def _size(file: OutputFile) -> int | None:
    try:
        return file.path.stat().st_size
    except FileNotFoundError:  # deleted at this moment
        return None


def file_from(path: Path, start: int) -> OutputFile:
    """Return the file of the output ``path`` that begins at the offset ``start``."""
    return OutputFile(start, path.with_name(f"{path.name}.{start:0{_DIGITS}}") if start else path)


def file_with(files: list[OutputFile], offset: int) -> OutputFile | None:
    """Return which of ``files`` has the byte at ``offset`` or will have it; None if it was deleted."""
    return next((file for file in reversed(files) if file.start <= offset), None)


def end_of_output(path: Path) -> int:
    """Return the offset after the last byte of the output ``path``, 0 if there is none. Raises OSError."""
    files = output_files(path)
    return files[-1].start + files[-1].path.stat().st_size if files else 0
