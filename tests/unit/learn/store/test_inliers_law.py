"""The law of a learner's store: whatever is offered, crashes, is marked and purged, it holds what it must.

A model remembers every sequence that was ever flushed and says, in the plainest words, what must be there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamad.learn.store.bounds import key_of
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark
from streamad.messages import SHARES, Share
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import SECOND_US, START_US, sequence_of, store_of

LIMIT, MAX_AGE_S = 20, 60
NUMBERS = st.integers(0, 400)


class Store(RuleBasedStateMachine):
    """One writer and a reader; ``stored`` maps the id of all that was ever flushed to its share and time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock(START_US + 10_000 * SECOND_US)
        self.stored: dict[str, tuple[Share, int]] = {}
        self.waiting: dict[str, tuple[Share, int]] = {}
        self.purged: set[str] = set()
        self.marked: set[str] = set()

    @initialize()
    def begin(self) -> None:
        self.writer, self.reader = self.opened(), self.opened()

    def opened(self) -> InlierStore:
        limits = dict.fromkeys(SHARES, LIMIT)
        return store_of(Path(self.folder.name), clock=self.clock, max_age=f"{MAX_AGE_S}s", limits=limits)

    @rule(first=NUMBERS, n=st.integers(1, 40), step=st.integers(1, 3))
    def offer(self, first: int, n: int, step: int) -> None:
        """Offer sequences, some again: a record that is read twice has the same share, that of its commit."""
        for i in range(first, first + n * step, step):
            one, share = sequence_of(i, time_s=i / 4), SHARES[i % 7 % 3]
            if self.writer.offer(one, share):
                assert one.id not in self.waiting
                self.waiting[one.id] = share, one.time_us

    @rule()
    def flush(self) -> None:
        self.writer.flush()
        for name, entry in self.waiting.items():
            self.stored.setdefault(name, entry)
        self.waiting.clear()

    @rule()
    def crash(self) -> None:
        self.writer.close()
        self.writer = self.opened()
        self.waiting.clear()

    @rule(number=NUMBERS, judgement=st.sampled_from(["false_alarm", "withdrawn"]), at_s=st.integers(1, 1000))
    def mark(self, number: int, judgement: str, at_s: int) -> None:
        name = f"id-{number:06d}"
        at_us = START_US + at_s * SECOND_US
        self.writer.mark(Mark(id=name, judgement=judgement, at_us=at_us, received_us=at_us))
        self.marked.add(name)

    @rule(numbers=st.lists(NUMBERS, min_size=1, max_size=30))
    def purge(self, numbers: list[int]) -> None:
        gone = {f"id-{i:06d}" for i in numbers}
        before = set(self.visible()) - gone
        self.writer.purge(ids=gone)
        self.purged |= gone & self.stored.keys()
        # What is purged may have kept others out, which are gone as well: from here on the past counts as it is now.
        now = set(self.visible())
        assert not now & gone - self.waiting.keys()
        assert now >= before

    @rule(seconds=st.integers(1, 10**6))
    def advance(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def visible(self) -> list[str]:
        return [one.id for share in SHARES for one in self.reader.read(share)]

    @precondition(lambda self: not self.purged)
    @invariant()
    def without_marks_holds_what_one_would_who_never_forgot(self) -> None:
        if hasattr(self, "reader"):
            for share in SHARES:
                found = [one.id for one in self.reader.read(share) if not one.only_marked]
                assert found == self.expected(share)

    def expected(self, share: Share) -> list[str]:
        entries = [(time_us, one) for one, (its_share, time_us) in self.stored.items() if its_share == share]
        newest = max(entries, default=(0, ""))[0]
        young = [entry for entry in entries if entry[0] >= newest - MAX_AGE_S * SECOND_US]
        chosen = sorted(young, key=lambda entry: (entry[0], key_of(entry[1])))[-LIMIT:]
        return [one for _, one in sorted(chosen)]

    @invariant()
    def holds_no_id_twice_and_only_what_was_offered_or_marked(self) -> None:
        if hasattr(self, "reader"):
            found = self.visible()
            assert len(found) == len(set(found))
            assert set(found) <= self.stored.keys() - self.purged
            only_marked = {one.id for share in SHARES for one in self.reader.read(share) if one.only_marked}
            assert only_marked <= self.marked
            assert all(n <= LIMIT for n in self.reader.counts().values())

    def teardown(self) -> None:
        for each in (getattr(self, "writer", None), getattr(self, "reader", None)):
            if each is not None:
                each.close()
        self.folder.cleanup()


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
