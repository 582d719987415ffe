"""What becomes of judged sequences in the store's thread: kept once, watched, and held while the store is away."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from streamad.drift.plant_watch import PlantWatch
from streamad.judge.gate import is_reserved
from streamad.learn.live import keeper as keeper_module
from streamad.learn.live.keeper import Item, Keeper, NewChampion, ToKeep, drop_oldest
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind, mark_of
from streamad.messages import SHARES, Decision, Feedback, ModelRef
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, from_us
from tests.support.learning.inlier_cases import judged_as

CHANNELS = (ChannelSpec("temp"), ChannelSpec("flow"))
L = 6
START_US = 1_767_225_600_000_000
V1, V2 = ModelRef("default", "0001"), ModelRef("default", "0002")
AWAY = "memory of a disk"


class Kept:
    """A keeper on a store in a folder; ``champion`` is in service."""

    def __init__(self, folder: Path, *, champion: ModelRef | None = V1, **learning: Any) -> None:
        self.clock = ManualClock(START_US)
        drift = {"min_sequences": 30, "changed_over": 20}
        self.settings = LearningSettings(**{"min_training": 10, "drift": drift, **learning})
        self.champion = champion
        self.folder = folder
        self.store = self.another_store()
        self.plant = PlantWatch(CHANNELS, self.settings.drift)
        self.keeper = Keeper(self.store, self.settings, self.clock, self.plant, lambda: self.champion)

    def another_store(self) -> InlierStore:
        return InlierStore(
            "inliers",
            "default",
            channels=CHANNELS,
            window=WindowSettings(length=L),
            settings=self.settings,
            clock=self.clock,
            base_dir=self.folder,
        )

    def ids_on_disk(self, share: str) -> set[str]:
        store = self.another_store()
        store.open()
        return {one.sequence for one in store.read(share)}  # type: ignore[arg-type]


def judged(
    number: int,
    *,
    decision: Decision = "normal",
    p_value: float | None = 0.5,
    model: ModelRef | None = V1,
    champion: ModelRef | None = V1,
    level: float = 0.0,
) -> ToKeep:
    end_us = START_US + number * 60_000_000
    score = None if model is None else 1.0
    verdict, window = judged_as(
        number, 2, L, end_us=end_us, level=level, decision=decision, score=score, p_value=p_value, model=model
    )
    return ToKeep(verdict, window, champion, end_us)


def alerts(numbers: range) -> list[ToKeep]:
    """Sequences of a plant that has changed."""
    return [judged(n, level=9.0, decision="anomalous", p_value=0.001) for n in numbers]


def named(numbers: range, *, reserved: bool) -> set[str]:
    return {f"B-{number}" for number in numbers if is_reserved("s", f"B-{number}", 0.2) == reserved}


def test_accepted_and_reserve_go_to_the_store_once_and_durably(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    work = kept.keeper.work([judged(number) for number in range(100)], flush=False)
    assert kept.keeper.n_unwritten
    assert work.held == work.kept
    again = kept.keeper.work([judged(number) for number in range(90, 110)], flush=True)
    assert again.kept.total() == 10
    assert not kept.keeper.n_unwritten
    assert kept.ids_on_disk("accepted") == named(range(110), reserved=False)
    assert kept.ids_on_disk("reserve") == named(range(110), reserved=True)
    assert again.held == {"accepted": len(kept.ids_on_disk("accepted")), "reserve": len(kept.ids_on_disk("reserve"))}


def test_what_another_version_judged_and_alerts_go_aside(tmp_path: Path) -> None:
    kept = Kept(tmp_path, champion=V2, reserve=0.000001)
    items = [judged(1, model=V1, champion=V2), judged(2, model=V2, champion=V2)]
    items += [judged(3, decision="anomalous", p_value=0.001, model=V2, champion=V2)]
    work = kept.keeper.work(items, flush=True)
    assert kept.ids_on_disk("accepted") == {"B-2"}
    assert kept.ids_on_disk("aside") == {"B-1", "B-3"}
    assert work.kept == {"accepted": 1, "aside": 2}


@pytest.mark.parametrize("judgement", get_args(MarkKind))
def test_no_word_moves_a_sequence_that_comes_after_it(tmp_path: Path, judgement: MarkKind) -> None:
    numbers = range(40)
    words, none = Kept(tmp_path / "words"), Kept(tmp_path / "none")
    for number in numbers:
        words.keeper.mark(Mark(id=judged(number).verdict.verdict_id, judgement=judgement, at_us=START_US))
    items = [judged(n) for n in numbers[:30]] + alerts(numbers[30:])
    for kept in (words, none):
        kept.keeper.work(items, flush=True)
    for share in SHARES:
        assert words.ids_on_disk(share) == none.ids_on_disk(share) != set()


def test_a_mark_is_durable_at_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    feedback = Feedback(alert_id=judged(2).verdict.verdict_id, judgement="veto", created_at=from_us(START_US))
    kept.keeper.mark(mark_of(feedback, received_us=START_US))
    other = kept.another_store()
    other.open()
    assert list(other.marks()) == [feedback.alert_id]


def test_what_is_kept_for_its_mark_alone_triggers_nothing(tmp_path: Path) -> None:
    """The oldest half of the reserve is marked and lies beyond its bound: neither drift nor a count may know of it."""
    words, none = (Kept(tmp_path / name, reserve=0.5, max_reserve=50, max_accepted=20) for name in ("words", "none"))
    for kept in (words, none):
        kept.keeper.work([judged(n, level=9.0) for n in range(100)], flush=True)
    for number in range(100):
        words.keeper.mark(Mark(id=judged(number).verdict.verdict_id, judgement="false_alarm", at_us=START_US))
    after = []
    for kept in (words, none):
        kept.keeper.work([judged(n) for n in range(100, 250)], flush=True)
        again = Kept(kept.folder, reserve=0.5, max_reserve=50, max_accepted=20)
        drifts = again.keeper.work([judged(n, level=9.0) for n in range(300, 340)], flush=False).drifts
        after.append((drifts, again.keeper.kept_since(0), again.keeper.accepted_since(0)))
    assert any(one.only_marked for one in words.store.read("reserve"))
    assert after[0] == after[1]
    assert after[0][0], "the level of the marked ones is news to it"


# --- the plant -------------------------------------------------------------------------------------------------------


def test_drift_is_found_and_a_new_champion_ends_a_lasting_change(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.keeper.work([judged(number) for number in range(100)], flush=False).drifts == []
    odd = alerts(range(100, 150))
    assert kept.keeper.work(odd, flush=False).drifts
    assert kept.plant.changed is not None
    kept.keeper.work([NewChampion()], flush=False)
    assert kept.plant.changed is None


def test_the_p_values_of_another_version_count_for_no_alert_share(tmp_path: Path) -> None:
    kept = Kept(tmp_path, champion=V2)
    kept.keeper.work([judged(n, model=V2, champion=V2) for n in range(100)], flush=False)
    odd = [judged(n, level=9.0, decision="anomalous", p_value=0.001, champion=V2) for n in range(100, 150)]
    assert kept.keeper.work(odd, flush=False).drifts, "the channels have drifted all the same"
    assert kept.plant.changed is None


def test_a_restart_forgets_neither_what_was_usual_nor_that_the_plant_has_changed(tmp_path: Path) -> None:
    before = Kept(tmp_path, reserve=0.5)
    before.keeper.work([judged(number) for number in range(200)], flush=True)
    odd = alerts(range(200, 300))
    before.keeper.work(odd, flush=True)
    assert before.plant.changed is not None
    after = Kept(tmp_path, reserve=0.5)
    work = after.keeper.work([judged(300, level=9.0, decision="anomalous", p_value=0.001)], flush=False)
    assert work.drifts == [], "that was told before"
    assert after.plant.changed is not None
    promoted = Kept(tmp_path, champion=V2, reserve=0.5)
    promoted.keeper.work([], flush=False)
    assert promoted.plant.changed is None, "the alerts were those of another version"


# --- trouble ---------------------------------------------------------------------------------------------------------


def unwritable(folder: Path) -> Callable[[], None]:
    """Put a file where the store's folder is; returns the function that takes it away."""
    (folder / "inliers").write_text(AWAY)
    return (folder / "inliers").unlink


