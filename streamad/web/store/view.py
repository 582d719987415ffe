"""The view store: what the plant's outputs say, by sequence, in one SQLite file beside the page.

Reading is at least once, in any order, and what was read first under a ``verdict_id`` stays (``view_rows``): each
verdict is in the view once. The file holds nothing that the outputs do not: if it is deleted, the page builds it again
from what they keep.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import statistics
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from streamad.messages import Alert, Attribution, Event, Feedback, Message, Verdict, Window
from streamad.telemetry.logs import get_logger
from streamad.types import to_us
from streamad.web.store.view_file import APPLICATION, VIEW_VERSION, add_columns, connected, reported, set_aside
from streamad.web.store.view_rows import KNOWN_COLUMNS, Judgement, Known, id_of, taken_up

_TRIM_ROWS = 2_000
_MOST_EVENTS = 20_000
_NEVER = 1 << 62
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sequences (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, stream TEXT NOT NULL DEFAULT '', sequence TEXT NOT NULL DEFAULT '',
    decision TEXT, reason TEXT, detail TEXT, start_us INTEGER, end_us INTEGER, n_samples INTEGER, score REAL,
    p_value REAL, tail TEXT, model TEXT, version TEXT, created_us INTEGER, rate REAL, contradiction TEXT,
    attribution TEXT, window BLOB,
    judgement TEXT, note TEXT, judged_by TEXT, judged_us INTEGER, means TEXT, spreads TEXT
);
CREATE INDEX IF NOT EXISTS by_change ON sequences (change);
CREATE INDEX IF NOT EXISTS by_end ON sequences (end_us);
CREATE INDEX IF NOT EXISTS by_stream ON sequences (stream, end_us);
CREATE INDEX IF NOT EXISTS by_alert ON sequences (end_us) WHERE rate IS NOT NULL;
CREATE TABLE IF NOT EXISTS events (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL, stream TEXT, model TEXT,
    version TEXT, created_us INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_created ON events (created_us);
"""


@dataclass(frozen=True, slots=True)
class SeenSequence:
    """One sequence as the outputs describe it so far; what no message has said yet is None.

    ``rate`` is the configured false-alarm rate of its alert, None if there is none. ``judgement`` is the last mark.
    ``change`` grows with everything that was read, and orders what a page has not seen yet. ``contradiction``: in what
    a message read later under this id says otherwise, None if none does. Times in us since 1970.
    """

    id: str
    change: int
    stream: str
    sequence: str
    decision: str | None
    reason: str | None
    detail: str | None
    start_us: int | None
    end_us: int | None
    n_samples: int | None
    score: float | None
    p_value: float | None
    tail: str | None
    model: str | None
    version: str | None
    created_us: int | None
    rate: float | None
    judgement: str | None
    note: str | None
    judged_by: str | None
    judged_us: int | None
    contradiction: str | None
    has_window: bool
    why: str | None

    @property
    def is_alert(self) -> bool:
        """Return whether an alert was raised."""
        return self.rate is not None


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """One event of the plant."""

    id: str
    change: int
    kind: str
    message: str
    stream: str | None
    model: str | None
    version: str | None
    created_us: int


class Moments(NamedTuple):
    """Mean and spread of each channel in one judged window, in the order of the config's channels."""

    means: list[float]
    spreads: list[float]


_COLUMNS = ", ".join(
    {
        "has_window": "window IS NOT NULL",
        "why": "json_extract(attribution, '$.segments[0].text')",
    }.get(field.name, field.name)
    for field in fields(SeenSequence)
)
_EVENT_COLUMNS = ", ".join(field.name for field in fields(SeenEvent))
_SHOWN = "(decision IS NOT NULL OR rate IS NOT NULL)"


