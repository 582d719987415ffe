"""The file's name as the id of its sequence: one sequence a file (``decode.sequence_from: file``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from streamad.errors import SourceError
from streamad_connectors.files.finding import FoundFile, bare_name
from streamad_connectors.files.formats.known import FORMATS
from streamad_connectors.files.formats.reading import ReadRecord


def check_file_ids(files: Iterable[FoundFile]) -> None:
    """Raise SourceError if a file's sequences have ids of their own, or two files would give the same id."""
    seen: dict[str, Path] = {}
    for file in files:
        if file.format.has_ids:
            others = ", ".join(known.name for known in FORMATS if not known.has_ids)
            raise SourceError(
                f"{file.path}: {file.format.name} files hold ids of their own; leave out decode.sequence_from, or read "
                f"{others} files"
            )
        other = seen.setdefault(bare_name(file.path), file.path)
        if other is not file.path:
            raise SourceError(
                f"{other} and {file.path} would both be sequence {bare_name(file.path)!r}; rename one of them"
            )


def with_file_id(records: Iterator[ReadRecord], path: Path) -> Iterator[ReadRecord]:
    """Yield ``records`` with the name of ``path`` as their sequence's id."""
    name = bare_name(path)
    for record, after in records:
        yield replace(record, sequence=name), after