def test_sequences_queue_while_the_store_is_unreachable_and_are_stored_when_it_returns(tmp_path: Path) -> None:
    mend = unwritable(tmp_path)
    kept = Kept(tmp_path, reserve=0.000001)
    work = kept.keeper.work([judged(1), judged(2)], flush=True)
    assert work.failure is not None
    assert str(tmp_path) in str(work.failure)
    assert work.kept.total() == 0
    kept.keeper.work([judged(3)], flush=False)
    mend()
    work = kept.keeper.work([judged(4)], flush=True)
    assert work.failure is None
    assert kept.ids_on_disk("accepted") == {"B-1", "B-2", "B-3", "B-4"}


def test_its_return_is_not_checked_in_every_turn(tmp_path: Path) -> None:
    mend = unwritable(tmp_path)
    kept = Kept(tmp_path)
    kept.keeper.work([judged(1)], flush=False)
    mend()
    assert kept.keeper.work([judged(2)], flush=False).failure is not None
    kept.clock.advance(kept.settings.flush_interval / 1e6)
    assert kept.keeper.work([judged(3)], flush=False).failure is None


def test_an_outage_in_mid_run_is_over_only_once_something_was_written(tmp_path: Path) -> None:
    kept = Kept(tmp_path, reserve=0.000001)
    kept.keeper.work([judged(1)], flush=True)
    home = tmp_path / "inliers" / "default"
    away = home.rename(tmp_path / "away")
    home.write_text(AWAY)
    assert kept.keeper.work([judged(2)], flush=True).failure is not None
    home.unlink()
    away.rename(home)
    kept.clock.advance(kept.settings.flush_interval / 1e6)
    assert kept.keeper.work([judged(3)], flush=False).failure is not None, "nothing was written yet"
    assert kept.keeper.work([judged(4)], flush=True).failure is None
    assert kept.ids_on_disk("accepted") == {"B-1", "B-2", "B-3", "B-4"}


