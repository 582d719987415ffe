from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store import compaction
from streamad.learn.store.compaction import MAX_FILES, Extent, groups_to_join
from streamad.learn.store.shards import FileName


def extents(*rows: tuple[int, int], first: int = 0) -> list[Extent]:
    """Shards of one share with so many rows, and so many that are needed."""
    names = [FileName(first + i, "w", "", "accepted", "npz") for i in range(len(rows))]
    return [Extent(name, *one) for name, one in zip(names, rows, strict=True)]


def joined(rows: list[tuple[int, int]], max_rows: int = 1000) -> list[list[int]]:
    return [[one.name.stamp for one in group] for group in groups_to_join(extents(*rows), max_rows=max_rows)]


def test_up_to_64_small_files_stay_and_one_more_joins_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MAX_FILES", MAX_FILES)
    assert MAX_FILES == 64
    assert joined([(5, 5)] * 64) == []
    assert joined([(5, 5)] * 64 + [(90, 90)]) == [list(range(65))]


@pytest.mark.parametrize(
    ("rows", "max_rows", "groups"),
    [
        ([(5, 5)] * 8 + [(600, 600)], 1000, [list(range(8))]),  # a file more than half full is not copied again
        ([(11, 11)] * 8 + [(8, 8)] * 8, 21, [[8, 9], [10, 11], [12, 13], [14, 15]]),
        ([(12, 12)] * 20, 12, []),
        ([(5, 5)] * 20, 12, [[i, i + 1] for i in range(0, 20, 2)]),  # no file gets longer than the limit
        ([(10, 5)], 1000, []),
        ([(10, 4)], 1000, [[0]]),  # less than half of it is needed
        ([(10, 0)] * 20, 1000, []),  # only deleted
    ],
)
def test_which_files_are_joined(rows: list[tuple[int, int]], max_rows: int, groups: list[list[int]]) -> None:
    assert joined(rows, max_rows) == groups


def test_a_file_that_must_be_rewritten_is() -> None:
    whole, other = extents((10, 10), (10, 10))
    assert groups_to_join([whole, other], max_rows=1000, rewrite={whole.name}) == [[whole]]


@given(st.lists(st.integers(1, 40), min_size=100, max_size=400), st.sampled_from([64, 10**6]))
def test_no_row_is_lost_and_files_stay_few(flushes: list[int], max_rows: int) -> None:
    files: list[Extent] = []
    for number, n_rows in enumerate(flushes):
        files += extents((n_rows, n_rows), first=2 * number)
        for group in groups_to_join(files, max_rows=max_rows):
            n = sum(one.n_needed for one in group)
            files = [one for one in files if one not in group] + extents((n, n), first=2 * number + 1)
        assert len(files) <= 7 + 2 * sum(flushes) / max_rows
    assert sum(one.n_rows for one in files) == sum(flushes)
