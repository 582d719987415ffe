"""Lists followed files: those of the URL, and the rotated ones beside them, in the order in which they were written."""

from __future__ import annotations

import re
from pathlib import Path
from stat import S_ISREG
from typing import Literal, NamedTuple, TypeAlias

from streamad.errors import SourceError
from streamad_connectors.files.finding import bound_of, joined_name, matching_paths
from streamad_connectors.files.follow.growing import Identity
from streamad_connectors.files.formats.known import format_by_ending, format_of
from streamad_connectors.files.formats.links import Bound
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import read_error
from streamad_connectors.files.joined import OrderKey, order_key

# What logrotate, Python's logging and log4j append: .1, -20261124, .2026-11-24_08
_ROTATED = re.compile(r"(?P<log>.+?)[._-](?P<number>\d[\dTZ_.:-]*)")
_FIRST_DATE = 100_000
Key: TypeAlias = tuple[OrderKey, int, int, int]


class ListedFile(NamedTuple):
    """A file as it was found; ``log`` is the path that it was written under, ``rank`` its place among those rotated
    at the same time: of numbers the highest is the oldest, of dates the first one."""

    path: Path
    log: Path
    rank: int
    size: int
    mtime_ns: int
    identity: Identity

    @property
    def is_rotated(self) -> bool:
        """Return whether its name says that it was rotated."""
        return self.path != self.log

    def key(self, name: str, order: Literal["name", "time"], since_ns: int | None = None) -> Key:
        """Return what files are ordered by: the ``name`` of their log, then rotated before new, older before newer.

        ``since_ns`` takes the place of the time of change in the order of logs.
        """
        log = order_key(name, self.mtime_ns if since_ns is None else since_ns, order)
        return (log, 0, self.mtime_ns, self.rank) if self.is_rotated else (log, 1, 0, 0)


class Listing:
    """Finds the files of a URL and their rotated ones, as they are now."""

    def __init__(self, rest: str, options: FileOptions, base_dir: Path) -> None:
        self._rest, self._options, self._base_dir = rest, options, base_dir

    def name(self, path: Path) -> str:
        """Return the name of a path: relative to the plant's folder if it lies there."""
        return joined_name(str(path), self._base_dir)

    def path(self, name: str) -> Path:
        """Return the path that ``name`` stands for."""
        return self._base_dir.absolute() / name

    def files(self) -> list[ListedFile]:
        """Return the URL's files, in no order, without rotated ones that were packed.

        Raises SourceError if one has a format that cannot grow.
        """
        paths = matching_paths(self._rest, self._options, self._base_dir)
        found = [self.look_at(path) for path in paths if not _is_packed_away(path, self._options)]
        return [file for file in found if file is not None]

    def rotated(self, log: Path) -> list[ListedFile]:
        """Return the files beside ``log`` that were rotated out of it. Raises SourceError."""
        try:
            beside = [path for path in log.parent.iterdir() if path.name.startswith(log.name) and path != log]
        except OSError as error:
            raise read_error(log.parent, error) from error
        paths = [path for path in beside if _split(path, self._options)[0] == log]
        if self._options.links == "inside":
            Bound(log.parent).check(paths)
        found = [self.look_at(path) for path in paths]
        return [file for file in found if file is not None]

    def look_at(self, path: Path) -> ListedFile | None:
        """Return ``path`` as it is now, None if it is no regular file. Raises SourceError."""
        if path.is_symlink():
            bound_of(self._rest, self._options, self._base_dir).check_one(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise read_error(path, error) from error
        if not S_ISREG(status.st_mode):
            return None
        log, rank = _split(path, self._options)
        check_growing(log, self._options)
        identity = Identity(status.st_dev, status.st_ino)
        return ListedFile(path, log, rank, status.st_size, status.st_mtime_ns, identity)


def _split(path: Path, options: FileOptions) -> tuple[Path, int]:
    """Return the path that ``path`` was written under, and its rank among those rotated at the same time."""
    match = _ROTATED.fullmatch(path.name)
    if match is None:
        return path, 0
    log = path.with_name(match["log"])
    if format_by_ending(log) is None and (options.format == "auto" or not log.suffix):
        return path, 0
    number = int(re.sub(r"\D", "", match["number"]))
    return log, number if number >= _FIRST_DATE else -number


def _is_packed_away(path: Path, options: FileOptions) -> bool:
    return path.suffix.lower() == ".gz" and _split(path.with_suffix(""), options)[0] != path.with_suffix("")


def check_growing(path: Path, options: FileOptions) -> None:
    """Raise SourceError unless ``path`` has a format that can grow, and is not packed."""
    if path.suffix.lower() == ".gz":
        raise SourceError(f"{path}: a packed file cannot be followed; unpack it, or leave follow out")
    if not (found := format_of(path, options)).grows:
        raise SourceError(
            f"{path}: only JSON lines and CSV can be followed, not {found.name}; name other files, or leave follow out"
        )
