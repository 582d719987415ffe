"""The file of the view store: opened, set aside if it is damaged or of another layout, refused if it is another's."""

from __future__ import annotations

import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from streamad.errors import OutputError
from streamad.system.sqlite_files import application_in, distrust, schema_made_by, schema_of

VIEW_VERSION: Final = 7
"""Grows with every change of the tables: a view of another version is begun anew."""
APPLICATION: Final = 0x73747257  # "strW"
QUERY_S = 30.0
"""How long a question to the view may take."""
_BUSY_S = 5.0
_NO_DATABASE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_SHORT_READ = 522  # SQLITE_IOERR_SHORT_READ: the file was cut


class ViewError(OutputError):
    """Raised if the file of the view cannot be read or written; ``is_damaged``: it must be begun anew."""

    def __init__(self, text: str, *, is_damaged: bool = False) -> None:
        super().__init__(text)
        self.is_damaged = is_damaged


def connected(path: Path, *, is_reader: bool = False) -> sqlite3.Connection:
    """Return a connection to the file; that of a reader cannot write."""
    mode = "rw" if is_reader else "rwc"  # a reader makes no empty file in place of one that is gone
    connection = sqlite3.connect(_uri(path, mode), uri=True, timeout=_BUSY_S, check_same_thread=False)
    distrust(connection)
    if is_reader:
        connection.execute("PRAGMA query_only = ON")
        return connection
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path))}?mode={mode}"


def identity_of(path: Path) -> tuple[int, int] | None:
    """Return what tells one file from another that is put in its place, None if nothing is there."""
    try:
        there = path.stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino


def check_place(path: Path) -> bool:
    """Return whether a view, or an empty file that can become one, is at ``path``; False if nothing is.

    Raises ViewError for anything else: it stays as it is.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise ViewError(f"the page's view {path} cannot be used: {error.strerror or error}") from error
    if stat.S_ISLNK(status.st_mode):
        raise ViewError(f"the page's view {path} is a link: name in web.view what it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise ViewError(f"{path} is no regular file: name another one in web.view")
    with reported(path):
        if not status.st_size or application_in(path) == APPLICATION or _is_fresh(path):
            return True
    raise ViewError(f"{path} is no page's view: name another file in web.view, or move it away")


def _is_fresh(path: Path) -> bool:
    """Return whether the file is a database that holds nothing.

    Its log is not looked at: one that a former view left would make any file look like that view.
    """
    if application_in(path) != 0:
        return False
    with _unless_damaged(), closing(_to_look(path, "ro&immutable=1")) as connection:
        return not schema_of(connection)
    return False


def set_aside(path: Path, tables: str, *, is_damaged: bool = False) -> Path | None:
    """Rename a view that is damaged or has other ``tables``; return its new name, None if it stays or none is there.

    ``is_damaged``: it is known to be a view, and is renamed without a look at it. Raises ViewError for what is none.
    """
    if not is_damaged and (not check_place(path) or _is_whole(path, tables)):
        return None
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    with reported(path):
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _is_whole(path: Path, tables: str) -> bool:
    """Return whether the view is one of this release, or holds nothing yet, as on a full disk."""
    with reported(path), _unless_damaged(), closing(_to_look(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        parts = schema_of(connection)
        if not parts:
            return version in {0, VIEW_VERSION}
        if version == VIEW_VERSION and parts == schema_made_by(tables):
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            return bool(verdict == "ok")
    return False


def _to_look(path: Path, mode: str = "ro") -> sqlite3.Connection:
    connection = sqlite3.connect(_uri(path, mode), uri=True, timeout=_BUSY_S)
    distrust(connection)
    return connection


@contextmanager
def _unless_damaged() -> Iterator[None]:
    """Pass over what SQLite raises for a file that is no database, or a damaged one."""
    try:
        yield
    except sqlite3.OperationalError:  # locked, or not readable: no reason to rename it
        raise
    except sqlite3.DatabaseError:
        pass


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Raise ViewError for what SQLite or the file system refuses."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            raise ViewError(f"the page's view {path} has not answered within {QUERY_S:g} s: ask for less") from error
        raise ViewError(f"the page's view {path} cannot be used: {error}", is_damaged=_is_damage(error)) from error


def _is_damage(error: Exception) -> bool:
    """Return whether the file is damaged, and not just busy, full or out of reach."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in _NO_DATABASE or code == _SHORT_READ:
        return True
    return str(error).startswith(("no such table", "no such column"))  # it was emptied, or is another program's
