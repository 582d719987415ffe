"""Which words of operators a store keeps: a pure function of the words and of the sequences it holds.

A word is a mark under its name, which follows from all that it says but not from when it was received.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from streamad.learn.store.records import Effect, Mark
from streamad.learn.store.sampling import KeyArray, keys_of

LATEST = 5
"""Words kept of each id, the latest by their dates; beside them the first received of each effect."""
MAX_UNHELD = 10_000
"""Words kept on ids that the store does not hold."""
UNHELD_US = 30 * 86_400_000_000
"""They are kept for 30 days."""

Word = tuple[str, Mark]


def latest_of(words: Sequence[Word]) -> Mark:
    """Return the word of one id that counts, the latest by its date (of equals always the same one).

    Its ``received_us`` is when the first word of the same effect was received: who repeats another's word, whatever
    date it bears, makes it neither younger nor older.
    """
    mark = max(words, key=_date)[1]
    received_us = min(other.since_us for _, other in words if other.effect == mark.effect)
    return msgspec.structs.replace(mark, received_us=received_us)


def words_to_keep(words: Mapping[str, Mark], held: KeyArray, reference_us: int | None) -> dict[str, Mark]:
    """Return those of ``words`` that stay.

    Of each id the latest five and the first received of each effect, so that what counts never changes. Of ids not
    ``held`` (their keys) at most 10,000 words, those received in the 30 days before ``reference_us`` (None: whenever);
    the ids about which nothing was received for longest go first, and with all their words.
    """
    by_id: dict[str, list[Word]] = {}
    for word in words.items():
        by_id.setdefault(word[1].id, []).append(word)
    histories = [_history(of_one) for of_one in by_id.values()]
    is_held = np.isin(keys_of(by_id), held).tolist()
    kept = [history for history, is_one in zip(histories, is_held, strict=True) if is_one]
    kept += _newest([history for history, is_one in zip(histories, is_held, strict=True) if not is_one], reference_us)
    return {name: mark for history in kept for name, mark in history}


def _history(words: list[Word]) -> list[Word]:
    if len(words) <= 1:
        return words
    first: dict[Effect, Word] = {}
    for word in sorted(words, key=lambda word: (word[1].since_us, word[0])):
        first.setdefault(word[1].effect, word)
    return list(dict([*sorted(words, key=_date)[-LATEST:], *first.values()]).items())


def _newest(histories: list[list[Word]], reference_us: int | None) -> list[list[Word]]:
    """Return the histories that were added to last."""
    kept, n_words = [], 0
    for history in sorted(histories, key=_heard, reverse=True):
        n_words += len(history)
        is_old = reference_us is not None and _heard(history)[0] < reference_us - UNHELD_US
        if n_words > MAX_UNHELD or is_old:
            break
        kept.append(history)
    return kept


def _heard(history: list[Word]) -> tuple[int, str]:
    return max((mark.since_us, name) for name, mark in history)


def _date(word: Word) -> tuple[int, str]:
    return word[1].at_us, word[0]
