from __future__ import annotations

import errno
import itertools
import math
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamad.errors import StoreError
from streamad.learn.store import compaction
from streamad.learn.store.contents import Contents
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind, StoredSequence
from streamad.learn.store.remembered import REMEMBERED
from streamad.learn.store.storage import Storage, open_storage
from streamad.messages import SHARES
from streamad.settings.plant_yaml import WindowSettings
from streamad.testing import ManualClock
from streamad.types import ChannelSpec, Window
from tests.support.files import stale_handle
from tests.support.learning.inlier_cases import (
    CHANNELS,
    SECOND_US,
    START_US,
    C,
    L,
    add,
    all_ids,
    ids,
    numbers,
    sequence_of,
    shards_of,
    store_of,
)

# --- keeping --------------------------------------------------------------------------------------------------------


def test_a_queued_window_is_a_copy(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    batch = np.ones((4, C, L), np.float32)
    store.offer(sequence_of(1, window=Window(batch[2], L)), "accepted")
    batch[:] = 7
    store.flush()
    assert store.read("accepted")[0].window.values.tolist() == np.ones((C, L)).tolist()


def test_a_window_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"a window of shape \(2, 5\) does not fit a store of \(2, 6\)"):
        store_of(tmp_path).offer(sequence_of(1, window=Window(np.zeros((C, 5), np.float32), 5)), "accepted")


def test_a_file_of_the_store_that_became_a_fifo_blocks_no_reader(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, [1])
    (shard,) = (path for path in tmp_path.glob("**/accepted/*") if path.is_file())
    content = shard.read_bytes()
    shard.unlink()
    os.mkfifo(shard)
    assert store_of(tmp_path).read("accepted") == []
    shard.unlink()
    shard.write_bytes(content)
    assert len(store_of(tmp_path).read("accepted")) == 1


def test_models_do_not_see_each_other(tmp_path: Path) -> None:
    first, second = store_of(tmp_path, model="press"), store_of(tmp_path, model="press.b")
    add(first, [1])
    first.mark(Mark(id="x", judgement="veto", at_us=1))
    second = store_of(tmp_path, model="press.b")
    assert (all_ids(second), second.marks()) == ([], {})
    assert second.offer(sequence_of(1), "accepted")


@pytest.mark.parametrize("odd", ["", ".", "..", "a/b", "../x", ".hidden", "a\n", "x" * 65])
def test_a_model_name_never_leads_elsewhere(tmp_path: Path, odd: str) -> None:
    with pytest.raises(StoreError, match="is no model name"):
        store_of(tmp_path, model=odd)


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


