"""The learner's SQLite file: its tables, and connections that write it or only read it."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from streamad.errors import StoreError
from streamad.system.sqlite_files import distrust, schema_made_by, schema_of

SCHEMA_VERSION: Final = 3
_WITHOUT_COURSES: Final = 2
"""The format of former releases: all but the column ``course``."""
APPLICATION: Final = 0x73747269  # "stri"
_BUSY_S = 10.0
_SCHEMA = f"""
CREATE TABLE forms (form INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE);
CREATE TABLE sequences (
    model TEXT NOT NULL, id TEXT NOT NULL, share TEXT NOT NULL, form INTEGER NOT NULL REFERENCES forms,
    stream TEXT NOT NULL, sequence TEXT NOT NULL, end_us INTEGER NOT NULL, stored_us INTEGER NOT NULL,
    decision TEXT NOT NULL, score REAL, p_value REAL, version TEXT,
    place INTEGER NOT NULL, length INTEGER NOT NULL, window BLOB NOT NULL, course BLOB,
    UNIQUE (model, id)
);
CREATE INDEX by_share ON sequences (model, share, end_us);
CREATE TABLE gone (model TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (model, id)) WITHOUT ROWID;
CREATE TABLE marks (
    model TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (model, name)
) WITHOUT ROWID;
CREATE TABLE requests (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL, model TEXT NOT NULL, content BLOB, UNIQUE (id, model)
);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""
_FORMER_SCHEMA = _SCHEMA.replace(", course BLOB", "")
_ADD_COURSES = "ALTER TABLE sequences ADD COLUMN course BLOB"


def connected(path: Path) -> sqlite3.Connection:
    """Return a connection to the file, which is made if it is not there. Raises sqlite3.Error, StoreError, OSError."""
    if _size(path) is None:
        path.touch(mode=0o600)
    connection = _connection(path, "mode=rw")
    try:
        _prepare(connection, path)  # first: nothing is changed in a file of another program
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # what a model learns from cannot be made again
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def connected_to_read(path: Path) -> sqlite3.Connection:
    """Return a connection that changes nothing; without a file, or with one that has no tables yet, to an empty store.

    Raises sqlite3.Error, StoreError, OSError.

    A reader of a WAL database maps its file -shm. While the learner works, that file is there, and a reader without the
    right to write maps it read-only. The last one who closes the database moves all into the file and removes -wal and
    -shm. SQLite would make -shm anew, which needs the right to write in the folder. Who lacks that reads the file as
    one that nobody writes (``immutable``), which is right until a learner starts: it makes -wal before it changes the
    file, so a connection must not be kept.
    """
    log = path.with_name(f"{path.name}-wal")
    if not _size(path) and not log.exists():  # an empty file: a learner is about to fill it, or was killed then
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.executescript(_SCHEMA)
        return connection
    connection = _connection(path, "mode=ro")
    try:
        try:
            _check(connection, path)
        except sqlite3.OperationalError:
            if log.exists():
                raise
            connection.close()
            connection = _connection(path, "mode=ro&immutable=1")
            _check(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _size(path: Path) -> int | None:
    """Return the size of the file, None if nothing is there. Raises StoreError for what is no regular file, OSError.

    SQLite waits for ever for the other end of a FIFO. The file is not opened: a close would give up SQLite's locks.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise StoreError(f"{path} is a link that leads nowhere: put back what it leads to, or remove it") from None
        return None
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file: name another folder in learning.store, or move it away")
    return status.st_size


def _connection(path: Path, parameters: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?{parameters}"  # a folder's name may be no text
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_S, check_same_thread=False, isolation_level=None)
    distrust(connection)
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make the tables of an empty file. Raises StoreError for a file of another program or another format."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (n_parts,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not n_parts and application == 0:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)
        else:
            _check(connection, path)
            if not has_courses(connection):
                connection.execute(_ADD_COURSES)
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreError if the file is that of another program or format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreError(f"{path} is no inlier store: name another file in learning.store, or move it away")
    if version not in (SCHEMA_VERSION, _WITHOUT_COURSES):
        raise StoreError(
            f"{path} has the format {version}, this release reads {SCHEMA_VERSION}: use the release that wrote it"
        )
    made = {schema_made_by(_SCHEMA), schema_made_by(f"{_FORMER_SCHEMA} {_ADD_COURSES}")}
    if version == _WITHOUT_COURSES:
        made = {schema_made_by(_FORMER_SCHEMA)}
    if schema_of(connection) not in made:  # a trigger could change what models learn from
        raise StoreError(f"{path} has other tables than this program makes: restore it from a backup, or move it away")


def has_courses(connection: sqlite3.Connection) -> bool:
    """Return whether the file has courses; one of a former release gets them once a learner opens it."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version != _WITHOUT_COURSES)


def models_in(path: Path) -> set[str]:
    """Return the models with sequences or marks in the file; none if it is not there. Raises StoreError."""
    try:
        connection = connected_to_read(path)
        try:
            found = connection.execute("SELECT model FROM sequences UNION SELECT model FROM marks").fetchall()
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"the inlier store {path} cannot be used: {error}") from error
    return {model for (model,) in found}
