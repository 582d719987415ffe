"""One learner at a time: a subscription that one reader of a group has alone, and two learners on two machines.

Each machine is a folder: its own store, the same topics, the same registry.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from streamad.errors import TakenOverError
from streamad.messages import SHARES
from streamad.plugins import ConnectorContext, connect_subscription
from streamad.ports import ExclusiveSubscription, StoredMessage
from streamad.testing import ManualClock
from tests.support.kafka.broker import Broker, Message, admin_of, create_topics, new_topic, produce, unique_name
from tests.support.kafka.workers import ForkServer, Worker
from tests.support.learning.store import QUIET, LearningPlant
from tests.support.runtime.pipeline import CHANNELS, L
from tests.support.waiting import LIMIT_S
from tests.unit.learn.process.test_service import record

N_PARTITIONS = 3
LEARNING: dict[str, Any] = {**QUIET, "process": "elsewhere", "first_training": 5_000, "max_training": 9_000}
WAITS = "another reader has the whole topic: waiting"


class Reader:
    """A program that reads a topic with an exclusive subscription; it notes what it got, and what was still its own."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        context = ConnectorContext((), ManualClock(), Path())
        wanted = {"group": group, "exclusive": True}
        subscription = connect_subscription(f"kafka://{broker.bootstrap}/{topic}", wanted, context)
        assert isinstance(subscription, ExclusiveSubscription)
        subscription.hold()
        self.subscription = subscription
        self.taken: list[int] = []
        self.foreign: list[int] = []
        self._messages: AsyncIterator[StoredMessage] = subscription.messages()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._messages:
            is_ours = await self.subscription.is_ours()
            (self.taken if is_ours else self.foreign).append(json.loads(message.value))
            if is_ours:
                self.subscription.release(1)

    async def ended(self) -> None:
        """Return once it reads no more. Raises why."""
        await asyncio.shield(self._task)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await cast("Any", self._messages).aclose()
        await self.subscription.close()


async def put(broker: Broker, topic: str, numbers: Iterable[int]) -> None:
    messages = [Message(json.dumps(n).encode(), partition=n % N_PARTITIONS) for n in numbers]
    await produce(broker.bootstrap, topic, messages)


async def until(is_so: Callable[[], bool], within_s: float = LIMIT_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.05)