def test_what_was_stored_after_a_time_is_read_from_what_was_written_after_it(tmp_path: Path) -> None:
    clock = ManualClock(START_US)
    store = store_of(tmp_path, clock=clock)
    for second in (10, 20):
        clock.advance(10)
        for i in range(second - 10, second):
            store.offer(sequence_of(i), "accepted")
        store.flush()
    after = START_US + 14 * SECOND_US
    assert len(store.read("accepted", stored_after_us=after - 5 * SECOND_US)) == 10
    assert ids(store.read("accepted", stored_after_us=after)) == [f"id-{i:06d}" for i in range(15, 20)]
    first, _ = shards_of(tmp_path)
    content = bytearray(first.read_bytes())
    content[len(content) // 8] ^= 1  # a window of the earlier shard: whoever reads it finds it damaged
    first.write_bytes(content)
    assert len(store.read("accepted", stored_after_us=after)) == 5
    assert store.problems == []
    assert len(store.read("accepted")) == 10
    assert len(store.problems) == 1


# --- no id twice ----------------------------------------------------------------------------------------------------


def test_the_memory_of_ids_is_bounded_and_keeps_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REMEMBERED == 1_000_000
    monkeypatch.setattr(compaction, "REMEMBERED", 1000)
    store = store_of(tmp_path, max_accepted=20, max_age="30s")
    add(store, range(2500), every=50)
    again = store_of(tmp_path, max_accepted=20, max_age="30s")
    taken = [i for i in range(2500) if again.offer(sequence_of(i), "accepted")]
    assert taken == list(range(taken[-1] + 1))  # only the first are forgotten
    assert 2500 - 1000 * 1.25 - 20 - 50 <= len(taken) <= 2500 - 1000 - 20
    again.flush()  # and what is forgotten is too old to come back
    assert numbers(again) == list(range(2480, 2500))


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_each_share_has_its_own_bound(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_accepted=20, max_reserve=21, max_aside=22)
    for i in range(150):
        store.offer(sequence_of(i), SHARES[i % 3])
    store.flush()
    assert store.counts() == {"accepted": 20, "reserve": 21, "aside": 22}
    assert store_of(tmp_path, max_accepted=20, max_reserve=21, max_aside=22).counts() == store.counts()


def test_a_reader_with_smaller_bounds_sees_less_and_takes_nothing_away(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_accepted=50)
    add(store, range(50))
    assert numbers(store_of(tmp_path, max_accepted=20)) == list(range(30, 50))
    assert numbers(store) == list(range(50))


def test_expired_sequences_are_deleted_by_the_next_flush(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_age="1m")
    add(store, [0])
    store.offer(sequence_of(1, time_s=60), "accepted")
    store.flush()
    assert numbers(store) == [0, 1]
    store.offer(sequence_of(2, time_s=60.000001), "accepted")
    store.flush()
    assert numbers(store) == [1, 2]
    assert store.counts()["accepted"] == 2


def test_storage_stays_within_twice_the_bounds_and_the_files_stay_few(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_accepted=100)
    add(store, range(1200), every=5)
    held = [len(np.load(path)["lengths"]) for path in shards_of(tmp_path)]
    assert sum(held) <= 200
    assert len(held) <= 24
    assert len(list((tmp_path / "inliers" / "default" / "ids").iterdir())) <= 40
    assert numbers(store) == list(range(1100, 1200))


@pytest.mark.parametrize("judgement", ["false_alarm", "confirmed"])
def test_marked_sequences_survive_the_bounds(tmp_path: Path, judgement: str) -> None:
    store = store_of(tmp_path, max_aside=20, max_age="100s")
    add(store, range(10), "aside")
    store_of(tmp_path).mark(Mark(id="id-000003", judgement=judgement, at_us=1))  # type: ignore[arg-type]
    add(store, range(10, 1000), "aside", every=20)
    assert numbers(store, "aside") == [3, *range(980, 1000)]
    assert numbers(store_of(tmp_path, max_aside=20, max_age="100s"), "aside") == [3, *range(980, 1000)]


@pytest.mark.parametrize("judgement", ["veto", "withdrawn"])
def test_a_veto_and_a_withdrawn_word_pin_nothing(tmp_path: Path, judgement: MarkKind) -> None:
    store = store_of(tmp_path, max_aside=20)
    add(store, [0], "aside")
    store.mark(Mark(id="id-000000", judgement="confirmed", at_us=1))
    store.mark(Mark(id="id-000000", judgement=judgement, at_us=2))
    add(store, range(1, 30), "aside")
    assert numbers(store, "aside") == list(range(10, 30))


def test_marked_sequences_are_bounded_too(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_aside=20)
    for i in range(50):
        store.offer(sequence_of(i), "aside")
        store.mark(Mark(id=f"id-{i:06d}", judgement="confirmed", at_us=i))
        store.flush()
    assert numbers(store, "aside") == list(range(10, 50))
    only_marked = [one for one in store.read("aside") if one.only_marked]
    assert ids(only_marked) == [f"id-{i:06d}" for i in range(10, 30)]
    assert store.counts()["aside"] == 20


# --- clocks ---------------------------------------------------------------------------------------------------------


def filled(tmp_path: Path, clock: ManualClock) -> None:
    store = store_of(tmp_path, clock=clock, max_age="1h")
    add(store, range(30))


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


# --- bad shards -----------------------------------------------------------------------------------------------------


def three_shards(tmp_path: Path) -> list[Path]:
    store = store_of(tmp_path)
    add(store, range(3), every=1)
    return shards_of(tmp_path)


def damage(shard: Path) -> bytes:
    """Change a value of sequence 1; return what the file held before."""
    content = shard.read_bytes()
    at = content.index(np.float32(1.125).tobytes())
    shard.write_bytes(content[:at] + b"\x01" + content[at + 1 :])
    return content


def test_a_shard_with_a_changed_value_is_left_out_and_named_when_it_is_read(tmp_path: Path) -> None:
    _, damaged, _ = three_shards(tmp_path)
    content = damage(damaged)
    store = store_of(tmp_path)
    assert store.problems == []  # the index is whole; windows are not read before they are asked for
    assert numbers(store) == [0, 2]
    assert store.counts()["accepted"] == 2
    assert store.problems == [
        f"{tmp_path}/inliers/default/accepted/{damaged.name}: damaged, its sha256 differs from its name: "
        "restore or delete it"
    ]
    assert damaged.exists()
    damaged.write_bytes(content)
    assert numbers(store) == [0, 1, 2]
    assert store.problems == []


@pytest.mark.parametrize("content", [b"", b"PK", b"no shard at all" * 100])
def test_a_shard_that_is_none_is_named_at_once(tmp_path: Path, content: bytes) -> None:
    _, damaged, _ = three_shards(tmp_path)
    damaged.write_bytes(content)
    store = store_of(tmp_path)
    assert store.counts()["accepted"] == 2
    assert len(store.problems) == 1
    assert "damaged" in store.problems[0]
    assert "\n" not in store.problems[0]
    assert numbers(store) == [0, 2]


def test_a_shard_that_cannot_be_read_at_all_is_named(tmp_path: Path) -> None:
    _, unreadable, _ = three_shards(tmp_path)
    unreadable.unlink()
    unreadable.mkdir()
    store = store_of(tmp_path)
    assert numbers(store) == [0, 2]
    assert "cannot be read, Is a directory: check its permissions and the disk or network" in store.problems[0]


@pytest.mark.parametrize("place", ["accepted", "accepted/{shard}"])
def test_a_stale_handle_of_a_network_share_is_an_outage_and_no_more(tmp_path: Path, place: str) -> None:
    stale = tmp_path / "inliers" / "default" / place.format(shard=three_shards(tmp_path)[0].name)
    store = store_of(tmp_path)
    with stale_handle(stale):
        with pytest.raises(StoreError, match=r"Stale file handle; check learning\.store"):
            numbers(store)
        store.offer(sequence_of(9), "accepted")
        with pytest.raises(StoreError, match="Stale file handle"):
            store.flush()
        if place == "accepted":
            storage = open_storage("inliers/default", tmp_path)
            with pytest.raises(StoreError, match="Stale file handle"):
                storage.write("accepted/new", b"")
    store.flush()
    assert numbers(store) == [0, 1, 2, 9]


def test_shards_of_other_channels_and_windows_are_left_alone(tmp_path: Path) -> None:
    three_shards(tmp_path)
    others = (ChannelSpec("temp_c", "degC"), ChannelSpec("flow_rate"))
    changed = store_of(tmp_path, channels=others, max_accepted=20)
    assert len(changed.problems) == 3
    assert all("other channels" in line and "set the config back" in line for line in changed.problems)
    for i in range(100):
        changed.offer(sequence_of(i + 3), "accepted")
        changed.flush()
    assert numbers(changed) == list(range(83, 103))
    assert numbers(store_of(tmp_path))[:3] == [0, 1, 2]
    longer = store_of(tmp_path, window=WindowSettings(length=L + 1))
    assert all_ids(longer) == []
    assert all("other windows (length 6, in the config 7)" in line for line in longer.problems if "other w" in line)


def test_a_damaged_shard_does_not_keep_others_from_being_joined(tmp_path: Path) -> None:
    _, damaged, _ = three_shards(tmp_path)
    content = damage(damaged)
    store = store_of(tmp_path)
    add(store, range(3, 20), every=1)
    assert damaged.exists()
    assert len(shards_of(tmp_path)) < 10
    assert numbers(store) == [0, *range(2, 20)]
    damaged.write_bytes(content)
    assert numbers(store) == list(range(20))


def test_a_damaged_list_of_ids_is_named(tmp_path: Path) -> None:
    store = store_of(tmp_path, max_accepted=20)
    add(store, range(60))
    (damaged,) = (tmp_path / "inliers" / "default" / "ids").iterdir()
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = store_of(tmp_path, max_accepted=20)
    assert f"ids/{damaged.name}: damaged" in again.problems[0]
    assert numbers(again) == list(range(40, 60))


def test_foreign_files_are_named_and_stay(tmp_path: Path) -> None:
    three_shards(tmp_path)
    folder = tmp_path / "inliers" / "default"
    (folder / "accepted" / "notes.txt").write_text("mine")
    (folder / "other").mkdir()
    (folder / "other" / "data.npz").write_bytes(b"")
    (folder / "accepted" / ".hidden").write_bytes(b"")
    store = store_of(tmp_path)
    assert [line.partition(": ")[2] for line in store.problems] == ["no file of an inlier store: move it away"] * 2
    assert numbers(store) == [0, 1, 2]
    assert (folder / "accepted" / "notes.txt").exists()


def test_a_store_that_is_removed_while_it_is_open_starts_over(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, [1])
    for path in shards_of(tmp_path):
        path.unlink()
    for folder in (tmp_path / "inliers" / "default" / "accepted", tmp_path / "inliers" / "default"):
        folder.rmdir()
    add(store, [2])
    assert numbers(store) == [2]


def test_a_file_in_the_way_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "inliers").write_bytes(b"")
    with pytest.raises(StoreError, match="a file is in the way where a folder is needed: move it or choose another"):
        store_of(tmp_path)


