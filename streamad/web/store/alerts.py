"""Questions about alerts: those that a person wants to see, by time or by how far they lie above their threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from streamad.web.store.questions import ANYWHERE, BEHIND, Place, Questions, SeenSequence
from streamad.web.store.wanted import Wanted
from streamad.web.store.warned import NEVER

ANY: Final = Wanted()
UNJUDGED: Final = Wanted(state="new")
_MOST_LIMITS = 200


class Limit(NamedTuple):
    """The lowest score that alerts, above 0: of a version of a model, at a rate."""

    model: str
    version: str
    rate: float
    score: float


_HEIGHT = """iif(score > 0, score / (SELECT l.score FROM limits l WHERE l.model = sequences.model
    AND l.version = sequences.version AND l.rate = sequences.rate), NULL)"""
_KEY = f"(coalesce(-{_HEIGHT}, 1), coalesce(p_value, 2), -end_us, id)"
"""The order by height; those of unknown height come last, by p, then by time."""


class AlertQuestions(Questions):
    """What can be asked of the alerts in the view."""

    def inbox(
        self,
        limit: int,
        *,
        wanted: Wanted = ANY,
        since_us: int = -NEVER,
        until_us: int = NEVER,
        behind: Place | None = None,
        limits: Sequence[Limit] | None = None,
    ) -> list[SeenSequence]:
        """Return alerts that are ``wanted``, the newest first; with ``limits`` the highest above its limit first.

        They ended from ``since_us`` to ``until_us``, and come ``behind`` a place in the list.
        """
        where, values = wanted.condition
        where = f"rate IS NOT NULL AND end_us >= ? AND end_us <= ? AND {where}"
        values = (since_us, until_us, *values)
        if limits is None:
            where, values = f"{where} AND {BEHIND}", (*values, *(behind or ANYWHERE).values)
            return self._select(f"{where} ORDER BY end_us DESC, id LIMIT ?", (*values, limit))
        if behind is not None:
            where += f" AND {_KEY} > (SELECT * FROM (SELECT {_KEY[1:-1]} FROM sequences WHERE id = ?))"
            values = (*values, behind.id)
        table = ", ".join(["(NULL, NULL, NULL, NULL)", *["(?, ?, ?, ?)"] * len(limits)])
        # The ids come first: SQLite would make all columns of all rows before it sorts.
        rows = self._rows(
            f"WITH limits (model, version, rate, score) AS (VALUES {table}) "
            f"SELECT id FROM sequences WHERE {where} ORDER BY {_KEY[1:-1]} LIMIT ?",
            (*(value for each in limits for value in each), *values, limit),
        )
        names = [row[0] for row in rows]
        found = {one.id: one for one in self._select(f"id IN ({', '.join('?' * len(names))})", names)}
        return [found[name] for name in names if name in found]

    def n_wanted(self, wanted: Wanted) -> int:
        """Return how many alerts are wanted."""
        where, values = wanted.condition
        ((n,),) = self._rows(f"SELECT count(*) FROM sequences WHERE rate IS NOT NULL AND {where}", values)
        return int(n)

    def limits_needed(self) -> list[tuple[str, str, float]]:
        """Return model, version and rate of the alerts, those of the newest alerts first."""
        query = (
            "SELECT model, version, rate FROM sequences WHERE rate IS NOT NULL AND model IS NOT NULL "
            "AND version IS NOT NULL GROUP BY model, version, rate ORDER BY max(end_us) DESC LIMIT ?"
        )
        return [(str(model), str(version), float(rate)) for model, version, rate in self._rows(query, (_MOST_LIMITS,))]

    def assignees(self, limit: int) -> list[str]:
        """Return who looks after alerts."""
        query = "SELECT DISTINCT assignee FROM sequences WHERE rate IS NOT NULL AND assignee > '' ORDER BY 1 LIMIT ?"
        return [row[0] for row in self._rows(query, (limit,))]

    def alike(self, one: SeenSequence, channel: str, limit: int) -> list[SeenSequence]:
        """Return earlier alerts whose attribution names ``channel`` first, the newest first."""
        first = "iif(json_valid(attribution), json_extract(attribution, '$.channels[0].channel'), NULL)"
        where = f"rate IS NOT NULL AND id != ? AND end_us <= ? AND {first} = ? ORDER BY end_us DESC LIMIT ?"
        return self._select(where, (one.id, one.end_us or NEVER, channel, limit))

    def neighbours(self, one: SeenSequence) -> tuple[SeenSequence | None, SeenSequence | None]:
        """Return the alerts that ended before and after ``one``."""
        at = (one.end_us or 0, one.id)
        before = self._select("rate IS NOT NULL AND (end_us, id) < (?, ?) ORDER BY end_us DESC, id DESC LIMIT 1", at)
        after = self._select("rate IS NOT NULL AND (end_us, id) > (?, ?) ORDER BY end_us, id LIMIT 1", at)
        return next(iter(before), None), next(iter(after), None)
