from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store.compaction import FAN, Extent, groups_to_join
from streamad.learn.store.shards import FileName


def extent(number: int, n_rows: int, n_needed: int | None = None) -> Extent:
    return Extent(FileName(number, "w", "", "accepted", "npz"), n_rows, n_rows if n_needed is None else n_needed)


def test_a_few_files_of_one_size_stay_and_one_more_joins_them() -> None:
    few = [extent(i, 5) for i in range(FAN - 1)]
    assert groups_to_join(few, max_rows=1000) == []
    assert groups_to_join([*few, extent(9, 7)], max_rows=1000) == [[*few, extent(9, 7)]]


def test_files_of_other_sizes_are_not_dragged_along() -> None:
    small = [extent(i, 5) for i in range(FAN)]
    assert groups_to_join([*small, extent(99, 500)], max_rows=1000) == [small]


def test_a_file_is_written_anew_when_less_than_half_is_needed() -> None:
    assert groups_to_join([extent(1, 10, 5)], max_rows=1000) == []
    assert groups_to_join([extent(1, 10, 4)], max_rows=1000) == [[extent(1, 10, 4)]]


def test_what_nobody_needs_is_not_copied() -> None:
    assert groups_to_join([extent(i, 10, 0) for i in range(20)], max_rows=1000) == []


def test_no_file_gets_longer_than_the_limit() -> None:
    groups = groups_to_join([extent(i, 5) for i in range(20)], max_rows=12)
    assert [sum(one.n_needed for one in group) for group in groups] == [10] * 10


def test_a_file_more_than_half_full_is_not_copied_again_for_a_few_more_rows() -> None:
    halves = [extent(i, 11) for i in range(FAN)]
    small = [extent(100 + i, 8) for i in range(FAN)]
    assert groups_to_join([*halves, *small], max_rows=21) == [small[i : i + 2] for i in range(0, FAN, 2)]
    assert groups_to_join([extent(i, 12) for i in range(20)], max_rows=12) == []


def test_a_file_that_must_be_written_anew_is() -> None:
    whole = extent(1, 10)
    assert groups_to_join([whole, extent(2, 10)], max_rows=1000, rewrite={whole.name}) == [[whole]]


@given(st.lists(st.integers(1, 40), min_size=100, max_size=400), st.sampled_from([64, 10**6]))
def test_files_stay_few_and_every_row_is_copied_rarely(flushes: list[int], max_rows: int) -> None:
    files: list[Extent] = []
    copied = 0
    for number, n_rows in enumerate(flushes):
        files.append(extent(number, n_rows))
        for group in groups_to_join(files, max_rows=max_rows):
            copied += sum(one.n_needed for one in group)
            joined = extent(number, sum(one.n_needed for one in group))
            files = [one for one in files if one not in group] + [joined]
    total = sum(flushes)
    assert sum(one.n_rows for one in files) == total
    assert copied <= 6 * total  # log8 of at most 16,000 rows is 4.7
    assert len(files) <= 6 * FAN + 2 * total / max_rows
