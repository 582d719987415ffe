"""SQLite files that somebody else may have written: whose they are, which tables, bounded questions."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from streamad.system.opening import open_regular

Schema: TypeAlias = frozenset[tuple[str, str, str, str | None]]
"""Type, name, table and statement of each part of a database."""
_MAGIC: Final = b"SQLite format 3\0"
_APPLICATION_AT: Final = 68
_SPACES: Final = re.compile(r"\s*([\s(),])\s*")
_STEPS: Final = 100_000  # of SQLite's machine: some milliseconds


def application_in(path: Path) -> int | None:
    """Return the id of the program in the file's first page, None if it is no SQLite file. Raises OSError.

    What lies in the file's log is not looked at. A process that has the database open must not call it: closing a file
    gives up its locks.
    """
    with os.fdopen(open_regular(path, follows_links=False), "rb") as file:
        head = file.read(_APPLICATION_AT + 4)
    if len(head) < _APPLICATION_AT + 4 or not head.startswith(_MAGIC):
        return None
    return int.from_bytes(head[_APPLICATION_AT:], "big")


def schema_of(connection: sqlite3.Connection) -> Schema:
    """Return the parts of a database, triggers and views too; spaces and line ends do not count."""
    parts = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    return frozenset((*names, None if sql is None else _SPACES.sub(r"\1", sql)) for *names, sql in parts)


@cache
def schema_made_by(statements: str) -> Schema:
    """Return the parts that ``statements`` make."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return schema_of(connection)


def distrust(connection: sqlite3.Connection) -> None:
    """Let the file's own statements call no function that could do anything."""
    connection.execute("PRAGMA trusted_schema = OFF")


@contextmanager
def at_most(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    """Interrupt what the block asks of ``connection`` after ``limit_s``: it raises sqlite3.OperationalError."""
    until = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
