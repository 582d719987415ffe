"""Finds the files of a file source's URL and their formats; their names may be ids of their sequences."""

from __future__ import annotations

import glob
import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from streamad.errors import SourceError
from streamad.ports import PartitionContent
from streamad.system.rights import reason
from streamad.tables import ColumnBatch
from streamad.types import Record, SequenceFrom
from streamad_connectors.files.deeper import deeper_recordings
from streamad_connectors.files.formats.known import ENDINGS, FORMATS, Format, format_by_ending, format_of
from streamad_connectors.files.formats.links import ANYWHERE, Bound
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord
from streamad_connectors.files.hive import Fields, fields_of, is_partition


class Remote(Protocol):
    """A recording that lies elsewhere; a copy is at its file's path while it is read."""

    @property
    def size(self) -> int:
        """Return its bytes."""

    @property
    def mtime_ns(self) -> int:
        """Return its time of change."""

    @property
    def tag(self) -> str:
        """Return what tells this version from others, "" if nothing does."""

    @property
    def content(self) -> str:
        """Return what tells its records from others, beside size and time of change; "" if these do."""

    def hold(self) -> AbstractContextManager[None]:
        """Keep the copy at its path for the block. Raises SourceError."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One file to read: its path, the name of its partition, its format, and the fields that its folders give.

    ``remote``: nothing is at the path but while it is ``held``. ``bound``: where a link at the path may lead.
    """

    path: Path
    partition: str
    format: Format
    fields: Fields = ()
    remote: Remote | None = None
    bound: Bound = ANYWHERE

    def held(self) -> AbstractContextManager[None]:
        """Return the block within which the file can be read. Raises SourceError as it begins."""
        self.bound.check_one(self.path)  # since it was found, a link may have taken its place
        return nullcontext() if self.remote is None else self.remote.hold()

    @property
    def tag(self) -> str:
        """Return what tells the contents of a remote file from others, "" of a local one."""
        return "" if self.remote is None else self.remote.tag

    @property
    def content(self) -> str:
        """Return what tells its records from others, beside size and time of change."""
        return "" if self.remote is None else self.remote.content

    @property
    def size(self) -> int:
        """Return its bytes. Raises OSError."""
        return self.path.stat().st_size if self.remote is None else self.remote.size

    @property
    def mtime_ns(self) -> int:
        """Return its time of change. Raises OSError."""
        return self.path.stat().st_mtime_ns if self.remote is None else self.remote.mtime_ns


def find_files(rest: str, options: FileOptions, base_dir: Path) -> list[FoundFile]:
    """Return the files of ``rest`` (a file, a folder or a pattern, relative to ``base_dir``), sorted by path.

    A folder gives the files directly in it, or below it in hive folders alone, that are not hidden and have a known
    format (any if ``format`` is given).
    Raises SourceError if there are none.
    """
    paths = matching_paths(rest, options, base_dir)
    base = _normal(base_dir)
    if not paths:
        raise SourceError(_nothing_found(_normal(base / _expanded(rest)), Path(rest), options))
    bound = bound_of(rest, options, base_dir)
    return [replace_fields(found_file(item, _partition(item, base), options), bound=bound) for item in sorted(paths)]


def found_file(
    path: Path, partition: str, options: FileOptions, remote: Remote | None = None, folders: str | None = None
) -> FoundFile:
    """Return the file at ``path``, whose folders are those of ``folders``, or of its partition's name.

    Raises SourceError if it has no known format.
    """
    of, place = format_of(path, options), partition if folders is None else folders
    fields = () if of.has_ids or "=" not in place else fields_of(place.split("/")[:-1])
    return FoundFile(path, partition, of, fields, remote)


def bound_of(rest: str, options: FileOptions, base_dir: Path) -> Bound:
    """Return where links among the files of ``rest`` may lead; a file that is named itself may lie anywhere."""
    path = _normal(_normal(base_dir) / _expanded(rest))
    if options.links == "anywhere" or path.is_file():
        return ANYWHERE
    return Bound(path if path.is_dir() else Path(*path.parts[: _first_pattern(path)]))


