"""Which words stay: on held ids what counts for ever, on others 10,000 and 30 days; what counts never changes."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store import history
from streamad.learn.store.bounds import keys_of
from streamad.learn.store.history import MAX_UNHELD, UNHELD_US, latest_of, marks_to_keep
from streamad.learn.store.records import Mark, MarkKind

DAY_US = 86_400_000_000
NOW_US = 1000 * DAY_US


def word(sequence_id: str = "a", judgement: MarkKind = "veto", at_us: int = 1, received_us: int = NOW_US) -> Mark:
    return Mark(id=sequence_id, judgement=judgement, at_us=at_us, received_us=received_us)


def named(*marks: Mark) -> dict[str, Mark]:
    return {f"{mark.id}.{mark.judgement}.{mark.at_us}.{n}": mark for n, mark in enumerate(marks)}


def kept(words: dict[str, Mark], *held: str, reference_us: int | None = NOW_US) -> dict[str, Mark]:
    return marks_to_keep(words, keys_of(held), reference_us)


WORDS = st.lists(
    st.builds(
        word,
        st.sampled_from(["a", "b"]),
        st.sampled_from(get_args(MarkKind)),
        st.integers(1, 30),
        st.integers(1, 10**6),
    ),
    max_size=60,
)


def counting(words: dict[str, Mark]) -> dict[str, Mark]:
    by_id: dict[str, list[tuple[str, Mark]]] = {}
    for name, mark in words.items():
        by_id.setdefault(mark.id, []).append((name, mark))
    return {one: latest_of(of_one) for one, of_one in by_id.items()}


@given(WORDS, st.integers(1, 20))
def test_what_counts_and_since_when_is_the_same_whenever_words_were_dropped(marks: list[Mark], step: int) -> None:
    words, stored = named(*marks), dict[str, Mark]()
    for first in range(0, len(words), step):
        stored = kept(stored | dict(list(words.items())[first : first + step]), "a", "b")
    assert counting(stored) == counting(words)
    assert all(sum(mark.id == one for mark in stored.values()) <= 8 for one in "ab")


def test_a_flood_on_one_id_leaves_eight_words_and_who_said_it_first() -> None:
    first = word(judgement="confirmed", at_us=5, received_us=5)
    flood = [word(judgement=kind, at_us=100 + n) for n in range(1000) for kind in get_args(MarkKind)]
    found = kept(named(first, *flood), "a")
    assert len(found) == 8
    assert first in found.values()


def test_the_oldest_words_on_ids_that_are_not_held_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (MAX_UNHELD, UNHELD_US) == (10_000, 30 * DAY_US)
    monkeypatch.setattr(history, "MAX_UNHELD", 5)
    held = [word(f"held{n}", received_us=1) for n in range(20)]
    others = [word(f"other{n}", at_us=100 - n, received_us=NOW_US - n) for n in range(20)]
    found = kept(named(*others, *held), *(mark.id for mark in held))
    assert set(found.values()) == {*held, *others[:5]}


def test_an_id_goes_with_all_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the later word went first, an earlier and withdrawn one would count again."""
    monkeypatch.setattr(history, "MAX_UNHELD", 3)
    marks = [word("a", "false_alarm", 1, 10), word("a", "withdrawn", 2, 20), word("b", received_us=30)]
    marks += [word("c", "veto", 1, 5), word("c", "withdrawn", 2, 15)]
    assert {mark.id for mark in kept(named(*marks), reference_us=None).values()} == {"a", "b"}


@pytest.mark.parametrize(
    ("age_us", "at_us", "n"), [(UNHELD_US, 1, 1), (UNHELD_US, 10 * NOW_US, 1), (UNHELD_US + 1, 10 * NOW_US, 0)]
)
def test_thirty_days_count_from_when_a_word_was_received_whatever_its_date(age_us: int, at_us: int, n: int) -> None:
    words = named(word(at_us=at_us, received_us=NOW_US - age_us))
    assert len(kept(words)) == n
    assert len(kept(words, "a")) == 1
    assert len(kept(words, reference_us=None)) == 1


def test_nothing_is_kept_of_nothing() -> None:
    assert marks_to_keep({}, np.zeros(0, np.uint64), NOW_US) == {}