def test_temporary_files_of_killed_writers_go_after_an_hour(tmp_path: Path) -> None:
    three_shards(tmp_path)
    folder = tmp_path / "inliers" / "default" / "accepted"
    for name, age_s in ((".old.tmp", 3660), (".young.tmp", 3540)):
        (folder / name).write_bytes(b"half a shard")
        written_s = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (written_s, written_s))
    store = store_of(tmp_path)
    assert [path.name for path in folder.glob(".*")] == [".young.tmp"]
    assert (store.problems, numbers(store)) == ([], [0, 1, 2])


# --- a full disk ----------------------------------------------------------------------------------------------------


class FullDisk:
    """Every fsync but the first ``after`` fails for want of space, as if blocks were allocated late, until ``free``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
        self._left: float = after
        self._real = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._real(descriptor)

    def free(self) -> None:
        self._left = math.inf


def test_on_a_full_disk_sequences_wait_and_a_later_flush_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(tmp_path)
    add(store, [1])
    disk = FullDisk(monkeypatch)
    store.offer(sequence_of(2), "accepted")
    store.offer(sequence_of(3), "reserve")
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            store.flush()
        assert str(caught.value).endswith("No space left on device; free disk space and try again")
        assert "\n" not in str(caught.value)
    assert store.pending() == 2
    assert not store.offer(sequence_of(2), "accepted")
    assert [path.name for path in (tmp_path / "inliers" / "default").rglob(".*")] == []
    disk.free()
    store.flush()
    assert (store.pending(), store.n_dropped) == (0, 0)
    assert (numbers(store), numbers(store, "reserve")) == ([1, 2], [3])


def test_a_disk_that_is_full_at_any_sync_loses_nothing_and_no_sequence_is_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush writes a shard of each share, then joins those of the first one."""
    for after in itertools.count():
        store = store_of(tmp_path / str(after))
        add(store, range(7), every=1)
        for number, share in enumerate(SHARES, start=7):
            store.offer(sequence_of(number), share)
        disk = FullDisk(monkeypatch, after)
        try:
            store.flush()
        except StoreError as error:
            problem = str(error)
        else:
            break
        disk.free()
        assert "free disk space" in problem
        assert set(range(7)) <= set(numbers(store_of(tmp_path / str(after))))
        add(store, [10])
        assert all_ids(store_of(tmp_path / str(after))) == [f"id-{number:06d}" for number in range(11)]
        n_shards = [len(shards_of(tmp_path / str(after), share)) for share in SHARES]
        assert n_shards in ([1, 1, 1], [2, 1, 1])
    assert after > 6


