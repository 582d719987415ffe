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


def exclusions(
    candidates: Sequence[StoredSequence], marks: Mapping[str, Mark], *, share: float, fewest: int
) -> Exclusions:
    """Return which of ``candidates``, all that would train without marks, are kept out of training.

    These are the sequences called ``confirmed`` or ``veto``: at most ``share`` of the candidates, and never so many
    that fewer than ``fewest`` are left. The marks received first count, so that a flood of later marks displaces none.
    """
    asked = [each for each in candidates if each.id in marks and marks[each.id].effect == "kept_out"]
    most = min(math.floor(share * len(candidates) + _ROUNDING), max(0, len(candidates) - fewest))
    by_age = sorted(asked, key=lambda each: (marks[each.id].received_us, each.id))
    return Exclusions(frozenset(each.id for each in by_age[:most]), max(0, len(asked) - most))
