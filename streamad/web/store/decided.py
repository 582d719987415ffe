"""Decisions in the view store: each entry of the decision log once, as it was read.

The hashes are shown, not checked: the view keeps no bytes, and who may write it could write anything
(``streamad audit verify`` reads the log itself).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import msgspec

from streamad.messages import DecisionEntry
from streamad.types import to_us

MOST_DECISIONS: Final = 100_000
_MOST_KINDS, _MOST_WRITERS = 50, 1_000
DECISION_TABLES: Final = """
CREATE TABLE IF NOT EXISTS decisions (
    id TEXT PRIMARY KEY, change INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, who TEXT NOT NULL,
    identity TEXT NOT NULL, reason TEXT NOT NULL, details TEXT NOT NULL, created_us INTEGER NOT NULL,
    writer TEXT NOT NULL, number INTEGER NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_decided ON decisions (created_us);
CREATE INDEX IF NOT EXISTS by_kind ON decisions (kind, created_us);
CREATE INDEX IF NOT EXISTS by_writer ON decisions (writer, number);
"""


@dataclass(frozen=True, slots=True)
class SeenDecision:
    """An entry of the decision log, as its message says it; ``details`` is a JSON object of texts."""

    id: str
    kind: str
    subject: str
    who: str
    identity: str
    reason: str
    details: str
    created_us: int
    writer: str
    number: int
    hash: str


_COLUMNS = ", ".join(field.name for field in fields(SeenDecision))


def columns_of(entry: DecisionEntry) -> dict[str, Any]:
    """Return the columns of an entry but for the number of its change; its id is that of its content."""
    return {
        "id": hashlib.sha256(msgspec.json.encode(entry)).hexdigest(),
        "kind": entry.kind,
        "subject": entry.subject,
        "who": entry.who,
        "identity": entry.identity,
        "reason": entry.reason,
        "details": msgspec.json.encode(entry.details).decode(),
        "created_us": to_us(entry.created_at),
        "writer": entry.writer,
        "number": entry.number,
        "hash": entry.hash,
    }


class DecisionQuestions(ABC):
    """What can be asked of the decisions in the view."""

    @abstractmethod
    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that the query finds. Raises ViewError."""

    def log(self, kind: str | None, limit: int, behind: tuple[int, str] | None = None) -> list[SeenDecision]:
        """Return the decisions of a kind (None: of all), the newest first, ``behind`` time and id of a place."""
        wanted: list[tuple[str, tuple[Any, ...]]] = [] if kind is None else [("kind = ?", (kind,))]
        if behind is not None:
            at_us, name = behind
            wanted.append(("created_us <= ? AND (created_us < ? OR id > ?)", (at_us, at_us, name)))
        where = f"WHERE {' AND '.join(text for text, _ in wanted)}" if wanted else ""
        values = [value for _, given in wanted for value in given]
        query = f"SELECT {_COLUMNS} FROM decisions {where} ORDER BY created_us DESC, id LIMIT ?"
        return [SeenDecision(*row) for row in self._rows(query, (*values, limit))]

    def log_kinds(self) -> dict[str, int]:
        """Return how many decisions of each kind there are, of the most frequent kinds: any text may be one."""
        query = "SELECT kind, count(*) FROM decisions GROUP BY kind ORDER BY count(*) DESC, kind LIMIT ?"
        return dict(sorted(self._rows(query, (_MOST_KINDS,))))

    def log_heads(self) -> list[tuple[str, int, str]]:
        """Return of each writer, of a thousand at most, the last entry: writer, number and hash."""
        query = "SELECT writer, max(number), hash FROM decisions GROUP BY writer ORDER BY writer LIMIT ?"
        return [(writer, number, digest) for writer, number, digest in self._rows(query, (_MOST_WRITERS,))]
