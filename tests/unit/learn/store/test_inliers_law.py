"""The law of the inlier store: whatever writers do, crash and purge, it holds what one would who never forgot anything.

A model remembers every sequence that was ever flushed and says, in the plainest words, what must be there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.sampling import key_of
from streamad.messages import SHARES, Share
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import SECOND_US, START_US, all_ids, sequence_of, store_of

LIMIT, MAX_AGE_S = 20, 60
NUMBERS = st.integers(0, 400)


class Store(RuleBasedStateMachine):
    """Two writers on one folder; ``stored`` maps the id of all that was ever flushed to its share and time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(START_US + 10_000 * SECOND_US)
        self.stored: dict[str, tuple[Share, int]] = {}
        self.purged: set[str] = set()
        self.waiting: list[dict[str, tuple[Share, int]]] = [{}, {}]
        self.policy = "newest"

    @initialize(policy=st.sampled_from(["newest", "reservoir"]))
    def begin(self, policy: str) -> None:
        self.policy = policy
        self.writers = [self.opened(), self.opened()]

    def opened(self) -> InlierStore:
        limits = {"max_accepted": LIMIT, "max_reserve": LIMIT, "max_aside": LIMIT}
        return store_of(Path(self.folder.name), clock=self.clock, policy=self.policy, max_age=f"{MAX_AGE_S}s", **limits)

    @rule(
        writer=st.integers(0, 1),
        first=NUMBERS,
        n=st.integers(1, 40),
        share=st.sampled_from(SHARES),
        step=st.integers(1, 3),
    )
    def offer(self, writer: int, first: int, n: int, share: Share, step: int) -> None:
        for i in range(first, first + n * step, step):
            one = sequence_of(i, time_s=i / 4)
            was_there = not self.writers[writer].offer(one, share)
            assert was_there or one.id not in self.waiting[writer]
            if not was_there:
                self.waiting[writer][one.id] = share, one.time_us

    @rule(writer=st.integers(0, 1))
    def flush(self, writer: int) -> None:
        self.writers[writer].flush()
        assert self.writers[writer].pending() == 0
        for sequence_id, entry in self.waiting[writer].items():
            if sequence_id not in self.purged:
                self.stored.setdefault(sequence_id, entry)
        self.waiting[writer].clear()
        stored_ids = sorted(self.stored)[:: max(1, len(self.stored) // 10)]
        # The other writer learns of them with its own next flush or reading; a new store knows them at once.
        again = self.opened()
        assert not any(again.offer(sequence_of(int(one[3:])), "accepted") for one in stored_ids)

    @rule(writer=st.integers(0, 1))
    def crash(self, writer: int) -> None:
        self.writers[writer] = self.opened()
        self.waiting[writer].clear()

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=30))
    def purge(self, numbers: list[int]) -> None:
        visible = set(all_ids(self.opened()))
        gone = {f"id-{i:06d}" for i in numbers}
        assert self.opened().purge(ids=gone) == len(gone & visible)
        self.purged |= gone & self.stored.keys()
        # What is purged may have kept others out, which are gone as well: from here on the past counts as it is now.
        now_visible = set(all_ids(self.opened()))
        assert not now_visible & gone
        assert now_visible >= visible - gone

    @rule(seconds=st.integers(1, 10**6))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.purged)
    @invariant()
    def holds_what_one_would_who_never_forgot(self) -> None:
        if not hasattr(self, "writers"):
            return
        reader = self.opened()
        for share in SHARES:
            assert [one.id for one in reader.read(share)] == self.expected(share)

    def expected(self, share: Share) -> list[str]:
        entries = [(time_us, one) for one, (its_share, time_us) in self.stored.items() if its_share == share]
        newest = max(entries, default=(0, ""))[0]
        young = [entry for entry in entries if entry[0] >= newest - MAX_AGE_S * SECOND_US]
        rank = key_of if self.policy == "reservoir" and share != "aside" else None
        chosen = sorted(young, key=lambda entry: rank(entry[1]) if rank else (entry[0], key_of(entry[1])))[-LIMIT:]
        return [one for _, one in sorted(chosen)]

    @invariant()
    def holds_no_id_twice_and_keeps_the_bounds(self) -> None:
        if not hasattr(self, "writers"):
            return
        found = all_ids(self.opened())
        assert len(found) == len(set(found))
        assert not set(found) & self.purged
        assert set(found) <= self.stored.keys()
        reader = self.opened()
        assert all(n <= LIMIT for n in reader.counts().values())
        assert reader.problems == []

    def teardown(self) -> None:
        self.folder.cleanup()


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
