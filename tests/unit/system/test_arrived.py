"""Reading ahead of an asynchronous iterator: all in order, within bounds, and errors after what came before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streamad.system.tasks import Arrived


class Numbers:
    """Yields the numbers below ``n``, then raises ``error`` or ends; ``n_asked`` of them were asked for."""

    def __init__(self, n: int, error: Exception | None = None) -> None:
        self.n, self.error, self.n_asked, self.is_closed = n, error, 0, False

    async def __call__(self) -> AsyncIterator[int]:
        try:
            for i in range(self.n):
                self.n_asked += 1
                yield i
            if self.error is not None:
                raise self.error
        finally:
            self.is_closed = True


async def turns(n: int = 50) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def test_all_comes_in_order_and_then_nothing() -> None:
    async with Arrived(Numbers(1_234)(), lambda _: 1, most=100) as arrived:
        batches = []
        while batch := await arrived.take():
            batches.append(batch)
        assert await arrived.take() == []
    assert [each for batch in batches for each in batch] == list(range(1_234))
    assert max(map(len, batches)) == 100


@pytest.mark.parametrize(("most", "most_size", "n"), [(7, 1_000, 7), (1_000, 30, 10), (1_000, 31, 11), (1_000, 1, 1)])
async def test_it_reads_no_further_than_its_bounds(most: int, most_size: int, n: int) -> None:
    numbers = Numbers(500)
    async with Arrived(numbers(), lambda _: 3, most=most, most_size=most_size) as arrived:
        await turns()
        assert numbers.n_asked == n
        assert await arrived.take() == list(range(n))
        await turns()
        assert numbers.n_asked == 2 * n


async def test_an_error_comes_after_what_came_before_it() -> None:
    async with Arrived(Numbers(3, ValueError("odd"))(), lambda _: 1) as arrived:
        await turns()
        assert await arrived.take() == [0, 1, 2]
        with pytest.raises(ValueError, match="odd"):
            await arrived.take()


async def test_after_the_block_nothing_is_asked_for_and_the_iterator_can_be_closed() -> None:
    numbers = Numbers(500)
    items = numbers()
    async with Arrived(items, lambda _: 1, most=5) as arrived:
        await arrived.take()
    n_asked = numbers.n_asked
    await turns()
    assert numbers.n_asked == n_asked
    await items.aclose()  # type: ignore[attr-defined]
    assert numbers.is_closed
