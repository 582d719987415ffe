"""The inlier store of a learner: one SQLite file, written by the learner alone, read by whoever may read the file.

docs/learning/inliers.md describes its guarantees and policies. The file holds the sequences and marks of all models of
a plant; an ``InlierStore`` is one model's part of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from streamad.errors import StoreError
from streamad.learn.store.bounds import Bounds, kept, keys_of
from streamad.learn.store.database import connected, connected_to_read, has_courses
from streamad.learn.store.history import latest_of, marks_to_keep, name_of
from streamad.learn.store.records import Mark, StoredSequence, TrainingRequest, WindowForm
from streamad.messages import SHARES, Decision, Share
from streamad.ports import Clock
from streamad.settings.plant_yaml import WindowSettings
from streamad.system.rights import reason
from streamad.types import ChannelSpec, Window

_TIDY_EVERY_US = 86_400_000_000
_VALUE = np.dtype("<f4")
_WITHIN, _BEYOND = 0, 2
"""Places of a sequence: within the bounds of its share, or beyond them for good and kept for its mark alone."""
_REQUESTS_KEPT = 1_000


class InlierStore:
    """The sequences and marks kept for ``model`` in the file ``path``.

    Synchronous: the caller runs it in a thread, one call at a time. ``sequences`` are taken into memory by ``offer``
    and become durable, all or none, by ``flush``. Methods raise StoreError if the file cannot be read or written.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        *,
        channels: tuple[ChannelSpec, ...],
        window: WindowSettings,
        bounds: Mapping[Share, Bounds],
        clock: Clock,
    ) -> None:
        self._path = path
        self._model = model
        self._shape = len(channels), window.length
        self.channels = channels
        self.window_form = WindowForm.of(window)
        self._form = _form_text(channels, self.window_form)
        self._bounds = bounds
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._pending: dict[str, tuple[StoredSequence, Share]] = {}
        self._counts: dict[Share, int] = dict.fromkeys(SHARES, 0)
        self._tidied_us: int | None = None
        self.window_bytes = 4 * len(channels) * window.length
        """Memory that the values of one window take."""

    @property
    def problems(self) -> list[str]:
        """Return one line if sequences of other channels or windows are there, which are left alone."""
        others = "SELECT count(*) FROM sequences JOIN forms USING (form) WHERE model = ? AND content != ?"
        with self._reading() as connection:
            (n,) = connection.execute(others, (self._model, self._form)).fetchone()
        if not n:
            return []
        return [
            f"{self._path}: {n} sequences of {self._model} left alone, they have other channels or windows: set the "
            "config back, or purge them"
        ]

    def open(self) -> None:
        """Make the file if there is none, and count what it holds."""
        with self._writing() as connection:
            self._count(connection)

    def open_to_read(self) -> None:
        """Open the file and count what it holds, without the right to write; without a file, the store is empty."""
        with self._reported():
            self._connection = connected_to_read(self._path)
            self._count(self._connection)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def offer(self, sequence: StoredSequence, share: Share) -> bool:
        """Take a sequence into memory; return False if its id is there, waits, or was purged.

        Raises StoreError for a window of another shape.
        """
        if sequence.window.values.shape != self._shape:
            raise StoreError(f"a window of shape {sequence.window.values.shape} does not fit a store of {self._shape}")
        if sequence.id in self._pending or self._is_known(sequence.id):
            return False
        self._pending[sequence.id] = sequence, share
        return True

    def flush(self) -> None:
        """Write what was offered and enforce the bounds, all at once; after a StoreError it must be offered again."""
        pending, self._pending = self._pending, {}
        if not pending:
            return
        with self._writing() as connection:
            form = self._form_number(connection)
            rows = [self._row(one, share, form) for one, share in pending.values()]
            connection.executemany(f"INSERT OR IGNORE INTO sequences VALUES ({', '.join('?' * 16)})", rows)
            self._enforce_bounds(connection)
            self._count(connection)

    def mark(self, mark: Mark) -> None:
        """Store an operator's mark, durable once this returns; the same one twice is one, received first."""
        name = name_of(mark)
        with self._writing() as connection:
            there = connection.execute(
                "SELECT content FROM marks WHERE model = ? AND name = ?", (self._model, name)
            ).fetchone()
            if there is None or mark.since_us < _mark(there[0]).since_us:
                row = (self._model, name, mark.id, msgspec.json.encode(mark))
                connection.execute("INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)", row)
                held = "SELECT 1 FROM sequences WHERE model = ? AND id = ?"
                if connection.execute(held, (self._model, mark.id)).fetchone() is not None:  # else it pins nothing
                    self._enforce_bounds(connection)
                    self._count(connection)

    def tidy_marks(self) -> None:
        """Once a day drop the marks that ``marks_to_keep`` does not keep."""
        now_us = self._clock.monotonic_us()
        if self._tidied_us is not None and now_us - self._tidied_us < _TIDY_EVERY_US:
            return
        with self._writing() as connection:
            rows = connection.execute("SELECT id, end_us FROM sequences WHERE model = ?", (self._model,)).fetchall()
            newest_us = min(max(end_us for _, end_us in rows), self._clock.now_us()) if rows else None
            named = self._named(connection)
            stay = marks_to_keep(named, keys_of([*(one for one, _ in rows), *self._pending]), newest_us)
            gone = [(self._model, name) for name in named.keys() - stay.keys()]
            connection.executemany("DELETE FROM marks WHERE model = ? AND name = ?", gone)
        self._tidied_us = now_us

    def purge(
        self,
        *,
        before_us: int | None = None,
        ids: Collection[str] | None = None,
        share: Share | None = None,
        request_id: str | None = None,
    ) -> int:
        """Delete the sequences that meet every given condition; return how many.

        Marked ones are included, those of other channels or windows, too. Their ids are never taken again; marks stay.
        A ``request_id`` that was answered before deletes nothing: later sequences are not what was asked for.
        """
        where = "model = ?"
        values: list[str | int] = [self._model]
        for condition, value in (("end_us < ?", before_us), ("share = ?", share)):
            if value is not None:
                where += f" AND {condition}"
                values.append(value)
        with self._writing() as connection:
            if request_id is not None and not self._add_request(connection, request_id, None):
                return 0
            found = [name for (name,) in connection.execute(f"SELECT id FROM sequences WHERE {where}", values)]
            chosen = [(self._model, name) for name in found if ids is None or name in ids]
            connection.executemany("INSERT OR IGNORE INTO gone VALUES (?, ?)", chosen)
            connection.executemany("DELETE FROM sequences WHERE model = ? AND id = ?", chosen)
            self._count(connection)
        return len(chosen)

    def ask(self, request: TrainingRequest) -> None:
        """Keep a request until it is answered; durable once this returns. One whose id is known changes nothing."""
        with self._writing() as connection:
            self._add_request(connection, request.id, msgspec.json.encode(request))

    def answered(self, request_id: str) -> None:
        """Remember a request as done: it is never asked for again. The last 1,000 are remembered."""
        with self._writing() as connection:
            name = (request_id, self._model)
            connection.execute("UPDATE requests SET content = NULL WHERE id = ? AND model = ?", name)
            old = "SELECT number FROM requests WHERE content IS NULL ORDER BY number DESC LIMIT -1 OFFSET ?"
            connection.execute(f"DELETE FROM requests WHERE number IN ({old})", (_REQUESTS_KEPT,))

    def is_answered(self, request_id: str) -> bool:
        """Return whether a request was answered, and is remembered."""
        found = "SELECT 1 FROM requests WHERE id = ? AND model = ? AND content IS NULL"
        with self._reading() as connection:
            return connection.execute(found, (request_id, self._model)).fetchone() is not None

    # --- reading ----------------------------------------------------------------------------------------------------

    def counts(self) -> dict[Share, int]:
        """Return how many sequences each share had within its bounds at the last ``open``, ``flush`` or ``read``."""
        return dict(self._counts)

    def count_since(self, since_us: int) -> int:
        """Return how many sequences within the bounds ended at ``since_us`` or later."""
        found = "SELECT count(*) FROM sequences WHERE model = ? AND place = ? AND end_us >= ?"
        with self._reading() as connection:
            return int(connection.execute(found, (self._model, _WITHIN, since_us)).fetchone()[0])

    def count_accepted_after(self, stored_us: int) -> int:
        """Return how many accepted sequences within the bounds were stored after ``stored_us``."""
        found = "SELECT count(*) FROM sequences WHERE model = ? AND share = ? AND place = ? AND stored_us > ?"
        with self._reading() as connection:
            return int(connection.execute(found, (self._model, "accepted", _WITHIN, stored_us)).fetchone()[0])

    def read(
        self,
        share: Share,
        *,
        since_us: int | None = None,
        stored_before_us: int | None = None,
    ) -> list[StoredSequence]:
        """Return a share's sequences by time, those of other channels or windows apart.

        Those without ``only_marked`` do not depend on marks: a store without any has the same. ``since_us``: those that
        ended then or later. ``stored_before_us``: those offered before then.
        """
        where = "model = ? AND share = ? AND content = ?"
        values: list[str | int] = [self._model, share, self._form]
        bounds = {"end_us >= ?": since_us, "stored_us < ?": stored_before_us}
        for condition, value in bounds.items():
            if value is not None:
                where += f" AND {condition}"
                values.append(value)
        fields = "id, stream, sequence, end_us, stored_us, decision, score, p_value, version, place, length, window"
        with self._reading() as connection:
            fields += ", course" if has_courses(connection) else ", NULL"
            rows = connection.execute(
                f"SELECT {fields} FROM sequences JOIN forms USING (form) WHERE {where} ORDER BY end_us, id",
                values,
            ).fetchall()
            self._count(connection)
        return [self._sequence(*row) for row in rows]

    def requests(self) -> list[TrainingRequest]:
        """Return the requests that wait for an answer, in the order of their arrival."""
        found = "SELECT content FROM requests WHERE model = ? AND content IS NOT NULL ORDER BY number"
        with self._reading() as connection:
            rows = connection.execute(found, (self._model,)).fetchall()
            return [msgspec.json.decode(content, type=TrainingRequest) for (content,) in rows]

    def marks(self) -> dict[str, Mark]:
        """Return the mark of each id that counts; see ``latest_of``."""
        with self._reading() as connection:
            return self._latest(connection)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _is_known(self, sequence_id: str) -> bool:
        with self._reading() as connection:
            for table in ("sequences", "gone"):
                known = f"SELECT 1 FROM {table} WHERE model = ? AND id = ?"
                if connection.execute(known, (self._model, sequence_id)).fetchone() is not None:
                    return True
        return False

    def _add_request(self, connection: sqlite3.Connection, request_id: str, content: bytes | None) -> bool:
        """Add a request, None: an answered one; return False if its id is known."""
        new = "INSERT OR IGNORE INTO requests (id, model, content) VALUES (?, ?, ?)"
        return connection.execute(new, (request_id, self._model, content)).rowcount == 1

    def _enforce_bounds(self, connection: sqlite3.Connection) -> None:
        """Delete what lies beyond the bounds of its share, but keep what a mark pins, as beyond them."""
        marks = self._latest(connection).values()
        pinned = keys_of(mark.id for mark in marks if mark.judgement in ("false_alarm", "confirmed"))
        for share in SHARES:
            self._enforce(connection, share, self._bounds[share], pinned)

    def _enforce(self, connection: sqlite3.Connection, share: Share, bounds: Bounds, pinned: Any) -> None:
        of_share = "SELECT rowid, id, end_us, place FROM sequences WHERE model = ? AND share = ?"
        rows = connection.execute(of_share, (self._model, share)).fetchall()
        keys = keys_of(row[1] for row in rows)
        times = np.array([row[2] for row in rows], dtype=np.int64)
        past = np.array([row[3] == _BEYOND for row in rows], dtype=bool)
        stays = kept(times, keys, np.isin(keys, pinned), past, bounds=bounds, now_us=self._clock.now_us())
        needed = stays.within | stays.marked
        places = np.where(stays.within, _WITHIN, _BEYOND).tolist()
        gone = [(row[0],) for row, is_needed in zip(rows, needed.tolist(), strict=True) if not is_needed]
        connection.executemany("DELETE FROM sequences WHERE rowid = ?", gone)
        moved = [(place, row[0]) for row, place in zip(rows, places, strict=True) if row[3] != place]
        connection.executemany("UPDATE sequences SET place = ? WHERE rowid = ?", moved)

    def _count(self, connection: sqlite3.Connection) -> None:
        found = "SELECT share, count(*) FROM sequences WHERE model = ? AND place = ? GROUP BY share"
        counted: dict[Share, int] = dict(connection.execute(found, (self._model, _WITHIN)).fetchall())
        self._counts = {share: counted.get(share, 0) for share in SHARES}

    def _named(self, connection: sqlite3.Connection) -> dict[str, Mark]:
        found = connection.execute("SELECT name, content FROM marks WHERE model = ?", (self._model,)).fetchall()
        return {name: _mark(content) for name, content in found}

    def _latest(self, connection: sqlite3.Connection) -> dict[str, Mark]:
        by_id: dict[str, list[tuple[str, Mark]]] = {}
        for named in self._named(connection).items():
            by_id.setdefault(named[1].id, []).append(named)
        return {sequence_id: latest_of(of_one) for sequence_id, of_one in by_id.items()}

    def _form_number(self, connection: sqlite3.Connection) -> int:
        connection.execute("INSERT OR IGNORE INTO forms (content) VALUES (?)", (self._form,))
        return int(connection.execute("SELECT form FROM forms WHERE content = ?", (self._form,)).fetchone()[0])

    def _row(self, one: StoredSequence, share: Share, form: int) -> Sequence[Any]:
        values = np.ascontiguousarray(one.window.values[:, : one.window.length], dtype=_VALUE).tobytes()
        head = (self._model, one.id, share, form, one.stream, one.sequence, one.time_us, one.stored_us)
        place = _BEYOND if one.only_marked else _WITHIN
        judged = (one.decision, one.score, one.p_value, one.model_version)
        return (*head, *judged, place, one.window.length, values, one.course)

    def _sequence(  # noqa: PLR0917 - the fields of a row
        self,
        id_: str,
        stream: str,
        sequence: str,
        end_us: int,
        stored_us: int,
        decision: Decision,
        score: float | None,
        p_value: float | None,
        version: str | None,
        place: int,
        length: int,
        window: bytes,
        course: bytes | None,
    ) -> StoredSequence:
        values = np.zeros(self._shape, np.float32)
        values[:, :length] = np.frombuffer(window, _VALUE).reshape(self._shape[0], length)
        judged = (decision, score, p_value, version)
        only_marked, values_of = place == _BEYOND, Window(values, length)
        return StoredSequence(id_, stream, sequence, end_us, stored_us, values_of, *judged, only_marked, course)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Give the connection in a transaction, durable after the block, undone if the block raises."""
        with self._reported():
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._reported():
            yield self._connected()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, msgspec.DecodeError, ValueError) as error:
            why = reason(error, self._path, "write") if isinstance(error, OSError) else error
            raise StoreError(f"the inlier store {self._path} cannot be used: {why}") from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connected(self._path)
        return self._connection


def _form_text(channels: tuple[ChannelSpec, ...], window: WindowForm) -> str:
    return msgspec.json.encode({"channels": channels, "window": window}).decode()


def _mark(content: bytes) -> Mark:
    return msgspec.json.decode(content, type=Mark)
