"""The bounds of the inlier store, whatever clocks say, and what a purge takes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind
from streamad.messages import SHARES
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import SECOND_US, START_US, add, ids, numbers, sequence_of, store_of


def test_since_and_stored_before_are_exact(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, range(6))
    since, before = START_US + 2 * SECOND_US, START_US + 4 * SECOND_US
    assert ids(store.read("accepted", since_us=since)) == ["id-000002", "id-000003", "id-000004", "id-000005"]
    assert ids(store.read("accepted", since_us=since + 1)) == ["id-000003", "id-000004", "id-000005"]
    assert ids(store.read("accepted", stored_before_us=before)) == [f"id-00000{i}" for i in range(4)]
    assert ids(store.read("accepted", since_us=since, stored_before_us=before + 1)) == [
        "id-000002",
        "id-000003",
        "id-000004",
    ]


def test_each_share_has_its_own_bound(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"accepted": 20, "reserve": 21, "aside": 22})
    for i in range(150):
        store.offer(sequence_of(i), SHARES[i % 3])
    store.flush()
    assert store.counts() == {"accepted": 20, "reserve": 21, "aside": 22}
    assert store_of(tmp_path, limits={"accepted": 20, "reserve": 21, "aside": 22}).counts() == store.counts()


@pytest.mark.parametrize("judgement", ["false_alarm", "confirmed"])
def test_marked_sequences_survive_the_bounds(tmp_path: Path, judgement: str) -> None:
    store = store_of(tmp_path, limits={"aside": 20}, max_age="100s")
    add(store, range(10), "aside")
    store_of(tmp_path).mark(Mark(id="id-000003", judgement=judgement, at_us=1))  # type: ignore[arg-type]
    add(store, range(10, 1000), "aside", every=20)
    assert numbers(store, "aside") == [3, *range(980, 1000)]
    assert numbers(store_of(tmp_path, limits={"aside": 20}, max_age="100s"), "aside") == [3, *range(980, 1000)]


@pytest.mark.parametrize("judgement", ["veto", "withdrawn"])
def test_a_veto_and_a_withdrawn_word_pin_nothing(tmp_path: Path, judgement: MarkKind) -> None:
    store = store_of(tmp_path, limits={"aside": 20})
    add(store, [0], "aside")
    store.mark(Mark(id="id-000000", judgement="confirmed", at_us=1))
    store.mark(Mark(id="id-000000", judgement=judgement, at_us=2))
    add(store, range(1, 30), "aside")
    assert numbers(store, "aside") == list(range(10, 30))


def test_marked_sequences_are_bounded_too(tmp_path: Path) -> None:
    store = store_of(tmp_path, limits={"aside": 20})
    for i in range(50):
        store.offer(sequence_of(i), "aside")
        store.mark(Mark(id=f"id-{i:06d}", judgement="confirmed", at_us=i))
        store.flush()
    assert numbers(store, "aside") == list(range(10, 50))
    only_marked = [one for one in store.read("aside") if one.only_marked]
    assert ids(only_marked) == [f"id-{i:06d}" for i in range(10, 30)]
    assert store.counts()["aside"] == 20


def filled(tmp_path: Path, clock: ManualClock) -> None:
    store = store_of(tmp_path, clock=clock, max_age="1h")
    add(store, range(30))


def test_a_sequence_that_is_exactly_max_age_old_stays(tmp_path: Path) -> None:
    store = store_of(tmp_path, clock=ManualClock(START_US + 100 * SECOND_US), max_age="10s")
    add(store, range(30))
    assert numbers(store, "accepted") == list(range(19, 30))


@pytest.mark.parametrize("jump_s", [-40 * 365 * 86_400, 40 * 365 * 86_400])
def test_a_jump_of_the_machines_clock_evicts_nothing(tmp_path: Path, jump_s: int) -> None:
    filled(tmp_path, ManualClock(START_US + 100 * SECOND_US))
    jumped = store_of(tmp_path, clock=ManualClock(START_US + jump_s * SECOND_US), max_age="1h")
    add(jumped, [30])
    assert numbers(jumped) == list(range(31))
    back = store_of(tmp_path, clock=ManualClock(START_US + 200 * SECOND_US), max_age="1h")
    add(back, [31])
    assert numbers(back) == list(range(32))


def test_a_sensor_whose_clock_jumped_ahead_evicts_nothing(tmp_path: Path) -> None:
    clock = ManualClock(START_US + 100 * SECOND_US)
    filled(tmp_path, clock)
    store = store_of(tmp_path, clock=clock, max_age="1h")
    store.offer(sequence_of(30, time_s=400 * 86_400), "accepted")
    store.flush()
    assert numbers(store) == list(range(31))


def purgeable(tmp_path: Path) -> InlierStore:
    """Even numbers in the reserve, odd ones accepted, 0 to 11."""
    store = store_of(tmp_path)
    for i in range(12):
        store.offer(sequence_of(i), "accepted" if i % 2 else "reserve")
        if i == 5:
            store.flush()
    store.flush()
    return store


@pytest.mark.parametrize(
    ("conditions", "purged"),
    [
        ({"before_us": START_US + 4 * SECOND_US}, range(4)),
        ({"share": "reserve"}, range(0, 12, 2)),
        ({"before_us": START_US + 5 * SECOND_US, "ids": ["id-000001", "id-000002", "id-000009", "x"]}, [1, 2]),
        ({"ids": ["id-000001", "id-000002", "x"], "share": "accepted"}, [1]),
        ({}, range(12)),
    ],
)
def test_a_purge_takes_what_meets_every_condition(
    tmp_path: Path, conditions: dict[str, Any], purged: Iterable[int]
) -> None:
    purgeable(tmp_path)
    store = store_of(tmp_path)
    assert store.purge(**conditions) == len(set(purged))
    left = set(range(12)) - set(purged)
    assert set(numbers(store)) | set(numbers(store, "reserve")) == left
    assert sum(store.counts().values()) == len(left)


def test_purge_of_nothing_changes_nothing(tmp_path: Path) -> None:
    purgeable(tmp_path)
    assert store_of(tmp_path).purge(ids=["unknown"]) == 0
    assert sum(store_of(tmp_path).counts().values()) == 12


def test_a_purge_takes_marked_sequences_and_leaves_marks(tmp_path: Path) -> None:
    purgeable(tmp_path)
    store = store_of(tmp_path)
    said = Mark(id="id-000001", judgement="confirmed", at_us=1, received_us=1)
    store.mark(said)
    assert store.purge(ids=["id-000001"]) == 1
    assert store.marks() == {"id-000001": said}
