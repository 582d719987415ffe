"""How often and when a notice is tried: pauses that double, ``Retry-After`` within a bound, 410 at once."""

from __future__ import annotations

import asyncio

import pytest

from streamad.notify.notices import Notice
from streamad.notify.sending import LONGEST_RETRY_AFTER_S, NotDelivered, ReceiverGone, deliver
from tests.unit.notify.test_webhook import notice


class Failing:
    """Fails with ``error`` so many times; the pauses asked of the event loop are in ``pauses_s`` and take no time."""

    def __init__(self, error: Exception, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error, self.times = error, times
        self.tries = 0
        self.pauses_s: list[float] = []
        self.reported: list[int] = []
        at_once = asyncio.sleep

        async def sleep(pause_s: float) -> None:
            self.pauses_s.append(pause_s)
            await at_once(0)

        monkeypatch.setattr(asyncio, "sleep", sleep)

    async def send(self, _: Notice) -> str:
        self.tries += 1
        if self.tries <= self.times:
            raise self.error
        return "ok"

    async def deliver(self, tries: int) -> None:
        await deliver(self.send, notice(), tries, lambda number, _: self.reported.append(number))


async def test_pauses_double_to_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(NotDelivered("500"), 13, monkeypatch)
    await failing.deliver(20)
    assert failing.reported == list(range(1, 14))
    expected_s = [min(2.0**n, 600.0) for n in range(13)]
    assert all(low <= pause_s <= low + 1 for low, pause_s in zip(expected_s, failing.pauses_s, strict=True))


@pytest.mark.parametrize(("asked_s", "paused_s"), [(120.0, 120.0), (1e12, LONGEST_RETRY_AFTER_S), (-50.0, 1.0)])
async def test_the_pause_that_a_receiver_asks_for_is_kept_within_a_bound(
    asked_s: float, paused_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing(NotDelivered("429", asked_s), 2, monkeypatch)
    await failing.deliver(20)
    assert failing.pauses_s == [paused_s, paused_s]


async def test_after_the_last_try_the_failure_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(NotDelivered("500"), 99, monkeypatch)
    with pytest.raises(NotDelivered, match="500"):
        await failing.deliver(3)
    assert (failing.tries, failing.reported) == (3, [1, 2, 3])


async def test_gone_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Failing(ReceiverGone("410"), 99, monkeypatch)
    with pytest.raises(ReceiverGone):
        await failing.deliver(3)
    assert failing.tries == 1
