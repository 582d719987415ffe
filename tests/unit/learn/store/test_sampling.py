from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamad.learn.store.sampling import Bounds, Kept, kept, key_of, keys_of

MINUTE = 60
FAR = 1 << 60


def keep(
    times: list[int], *, pinned: tuple[int, ...] = (), now: int = FAR, keys: list[int] | None = None, **b: object
) -> Kept:
    bounds = Bounds(**{"limit": 3, "policy": "newest", "max_age_us": 1000, **b})  # type: ignore[arg-type]
    is_pinned = np.zeros(len(times), bool)
    is_pinned[list(pinned)] = True
    chosen = keys if keys is not None else list(range(len(times)))
    none = np.zeros(len(times), bool)
    return kept(np.array(times, np.int64), np.array(chosen, np.uint64), is_pinned, none, bounds=bounds, now_us=now)


def visible(*args: object, **more: object) -> list[int]:
    return np.flatnonzero(keep(*args, **more).visible).tolist()  # type: ignore[arg-type]


ROWS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2**64 - 1)), max_size=40, unique_by=lambda row: row[1])


@given(ROWS, st.integers(1, 6), st.sampled_from(["newest", "reservoir"]), st.integers(1, 5))
def test_dropping_as_one_goes_comes_to_the_same_as_dropping_at_the_end(
    rows: list[tuple[int, int]], limit: int, policy: str, step: int
) -> None:
    stored: list[tuple[int, int]] = []
    for first in range(0, len(rows), step):
        stored += rows[first : first + step]
        found = keep([t for t, _ in stored], keys=[k for _, k in stored], limit=limit, policy=policy)
        stored = [row for row, is_natural in zip(stored, found.natural, strict=True) if is_natural]
    at_the_end = visible([t for t, _ in stored], keys=[k for _, k in stored], limit=limit, policy=policy)
    at_once = visible([t for t, _ in rows], keys=[k for _, k in rows], limit=limit, policy=policy)
    assert {stored[i] for i in at_the_end} == {rows[i] for i in at_once}
    assert len(at_once) <= limit


def run_of(n: int, prefix: str) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.arange(n, dtype=np.int64) * MINUTE, keys_of(f"{prefix}-{i}" for i in range(n))


def test_the_reservoir_is_uniform_over_the_age_bound() -> None:
    """Sequences drop out as they come, 200 times over; how often each age is in the sample must be the same."""
    n, limit, window = 600, 20, 400
    hits = np.zeros(window)
    for turn in range(200):
        times, keys = run_of(n, f"turn {turn}")
        stored = np.zeros(0, np.int64)
        for first in range(0, n, 50):
            stored = np.concatenate([stored, np.arange(first, first + 50)])
            found = kept(
                times[stored],
                keys[stored],
                np.zeros(len(stored), bool),
                np.zeros(len(stored), bool),
                bounds=Bounds(limit, "reservoir", (window - 1) * MINUTE),
                now_us=FAR,
            )
            sample, stored = stored[found.visible], stored[found.natural]
        assert len(sample) == limit
        hits[n - 1 - sample] += 1
    by_age = hits.reshape(20, -1).sum(axis=1)
    assert by_age.sum() == 200 * limit
    assert stats.chisquare(by_age).pvalue > 0.001


def test_storage_of_a_reservoir_grows_with_the_logarithm_of_what_flowed_by() -> None:
    times, keys = run_of(20_000, "x")
    none = np.zeros(20_000, bool)
    found = kept(times, keys, none, none, bounds=Bounds(100, "reservoir", FAR), now_us=FAR)
    expected = 100 * (1 + np.log(20_000 / 100))  # 630
    assert found.visible.sum() == 100
    assert found.natural.sum() == pytest.approx(expected, rel=0.1)


def test_keys_of_ids_never_change() -> None:
    assert key_of("id-000000") == 3261199387972739179
    assert keys_of(["id-000000", "\ud800"]).tolist() == [3261199387972739179, key_of("\ud800")]
