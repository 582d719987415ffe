"""Words take bounded space, whoever writes them and whatever fails, and none that should stay is lost."""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamad.errors import StoreError
from streamad.learn.store import history
from streamad.learn.store import marks as marks_module
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.marks import MAX_FILES
from streamad.learn.store.records import Mark, MarkKind
from streamad.learn.store.storage import Storage, open_storage
from streamad.testing import ManualClock
from tests.support.learning.inlier_cases import DAY_US, SECOND_US, START_US, add, all_ids, sequence_of, store_of


def say(
    store: InlierStore, *ids: str, judgement: MarkKind = "veto", at_us: int = START_US, received_us: int = START_US
) -> None:
    """Store words as a worker does that reads feedback."""
    for one in ids:
        store.mark(Mark(id=one, judgement=judgement, at_us=at_us, received_us=received_us))
        store.tidy_marks()


def files(base: Path) -> list[Path]:
    return sorted((base / "inliers" / "default" / "marks").iterdir())


def words(base: Path) -> int:
    """How many words lie in storage, repeated ones too."""
    return sum(path.read_bytes().count(b'"judgement"') for path in files(base))


def counted_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    folder = type(open_storage("", tmp_path))
    real, reads = folder.read, Counter[str]()

    def read(self: Storage, name: str, start: int = 0) -> bytes:
        content = real(self, name, start)
        reads[name.partition("/")[0]] += 1
        return content

    monkeypatch.setattr(folder, "read", read)
    return reads


def test_a_flood_on_one_id_takes_no_disk_and_displaces_no_other_word(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, range(3))
    say(store, "id-000001", judgement="confirmed", received_us=1)
    for n in range(500):
        say(store, "id-000000", judgement="false_alarm" if n % 2 else "veto", at_us=START_US + n)
        assert len(files(tmp_path)) <= MAX_FILES + 2
    assert words(tmp_path) <= MAX_FILES + 1 + 8
    assert store.marks()["id-000001"].received_us == 1
    assert store_of(tmp_path).marks() == store.marks()


def test_a_flood_on_unknown_ids_displaces_the_oldest_of_them_and_no_word_on_a_held_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_UNHELD", 200)
    store = store_of(tmp_path)
    add(store, range(30))
    store.offer(sequence_of(30), "accepted")
    say(store, *(f"id-{n:06d}" for n in range(31)), received_us=1)
    for n in range(600):
        say(store, f"foreign{n}", received_us=START_US + n)
        assert words(tmp_path) <= 231 + 231 // 3 + 1, "and what waits to be joined"
    found = store_of(tmp_path).marks()
    assert {f"id-{n:06d}" for n in range(31)} <= found.keys(), "the last one is still to be written"
    assert {one for one in found if one.startswith("foreign")} >= {f"foreign{n}" for n in range(401, 600)}
    assert "foreign300" not in found


def test_a_sequence_that_leaves_the_store_leaves_its_word_among_the_others(tmp_path: Path) -> None:
    """30 days after it was said, and after the sequence has gone."""
    clock = ManualClock(START_US + 40 * DAY_US)
    store = store_of(tmp_path, clock=clock, max_accepted=20)
    add(store, [0])
    say(store, "id-000000", "unknown")
    for day in range(20, 50, 10):
        clock.advance(10 * 86_400)
        store.offer(sequence_of(day, time_s=day * 86_400), "accepted")
        store.flush()
        assert store.marks().keys() == ({"id-000000", "unknown"} if day <= 30 else {"id-000000"})
    add(store, range(41, 71))
    clock.advance(2 * 86_400)
    store.offer(sequence_of(71, time_s=42 * 86_400), "accepted")
    store.flush()
    assert store.marks() == {}
    assert files(tmp_path) == []


@pytest.mark.parametrize("jump_s", [-40 * 365 * 86_400, 40 * 365 * 86_400])
def test_a_jump_of_the_machines_clock_erases_no_word(tmp_path: Path, jump_s: int) -> None:
    add(store_of(tmp_path), range(3))
    say(store_of(tmp_path), "id-000000", "unknown")
    clock = ManualClock(START_US + jump_s * SECOND_US)
    jumped = store_of(tmp_path, clock=clock)
    say(jumped, "other", received_us=clock.now_us())
    add(jumped, [3])
    clock.advance(2 * 86_400)
    add(jumped, [4])
    assert store_of(tmp_path).marks().keys() == {"id-000000", "unknown", "other"}


def test_a_sensor_whose_clock_jumped_ahead_erases_no_word(tmp_path: Path) -> None:
    clock = ManualClock(START_US + DAY_US)
    store = store_of(tmp_path, clock=clock, max_age="1000d")
    say(store, "unknown")
    store.offer(sequence_of(1, time_s=400 * 86_400), "accepted")
    store.flush()
    clock.advance(2 * 86_400)
    add(store, [2])
    assert store.marks().keys() == {"unknown"}


