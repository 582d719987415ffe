"""The law of Kafka commits: wherever a worker died, outputs and progress are those of a run without a crash."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import AIOKafkaConnection
from aiokafka.producer.sender import Sender
from aiokafka.protocol.transaction import EndTxnRequest

from streamad.errors import OutputError, PartitionLost
from streamad_connectors.kafka.writing import producer
from streamad_connectors.kafka.writing.committer import KafkaCommitter
from tests.support.kafka.broker import Broker, Message, configure, produce
from tests.support.kafka.commits import (
    OUTPUT_PARTITIONS,
    CommitPlant,
    Step,
    make_plant,
    merged,
    run,
    steps_of,
    texts_of,
)
from tests.support.waiting import IN_TIME_S

MANY = 64


class CrashError(BaseException):
    """Ends a life as SIGKILL does: nothing that runs afterwards says another word to the broker."""


class Death:
    """Wraps each call of the protocol: the ``at``-th of the points before and after a call is where it ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int | None) -> None:
        self.points: list[str] = []
        self._at = at
        # The two steps of a producer's start: what the coordinator knows, and the fence (InitProducerId).
        monkeypatch.setattr(producer, "last_ending", self._wrapped("ask", producer.last_ending))
        monkeypatch.setattr(Sender, "start", self._wrapped("fence", Sender.start))
        for client, names in {
            AIOKafkaProducer: [
                "begin_transaction",
                "abort_transaction",
                "send_batch",
                "send_offsets_to_transaction",
            ],
            AIOKafkaConsumer: ["start", "getmany"],
        }.items():
            for name in names:
                monkeypatch.setattr(client, name, self._wrapped(name, getattr(client, name)))
        monkeypatch.setattr(AIOKafkaProducer, "commit_transaction", self._commit(AIOKafkaProducer.commit_transaction))

    def _is_here(self, point: str) -> bool:
        self.points.append(point)
        return len(self.points) == self._at

    def _wrapped(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            if self._is_here(f"before {name}"):
                raise CrashError
            result = await call(*args, **kwargs)
            if self._is_here(f"after {name}"):
                if isinstance(result, asyncio.Future):
                    await result  # the record is in the log
                raise CrashError
            return result

        return wrapped

    def _commit(self, call: Callable[[AIOKafkaProducer], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def commit(producer: AIOKafkaProducer) -> None:
            if self._is_here("before commit"):
                raise CrashError
            if self._is_here("commit sent"):
                await _send_end_and_die(producer, call)
            await call(producer)
            if self._is_here("after commit"):
                raise CrashError

        return commit


async def _send_end_and_die(producer: AIOKafkaProducer, call: Callable[[AIOKafkaProducer], Awaitable[None]]) -> None:
    """Crash in the moment in which the request to commit has left the process."""
    has_left = asyncio.Event()
    with pytest.MonkeyPatch.context() as patch:
        send = AIOKafkaConnection.send

        def watched(connection: AIOKafkaConnection, request: Any, expect_response: bool = True) -> Any:
            answer = send(connection, request, expect_response)
            if isinstance(request, EndTxnRequest):
                connection._writer.transport.abort()  # noqa: SLF001 - aiokafka gives no other way to its socket
                has_left.set()
            return answer

        patch.setattr(AIOKafkaConnection, "send", watched)
        committing = asyncio.ensure_future(call(producer))
        await has_left.wait()
    committing.cancel()
    raise CrashError


async def live(plant: CommitPlant, partition: str, steps: list[Step], at: int | None) -> list[str]:
    """Live once, to the end or to a crash at point ``at``; return the points passed."""
    with pytest.MonkeyPatch.context() as patch:
        death = Death(patch, at)
        committer = plant.committer()
        try:
            await run(committer, partition, steps)
        except CrashError:
            return death.points  # nobody closes it
        await committer.close()
        return death.points


def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


async def check(plant: CommitPlant, lives: dict[int, list[Step]]) -> None:
    """Compare what the broker holds with the commits of each partition, done exactly once."""
    assert await plant.written() == texts_of(step for steps in lives.values() for step in steps)
    for number, steps in lives.items():
        assert await plant.progress(number) == merged(steps)
        assert await plant.committed_offset(number) == steps[-1].update.low_watermark


async def test_a_crash_at_any_point_changes_nothing(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap, MANY)
    seen: set[str] = set()
    lives = {}
    for number in range(MANY):
        partition = plant.partition(number)
        lives[number] = steps_of(partition, 2, 1)
        points = await live(plant, partition, lives[number], number + 1)
        if len(points) <= number:
            break
        seen.add(points[-1])
        assert not tasks()
        await live(plant, partition, lives[number], None)
    assert len(points) <= number, "there were more points than partitions"
    assert seen == {
        *("before ask", "after ask", "before fence", "after fence", "before start", "after start"),
        *("before abort_transaction", "after abort_transaction"),
        *("before getmany", "after getmany"),
        *("before begin_transaction", "after begin_transaction", "before send_batch", "after send_batch"),
        *("before send_offsets_to_transaction", "after send_offsets_to_transaction"),
        *("before commit", "commit sent", "after commit"),
    }
    await check(plant, lives)


async def test_a_crash_at_any_point_of_a_restore_changes_nothing(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    steps = steps_of(plant.partition(), 3)
    await live(plant, plant.partition(), steps[:2], None)
    seen: list[str] = []
    while seen.count("before begin_transaction") < 2:  # the second one is that of the commit
        seen.append((await live(plant, plant.partition(), steps, len(seen) + 1))[-1])
        assert not tasks()
    calls = ["ask", "fence", "begin_transaction", "abort_transaction", "start"]
    calls += ["getmany"] * (len(seen) // 2 - len(calls))
    assert seen[:-1] == [f"{when} {call}" for call in calls for when in ("before", "after")]
    assert "after getmany" in seen
    await live(plant, plant.partition(), steps, None)
    await check(plant, {0: steps})


@pytest.mark.parametrize("seed", range(3))
async def test_many_crashes_in_a_row_change_nothing(kafka: Broker, seed: int) -> None:
    rng = random.Random(seed)
    plant = await make_plant(kafka.bootstrap)
    steps = steps_of(plant.partition(), 9, 3)
    crashes = 0
    while len(await live(plant, plant.partition(), steps, at := rng.randrange(1, 60))) >= at:
        crashes += 1
    assert crashes > 1
    await check(plant, {0: steps})


async def test_a_zombie_commits_nothing_any_more(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 4)
    zombie, owner = plant.committer(), plant.committer()
    await zombie.restore(partition)
    await zombie.commit(*steps[0])
    assert await owner.restore(partition) == merged(steps[:1])
    with pytest.raises(PartitionLost, match="taken it over") as lost:
        await zombie.commit(*steps[1])
    assert lost.value.fenced
    assert lost.value.partition == partition
    with pytest.raises(PartitionLost, match="restore it first"):
        await zombie.commit(*steps[1])
    for step in steps[1:]:
        await owner.commit(*step)
    await zombie.close()
    await owner.close()
    await check(plant, {0: steps})


async def test_a_former_owner_commits_nothing_while_the_new_one_reads(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 3)
    former, owner = plant.committer(), plant.committer()
    await former.restore(partition)
    await former.commit(*steps[0])
    start = AIOKafkaConsumer.start
    lost: list[bool] = []

    async def commit_first(consumer: AIOKafkaConsumer) -> None:
        patch.undo()
        with pytest.raises(PartitionLost) as loss:
            await former.commit(*steps[1])
        lost.append(loss.value.fenced)
        await start(consumer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AIOKafkaConsumer, "start", commit_first)
        await run(owner, partition, steps)
    assert lost == [True]
    await former.close()
    await owner.close()
    await check(plant, {0: steps})


@pytest.mark.parametrize(
    "call", ["begin_transaction", "send_batch", "send_offsets_to_transaction", "commit_transaction"]
)
async def test_who_is_fenced_amid_a_transaction_leaves_nothing_of_it(kafka: Broker, call: str) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 3)
    zombie, owner = plant.committer(), plant.committer()
    await zombie.restore(partition)
    await zombie.commit(*steps[0])
    original = getattr(AIOKafkaProducer, call)
    restoring: list[asyncio.Future[Any]] = []

    async def fenced_first(*args: Any, **kwargs: Any) -> Any:
        patch.undo()
        restoring.append(asyncio.ensure_future(owner.restore(partition)))
        await asyncio.shield(restoring[0])
        return await original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AIOKafkaProducer, call, fenced_first)
        with pytest.raises(PartitionLost) as lost:
            await zombie.commit(*steps[1])
    assert lost.value.fenced
    await zombie.close()
    assert await restoring[0] == merged(steps[:1])
    await owner.commit(*steps[1])
    await owner.commit(*steps[2])
    await owner.close()
    assert not tasks()
    await check(plant, {0: steps})


async def test_offsets_that_nobody_answers_end_with_the_batch_that_was_refused(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 2)
    zombie, owner = plant.committer(), plant.committer()
    await zombie.restore(partition)
    await zombie.commit(*steps[0])
    await owner.restore(partition)

    async def unanswered(*args: Any, **kwargs: Any) -> None:
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AIOKafkaProducer, "send_offsets_to_transaction", unanswered)
        with pytest.raises(PartitionLost) as lost:
            await zombie.commit(*steps[1])
    assert lost.value.fenced
    await zombie.close()
    await owner.close()
    assert not tasks()
    await check(plant, {0: steps[:1]})


async def test_a_transaction_that_the_broker_gave_up_is_done_again(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 3)
    committer = plant.committer(transaction_timeout="1s", request_timeout="10s")
    await committer.restore(partition)
    await committer.commit(*steps[0])
    original = AIOKafkaProducer.commit_transaction

    async def too_late(producer: AIOKafkaProducer) -> None:
        patch.undo()
        await asyncio.sleep(3.5)  # the broker looks for such transactions every second
        await original(producer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AIOKafkaProducer, "commit_transaction", too_late)
        with pytest.raises(PartitionLost):
            await committer.commit(*steps[1])
    assert (await plant.written()) == texts_of(steps[:1])
    await run(committer, partition, steps)
    await committer.close()
    await check(plant, {0: steps})


async def test_a_refused_record_leaves_nothing_of_its_transaction(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap)
    partition, steps = plant.partition(), steps_of(plant.partition(), 2)
    committer = plant.committer()
    await committer.restore(partition)
    await committer.commit(*steps[0])
    await configure(plant.bootstrap, plant.outputs["late"], {"max.message.bytes": "200"})
    with pytest.raises(OutputError, match=plant.outputs["late"]) as refused:
        await committer.commit(*steps[1])
    assert "max.message.bytes" in str(refused.value)
    # It was aborted: what lies behind it is read at once, without waiting for its time-out.
    behind = [Message(b'{"message": "behind"}', b"behind", number) for number in range(OUTPUT_PARTITIONS)]
    await produce(plant.bootstrap, plant.outputs["events"], behind)
    expected = texts_of(steps[:1])
    expected["events"]["behind"] = ["behind"] * OUTPUT_PARTITIONS
    assert await plant.written() == expected
    assert await plant.progress() == merged(steps[:1])
    await configure(plant.bootstrap, plant.outputs["late"], {"max.message.bytes": "1000000"})
    await run(committer, partition, steps)
    await committer.close()
    later = texts_of(steps)
    assert await plant.written() == later | {"events": expected["events"] | later["events"]}
    assert await plant.progress() == merged(steps)


async def time_to_lose(committer: KafkaCommitter, steps: list[Step]) -> float:
    """Commit until a commit fails; return the seconds that this one took."""
    started_s: list[float] = []

    async def commit_all() -> None:
        for step in steps:
            started_s.append(time.monotonic())
            await committer.commit(*step)

    with pytest.raises(PartitionLost) as lost:
        await commit_all()
    assert not lost.value.fenced
    return time.monotonic() - started_s[-1]


async def test_a_broker_outage_amid_commits_changes_nothing(unstable_kafka: Broker) -> None:
    broker = unstable_kafka
    plant = await make_plant(broker.bootstrap, 2)
    partition, steps = plant.partition(), steps_of(plant.partition(), 400, 1)
    committer, other = (plant.committer(request_timeout="1s", give_up_after="60s") for _ in range(2))
    await other.restore(plant.partition(1))

    for trouble, recover in [(broker.pause, broker.resume), (broker.kill, broker.start)]:
        progress = await committer.restore(partition)
        loop = asyncio.get_running_loop()
        loop.call_later(0.4, trouble)
        took_s = await time_to_lose(committer, steps[0 if progress is None else progress.next_offset :])
        assert 0.9 < took_s < IN_TIME_S
        recovering = asyncio.create_task(asyncio.to_thread(recover), name="recovering")
        if recover == broker.start:
            started_s = time.monotonic()
            await other.close()
            assert time.monotonic() - started_s < IN_TIME_S
            assert [task.get_name() for task in tasks()] == ["recovering"], "a discarded producer has left tasks behind"
        await committer.restore(partition)  # tries again until the broker is back
        await recovering
    await run(committer, partition, steps)
    await committer.close()
    assert not tasks()
    await check(plant, {0: steps})
