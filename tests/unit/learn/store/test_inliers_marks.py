"""The law of words: what a store holds within its bounds is a function of the data alone, whatever operators say."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind
from streamad.messages import SHARES, Share
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import SECOND_US, START_US, add, ids, numbers, sequence_of, store_of

LIMIT, MAX_AGE_S = 20, 60
NUMBERS = st.integers(0, 300)


def natural(store: InlierStore, share: Share) -> list[str]:
    return [one.id for one in store.read(share) if not one.only_marked]


class Twins(RuleBasedStateMachine):
    """Two stores get the same sequences; words come to the first one alone."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(START_US + 1000 * SECOND_US)
        self.limit = LIMIT
        self.reopen()

    @rule()
    def reopen(self) -> None:
        """Both processes die: what they had not flushed is gone."""
        self.twins = [self.opened(name) for name in ("words", "none")]

    def opened(self, name: str) -> InlierStore:
        limits = dict.fromkeys(SHARES, self.limit)
        return store_of(Path(self.folder.name) / name, clock=self.clock, limits=limits, max_age=f"{MAX_AGE_S}s")

    @rule(first=NUMBERS, n=st.integers(1, 60), share=st.sampled_from(SHARES), step=st.integers(1, 3))
    def offer(self, first: int, n: int, share: Share, step: int) -> None:
        for i in range(first, first + n * step, step):
            taken = [store.offer(sequence_of(i, time_s=i / 4), share) for store in self.twins]
            assert taken[0] == taken[1]

    @rule()
    def flush(self) -> None:
        for store in self.twins:
            store.flush()

    @rule(first=NUMBERS, n=st.integers(1, 60), judgement=st.sampled_from(get_args(MarkKind)), at_us=st.integers(1, 99))
    def say(self, first: int, n: int, judgement: MarkKind, at_us: int) -> None:
        for i in range(first, first + n):
            self.twins[0].mark(Mark(id=f"id-{i:06d}", judgement=judgement, at_us=at_us, received_us=1))

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=30))
    def purge(self, numbers: list[int]) -> None:
        for store in self.twins:
            store.purge(ids=[f"id-{i:06d}" for i in numbers])

    @rule(seconds=st.integers(-2000, 2000))
    def set_the_clock(self, seconds: int) -> None:
        self.clock.set_wall(START_US + (1000 + seconds) * SECOND_US)

    @rule(limit=st.integers(20, 60))
    def configure(self, limit: int) -> None:
        self.limit = limit
        self.reopen()

    @invariant()
    def words_change_nothing_within_the_bounds(self) -> None:
        if not hasattr(self, "twins"):
            return
        words, none = (self.opened(name) for name in ("words", "none"))
        for share in SHARES:
            assert natural(words, share) == natural(none, share)
        assert words.counts() == none.counts()
        assert words.count_since(START_US + 5 * SECOND_US) == none.count_since(START_US + 5 * SECOND_US)
        assert words.problems == []
        assert not any(one.only_marked for share in SHARES for one in none.read(share))

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


TestTwins = Twins.TestCase
TestTwins.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)


def test_words_change_nothing_within_the_bounds(tmp_path: Path) -> None:
    words, none = (store_of(tmp_path / name, limits={"accepted": 50}) for name in ("words", "none"))
    for first in range(0, 1000, 10):
        add(none, range(first, first + 10))
        add(words, range(first, first + 10))
        words.mark(Mark(id=f"id-{first:06d}", judgement="false_alarm", at_us=1))
    assert natural(words, "accepted") == natural(none, "accepted")
    assert words.counts() == none.counts() == {"accepted": 50, "reserve": 0, "aside": 0}
    extra = {one.id for one in words.read("accepted") if one.only_marked}
    marked = {f"id-{first:06d}" for first in range(0, 1000, 10)}
    assert extra <= marked
    assert len(extra) == 50


def test_a_word_that_is_taken_back_lets_its_sequence_go(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"aside": 20})
    add(store, [0], "aside")
    store.mark(Mark(id="id-000000", judgement="false_alarm", at_us=1))
    add(store, range(1, 30), "aside")
    assert [one.id for one in store.read("aside") if one.only_marked] == ["id-000000"]
    store.mark(Mark(id="id-000000", judgement="withdrawn", at_us=2))
    add(store, [30], "aside")
    assert numbers(store, "aside") == list(range(11, 31))
    add(store, [0], "aside")
    assert numbers(store, "aside") == list(range(11, 31)), "if its record is read again, the bounds drop it again"


def test_larger_bounds_bring_nothing_back_that_stayed_for_its_mark(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"aside": 20})
    add(store, [0], "aside")
    store.mark(Mark(id="id-000000", judgement="confirmed", at_us=1))
    add(store, range(1, 30), "aside")
    larger = store_of(tmp_path, limits={"aside": 100})
    assert ids(larger.read("aside")) == ["id-000000", *(f"id-{i:06d}" for i in range(10, 30))]
    assert larger.counts()["aside"] == 20


def test_a_purged_sequence_does_not_come_back_by_a_word(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"aside": 20})
    add(store, [0], "aside")
    store.mark(Mark(id="id-000000", judgement="confirmed", at_us=1))
    add(store, range(1, 30), "aside")
    assert store.purge(ids=["id-000000"]) == 1
    store.mark(Mark(id="id-000000", judgement="false_alarm", at_us=2))
    assert numbers(store_of(tmp_path, limits={"aside": 20}), "aside") == list(range(10, 30))
