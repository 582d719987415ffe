"""The file of the view store: opened, or set aside if it is none of this layout."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from streamad.errors import OutputError

VIEW_VERSION: Final = 6
"""Grows with every change of the tables: a view of another version is begun anew."""
APPLICATION: Final = 0x73747257  # "strW"
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


def set_aside(path: Path, *, is_damaged: bool = False) -> Path | None:
    """Rename a file that is no view of this release; return its new name, None if it is one or nothing is there.

    ``is_damaged``: it is renamed without a look at it.
    """
    if not os.path.lexists(path):
        return None
    if not is_damaged and _is_view(path):
        return None
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    with reported(path):
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


def _is_view(path: Path) -> bool:
    """Return whether the file is a whole view of this release, or one that holds nothing yet, as on a full disk."""
    with reported(path), _unless_damaged():
        connection = sqlite3.connect(_uri(path, "ro"), uri=True, timeout=_BUSY_S)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if (application, version) in {(APPLICATION, 0), (0, 0)}:
                (n_parts,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                return bool(n_parts == 0)
            if (application, version) == (APPLICATION, VIEW_VERSION):
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                return bool(verdict == "ok")
        finally:
            connection.close()
    return False


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
        raise ViewError(f"the page's view {path} cannot be used: {error}", is_damaged=_is_damage(error)) from error


def _is_damage(error: Exception) -> bool:
    """Return whether the file is damaged, and not just busy, full or out of reach."""
    code = getattr(error, "sqlite_errorcode", 0)
    if code & 0xFF in _NO_DATABASE or code == _SHORT_READ:
        return True
    return str(error).startswith(("no such table", "no such column"))  # it was emptied, or is another program's