async def test_one_reader_has_all_partitions_and_the_next_one_goes_on_where_it_ended(
    kafka: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = await new_topic(kafka, N_PARTITIONS), unique_name("group")
    await put(kafka, topic, range(6))
    first = Reader(kafka, topic, group)
    await until(lambda: sorted(first.taken) == [*range(6)])
    waiting = [Reader(kafka, topic, group), Reader(kafka, topic, group)]
    said = ""

    def both_wait() -> bool:
        nonlocal said
        said += "".join(capsys.readouterr())
        return said.count(WAITS) == 2

    await until(both_wait)
    await put(kafka, topic, range(6, 12))
    await until(lambda: sorted(first.taken) == [*range(12)])
    assert [reader.taken for reader in waiting] == [[], []]
    await first.end()
    await put(kafka, topic, range(12, 18))
    await until(lambda: any(reader.taken for reader in waiting))
    second, third = sorted(waiting, key=lambda reader: len(reader.taken), reverse=True)
    await until(lambda: sorted(second.taken) == [*range(12, 18)])
    assert third.taken == []
    assert await asyncio.wait_for(second.subscription.taken(), LIMIT_S) is True
    assert await third.subscription.is_ours() is False
    await third.end()
    await put(kafka, topic, range(18, 20))
    await until(lambda: sorted(second.taken) == [*range(12, 20)])
    await second.end()
    assert both_wait(), "each of them has said it once"


async def test_what_a_reader_gets_after_its_membership_has_expired_is_not_its_own(kafka: Broker) -> None:
    """Brokers serve whoever fetches, member or not: the second reader has the same messages."""
    topic, group = await new_topic(kafka, N_PARTITIONS), unique_name("group")
    await put(kafka, topic, range(6))
    first = Reader(kafka, topic, group)
    await until(lambda: sorted(first.taken) == [*range(6)])
    await until_position(kafka, group, 6)
    silent = asyncio.Event()
    coordinator = first.subscription._consumer._coordinator  # type: ignore[attr-defined]  # noqa: SLF001
    beat = coordinator._do_heartbeat  # noqa: SLF001

    async def late_beat() -> bool:
        await silent.wait()
        return bool(await beat())

    coordinator._do_heartbeat = late_beat  # noqa: SLF001 - as on a machine that was cut off
    second = Reader(kafka, topic, group)
    await asyncio.wait_for(second.subscription.taken(), LIMIT_S)
    await put(kafka, topic, range(6, 12))
    await until(lambda: sorted(second.taken) == [*range(6, 12)])
    await until(lambda: len(first.foreign) > 0)
    assert sorted(first.taken) == [*range(6)]
    silent.set()
    with pytest.raises(TakenOverError):
        await asyncio.wait_for(first.ended(), LIMIT_S)
    await first.end()
    await put(kafka, topic, range(12, 15))
    await until(lambda: sorted(second.taken) == [*range(6, 15)])
    await second.end()


async def until_position(broker: Broker, group: str, n: int) -> None:
    """Return once the group has done ``n`` messages."""
    async with asyncio.timeout(LIMIT_S), admin_of(broker.bootstrap) as admin:
        n_done = -1
        while n_done != n:
            await asyncio.sleep(0.2)
            n_done = sum(max(0, one.offset) for one in (await admin.list_consumer_group_offsets(group)).values())


class Machines:
    """Learners of one plant, each in a folder of its own."""

    def __init__(self, folder: Path, broker: Broker, topics: dict[str, str]) -> None:
        self._folder, self._broker, self.topics = folder, broker, topics
        self.learners: list[Worker] = []
        self.n = 0
        for machine in ("a", "b"):
            (folder / machine).mkdir()
            content = {
                "name": topics["input"],
                "channels": [{"name": name} for name in CHANNELS],
                "source": {"url": f"kafka://{broker.bootstrap}/{topics['input']}"},
                "window": {"length": L, "min_samples": 1},
                "model": {"detector": "mean", "device": "cpu", "references": [], "registry": str(folder / "registry")},
                "alerts": {"false_alarm_rate": 0.05},
                "learning": LEARNING,
                "sinks": {"windows": f"kafka:///{topics['windows']}"},
            }
            (folder / machine / "plant.yaml").write_text(yaml.safe_dump(content))

    def start(self, machine: str, *arguments: str) -> Worker:
        log = self._folder / f"learn-{len(self.learners)}.log"
        self.learners.append(ForkServer().start(machine, ["learn", *arguments], self._folder / machine, log))
        return self.learners[-1]

    async def commit(self, n: int) -> set[str]:
        """Let workers commit ``n`` more windows; return their sequences."""
        numbers = range(self.n, self.n + n)
        self.n += n
        windows = [record(number) for number in numbers]
        messages = [Message(msgspec.json.encode(each), partition=i % N_PARTITIONS) for i, each in enumerate(windows)]
        await produce(self._broker.bootstrap, self.topics["windows"], messages)
        return {each.sequence for each in windows}

    def database(self, machine: str) -> Path:
        return self._folder / machine / "inliers" / "inliers.sqlite3"

    def stored(self, machine: str) -> set[str]:
        if not self.database(machine).exists():
            return set()
        store = LearningPlant(self._folder / machine, learning=LEARNING).store()
        return {one.sequence for share in SHARES for one in store.read(share)}

    async def until_done(self) -> None:
        await until_position(self._broker, f"streamad.{self.topics['input'][:46]}.learner", self.n)


@pytest.fixture
async def machines(kafka: Broker, tmp_path: Path) -> AsyncIterator[Machines]:
    topics = {name: unique_name(name) for name in ("input", "windows")}
    await create_topics(kafka.bootstrap, {topics["input"]: 1, topics["windows"]: N_PARTITIONS})
    machines = Machines(tmp_path, kafka, topics)
    yield machines
    for learner in machines.learners:
        learner.end()


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")
@pytest.mark.parametrize("order", ["ab", "ba"])
async def test_the_survivor_goes_on_with_all_windows_from_where_the_killed_one_was(
    order: str, machines: Machines
) -> None:
    one, other = order
    first = machines.start(one)
    early = await machines.commit(30)
    await until(lambda: machines.stored(one) == early)
    second = machines.start(other)
    await until(lambda: WAITS in second.said())
    early |= await machines.commit(30)
    await machines.until_done()
    assert (machines.stored(one), machines.stored(other)) == (early, set())

    first.kill()
    late = await machines.commit(30)
    await until(lambda: machines.stored(other) == late)
    assert machines.stored(one) == early
    assert second.said().count(WAITS) == 1

    again = machines.start(one)
    await until(lambda: WAITS in again.said())
    late |= await machines.commit(30)
    await machines.until_done()
    second.send(signal.SIGTERM)
    assert await second.wait(LIMIT_S) == 0, second.said()[-3000:]
    last = await machines.commit(10)
    await until(lambda: machines.stored(one) == early | last)
    assert machines.stored(other) == late
    again.send(signal.SIGTERM)
    assert await again.wait(LIMIT_S) == 0, again.said()[-3000:]


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")
async def test_a_learner_that_was_frozen_while_another_took_over_stores_nothing_of_what_it_was_given(
    machines: Machines,
) -> None:
    frozen = machines.start("a")
    early = await machines.commit(30)
    await until(lambda: machines.stored("a") == early)
    await machines.until_done()
    frozen.send(signal.SIGSTOP)
    late = await machines.commit(60)
    other = machines.start("b")
    await until(lambda: machines.stored("b") == late)
    frozen.send(signal.SIGCONT)
    await until(lambda: WAITS in frozen.said())
    late |= await machines.commit(30)
    await until(lambda: machines.stored("b") == late)
    await machines.until_done()
    assert machines.stored("a") == early

    other.send(signal.SIGTERM)
    assert await other.wait(LIMIT_S) == 0, other.said()[-3000:]
    last = await machines.commit(10)
    await until(lambda: machines.stored("a") == early | last)
    assert machines.stored("b") == late
    frozen.send(signal.SIGTERM)
    assert await frozen.wait(LIMIT_S) == 0, frozen.said()[-3000:]


@pytest.mark.skipif(sys.platform != "linux", reason="needs signals and a fork server")
@pytest.mark.parametrize("arguments", [(), ("--present",)])
async def test_a_learner_that_waits_makes_no_store_and_can_be_ended(
    arguments: tuple[str, ...], machines: Machines
) -> None:
    first = machines.start("a")
    early = await machines.commit(9)
    await until(lambda: machines.stored("a") == early)
    waiting = machines.start("b", *arguments)
    await until(lambda: WAITS in waiting.said())
    waiting.send(signal.SIGTERM)
    assert await waiting.wait(LIMIT_S) == 0, waiting.said()[-3000:]
    assert not machines.database("b").exists()
    first.send(signal.SIGTERM)
    assert await first.wait(LIMIT_S) == 0, first.said()[-3000:]