def test_an_outage_before_the_first_model_is_over_though_a_model_came_meanwhile(tmp_path: Path) -> None:
    kept = Kept(tmp_path, champion=None, reserve=0.000001)
    assert kept.keeper.work([], flush=True).failure is None
    home = tmp_path / "inliers" / "default"
    home.rmdir()
    home.write_text(AWAY)
    assert kept.keeper.work([], flush=True).failure is not None
    kept.champion = V1
    home.unlink()
    kept.clock.advance(kept.settings.flush_interval / 1e6)
    assert kept.keeper.work([judged(1)], flush=True).failure is None
    assert kept.ids_on_disk("accepted") == {"B-1"}


def test_while_it_is_away_for_long_the_newest_are_held_and_the_others_counted(tmp_path: Path) -> None:
    mend = unwritable(tmp_path)
    kept = Kept(tmp_path, reserve=0.000001, max_accepted=20, max_reserve=20, max_aside=20)
    assert kept.keeper.limit == 60
    kept.keeper.work([judged(number) for number in range(100)], flush=False)
    mend()
    work = kept.keeper.work([], flush=True)
    assert work.n_dropped == 40
    assert kept.ids_on_disk("accepted") == {f"B-{number}" for number in range(80, 100)}


def test_the_queue_is_bounded_by_its_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many: dict[str, Any] = {"max_accepted": 10_000_000}
    assert Kept(tmp_path, **many).keeper.limit == (1 << 28) // (4 * 2 * L)
    mend = unwritable(tmp_path)
    monkeypatch.setattr(keeper_module, "WAITING_BYTES", 5 * 4 * 2 * L)
    kept = Kept(tmp_path, reserve=0.000001, **many)
    assert kept.keeper.work([judged(number) for number in range(8)], flush=False).n_dropped == 3
    mend()
    assert kept.keeper.work([], flush=True).failure is None
    assert kept.ids_on_disk("accepted") == {f"B-{number}" for number in range(3, 8)}


@pytest.mark.parametrize(
    ("before", "after", "n"),
    [
        ("", "", 0),
        ("C", "C", 0),
        ("12", "2", 1),
        ("C1", "C", 1),
        ("C1C2", "C2", 1),
        ("1C2", "C2", 1),
        ("CC12", "CC2", 1),
    ],
)
def test_making_room_drops_sequences_and_never_that_the_model_has_changed(before: str, after: str, n: int) -> None:
    by_name: dict[str, Item] = {"C": NewChampion(), **{str(number): judged(number) for number in (1, 2)}}
    items: deque[Item] = deque(by_name[name] for name in before)
    assert drop_oldest(items) == n
    assert list(items) == [by_name[name] for name in after]


def test_a_damaged_shard_is_reported_once_and_the_others_are_used(tmp_path: Path) -> None:
    before = Kept(tmp_path, reserve=0.000001)
    before.keeper.work([judged(1)], flush=True)
    shard = next(path for path in (tmp_path / "inliers").rglob("*.npz"))
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    after = Kept(tmp_path, reserve=0.000001)
    work = after.keeper.work([judged(2)], flush=True)
    (problem,) = work.problems
    assert shard.name in problem
    assert after.keeper.work([judged(3)], flush=True).problems == []
    assert after.ids_on_disk("accepted") == {"B-2", "B-3"}


def test_it_counts_what_others_have_stored(tmp_path: Path) -> None:
    ours, theirs = Kept(tmp_path), Kept(tmp_path)
    for one in (ours, theirs):
        one.clock.advance(100 * 60)  # what is stored has been judged before
    ours.keeper.work([judged(number) for number in range(50)], flush=True)
    theirs.keeper.work([judged(number) for number in range(50, 100)], flush=True)
    assert ours.keeper.kept_since(START_US + 40 * 60_000_000) == 60
    accepted = named(range(26, 100), reserved=False)
    assert ours.keeper.accepted_since(START_US + 25 * 60_000_000) == len(accepted)


def test_a_reserve_beyond_what_memory_should_hold_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Kept(tmp_path, reserve=0.5)
    before.keeper.work([judged(number) for number in range(200)], flush=True)
    odd = alerts(range(200, 300))
    before.keeper.work(odd, flush=True)
    n_bytes = len(before.ids_on_disk("reserve")) * len(CHANNELS) * L * 4
    for limit, is_known in [(n_bytes, True), (n_bytes - 1, False)]:
        monkeypatch.setattr(keeper_module, "WARM_UP_BYTES", limit)
        after = Kept(tmp_path, reserve=0.5)
        after.keeper.work([], flush=False)
        assert (after.plant.changed is not None) == is_known
