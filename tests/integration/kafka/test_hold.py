"""A subscription to a real topic that holds messages: a group begins with the first one not released."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from streamad.plugins import ConnectorContext, connect_subscription
from streamad.ports import HoldingSubscription, StoredMessage
from streamad.testing import ManualClock
from tests.support.kafka.broker import Broker, Message, admin_of, new_topic, produce, unique_name
from tests.support.waiting import LIMIT_S


class Reader:
    """A program that reads ahead with a group."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        context = ConnectorContext((), ManualClock(), Path())
        subscription = connect_subscription(f"kafka://{broker.bootstrap}/{topic}", {"group": group}, context)
        assert isinstance(subscription, HoldingSubscription)
        subscription.hold()
        self.subscription = subscription
        self._messages: AsyncIterator[StoredMessage] = subscription.messages()

    async def read(self, n: int) -> list[int]:
        async with asyncio.timeout(LIMIT_S):
            return [json.loads((await anext(self._messages)).value) for _ in range(n)]

    async def end(self) -> None:
        await cast("Any", self._messages).aclose()
        await self.subscription.close()


async def put(broker: Broker, topic: str, *numbers: int, partition: int = 0) -> None:
    await produce(broker.bootstrap, topic, [Message(json.dumps(n).encode(), partition=partition) for n in numbers])


async def test_what_is_not_released_comes_again_and_nothing_else(kafka: Broker) -> None:
    topic, group = await new_topic(kafka, 1), unique_name("group")
    await put(kafka, topic, 0, 1, 2, 3)
    reader = Reader(kafka, topic, group)
    assert await reader.read(3) == [0, 1, 2]
    reader.subscription.release(1)
    await reader.end()
    again = Reader(kafka, topic, group)
    assert await again.read(3) == [1, 2, 3]
    again.subscription.release(3)
    await again.end()
    await put(kafka, topic, 4)
    last = Reader(kafka, topic, group)
    assert await last.read(1) == [4]
    await last.end()


async def until_shared(broker: Broker, group: str) -> None:
    """Return once the group has two members and has ended its rebalance."""
    async with asyncio.timeout(LIMIT_S), admin_of(broker.bootstrap) as admin:
        state, members = "", []
        while state != "Stable" or len(members) < 2:
            await asyncio.sleep(0.05)
            (described,) = await admin.describe_consumer_groups([group])
            _, _, state, _, _, members, *_ = described.groups[0]


@pytest.mark.parametrize("released", [0, 2])
async def test_a_rebalance_yields_no_message_again_that_is_held_and_loses_none(kafka: Broker, released: int) -> None:
    topic, group = await new_topic(kafka, 1), unique_name("group")
    await put(kafka, topic, 0, 1, 2)
    reader = Reader(kafka, topic, group)
    assert await reader.read(3) == [0, 1, 2]
    reader.subscription.release(released)
    other = Reader(kafka, topic, group)
    joining = asyncio.ensure_future(other.read(1))
    next_one = asyncio.ensure_future(reader.read(1))
    await until_shared(kafka, group)  # the only partition goes to one of both
    await put(kafka, topic, 3)
    await asyncio.wait([joining, next_one], timeout=LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    if next_one.done():
        assert next_one.result() == [3], "what is held is not yielded again"
    else:
        assert joining.result() == [released], "another member begins with the first one not released"
    for task in (joining, next_one):
        task.cancel()
    await asyncio.wait([joining, next_one])
    await reader.end()
    await other.end()
    last = Reader(kafka, topic, group)
    assert await last.read(4 - released) == list(range(released, 4))
    await last.end()
