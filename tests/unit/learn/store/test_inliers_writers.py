"""Several writers and readers of one folder at the same time, joining shards under each other's feet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamad.learn.store.inliers import InlierStore
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import DAY_US, START_US, add, all_ids, ids, sequence_of, shards_of, store_of

N_WRITERS, N_EACH = 4, 75


def test_nothing_is_lost_or_doubled_while_all_write_and_join(tmp_path: Path) -> None:
    """Every number is offered by two writers; while they write, a reader sees all that was flushed before it began."""
    flushed: set[str] = set()

    def write(number: int) -> None:
        store = store_of(tmp_path)
        for i in range(N_EACH):
            mine = [N_WRITERS * i + number, N_WRITERS * i + (number + 1) % N_WRITERS]
            for one in mine:
                store.offer(sequence_of(one), "accepted")
            store.flush()
            flushed.update(f"id-{one:06d}" for one in mine)

    ended = threading.Event()

    def read() -> int:
        store, n_reads = store_of(tmp_path), 0
        while not ended.is_set():
            before = set(flushed)
            found = ids(store.read("accepted"))
            assert len(found) == len(set(found))
            assert before <= set(found)
            n_reads += 1
        return n_reads

    with ThreadPoolExecutor(N_WRITERS + 1) as pool:
        reader = pool.submit(read)
        try:
            for done in [pool.submit(write, number) for number in range(N_WRITERS)]:
                done.result()
        finally:
            ended.set()
        assert reader.result() > 3
    expected = [f"id-{i:06d}" for i in range(N_WRITERS * N_EACH)]
    assert all_ids(store_of(tmp_path)) == expected


def test_writers_of_one_bound_agree_on_what_stays(tmp_path: Path) -> None:
    def write(number: int) -> InlierStore:
        store = store_of(tmp_path, policy="reservoir", max_accepted=40)
        for i in range(number, 400, N_WRITERS):
            store.offer(sequence_of(i), "accepted")
            if i % 10 < N_WRITERS:
                store.flush()
        store.flush()
        return store

    with ThreadPoolExecutor(N_WRITERS) as pool:
        stores = list(pool.map(write, range(N_WRITERS)))
    alone = store_of(tmp_path / "alone", policy="reservoir", max_accepted=40)
    add(alone, range(400))
    assert all(ids(store.read("accepted")) == ids(alone.read("accepted")) for store in stores)


def test_copies_left_by_writers_that_joined_at_once_count_once_and_go(tmp_path: Path) -> None:
    """What two writers leave that joined the same shards and died before they deleted them."""
    store = store_of(tmp_path)
    add(store, range(7), every=1)
    parts = {path: path.read_bytes() for path in shards_of(tmp_path)}
    add(store, [7])
    (joined,) = shards_of(tmp_path)
    for path, content in parts.items():
        path.write_bytes(content)
    again = store_of(tmp_path)
    assert again.counts()["accepted"] == 8
    assert all_ids(again) == [f"id-{i:06d}" for i in range(8)]
    add(again, [8])
    assert set(shards_of(tmp_path)) & {joined, *parts} == {joined}
    assert all_ids(again) == [f"id-{i:06d}" for i in range(9)]


def test_a_listing_that_misses_what_is_joined_in_the_middle_of_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    add(store, range(7), every=1)
    writer, reader = store_of(tmp_path), store_of(tmp_path)
    writer.offer(sequence_of(7), "accepted")
    real = Path.iterdir
    n_listed = 0

    def listed(folder: Path) -> Iterator[Path]:
        """A folder may be listed without entries that appear or vanish meanwhile (POSIX readdir)."""
        nonlocal n_listed
        n_listed += folder.name == "accepted"
        if folder.name != "accepted" or n_listed > 1:
            return real(folder)
        before = set(real(folder))
        writer.flush()
        return iter(sorted(before & set(real(folder))))

    monkeypatch.setattr(Path, "iterdir", listed)
    assert len(reader.read("accepted")) == 8


def test_a_joined_shard_sorts_behind_its_parts_though_the_clock_fell_back(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, range(7), every=1)
    parts = shards_of(tmp_path)
    behind = store_of(tmp_path, clock=ManualClock(START_US - 365 * DAY_US))
    add(behind, [7])
    (joined,) = shards_of(tmp_path)
    assert joined > parts[-1]


def test_the_same_id_in_two_shares_counts_in_one(tmp_path: Path) -> None:
    add(store_of(tmp_path), [1])
    copied = shards_of(tmp_path)[0]
    other = tmp_path / "inliers" / "default" / "aside" / copied.name
    other.parent.mkdir()
    other.write_bytes(copied.read_bytes())
    assert all_ids(store_of(tmp_path)) == ["id-000001"]
    assert sum(store_of(tmp_path).counts().values()) == 1
