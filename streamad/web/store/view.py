"""The view store: what the plant's outputs say, by sequence, in one SQLite file beside the page.

Reading is at least once, in any order, and what was read first under a ``verdict_id`` stays (``view_rows``): each
verdict is in the view once. The file holds nothing that the outputs do not: if it is deleted, the page builds it again
from what they keep.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from streamad.messages import Alert, Attribution, DecisionEntry, EarlyWarning, Event, Feedback, Message, Verdict, Window
from streamad.system.sqlite_files import at_most
from streamad.telemetry.logs import get_logger
from streamad.types import to_us
from streamad.web.store.alerts import AlertQuestions
from streamad.web.store.decided import DECISION_TABLES, MOST_DECISIONS, DecisionQuestions, SeenDecision
from streamad.web.store.decided import columns_of as columns_of_decision
from streamad.web.store.questions import (
    EVENT_COLUMNS,
    Moments,
    Place,
    SeenEvent,
    SeenSequence,
    read_or_none,
    unpacked_attribution,
    unpacked_window,
)
from streamad.web.store.view_file import (
    APPLICATION,
    QUERY_S,
    VIEW_VERSION,
    ViewError,
    connected,
    identity_of,
    reported,
    set_aside,
)
from streamad.web.store.view_rows import KNOWN_COLUMNS, Judgement, Known, id_of, taken_up
from streamad.web.store.warned import WARNING_TABLES, SeenWarning, columns_of

__all__ = ["Moments", "Place", "SeenDecision", "SeenEvent", "SeenSequence", "SeenWarning", "View"]

_TRIM_ROWS, _TRIM_PAGES = 2_000, 20_000
_MOST_EVENTS = 20_000
_MOST_WARNINGS = 100_000
_LONGEST_ROW = 16_384
"""Characters of an event, warning or decision: so many large ones would take the disk, and the room of sequences."""
_UNFIT = (
    sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, ArithmeticError, ValueError, TypeError,
    msgspec.MsgspecError, zlib.error,
)  # fmt: skip
"""The errors of a message that no column can hold; its statement is undone, its commit is not."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TABLES = """
-- Large columns come last: to read one behind them, SQLite follows all their pages.
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequences (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, stream TEXT NOT NULL DEFAULT '', sequence TEXT NOT NULL DEFAULT '',
    decision TEXT, reason TEXT, detail TEXT, start_us INTEGER, end_us INTEGER, n_samples INTEGER, n_merged INTEGER,
    n_late INTEGER, score REAL, p_value REAL, tail TEXT, model TEXT, version TEXT, created_us INTEGER, rate REAL,
    contradiction TEXT, judgement TEXT, note TEXT, judged_by TEXT, judged_us INTEGER, assignee TEXT, comment TEXT,
    batch TEXT, named TEXT, means TEXT, spreads TEXT, attribution TEXT, window BLOB
);
CREATE INDEX IF NOT EXISTS by_change ON sequences (change);
CREATE INDEX IF NOT EXISTS by_end ON sequences (end_us);
CREATE INDEX IF NOT EXISTS by_stream ON sequences (stream, end_us);
CREATE INDEX IF NOT EXISTS by_alert ON sequences (end_us) WHERE rate IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_version ON sequences (model, version, rate, end_us) WHERE rate IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_contradiction ON sequences (end_us) WHERE contradiction IS NOT NULL;
CREATE TABLE IF NOT EXISTS events (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, stream TEXT, model TEXT,
    version TEXT, created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_created ON events (created_us);
"""


_ALL_TABLES = _TABLES + WARNING_TABLES + DECISION_TABLES


class View(AlertQuestions, DecisionQuestions):
    """The view store in ``path``; one process writes it, any number of threads read it.

    ``keep_us``: sequences that ended longer ago than this before the newest are removed, ``max_bytes``: the oldest
    beyond this size, windows of sequences without an alert first. A view that is damaged or of another release is
    renamed aside, never deleted: ``set_aside`` is its new place. Raises OutputError, also for a file that is no view.
    """

    def __init__(self, path: Path, *, keep_us: int, max_bytes: int) -> None:
        self.path, self._keep_us, self._max_bytes = path, keep_us, max_bytes
        self.set_aside = set_aside(path, _ALL_TABLES)
        self.damage: str | None = None
        """Why the file must be begun anew, None while it need not."""
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._is_noted = False
        self._identity: tuple[int, int] | None = None
        self.n_unfit = 0
        """How many messages were skipped, since they cannot be kept."""
        self._open()

    def _open(self) -> None:
        path = self.path
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer = connected(path)
            ours = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VIEW_VERSION};"
            self._writer.executescript(f"BEGIN IMMEDIATE; {ours} {_ALL_TABLES} COMMIT")  # a kill leaves all or none
            path.chmod(0o600)
            view_id = self._begin()
            self._identity = identity_of(path)
            (newest,) = self._writer.execute("SELECT max(change) FROM sequences").fetchone()
            (event,) = self._writer.execute("SELECT max(change) FROM events").fetchone()
            (warned,) = self._writer.execute("SELECT max(change) FROM warnings").fetchone()
            (decided,) = self._writer.execute("SELECT max(change) FROM decisions").fetchone()
        self._state = view_id, max(newest or 0, event or 0, warned or 0, decided or 0)

    @property
    def view_id(self) -> str:
        """Return the id of this view, another one after it was begun anew."""
        return self._state[0]

    @property
    def last_change(self) -> int:
        """Return the number of the last change."""
        return self._state[1]

    @property
    def mark(self) -> str:
        """Return what tells how far the view was read: its id, a point, and the number of the last change."""
        view_id, change = self._state
        return f"{view_id}.{change}"

    def look(self) -> bool:
        """Return whether the file must be begun anew: it was found damaged, or is gone, or another is in its place."""
        if self.damage is None and identity_of(self.path) != self._identity:
            self.damage = f"the page's view {self.path} was removed or replaced"
        return self.damage is not None

    def problem(self) -> str | None:
        """Return why the view cannot be read, None if it can."""
        try:
            self._rows("SELECT max(change) FROM sequences")
            self._rows("SELECT max(change) FROM events")
        except ViewError as error:
            return str(error)
        return self.damage

    def begin_anew(self) -> None:
        """Rename the damaged file aside, and begin a new one under a new id. Raises ViewError.

        Threads that read the old one find the new one with their next question.
        """
        with self._lock:
            is_ours = self._identity is not None and identity_of(self.path) == self._identity
            with suppress(sqlite3.Error):
                self._writer.close()
            self.set_aside = set_aside(self.path, _ALL_TABLES, is_damaged=is_ours) or self.set_aside
            self._identity = None  # if this fails, as on a full disk, the next try goes on with what it has begun
            self._open()
            self.damage = None

    def _begin(self) -> str:
        """Return the view's id, a new one if what was written last may be lost: then all is read again.

        A commit is not synced: a killed process loses nothing, a machine without power may lose the last commits, of
        which the stored reading position knows nothing.
        """
        writer = self._writer
        known = dict(writer.execute("SELECT name, value FROM meta"))
        view_id, ours = known.get("view_id"), _boot_id()
        if view_id is None or known.get("open_since_boot", ours) != ours:
            view_id = secrets.token_hex(8)
        rows = (("view_id", view_id), ("open_since_boot", ours))
        with writer:
            writer.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)
            writer.execute("INSERT OR IGNORE INTO meta VALUES ('begun_us', ?)", (str(time.time_ns() // 1000),))
        return view_id

    def close(self) -> None:
        """Mark the view as whole, and close it; safe to call twice."""
        with self._lock, suppress(sqlite3.Error):
            with self._writer:
                self._writer.execute("DELETE FROM meta WHERE name = 'open_since_boot'")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for connection in (self._writer, *(each for _, each in self._readers)):
            with suppress(sqlite3.Error):
                connection.close()

    # --- writing ---

    def put(self, messages: Iterable[Message]) -> int:
        """Take up ``messages`` in one commit; return the number of the last change. Raises ViewError."""
        with self._lock, self._noted():
            view_id, change = self._state
            with self._writer:
                for message in messages:
                    change += self._put_or_skip(message, change + 1)
            self._state = view_id, change
        return change

    def _put_or_skip(self, message: Message, change: int) -> int:
        """Take up one message; one that cannot be kept is skipped, so that the others of its commit are not lost."""
        try:
            return self._put(message, change)
        except _UNFIT as error:
            if not self.n_unfit:
                get_logger().warning(
                    "a message cannot be kept in the page's view: skipped (logged once)", why=str(error)
                )
            self.n_unfit += 1
            return 0

    def _put(self, message: Message, change: int) -> int:
        """Take up one message; return 1 if it changed something."""
        if isinstance(message, Feedback):
            return self._mark(message, change)
        if isinstance(message, Event):
            return self._event(message, change)
        if isinstance(message, EarlyWarning):
            return self._put_once("warnings", {**columns_of(message), "change": change})
        if isinstance(message, DecisionEntry):
            return self._put_once("decisions", {**columns_of_decision(message), "change": change})
        if isinstance(message, Verdict | Alert | Attribution | Window):
            return self._upsert(message, change)
        return 0

    def _upsert(self, message: Judgement, change: int) -> int:
        """Set what ``message`` may set of its sequence; return 0 if that changes nothing."""
        name = id_of(message)
        row = self._writer.execute(f"SELECT {', '.join(KNOWN_COLUMNS)} FROM sequences WHERE id = ?", (name,)).fetchone()
        known = None if row is None else Known(*row)
        columns, contradiction = taken_up(message, known)
        if known is not None and known.waits_for(message):
            stray = self._stray(name, message)
            columns |= dict.fromkeys(stray) | ({"named": None} if "attribution" in stray else {})
            contradiction = contradiction or (f"{', '.join(stray)}: stream or sequence" if stray else None)
        if contradiction is not None:
            self._note(message, contradiction)
            if known is None or known.contradiction is None:
                columns["contradiction"] = contradiction
        if not columns:
            return 0
        changed = " OR ".join(f"sequences.{column} IS NOT excluded.{column}" for column in columns)
        cursor = self._writer.execute(
            f"INSERT INTO sequences (id, change, {', '.join(columns)}) VALUES (?, ?{', ?' * len(columns)}) "
            f"ON CONFLICT (id) DO UPDATE SET change = excluded.change, "
            f"{', '.join(f'{column} = excluded.{column}' for column in columns)} WHERE {changed}",
            (name, change, *columns.values()),
        )
        return int(cursor.rowcount > 0)

    def _stray(self, name: str, message: Judgement) -> list[str]:
        """Return which of reasons and window, read before any verdict or alert, are of another sequence."""
        query = "SELECT attribution, window FROM sequences WHERE id = ?"
        attribution, window = self._writer.execute(query, (name,)).fetchone()
        ours = (message.stream, message.sequence)
        kept: dict[str, Attribution | Window | None] = {}
        if attribution is not None:
            kept["attribution"] = read_or_none(lambda: unpacked_attribution(attribution))
        if window is not None:
            kept["window"] = read_or_none(lambda: unpacked_window(window))
        return [each for each, one in kept.items() if one is None or (one.stream, one.sequence) != ours]

    def _note(self, message: Judgement, contradiction: str) -> None:
        if not self._is_noted:
            text = "a message says otherwise than what was read first under its id; it changes nothing (logged once)"
            get_logger().warning(text, id=id_of(message), what=contradiction)
        self._is_noted = True

    def _mark(self, mark: Feedback, change: int) -> int:
        """Keep the latest mark of a sequence."""
        columns = {
            "judgement": mark.judgement,
            "note": mark.note,
            "judged_by": mark.by,
            "judged_us": to_us(mark.created_at),
            "assignee": mark.assignee,
            "comment": mark.comment,
        }
        cursor = self._writer.execute(
            f"INSERT INTO sequences (id, change, {', '.join(columns)}) VALUES (?, ?{', ?' * len(columns)}) "
            "ON CONFLICT (id) DO UPDATE SET change = excluded.change, "
            f"{', '.join(f'{column} = excluded.{column}' for column in columns)} "
            "WHERE sequences.judged_us IS NULL OR sequences.judged_us < excluded.judged_us",
            (mark.alert_id, change, *columns.values()),
        )
        return int(cursor.rowcount > 0)

    def _put_once(self, table: str, columns: dict[str, Any]) -> int:
        """Keep the first row under an id."""
        _check_length(columns.values())
        cursor = self._writer.execute(
            f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            tuple(columns.values()),
        )
        return int(cursor.rowcount > 0)

    def _event(self, event: Event, change: int) -> int:
        """Keep an event under the hash of its content: it has no id, and may be read twice."""
        name = hashlib.sha256(msgspec.json.encode(event)).hexdigest()
        model, version = (event.model.name, event.model.version) if event.model is not None else (None, None)
        row = (name, change, event.kind, event.message, event.stream, model, version, to_us(event.created_at))
        _check_length(row)
        cursor = self._writer.execute(
            f"INSERT OR IGNORE INTO events ({EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        return int(cursor.rowcount > 0)

    def trim(self) -> int:
        """Remove what lies beyond the bounds, a portion at a time; return how many rows and windows are gone."""
        removed = 0
        with self._lock, self._noted():
            writer = self._writer
            now_us = time.time_ns() // 1000  # a sequence from the future must not push the others out
            (newest,) = writer.execute("SELECT max(end_us) FROM sequences WHERE end_us <= ?", (now_us,)).fetchone()
            with writer:
                if newest is not None:
                    removed += _removed(writer, "end_us < ?", newest - self._keep_us)
                    writer.execute("DELETE FROM events WHERE created_us < ?", (newest - self._keep_us,))
                    old = "FROM warnings WHERE time_us < ?"
                    reasons = "decision IS NULL AND rate IS NULL"  # under the id of a warning, else it is forged
                    for statement in (
                        f"DELETE FROM sequences WHERE {reasons} AND id IN (SELECT id {old})",
                        f"DELETE {old}",
                    ):
                        writer.execute(statement, (newest - self._keep_us,))
                writer.execute(
                    "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY created_us DESC LIMIT -1 OFFSET ?)",
                    (_MOST_EVENTS,),
                )
                # Those read last stay: their times may be forged, and would then never be old.
                for table, most in (("warnings", _MOST_WARNINGS), ("decisions", MOST_DECISIONS)):
                    writer.execute(f"DELETE FROM {table} WHERE rowid <= (SELECT max(rowid) FROM {table}) - ?", (most,))
            if self._size() > self._max_bytes:
                with writer:
                    removed += writer.execute(
                        "UPDATE sequences SET window = NULL WHERE id IN (SELECT id FROM sequences WHERE window IS NOT "
                        "NULL AND rate IS NULL ORDER BY end_us LIMIT ?)",
                        (_TRIM_ROWS,),
                    ).rowcount
            if self._size() > self._max_bytes:
                with writer:
                    removed += _removed(writer, "?", 1)
                    writer.execute("DELETE FROM warnings WHERE time_us < (SELECT min(end_us) FROM sequences)")
            writer.executescript(f"PRAGMA incremental_vacuum({_TRIM_PAGES})")  # each of its steps frees one page
        return removed

    def _size(self) -> int:
        """Return the bytes in use."""
        (pages,), (free,), (size,) = (
            self._writer.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # --- reading ---

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._noted(), at_most(self._reader(), QUERY_S):
            return self._reader().execute(query, values).fetchall()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Raise ViewError for what SQLite refuses; note that the file is damaged."""
        writer = self._writer
        try:
            with reported(self.path):
                yield
        except ViewError as error:
            if error.is_damaged and writer is self._writer and self.damage is None:
                self.damage = str(error)
            raise

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's connection to the present file, which cannot write."""
        writer, connection = getattr(self._local, "of_writer", (None, None))
        if connection is None or writer is not self._writer:
            if connection is not None:
                connection.close()  # it reads a file that was set aside
            writer, connection = self._writer, connected(self.path, is_reader=True)
            self._local.of_writer = writer, connection
            with self._lock:
                ours = threading.current_thread()
                ended = [each for each in self._readers if not each[0].is_alive()]
                others = [each for each in self._readers if each[0].is_alive() and each[0] is not ours]
                self._readers = [*others, (ours, connection)]
            for _, left in ended:  # the server's idle threads come and go
                left.close()
        assert isinstance(connection, sqlite3.Connection)
        return connection


def _check_length(row: Iterable[Any]) -> None:
    if sum(len(value) for value in row if isinstance(value, str)) > _LONGEST_ROW:
        raise ValueError(f"it has more than {_LONGEST_ROW} characters")


def _removed(writer: sqlite3.Connection, where: str, value: int) -> int:
    """Delete the oldest sequences that ``where`` holds for, a portion; return how many."""
    return writer.execute(
        f"DELETE FROM sequences WHERE id IN (SELECT id FROM sequences WHERE {where} ORDER BY end_us LIMIT ?)",
        (value, _TRIM_ROWS),
    ).rowcount


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