def test_the_queue_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    large = WindowSettings(length=65_536)  # half a mebibyte each: 512 of them are 256 MiB
    store = store_of(tmp_path, window=large)
    one = Window(np.zeros((C, 65_536), np.float32), 5)
    for i in range(514):
        assert store.offer(sequence_of(i, window=one), "accepted")
    assert (store.pending(), store.n_dropped) == (512, 2)
    assert not store.offer(sequence_of(2, window=one), "accepted")
    assert store.offer(sequence_of(1, window=one), "accepted")  # it was dropped, so it may come again


# --- purge ----------------------------------------------------------------------------------------------------------


def purgeable(tmp_path: Path) -> InlierStore:
    """Even numbers in the reserve, odd ones accepted, 0 to 11, in two shards each."""
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
    assert [bool(shards_of(tmp_path, share)) for share in ("reserve", "accepted")] == [
        any(i % 2 == parity for i in left) for parity in (0, 1)
    ]


def test_purge_of_nothing_changes_nothing(tmp_path: Path) -> None:
    purgeable(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert store_of(tmp_path).purge(ids=["unknown"]) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_purged_sequences_leave_the_disk_and_never_come_back(tmp_path: Path) -> None:
    writer = purgeable(tmp_path)
    assert store_of(tmp_path).purge(ids=["id-000003"]) == 1
    assert not any(b"id-000003" in path.read_bytes() for path in tmp_path.rglob("*.npz"))
    assert not store_of(tmp_path).offer(sequence_of(3), "accepted")
    writer.offer(sequence_of(50), "accepted")
    writer.flush()
    assert not writer.offer(sequence_of(3), "accepted")
    assert 3 not in numbers(writer)


def test_purge_reaches_what_waits_here_and_in_other_processes(tmp_path: Path) -> None:
    store, other = store_of(tmp_path), store_of(tmp_path)
    for i in (1, 2):
        store.offer(sequence_of(i), "accepted")
        other.offer(sequence_of(i), "accepted")
    assert store.purge(ids=["id-000001"]) == 1
    assert store.pending() == 1
    add(other, [3])
    assert all_ids(other) == ["id-000002", "id-000003"]


def test_a_purge_takes_marked_sequences_and_leaves_marks(tmp_path: Path) -> None:
    purgeable(tmp_path)
    store = store_of(tmp_path)
    said = Mark(id="id-000001", judgement="confirmed", at_us=1, received_us=1)
    store.mark(said)
    assert store.purge(ids=["id-000001"]) == 1
    assert store.marks() == {"id-000001": said}


# --- work -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["newest", "reservoir"])
def test_the_work_grows_with_what_is_offered_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    real = Contents.write_shard
    written: list[int] = []

    def counted(self: Contents, sequences: Sequence[StoredSequence], share: str) -> None:
        written.append(len(sequences))
        real(self, sequences, share)

    monkeypatch.setattr(Contents, "write_shard", counted)
    monkeypatch.setattr(compaction, "MAX_FILES", 64)
    store = store_of(tmp_path, policy=policy, max_accepted=300)
    n = 4_000
    add(store, range(n), every=20)
    assert store.counts()["accepted"] == 300
    assert sum(written) < 5 * n  # each sequence is written once, and joined a few times
    assert len(written) < 2 * n / 20


def test_opening_reads_no_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = WindowSettings(length=1024)
    store = store_of(tmp_path, window=long)
    for i in range(300):
        store.offer(sequence_of(i, window=Window(np.zeros((C, 1024), np.float32), 9)), "accepted")
    store.flush()
    folder = type(open_storage("", tmp_path))
    real = folder.read
    n_bytes = []

    def counted(self: Storage, name: str, start: int = 0) -> bytes:
        n_bytes.append(len(content := real(self, name, start)))
        return content

    monkeypatch.setattr(folder, "read", counted)
    assert store_of(tmp_path, window=long).counts()["accepted"] == 300
    assert sum(n_bytes) <= 1 << 17
    assert shards_of(tmp_path)[0].stat().st_size > 2_000_000


# --- beside a flush -------------------------------------------------------------------------------------------------


def test_sequences_may_be_offered_while_a_flush_runs(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    taken: list[bool] = []
    ended, flushed = threading.Event(), threading.Semaphore(0)

    def offer() -> None:
        for i in range(4000):
            taken.append(store.offer(sequence_of(i % 2000), "accepted"))
            store.counts(), store.pending()
            if i % 1000 == 999:
                flushed.acquire(timeout=10)
        ended.set()

    thread = threading.Thread(target=offer)
    thread.start()
    n_flushes = 0
    while not ended.is_set():
        store.flush()
        flushed.release()
        n_flushes += 1
    thread.join()
    store.flush()
    assert n_flushes > 2
    assert sum(taken) == 2000
    assert numbers(store) == list(range(2000))


def test_without_s3fs_or_a_known_protocol_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Protocol not known: bogus.*correct learning\.store"):
        store_of(tmp_path, url="bogus://a/b")


@pytest.mark.parametrize("host", ["", "localhost"])
def test_a_url_of_a_folder_is_a_folder(tmp_path: Path, host: str) -> None:
    store = store_of(Path("/nowhere"), url=f"file://{host}{tmp_path}/inliers", channels=CHANNELS)
    add(store, [1])
    assert len(shards_of(tmp_path)) == 1
