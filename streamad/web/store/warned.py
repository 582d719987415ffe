"""Warnings in the view store: each once, apart from the sequences, to whose verdicts they lead.

A warning is known before the verdict of its sequence, and under another id. Both name stream, sequence and start, by
which the view joins them; its reasons lie, as those of an alert, under the id that they name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from streamad.messages import EarlyWarning, ModelRef
from streamad.types import from_us, to_us

WARNING_TABLES: Final = """
CREATE TABLE IF NOT EXISTS warnings (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, stream TEXT NOT NULL, sequence TEXT NOT NULL,
    start_us INTEGER NOT NULL, time_us INTEGER NOT NULL, n_points INTEGER NOT NULL, age REAL NOT NULL,
    look INTEGER NOT NULL, score REAL NOT NULL, p_value REAL NOT NULL, rate REAL NOT NULL, tail TEXT NOT NULL,
    model TEXT NOT NULL, version TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_warned ON warnings (time_us);
CREATE INDEX IF NOT EXISTS by_warned_sequence ON warnings (stream, start_us);
CREATE INDEX IF NOT EXISTS by_start ON sequences (stream, start_us);
"""


@dataclass(frozen=True, slots=True)
class SeenWarning:
    """A warning as its message says it. ``verdict``: the id of the sequence once it is judged, None while it is not."""

    id: str
    stream: str
    sequence: str
    start_us: int
    time_us: int
    n_points: int
    age: float
    look: int
    score: float
    p_value: float
    rate: float
    tail: str
    model: str
    version: str
    verdict: str | None

    @property
    def message(self) -> EarlyWarning:
        """Return it as a message; when it was made is not kept."""
        return EarlyWarning(
            warning_id=self.id, stream=self.stream, sequence=self.sequence, start_time=from_us(self.start_us),
            time=from_us(self.time_us), n_points=self.n_points, age=self.age, look=self.look, score=self.score,
            p_value=self.p_value, false_alarm_rate=self.rate,
            tail="extrapolated" if self.tail == "extrapolated" else "empirical",
            model=ModelRef(self.model, self.version), created_at=from_us(self.time_us),
        )  # fmt: skip


def columns_of(warning: EarlyWarning) -> dict[str, Any]:
    """Return the columns of a warning but for the number of its change."""
    return {
        "id": warning.warning_id,
        "stream": warning.stream,
        "sequence": warning.sequence,
        "start_us": to_us(warning.start_time),
        "time_us": to_us(warning.time),
        "n_points": warning.n_points,
        "age": warning.age,
        "look": warning.look,
        "score": warning.score,
        "p_value": warning.p_value,
        "rate": warning.false_alarm_rate,
        "tail": warning.tail,
        "model": warning.model.name,
        "version": warning.model.version,
    }


_VERDICT = """(SELECT s.id FROM sequences s WHERE s.stream = warnings.stream AND s.start_us = warnings.start_us
    AND s.sequence = warnings.sequence AND (s.decision IS NOT NULL OR s.rate IS NOT NULL) ORDER BY s.id LIMIT 1)"""
_COLUMNS = ", ".join({"verdict": _VERDICT}.get(field.name, field.name) for field in fields(SeenWarning))
NEVER = 1 << 62


class WarningQuestions(ABC):
    """What can be asked of the warnings in the view."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that the query finds. Raises ViewError."""

    def warning(self, name: str) -> SeenWarning | None:
        """Return the warning with the id ``name``, None if none was read."""
        return next(iter(self._warnings("id = ?", (name,))), None)

    def warning_of(self, stream: str, sequence: str, start_us: int) -> SeenWarning | None:
        """Return the warning of a sequence, None if none was read."""
        where = "stream = ? AND start_us = ? AND sequence = ? ORDER BY id LIMIT 1"
        return next(iter(self._warnings(where, (stream, start_us, sequence))), None)

    def warnings(
        self, limit: int, *, until_us: int = NEVER, behind: tuple[int, int, str] = (NEVER, NEVER, "")
    ) -> list[SeenWarning]:
        """Return warnings, the newest first, up to ``until_us``, ``behind`` the values of a place in the list."""
        where = "time_us <= ? AND time_us <= ? AND (time_us < ? OR id > ?) ORDER BY time_us DESC, id LIMIT ?"
        return self._warnings(where, (until_us, *behind, limit))

    def _warnings(self, where: str, values: Sequence[Any]) -> list[SeenWarning]:
        rows = self._rows(f"SELECT {_COLUMNS} FROM warnings WHERE {where}", values)
        return [SeenWarning(*row) for row in rows]