def matching_paths(rest: str, options: FileOptions, base_dir: Path) -> list[Path]:
    """Return the paths of the present files of ``rest`` (see ``find_files``).

    Raises SourceError, also for a link that leads out of their folder.
    """
    paths = _matching_paths(rest, options, base_dir)
    if paths:
        bound_of(rest, options, base_dir).check(paths)
    return paths


def _matching_paths(rest: str, options: FileOptions, base_dir: Path) -> list[Path]:
    if not rest:
        raise SourceError("the file source needs a path, a folder or a pattern, for example file:recordings/*.csv")
    path = _normal(_normal(base_dir) / _expanded(rest))
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            return [item for item in _visible_files(_in(path)) if options.format != "auto" or format_by_ending(item)]
        if path.exists():
            raise SourceError(f"{path}: is neither a file nor a folder; name a regular file")
        return _matches(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be listed ({reason(error, error.filename or path, 'read')})") from error


def joined_name(rest: str, base_dir: Path) -> str:
    """Return the name of the partition that the files of ``rest`` are together."""
    base = _normal(base_dir)
    return _partition(_normal(base / _expanded(rest)), base)


def bare_name(path: Path) -> str:
    """Return the name of ``path`` without folder and the ending of its format: B-17 of in/B-17.csv.gz."""
    name = path.name.removesuffix(".gz")
    ending = next((known for known in ENDINGS if name.lower().endswith(known)), Path(name).suffix)
    return name[: len(name) - len(ending)] or name


def content_of(files: Iterable[FoundFile]) -> PartitionContent:
    """Return a digest of names, sizes, times and versions of ``files``, and their bytes. Raises SourceError."""
    digest, n_bytes = hashlib.sha256(), 0
    for file in files:
        try:
            size, mtime_ns = file.size, file.mtime_ns
        except OSError as error:
            raise SourceError(f"{file.path}: cannot be read ({reason(error, file.path, 'read')})") from error
        digest.update(f"{file.partition}\0{size}\0{mtime_ns}\0{file.content}\0".encode())
        n_bytes += size
    return PartitionContent(digest.hexdigest(), n_bytes)


def check_ids(files: Iterable[FoundFile], sequence_from: SequenceFrom) -> None:
    """Raise SourceError if names are the ids, but sequences have ids of their own or two files would have the same."""
    if sequence_from == "message":
        return
    seen: dict[str, Path] = {}
    for file in files:
        if file.format.has_ids:
            others = ", ".join(known.name for known in FORMATS if not known.has_ids)
            raise SourceError(
                f"{file.path}: {file.format.name} files hold ids of their own; leave out decode.sequence_from, or read "
                f"{others} files"
            )
        name = _id_of(file.path, sequence_from)
        other = seen.setdefault(name, file.path)
        if other is file.path:
            continue
        advice = "rename one of them"
        if sequence_from == "folder" and other.parent == file.path.parent:
            pattern = f"{glob.escape(str(file.path.parent.parent))}/*/{glob.escape(file.path.name)}"
            advice = f"write a pattern that matches one file a folder, such as source.url: {pattern!r}"
        elif sequence_from == "folder":
            advice = "rename one of the folders"
        raise SourceError(f"{other} and {file.path} would both be sequence {name!r}; {advice}")


def check_row_options(rest: str, options: FileOptions, sequence_from: SequenceFrom) -> None:
    """Raise SourceError if a row's place in its file cannot be its time (``decode.time: row``)."""
    if options.follow:
        raise SourceError(f"{rest}: decode.time: row is for files that are finished; leave out the option follow")
    if options.files == "joined" and sequence_from == "message":
        raise SourceError(
            f"{rest}: decode.time: row begins anew in each file; leave out files: joined, or set decode.sequence_from: "
            "file if each file is one sequence"
        )


def check_row_files(files: Iterable[FoundFile]) -> None:
    """Raise SourceError if a file's offsets do not count rows (``decode.time: row``)."""
    others = ", ".join(known.name for known in FORMATS if known.has_rows)
    for file in files:
        if not file.format.has_rows:
            raise SourceError(f"{file.path}: decode.time: row is for {others} files, not for {file.format.name}")


def with_ids(records: Iterator[ReadRecord], path: Path, sequence_from: SequenceFrom) -> Iterator[ReadRecord]:
    """Return ``records``, with the name of ``path`` or of its folder as their sequence's id if that gives the ids."""
    if sequence_from == "message":
        return records
    name = _id_of(path, sequence_from)
    return ((replace(record, sequence=name), after) for record, after in records)


def batch_with_id(batch: ColumnBatch, path: Path, sequence_from: SequenceFrom) -> ColumnBatch:
    """Return ``batch`` with the same id as ``with_ids``."""
    if sequence_from == "message":
        return batch
    name = _id_of(path, sequence_from)

    def rows(first: int, last: int) -> tuple[Record, ...]:
        return tuple(replace(record, sequence=name) for record in batch.rows(first, last))

    return replace_fields(batch, sequence=name, rows=rows)


def _id_of(path: Path, sequence_from: SequenceFrom) -> str:
    return path.parent.name if sequence_from == "folder" else bare_name(path)


def _expanded(rest: str) -> Path:
    try:
        return Path(rest).expanduser()
    except RuntimeError as error:
        raise SourceError(f"{rest}: there is no user of this name; write the path in full") from error


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _in(folder: Path, entered: set[str] | None = None) -> Iterator[Path]:
    """Yield what lies in ``folder``, and in its hive folders at any depth, each once: links may go in circles."""
    entered = {os.path.realpath(folder)} if entered is None else entered
    for item in folder.iterdir():
        if is_partition(item.name) and item.is_dir():
            real = os.path.realpath(item)
            if real not in entered:
                entered.add(real)
                yield from _in(item, entered)
        else:
            yield item


def _visible_files(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if not path.name.startswith(".") and path.is_file()]


def _matches(path: Path) -> list[Path]:
    """Expand the pattern ``path``, from its first part that holds a wildcard on."""
    parts, first = path.parts, _first_pattern(path)
    if first is None:
        return []
    return _visible_files(Path(*parts[:first]).glob(str(Path(*parts[first:]))))


def _first_pattern(path: Path) -> int | None:
    return next((i for i, part in enumerate(path.parts) if any(mark in part for mark in "*?[")), None)


def _nothing_found(path: Path, given: Path, options: FileOptions) -> str:
    endings = " ".join(ENDINGS)
    # Paths of the command line are absolute here, so a relative one is the config's.
    base = "" if given.expanduser().is_absolute() else " in the config (relative paths begin at the config's folder)"
    if path.is_dir():
        if (deeper := deeper_recordings(path, options)) is not None:
            pattern = shlex.quote(f"{glob.escape(str(path))}/{deeper.pattern}")
            return f"{path}: no recordings in this folder itself, but {deeper.n_files} lie deeper: write {pattern}"
        return (
            f"{path}: no recordings in this folder (looked for {endings}); put some there, or "
            "write ?format=csv behind the name if all its files are CSV"
        )
    if any(mark in str(path) for mark in "*?["):
        return f"{path}: no file matches this pattern; check the path{base}"
    return f"{path}: no such file or folder; check the path{base}"


def _partition(path: Path, base: Path) -> str:
    folder = base.as_posix().rstrip("/") + "/"
    name = path.as_posix().removeprefix(folder)  # pathlib's relative_to takes half of the time of a long listing
    try:
        name.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{name!a}: its name is not UTF-8, so no checkpoint can hold it; rename it") from None
    return name