def test_no_word_gets_too_old_while_the_ids_of_a_shard_are_not_known(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    add(store, [1])
    say(store, "id-000001")
    (shard,) = (tmp_path / "inliers/default/accepted").iterdir()
    content = shard.read_bytes()
    shard.write_bytes(content[:-9])
    later = store_of(tmp_path)
    later.offer(sequence_of(2, time_s=100 * 86_400), "accepted")
    later.flush()
    shard.write_bytes(content)
    assert store_of(tmp_path).marks().keys() == {"id-000001"}


# --- reading --------------------------------------------------------------------------------------------------------


def test_marks_are_read_once_and_after_a_join_from_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path)
    say(store, *(f"id{n}" for n in range(1000)))
    assert len(files(tmp_path)) <= 1000 // 5 + 1, "a fifth at most waits to be joined"
    reads = counted_reads(monkeypatch, tmp_path)
    other = store_of(tmp_path)
    assert len(other.marks()) == 1000
    assert reads["marks"] == len(files(tmp_path))
    for n in range(20):
        add(store, [n])
        add(other, [n + 100])
        assert len(other.marks()) == 1000
    assert reads["marks"] == len(files(tmp_path))


def test_words_that_pour_in_keep_nobody_from_reading_or_storing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With each listing there is one more mark; before, two equal listings were waited for."""
    store, other = store_of(tmp_path), store_of(tmp_path)
    folder = type(open_storage("", tmp_path))
    real, n = folder.names, itertools.count()

    def names(self: Storage) -> dict[str, int]:
        other.mark(Mark(id=f"id{next(n)}", judgement="veto", at_us=START_US))
        return real(self)

    monkeypatch.setattr(folder, "names", names)
    add(store, range(3))
    assert len(all_ids(store)) == 3
    assert len(store.marks()) > 3


def test_a_mark_that_is_joined_between_listing_and_reading_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store_of(tmp_path)
    add(writer, [1])
    for n in range(MAX_FILES + 1):
        writer.mark(Mark(id=f"id{n}", judgement="veto", at_us=START_US))
    reader = store_of(tmp_path, opened=False)
    folder = type(open_storage("", tmp_path))
    real, is_first = folder.read, True

    def read(self: Storage, name: str, start: int = 0) -> bytes:
        nonlocal is_first
        if is_first and name.startswith("marks/"):
            is_first = False
            writer.tidy_marks()
        return real(self, name, start)

    monkeypatch.setattr(folder, "read", read)
    assert len(reader.marks()) == MAX_FILES + 1
    assert len(files(tmp_path)) == 1


def test_a_damaged_joined_file_is_named_and_stays(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    say(store, *(f"id{n}" for n in range(MAX_FILES + 1)))
    (joined,) = files(tmp_path)
    content = joined.read_bytes()
    joined.write_bytes(content[:-5])
    again = store_of(tmp_path)
    assert again.marks() == {}
    (problem,) = again.problems
    assert f"marks/{joined.name}: unreadable marks (its sha256 differs from its name): restore or delete it" in problem
    say(again, *(f"new{n}" for n in range(2 * MAX_FILES)))
    assert joined.exists()
    joined.write_bytes(content)
    assert len(store_of(tmp_path).marks()) == 3 * MAX_FILES + 1


# --- writers --------------------------------------------------------------------------------------------------------


def test_writers_that_join_under_each_others_feet_lose_no_word(tmp_path: Path) -> None:
    def write(number: int) -> None:
        store = store_of(tmp_path)
        say(store, *(f"id{n}" for n in range(number, 600, 2)))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, number % 2) for number in range(4)]:
            done.result()
    store = store_of(tmp_path)
    assert store.marks().keys() == {f"id{n}" for n in range(600)}
    assert store.problems == []


def test_whatever_fails_in_a_join_no_word_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = type(open_storage("", tmp_path))
    monkeypatch.setattr(marks_module, "MAX_FILES", 6)
    left = float("inf")

    def failing(name: str) -> None:
        real = getattr(folder, name)

        def step(self: Storage, *arguments: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreError("the disk is gone")
            real(self, *arguments)

        monkeypatch.setattr(folder, name, step)

    failing("write")
    failing("delete")
    expected = {f"id{n}" for n in range(6 + 1)}
    for n_steps in itertools.count():
        base = tmp_path / str(n_steps)
        store = store_of(base)
        for one in expected:
            store.mark(Mark(id=one, judgement="veto", at_us=START_US))
        left = n_steps
        try:
            store.tidy_marks()
        except StoreError:
            left = float("inf")
            assert store.marks().keys() == store_of(base).marks().keys() == expected
            store.tidy_marks()
        else:
            break
        finally:
            left = float("inf")
        assert store_of(base).marks().keys() == expected
        assert len(files(base)) <= 6 + 1
    assert n_steps == 6 + 2


def test_a_word_that_comes_again_through_another_worker_stays_the_first(tmp_path: Path) -> None:
    first, second = store_of(tmp_path), store_of(tmp_path)
    say(first, "a1", received_us=10)
    say(second, "a1", received_us=20)
    assert len(files(tmp_path)) == 1
    say(first, *(f"id{n}" for n in range(MAX_FILES + 1)))
    third = store_of(tmp_path, opened=False)
    third.mark(Mark(id="a1", judgement="veto", at_us=START_US, received_us=30))  # it knows nothing of what was joined
    assert store_of(tmp_path).marks()["a1"].received_us == 10
