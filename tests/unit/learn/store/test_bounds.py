from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamad.learn.store.bounds import Bounds, Kept, kept, key_of, keys_of

FAR = 1 << 60


def keep(
    times: list[int], *, pinned: tuple[int, ...] = (), now: int = FAR, keys: list[int] | None = None, **b: object
) -> Kept:
    bounds = Bounds(**{"limit": 3, "max_age_us": 1000, **b})  # type: ignore[arg-type]
    is_pinned = np.zeros(len(times), bool)
    is_pinned[list(pinned)] = True
    chosen = keys if keys is not None else list(range(len(times)))
    none = np.zeros(len(times), bool)
    return kept(np.array(times, np.int64), np.array(chosen, np.uint64), is_pinned, none, bounds=bounds, now_us=now)


def within(*args: object, **more: object) -> list[int]:
    return np.flatnonzero(keep(*args, **more).within).tolist()  # type: ignore[arg-type]


ROWS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2**64 - 1)), max_size=40, unique_by=lambda row: row[1])


@given(ROWS, st.integers(1, 6), st.integers(1, 5))
def test_dropping_as_one_goes_comes_to_the_same_as_dropping_at_the_end(
    rows: list[tuple[int, int]], limit: int, step: int
) -> None:
    stored: list[tuple[int, int]] = []
    for first in range(0, len(rows), step):
        stored += rows[first : first + step]
        found = keep([t for t, _ in stored], keys=[k for _, k in stored], limit=limit)
        stored = [row for row, is_within in zip(stored, found.within, strict=True) if is_within]
    at_once = within([t for t, _ in rows], keys=[k for _, k in rows], limit=limit)
    assert set(stored) == {rows[i] for i in at_once}
    assert len(at_once) <= limit


def test_the_oldest_age_that_stays_is_the_bound_itself() -> None:
    assert within([0, 1000], max_age_us=1000) == [0, 1]
    assert within([0, 1001], max_age_us=1000) == [1]


def test_keys_of_ids_never_change() -> None:
    assert key_of("id-000000") == 3261199387972739179
    assert keys_of(["id-000000", "\ud800"]).tolist() == [3261199387972739179, key_of("\ud800")]
