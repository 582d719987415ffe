"""What operators' marks do by themselves: keep sequences out of training, up to a bound. Pure.

The rule and its reason (a flood of marks must not decide what a model learns): docs/learning/feedback.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamad.learn.store.records import Mark, StoredSequence

_ROUNDING = 1e-9


class Exclusions(NamedTuple):
    """The ids that marks keep out of a training, and how many more were asked for than the bound admits."""

    ids: frozenset[str]
    n_capped: int


def exclusions(candidates: Sequence[StoredSequence], marks: Mapping[str, Mark], *, most: int) -> Exclusions:
    """Return which of ``candidates`` are kept out of training: at most ``most`` of those called confirmed or veto.

    The marks received first count, so that a flood of later marks displaces none.
    """
    asked = [each for each in candidates if each.id in marks and marks[each.id].effect == "kept_out"]
    by_age = sorted(asked, key=lambda each: (marks[each.id].received_us, each.id))
    return Exclusions(frozenset(each.id for each in by_age[:most]), max(0, len(asked) - most))


def most_excluded(n_training: int, n_others: int, *, share: float, fewest: int) -> int:
    """Return how many marks may keep out of ``n_training`` sequences, all that would train without them.

    At most ``share``, and so few that ``fewest`` of the ``n_others`` that are no false alarms are left.
    """
    return min(math.floor(share * n_training + _ROUNDING), max(0, n_others - fewest))
