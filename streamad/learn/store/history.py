"""Which marks of operators a store keeps: a pure function of the marks and of the sequences it holds.

The name of a mark follows from all that it says, but not from when it was received.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
import numpy as np

from streamad.learn.store.bounds import KeyArray, keys_of
from streamad.learn.store.records import Effect, Mark
from streamad.settings.fields import NAME_PATTERN

LATEST = 5
"""Marks kept of each id, the latest by their dates; beside them the first received of each effect."""
MAX_UNHELD = 10_000
"""Marks kept on ids that the store does not hold."""
UNHELD_US = 30 * 86_400_000_000
"""They are kept for 30 days."""

NamedMark = tuple[str, Mark]
_PLAIN = re.compile(NAME_PATTERN)


def latest_of(marks: Sequence[NamedMark]) -> Mark:
    """Return the mark of one id that counts, the latest by its date (of equals always the same one).

    Its ``received_us`` is when the first mark of the same effect was received: who repeats another's mark, whatever
    date it bears, makes it neither younger nor older.
    """
    mark = max(marks, key=_date)[1]
    received_us = min(other.since_us for _, other in marks if other.effect == mark.effect)
    return msgspec.structs.replace(mark, received_us=received_us)


def marks_to_keep(marks: Mapping[str, Mark], held: KeyArray, reference_us: int | None) -> dict[str, Mark]:
    """Return those of ``marks`` that stay.

    Of each id the latest five and the first received of each effect, so that what counts never changes. Of ids not
    ``held`` (their keys) at most 10,000 marks, those received in the 30 days before ``reference_us`` (None: whenever);
    the ids about which nothing was received for longest go first, and with all their marks.
    """
    by_id: dict[str, list[NamedMark]] = {}
    for named in marks.items():
        by_id.setdefault(named[1].id, []).append(named)
    histories = [_history(of_one) for of_one in by_id.values()]
    is_held = np.isin(keys_of(by_id), held).tolist()
    kept = [history for history, is_one in zip(histories, is_held, strict=True) if is_one]
    kept += _newest([history for history, is_one in zip(histories, is_held, strict=True) if not is_one], reference_us)
    return {name: mark for history in kept for name, mark in history}


def _history(marks: list[NamedMark]) -> list[NamedMark]:
    if len(marks) <= 1:
        return marks
    first: dict[Effect, NamedMark] = {}
    for named in sorted(marks, key=lambda named: (named[1].since_us, named[0])):
        first.setdefault(named[1].effect, named)
    return list(dict([*sorted(marks, key=_date)[-LATEST:], *first.values()]).items())


def _newest(histories: list[list[NamedMark]], reference_us: int | None) -> list[list[NamedMark]]:
    """Return the histories that were added to last."""
    kept, n_marks = [], 0
    for history in sorted(histories, key=_heard, reverse=True):
        n_marks += len(history)
        is_old = reference_us is not None and _heard(history)[0] < reference_us - UNHELD_US
        if n_marks > MAX_UNHELD or is_old:
            break
        kept.append(history)
    return kept


def _heard(history: list[NamedMark]) -> tuple[int, str]:
    return max((mark.since_us, name) for name, mark in history)


def _date(named: NamedMark) -> tuple[int, str]:
    return named[1].at_us, named[0]


def name_of(mark: Mark) -> str:
    """Return the mark's name: the id if it is a plain one, else its hash, and a hash of all but ``received_us``."""
    said = {"id": mark.id, "judgement": mark.judgement, "note": mark.note, "by": mark.by, "at_us": mark.at_us}
    content = msgspec.json.encode(said | ({"by_verified": True} if mark.by_verified else {}))
    return f"{_stem(mark)}.{blake2b(content, digest_size=8).hexdigest()}"


def _stem(mark: Mark) -> str:
    plain = _PLAIN.fullmatch(mark.id)
    return mark.id if plain else f"_{blake2b(mark.id.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