class View:
    """The view store in ``path``; one process writes it, any number of threads read it.

    ``keep_us``: sequences that ended longer ago than this before the newest are removed, ``max_bytes``: the oldest
    beyond this size, windows of sequences without an alert first. A file that is damaged, of another program or of a
    later release is renamed aside, never deleted: ``set_aside`` is its new place. Raises OutputError.
    """

    def __init__(self, path: Path, *, keep_us: int, max_bytes: int) -> None:
        self.path, self._keep_us, self._max_bytes = path, keep_us, max_bytes
        self.set_aside = set_aside(path)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._readers: list[tuple[threading.Thread, sqlite3.Connection]] = []
        self._is_noted = False
        with reported(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._writer = connected(path)
            self._writer.execute(f"PRAGMA application_id = {APPLICATION}")
            self._writer.execute(f"PRAGMA user_version = {VIEW_VERSION}")
            self._writer.executescript(_TABLES)
            add_columns(self._writer)
            path.chmod(0o600)
            self.view_id = self._begin()
            (newest,) = self._writer.execute("SELECT max(change) FROM sequences").fetchone()
            (event,) = self._writer.execute("SELECT max(change) FROM events").fetchone()
        self.last_change = max(newest or 0, event or 0)

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

    @property
    def begun_us(self) -> int:
        """Return when this view was begun, in us since 1970."""
        (value,) = self._reader().execute("SELECT value FROM meta WHERE name = 'begun_us'").fetchone()
        return int(value)

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
        """Take up ``messages`` in one commit; return the number of the last change. Raises OutputError."""
        with self._lock, reported(self.path):
            change = self.last_change
            with self._writer:
                for message in messages:
                    change += self._put(message, change + 1)
            self.last_change = change
        return change

    def _put(self, message: Message, change: int) -> int:
        """Take up one message; return 1 if it changed something."""
        if isinstance(message, Feedback):
            return self._mark(message, change)
        if isinstance(message, Event):
            return self._event(message, change)
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
            columns |= dict.fromkeys(stray)
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
        kept = {
            "attribution": None if attribution is None else msgspec.json.decode(attribution, type=Attribution),
            "window": None if window is None else msgspec.json.decode(zlib.decompress(window), type=Window),
        }
        ours = (message.stream, message.sequence)
        return [each for each, one in kept.items() if one is not None and (one.stream, one.sequence) != ours]

    def _note(self, message: Judgement, contradiction: str) -> None:
        if not self._is_noted:
            text = "a message says otherwise than what was read first under its id; it changes nothing (logged once)"
            get_logger().warning(text, id=id_of(message), what=contradiction)
        self._is_noted = True

    def _mark(self, mark: Feedback, change: int) -> int:
        """Keep the latest mark of a sequence."""
        cursor = self._writer.execute(
            "INSERT INTO sequences (id, change, judgement, note, judged_by, judged_us) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET change = excluded.change, judgement = excluded.judgement, "
            "note = excluded.note, judged_by = excluded.judged_by, judged_us = excluded.judged_us "
            "WHERE sequences.judged_us IS NULL OR sequences.judged_us < excluded.judged_us",
            (mark.alert_id, change, mark.judgement, mark.note, mark.by, to_us(mark.created_at)),
        )
        return int(cursor.rowcount > 0)

    def _event(self, event: Event, change: int) -> int:
        """Keep an event under the hash of its content: it has no id, and may be read twice."""
        name = hashlib.sha256(msgspec.json.encode(event)).hexdigest()
        model, version = (event.model.name, event.model.version) if event.model is not None else (None, None)
        cursor = self._writer.execute(
            f"INSERT OR IGNORE INTO events ({_EVENT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (name, change, event.kind, event.message, event.stream, model, version, to_us(event.created_at)),
        )
        return int(cursor.rowcount > 0)

    def trim(self) -> int:
        """Remove what lies beyond the bounds, a portion at a time; return how many rows and windows are gone."""
        removed = 0
        with self._lock, reported(self.path):
            writer = self._writer
            now_us = time.time_ns() // 1000  # a sequence from the future must not push the others out
            (newest,) = writer.execute("SELECT max(end_us) FROM sequences WHERE end_us <= ?", (now_us,)).fetchone()
            with writer:
                if newest is not None:
                    removed += _removed(writer, "end_us < ?", newest - self._keep_us)
                    writer.execute("DELETE FROM events WHERE created_us < ?", (newest - self._keep_us,))
                writer.execute(
                    "DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY created_us DESC LIMIT -1 OFFSET ?)",
                    (_MOST_EVENTS,),
                )
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
            writer.execute("PRAGMA incremental_vacuum")
        return removed

    def _size(self) -> int:
        """Return the bytes in use."""
        (pages,), (free,), (size,) = (
            self._writer.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # --- reading ---

    def _reader(self) -> sqlite3.Connection:
        """Return this thread's connection, which cannot write."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = connected(self.path, is_reader=True)
            self._local.connection = connection
            with self._lock:
                ended = [each for each in self._readers if not each[0].is_alive()]
                self._readers = [each for each in self._readers if each[0].is_alive()]
                self._readers.append((threading.current_thread(), connection))
            for _, left in ended:  # the server's idle threads come and go
                left.close()
        return connection

    def sequence(self, name: str) -> SeenSequence | None:
        """Return the sequence with the id ``name``, None if no verdict or alert of it was read."""
        row = self._reader().execute(
            f"SELECT {_COLUMNS} FROM sequences WHERE id = ? AND {_SHOWN}",
            (name,),
        )
        return next((SeenSequence(*one) for one in row), None)

    def window(self, name: str) -> Window | None:
        """Return the judged window of a sequence, None if none is kept."""
        content = self._blob("window", name)
        return None if content is None else msgspec.json.decode(zlib.decompress(content), type=Window)

    def attribution(self, name: str) -> Attribution | None:
        """Return the attribution of an alert, None if none was read."""
        content = self._blob("attribution", name)
        return None if content is None else msgspec.json.decode(content, type=Attribution)

    def _blob(self, column: str, name: str) -> bytes | None:
        row = self._reader().execute(f"SELECT {column} FROM sequences WHERE id = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def moments(self, names: Sequence[str]) -> dict[str, Moments]:
        """Return mean and spread of each channel of the sequences with the ids ``names``, of those that have any."""
        query = (
            f"SELECT id, means, spreads FROM sequences WHERE id IN ({', '.join('?' * len(names))}) "
            "AND means IS NOT NULL AND spreads IS NOT NULL"
        )
        rows = self._reader().execute(query, tuple(names))
        return {
            name: Moments(msgspec.json.decode(means), msgspec.json.decode(spreads)) for name, means, spreads in rows
        }

    def usual_size(self, stream: str, limit: int) -> tuple[float, float] | None:
        """Return the median number of samples and of seconds of the last normal sequences of a stream."""
        where = "stream = ? AND decision = 'normal' AND n_samples > 1 AND start_us IS NOT NULL"
        query = f"SELECT n_samples, end_us - start_us FROM sequences WHERE {where} ORDER BY end_us DESC LIMIT ?"
        rows = self._reader().execute(query, (stream, limit)).fetchall()
        if not rows:
            return None
        return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows) / 1e6

    def changes(self, after: int, limit: int) -> list[SeenSequence]:
        """Return what changed after the number ``after``, in order, at most ``limit`` sequences."""
        return self._select(f"change > ? AND {_SHOWN} ORDER BY change LIMIT ?", (after, limit))

    def inbox(
        self, limit: int, *, since_us: int = -_NEVER, until_us: int = _NEVER, unjudged: bool = False
    ) -> list[SeenSequence]:
        """Return alerts, the newest first; ``unjudged``: only those without a mark that counts."""
        where = "rate IS NOT NULL AND end_us >= ? AND end_us <= ?"
        if unjudged:
            where += " AND (judgement IS NULL OR judgement = 'withdrawn')"
        return self._select(f"{where} ORDER BY end_us DESC, id LIMIT ?", (since_us, until_us, limit))

    def of_stream(self, stream: str, limit: int, *, before_us: int | None = None) -> list[SeenSequence]:
        """Return the sequences of one stream, the newest first."""
        where = f"stream = ? AND end_us < ? AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        return self._select(where, (stream, before_us or _NEVER, limit))

    def n_alerts(self, stream: str, n: int) -> int:
        """Return how many of the last ``n`` sequences of one stream have an alert."""
        last = f"SELECT rate FROM sequences WHERE stream = ? AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        (found,) = self._reader().execute(f"SELECT count(rate) FROM ({last})", (stream, n)).fetchone()
        return int(found)

    def between(self, since_us: int, until_us: int, limit: int) -> list[SeenSequence]:
        """Return the sequences that ended between two times, the newest first."""
        where = f"end_us >= ? AND end_us <= ? AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?"
        return self._select(where, (since_us, until_us, limit))

    def latest(self, limit: int, *, since_us: int = -_NEVER, until_us: int = _NEVER) -> list[SeenSequence]:
        """Return the sequences that ended last, the newest first."""
        return self.between(since_us, until_us, limit)

    def alike(self, one: SeenSequence, channel: str, limit: int) -> list[SeenSequence]:
        """Return earlier alerts whose attribution names ``channel`` first, the newest first."""
        where = (
            "rate IS NOT NULL AND id != ? AND end_us <= ? AND json_extract(attribution, '$.channels[0].channel') = ? "
            "ORDER BY end_us DESC LIMIT ?"
        )
        return self._select(where, (one.id, one.end_us or _NEVER, channel, limit))

    def neighbours(self, one: SeenSequence) -> tuple[SeenSequence | None, SeenSequence | None]:
        """Return the alerts that ended before and after ``one``."""
        at = (one.end_us or 0, one.id)
        before = self._select("rate IS NOT NULL AND (end_us, id) < (?, ?) ORDER BY end_us DESC, id DESC LIMIT 1", at)
        after = self._select("rate IS NOT NULL AND (end_us, id) > (?, ?) ORDER BY end_us, id LIMIT 1", at)
        return next(iter(before), None), next(iter(after), None)

    def _select(self, where: str, values: Sequence[Any]) -> list[SeenSequence]:
        rows = self._reader().execute(f"SELECT {_COLUMNS} FROM sequences WHERE {where}", values)
        return [SeenSequence(*row) for row in rows]

    def events(self, limit: int, *, since_us: int = -_NEVER, until_us: int = _NEVER) -> list[SeenEvent]:
        """Return events, the newest first."""
        where = "created_us >= ? AND created_us <= ?"
        query = f"SELECT {_EVENT_COLUMNS} FROM events WHERE {where} ORDER BY created_us DESC LIMIT ?"
        return [SeenEvent(*row) for row in self._reader().execute(query, (since_us, until_us, limit))]

    def streams(self, limit: int) -> list[str]:
        """Return the names of the streams, those with the newest sequences first."""
        query = (
            "SELECT stream FROM sequences WHERE end_us IS NOT NULL GROUP BY stream ORDER BY max(end_us) DESC LIMIT ?"
        )
        return [row[0] for row in self._reader().execute(query, (limit,))]

    def contradicted(self, limit: int) -> list[SeenSequence]:
        """Return sequences about which messages contradict each other, the newest first."""
        return self._select(f"contradiction IS NOT NULL AND {_SHOWN} ORDER BY end_us DESC, id LIMIT ?", (limit,))

    def decisions(self, n: int) -> dict[str, int]:
        """Return how many of the ``n`` sequences that ended last have each decision."""
        query = (
            "SELECT decision, count(*) FROM (SELECT coalesce(decision, 'anomalous') AS decision FROM sequences WHERE "
            f"{_SHOWN} AND end_us IS NOT NULL ORDER BY end_us DESC LIMIT ?) GROUP BY decision"
        )
        return dict(self._reader().execute(query, (n,)))

    def p_values(self, version: str | None, limit: int) -> list[float]:
        """Return the p-values of the last sequences that ``version`` judged (None: any)."""
        query = (
            "SELECT p_value FROM sequences WHERE p_value IS NOT NULL AND (? IS NULL OR version = ?) "
            "ORDER BY end_us DESC LIMIT ?"
        )
        return [row[0] for row in self._reader().execute(query, (version, version, limit))]


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
