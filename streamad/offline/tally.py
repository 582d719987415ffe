"""The figures of judged units, and their sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from streamad.offline.judging import SequenceJudge
from streamad.telemetry.metrics import Counters


class Tally(msgspec.Struct, frozen=True):
    """What was counted: of the input (``Counters``), verdicts by decision, and why sequences are unscorable.

    ``errors`` has the error of each model that could not be used, ``n_scored`` the windows that had one that could;
    ``n_known`` of these sequences trained or calibrated their model.
    """

    counters: dict[str, Any] = {}
    decisions: dict[str, int] = {}
    reasons: dict[str, int] = {}
    errors: dict[str, str] = {}
    n_scored: int = 0
    n_known: int = 0

    @classmethod
    def of(cls, judge: SequenceJudge, counters: Counters) -> Tally:
        """Return the figures of one unit."""
        errors = {name: str(error) for name, error in judge.errors.items()}
        return cls(
            counters.as_dict(), dict(judge.decisions), dict(judge.reasons), errors, judge.n_scored, judge.n_known
        )

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(_sum(mine, theirs) for mine, theirs in zip(_values(self), _values(other), strict=True)))


def _values(tally: Tally) -> tuple[Any, ...]:
    return msgspec.structs.astuple(tally)


def _sum(mine: Any, theirs: Any) -> Any:
    """Return numbers added, mappings key by key; of two texts the first."""
    if isinstance(mine, Mapping):
        keys = dict.fromkeys([*mine, *theirs])
        return {
            key: _sum(mine[key], theirs[key]) if key in mine and key in theirs else {**theirs, **mine}[key]
            for key in keys
        }
    return mine if isinstance(mine, str) else mine + theirs
