"""Workers of one group share partitions: what is kept goes on unnoticed, what is lost is given up, nothing is twice."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from streamad.errors import SourceError
from streamad.types import PartitionAssigned, PartitionRevoked, Rebalanced, RecordBatch
from streamad_connectors.kafka.client.stopping import discard
from streamad_connectors.kafka.reading.membership import Membership, sticky_assignor
from tests.support.kafka.broker import Broker, Message, new_topic, produce, unique_name
from tests.support.kafka.source import Pulling, our_tasks, source_of
from tests.support.waiting import IN_TIME_S, LIMIT_S

N_PARTITIONS = 4


@pytest.fixture
async def topic(kafka: Broker) -> str:
    return await new_topic(kafka, N_PARTITIONS)


def worker(kafka: Broker, topic: str, group: str, **options: Any) -> Pulling:
    return Pulling(source_of(kafka.bootstrap, topic, group=group, **options))


async def write(kafka: Broker, topic: str, begin: int, end: int) -> None:
    await produce(kafka.bootstrap, topic, [Message(b"%d" % n, partition=n % N_PARTITIONS) for n in range(begin, end)])


def chain(pulling: Pulling, partition: str) -> list[int]:
    """Return the offsets of the records of a partition, after checking that its batches follow one another."""
    batches = pulling.batches(partition)
    assert [batch.begins_at for batch in batches[1:]] == [batch.next_offset for batch in batches[:-1]]
    return [record.offset for batch in batches for record in batch.records]


async def test_a_second_worker_takes_half_and_what_is_kept_goes_on(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    everything = {f"{topic}-{number}" for number in range(N_PARTITIONS)}
    async with worker(kafka, topic, group) as first:
        await write(kafka, topic, 0, 400)
        await first.until(lambda: len(first.values()) == 400)
        assert first.of(Rebalanced) == [Rebalanced(tuple(sorted(everything)))]
        async with worker(kafka, topic, group) as second:
            await second.until(lambda: second.shares(2))
            await first.until(lambda: first.shares(2))
            assert first.assigned() | second.assigned() == everything
            kept, moved = first.assigned(), second.assigned()
            await write(kafka, topic, 400, 800)
            # The second begins where the source is told to, here at the start: all of its partitions.
            await first.until(lambda: len(first.values()) == 600)
            await second.until(lambda: len(second.values()) == 400)
            for partition in kept:
                assert chain(first, partition) == list(range(200))
            for partition in moved:
                assert chain(first, partition) == list(range(100))
                assert chain(second, partition) == list(range(200))
            assert first.of(Rebalanced)[-1] == Rebalanced(tuple(sorted(kept)))
            n_assigned = len(first.of(PartitionAssigned))
            assert n_assigned == N_PARTITIONS  # the kept ones were not offered again
        await first.until(lambda: first.assigned() == everything)
        assert {event.partition for event in first.of(PartitionAssigned)[n_assigned:]} == moved
        assert {event.partition for event in first.of(PartitionRevoked)} == moved


async def test_more_workers_than_partitions_wait_without_any(kafka: Broker) -> None:
    topic, group = await new_topic(kafka), unique_name("group")
    async with worker(kafka, topic, group) as first:
        await first.until(lambda: first.is_caught_up(f"{topic}-0"))
        async with worker(kafka, topic, group, give_up_after="2s", heartbeat_interval="200ms") as second:
            await second.until(lambda: second.of(Rebalanced) == [Rebalanced(())])
            await asyncio.sleep(3.0)  # its heartbeats are answered: no reason to give up
            assert not second.is_over
            assert second.of(RecordBatch) == []


async def test_partitions_that_are_not_sought_yet_survive_a_rebalance(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    await write(kafka, topic, 0, 40)
    async with Pulling(source_of(kafka.bootstrap, topic, group=group), seeks=False) as first:
        await first.until(lambda: first.shares(N_PARTITIONS))
        async with worker(kafka, topic, group) as second:
            await second.until(lambda: second.shares(2))
            await first.until(lambda: first.shares(2))
            for partition in sorted(first.assigned() | second.assigned()):
                assert await first.source.seek(partition, 3) == 3  # of a lost one: without effect
            await first.until(lambda: len(first.values()) == 2 * 7)
            assert {event.partition for event in first.of(RecordBatch)} == first.assigned()
            assert all(chain(first, partition) == list(range(3, 10)) for partition in first.assigned())


async def test_one_instance_id_used_twice_ends_one_of_them(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    options = {"instance": "worker-1", "session_timeout": "6s", "heartbeat_interval": "500ms"}
    async with worker(kafka, topic, group, **options) as first:
        await first.until(lambda: first.shares(N_PARTITIONS))
        async with worker(kafka, topic, group, **options) as second:
            began_s = time.monotonic()
            while not (first.is_over or second.is_over):
                await asyncio.sleep(0.1)
                assert time.monotonic() - began_s < LIMIT_S
            ended, other = (first, second) if first.is_over else (second, first)
            assert isinstance(ended.error, SourceError)
            assert str(ended.error) == (
                f"instance id 'worker-1' is used by another process in group {group}: "
                "give each worker its own --instance"
            )
            await ended.source.close()
            await write(kafka, topic, 0, 40)
            await other.until(lambda: len(other.values()) == 40)  # the other goes on


async def test_one_instance_id_used_twice_at_once_is_noticed_at_once(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    # While the group waits for the third worker to join anew, the broker keeps the later of the other two.
    patient = {"session_timeout": "2m", "heartbeat_interval": "2s"}
    async with worker(kafka, topic, group, **patient) as third:
        await third.until(lambda: third.shares(N_PARTITIONS))
        options = {"instance": "worker-1", **patient}
        async with worker(kafka, topic, group, **options) as first, worker(kafka, topic, group, **options) as second:
            began_s = time.monotonic()
            while not (first.is_over or second.is_over):
                await asyncio.sleep(0.1)
                assert time.monotonic() - began_s < 100  # before the session is over
            error = first.error or second.error
    assert isinstance(error, SourceError)
    assert "instance id 'worker-1' is used by another process" in str(error)
    assert "FencedInstanceIdError" in str(error.__cause__)


async def test_a_static_member_that_restarts_in_time_keeps_all_and_moves_nothing(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    slow = {"session_timeout": "10s"}
    async with worker(kafka, topic, group, instance="worker-2", **slow) as other:
        async with worker(kafka, topic, group, instance="worker-1", **slow) as first:
            await first.until(lambda: first.shares(2))
            await other.until(lambda: other.shares(2))
            n_rebalanced = len(other.of(Rebalanced))
        async with worker(kafka, topic, group, instance="worker-1", **slow) as again:
            await again.until(lambda: again.shares(2))
            assert again.assigned() == first.assigned()
            assert len(other.of(Rebalanced)) == n_rebalanced


async def test_a_worker_stopped_for_longer_than_its_session_gives_up_what_others_took(
    kafka: Broker, topic: str
) -> None:
    group, is_taken = unique_name("group"), threading.Event()
    async with worker(kafka, topic, group) as stopped:
        await write(kafka, topic, 0, 40)
        await stopped.until(lambda: len(stopped.values()) == 40)

        async def take_over() -> set[str]:
            async with worker(kafka, topic, group) as other:
                await other.until(lambda: other.shares(N_PARTITIONS))
                await other.until(lambda: len(other.values()) == 40)
                is_taken.set()
                await other.until(lambda: other.shares(2))  # the stopped one is back
                await asyncio.sleep(1.0)
                return other.assigned()

        other = asyncio.get_running_loop().run_in_executor(None, asyncio.run, take_over())
        assert is_taken.wait(LIMIT_S)  # nothing of this loop may run, as under SIGSTOP; the session lasts 3 s
        taken = await other
        await stopped.until(lambda: {event.partition for event in stopped.of(PartitionRevoked)} == taken)
        kept = {f"{topic}-{number}" for number in range(N_PARTITIONS)} - taken
        await write(kafka, topic, 40, 80)
        await stopped.until(lambda: all(len(stopped.values(partition)) == 20 for partition in kept))
        for partition in kept:  # never given up: it goes on where it was, and its committer is fenced where need be
            assert chain(stopped, partition) == list(range(20))


async def test_a_dead_worker_is_waited_for_as_long_as_its_session_lasts(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    options = {"session_timeout": "5s", "request_timeout": "1s"}  # aiokafka asks again and again to join
    is_joined, is_inherited = threading.Event(), threading.Event()

    async def die() -> None:
        async with worker(kafka, topic, group, **options) as dead:
            await dead.until(lambda: dead.shares(N_PARTITIONS))
            is_joined.set()
            assert is_inherited.wait(LIMIT_S)  # as if its process were killed: it says nothing, not even goodbye

    dying = asyncio.get_running_loop().run_in_executor(None, asyncio.run, die())
    await asyncio.to_thread(is_joined.wait)
    async with worker(kafka, topic, group, **options) as heir:
        took_s = await heir.until(lambda: heir.shares(N_PARTITIONS))
        is_inherited.set()
        assert took_s > 3.0
        assert not heir.is_over
    await dying


async def test_a_worker_whose_pipeline_is_slow_stays_a_member(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    async with worker(kafka, topic, group) as other:
        await other.until(lambda: other.shares(N_PARTITIONS))
        source = source_of(kafka.bootstrap, topic, group=group, session_timeout="3s")
        events = source.batches()
        try:
            async with asyncio.timeout(LIMIT_S):
                while not isinstance(await anext(events), Rebalanced):
                    pass
                await asyncio.sleep(5.0)  # nobody asks it for events
                assert len(other.assigned()) == 2
                await write(kafka, topic, 0, 40)
                await other.until(lambda: len(other.values()) == 20)
        finally:
            await source.close()


async def test_rebalances_while_records_flow_lose_and_repeat_nothing(kafka: Broker, topic: str) -> None:
    group = unique_name("group")
    async with worker(kafka, topic, group) as first:
        await first.until(lambda: first.shares(N_PARTITIONS))
        writing = asyncio.create_task(_write_slowly(kafka, topic, 2000))
        for _ in range(3):
            async with worker(kafka, topic, group) as second:
                await second.until(lambda second=second: second.shares(2))
            await first.until(lambda: first.shares(N_PARTITIONS))
        await writing
        await first.until(lambda: all(_last(first, f"{topic}-{n}") == 499 for n in range(N_PARTITIONS)))
        for number in range(N_PARTITIONS):
            runs: list[list[int]] = []
            for event in (event for _, event in first.events):
                if getattr(event, "partition", None) != f"{topic}-{number}":
                    continue
                if isinstance(event, PartitionAssigned):
                    runs.append([])
                elif isinstance(event, RecordBatch):
                    runs[-1] += [record.offset for record in event.records]
            assert all(run == list(range(len(run))) for run in runs)
            assert len(runs[-1]) == 500


def _last(pulling: Pulling, partition: str) -> int:
    return max((record.offset for batch in pulling.batches(partition) for record in batch.records), default=-1)


async def _write_slowly(kafka: Broker, topic: str, n_records: int) -> None:
    for begin in range(0, n_records, 100):
        await write(kafka, topic, begin, begin + 100)
        await asyncio.sleep(0.1)


async def test_it_can_be_closed_in_the_middle_of_a_rebalance(
    unstable_kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_rebalancing = asyncio.Event()
    monkeypatch.setattr(Membership, "on_partitions_revoked", lambda *_: is_rebalancing.set())
    broker, topic, group = unstable_kafka, await new_topic(unstable_kafka, 2), unique_name("group")
    before = our_tasks()
    pulling = worker(broker, topic, group)
    async with pulling:
        await pulling.until(lambda: pulling.of(Rebalanced))
        is_rebalancing.clear()
        member = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, partition_assignment_strategy=[sticky_assignor()]
        )
        joining = asyncio.ensure_future(member.start())
        await is_rebalancing.wait()
        broker.pause()
        joining.cancel()
        await asyncio.wait([joining])
        await discard(member)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < IN_TIME_S
    assert our_tasks() <= before
