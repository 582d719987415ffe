"""The file of the view store: opened, given the columns that it lacks, or set aside if it is none of this release."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from streamad.errors import OutputError

VIEW_VERSION: Final = 1
"""Changed only by a major release: within one, columns are added (``_ADDED``)."""
APPLICATION: Final = 0x73747257  # "strW"
_BUSY_S = 5.0
_ADDED = {"sequences": ("means", "spreads", "contradiction")}
"""Columns that a file of an earlier release of the same version lacks, by table: all of them texts."""


def add_columns(writer: sqlite3.Connection) -> None:
    """Add the columns that a file of an earlier release lacks; they are empty for what it has read."""
    for table, columns in _ADDED.items():
        there = {row[1] for row in writer.execute(f"PRAGMA table_info({table})")}
        for column in columns:
            if column not in there:
                writer.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT")
    writer.execute("CREATE INDEX IF NOT EXISTS by_contradiction ON sequences (end_us) WHERE contradiction IS NOT NULL")


def connected(path: Path, *, is_reader: bool = False) -> sqlite3.Connection:
    """Return a connection to the file; that of a reader cannot write."""
    connection = sqlite3.connect(path, timeout=_BUSY_S, check_same_thread=False)
    if is_reader:
        connection.execute("PRAGMA query_only = ON")
        return connection
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def set_aside(path: Path) -> Path | None:
    """Rename a file that is no view of this release; return its new name, None if it is one or nothing is there."""
    if not os.path.lexists(path):
        return None
    with reported(path), _unless_damaged():
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_BUSY_S)
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if (application, version) == (APPLICATION, VIEW_VERSION):
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict == "ok":
                    return None
        finally:
            connection.close()
    aside = path.with_name(f"{path.name}.aside-{time.time_ns()}")
    with reported(path):
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside


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
    """Raise OutputError for what SQLite or the file system refuses."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise OutputError(f"the page's view {path} cannot be used: {error}") from error
