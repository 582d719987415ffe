"""The committer against a real broker: one transaction for everything, fences, refusals, and an end to every wait."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError

from streamad.errors import CheckpointError, PartitionLost, SourceError
from streamad.messages import OutputRecord
from streamad.partition_progress import StreamProgress
from streamad.testing import ListSink, ManualClock
from streamad_connectors.kafka.client.options import transactional_id_of
from streamad_connectors.kafka.writing.committer import KafkaCommitter
from streamad_connectors.kafka.writing.producer import PartitionProducer
from tests.support.kafka.broker import Broker, configure, new_broker, unique_name
from tests.support.kafka.commits import CommitPlant, make_plant, merged, message, run, steps_of, texts_of
from tests.support.waiting import IN_TIME_S, LIMIT_S


@pytest.fixture(scope="module")
def unverified_kafka() -> Iterator[Broker]:
    """A broker that does not verify transactions: else what it leaves without markers cannot be made by hand."""
    with new_broker({"transaction.partition.verification.enable": "false"}) as broker:
        yield broker


@pytest.fixture
async def plant(kafka: Broker) -> CommitPlant:
    return await make_plant(kafka.bootstrap)


@pytest.fixture
async def committer(plant: CommitPlant) -> AsyncIterator[KafkaCommitter]:
    committer = plant.committer()
    yield committer
    await committer.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_commit_is_all_there_and_the_next_owner_goes_on_from_it(plant: CommitPlant) -> None:
    partition = plant.partition()
    steps = steps_of(partition, 7)
    state = plant.state()
    committer = KafkaCommitter(state, plant.sinks())
    assert await committer.restore(partition) is None
    assert state.low_watermarks == {}
    for step in steps[:4]:
        await committer.commit(*step)
    assert state.low_watermarks == {partition: (2, 3_000_000)}
    await committer.close()
    await committer.close()
    assert await plant.committed_offset() == steps[3].update.low_watermark

    state = plant.state()
    committer = KafkaCommitter(state, plant.sinks())
    assert await committer.restore(partition) == merged(steps[:4])
    assert state.low_watermarks == {partition: (2, 3_000_000)}
    for step in steps[4:]:
        await committer.commit(*step)
    await committer.close()

    assert await plant.progress() == merged(steps)
    assert await plant.written() == texts_of(steps)


async def test_what_is_larger_than_a_batch_is_committed_and_restored(
    plant: CommitPlant, committer: KafkaCommitter
) -> None:
    """60,000 remembered ids (1.8 MB) and 3 MB of messages go through in one transaction."""
    step = steps_of(plant.partition(), 1)[0]
    many = StreamProgress(done_below=0, closed={f"{number:018x}": number for number in range(60_000)})
    update = msgspec.structs.replace(step.update, streams={f"s:{number}": many for number in range(2)})
    outputs = [message("events", f"s{number % 5}", f"{number}".rjust(30_000)) for number in range(100)]
    await committer.restore(plant.partition())
    await committer.commit(update, outputs)
    progress = await committer.restore(plant.partition())  # waits for the markers, which follow a commit's answer
    assert progress is not None
    assert progress.streams == update.streams
    assert list(progress.streams["s:0"].closed) == list(many.closed)
    assert sum(len(texts) for texts in (await plant.written())["events"].values()) == 100


async def test_small_messages_are_not_joined_into_a_batch_that_the_topic_refuses(plant: CommitPlant) -> None:
    (step,) = steps_of(plant.partition(), 1, 500)
    await configure(plant.bootstrap, plant.outputs["events"], {"max.message.bytes": "12000"})
    committer = KafkaCommitter(plant.state(), plant.sinks(max_message_bytes=12_000))
    await run(committer, plant.partition(), [step])
    await committer.close()
    assert await plant.written() == texts_of([step])


async def test_a_restore_passes_aborted_records_and_waits_for_an_open_transaction(plant: CommitPlant) -> None:
    steps = steps_of(plant.partition(), 2)
    committer = plant.committer(request_timeout="1s", give_up_after="1s")
    await run(committer, plant.partition(), steps)
    async with AIOKafkaProducer(bootstrap_servers=plant.bootstrap, transactional_id=unique_name("other")) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(plant.progress_topic, b"aborted", b"p", 0)
        await producer.abort_transaction()
        assert await committer.restore(plant.partition()) == merged(steps)
        # No restore would see what is committed after an open one before that ends.
        await producer.begin_transaction()
        await producer.send_and_wait(plant.progress_topic, b"open", b"p", 0)
        with pytest.raises(SourceError, match="stays open in partition 0 of"):
            await committer.restore(plant.partition())
        await producer.abort_transaction()
        assert await committer.restore(plant.partition()) == merged(steps)
    await committer.close()


async def test_a_gap_at_the_end_of_the_progress_is_an_end(
    plant: CommitPlant, committer: KafkaCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker could be made to leave one; should compaction ever, a consumer's position stays before it."""
    steps = steps_of(plant.partition(), 2)
    await run(committer, plant.partition(), steps)
    position = AIOKafkaConsumer.position

    async def before_the_gap(consumer: AIOKafkaConsumer, place: TopicPartition) -> int:
        end = (await consumer.end_offsets([place]))[place]
        return int(min(await position(consumer, place), end - 1))

    monkeypatch.setattr(AIOKafkaConsumer, "position", before_the_gap)
    assert await committer.restore(plant.partition()) == merged(steps)


async def test_what_a_transaction_without_markers_left_open_is_not_committed_by_the_next_one(
    unverified_kafka: Broker,
) -> None:
    """KAFKA-20734: the coordinator ends a transaction, but leaves its markers out where no leader is known."""
    plant = await make_plant(unverified_kafka.bootstrap)
    partition = plant.partition()
    steps = steps_of(partition, 5)
    committer = plant.committer()
    await committer.restore(partition)
    for step in steps[:2]:
        await committer.commit(*step)
    await committer.close()
    await plant.leave_open()
    for step in steps[2:4]:
        committer = plant.committer()
        assert await committer.restore(partition) == merged(steps[: step.update.next_offset - 1])
        await committer.commit(*step)
        await committer.close()
    assert await plant.written() == texts_of(steps[:4])
    assert await plant.progress() == merged(steps[:4])


@pytest.mark.parametrize("left_out", ["progress", "outputs", "all but one"])
@pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "aborted"])
async def test_what_a_transaction_left_open_ends_as_its_coordinator_decided(
    unverified_kafka: Broker, left_out: str, is_committed: bool
) -> None:
    """KAFKA-20734 again: markers in some partitions only, because the broker was killed between two of them."""
    plant = await make_plant(unverified_kafka.bootstrap)
    partition = plant.partition()
    steps = steps_of(partition, 4)
    committer = plant.committer()
    await committer.restore(partition)
    for step in steps[:2]:
        await committer.commit(*step)
    await plant.settled()
    plant.leave_markers_out(committer, left_out, commit=is_committed)
    await committer.commit(*steps[2])
    await committer.close()

    committer = plant.committer()
    done = [*steps[:2], *steps[2 : 2 + is_committed]]
    assert await committer.restore(partition) == merged(done)
    assert await plant.written() == texts_of(done)
    await committer.commit(*steps[3])
    await committer.close()
    assert await plant.written() == texts_of([*done, steps[3]])


async def test_a_restore_that_fails_after_its_fence_still_ends_as_the_coordinator_decided(
    unverified_kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = await make_plant(unverified_kafka.bootstrap)
    partition = plant.partition()
    steps = steps_of(partition, 2)
    committer = plant.committer()
    await committer.restore(partition)
    await committer.commit(*steps[0])
    await plant.settled()
    plant.leave_markers_out(committer, "outputs", commit=True)
    await committer.commit(*steps[1])
    await committer.close()

    partitions_of, n_fails = PartitionProducer.partitions_of, 2

    async def fails(producer: PartitionProducer, topic: str) -> int:
        nonlocal n_fails
        n_fails -= 1
        if n_fails >= 0:
            raise KafkaConnectionError("gone again")
        return await partitions_of(producer, topic)

    monkeypatch.setattr(PartitionProducer, "partitions_of", fails)
    committer = plant.committer()
    assert await committer.restore(partition) == merged(steps)
    await committer.close()
    assert n_fails < 0
    assert await plant.written() == texts_of(steps)


async def test_partitions_commit_at_the_same_time_and_are_released_one_by_one(kafka: Broker) -> None:
    plant = await make_plant(kafka.bootstrap, 3)
    committer = plant.committer()
    lives = [steps_of(plant.partition(number), 5) for number in range(3)]
    await asyncio.gather(*(run(committer, plant.partition(number), lives[number]) for number in range(3)))
    await committer.release(plant.partition(1))
    await committer.release(plant.partition(1))
    await committer.release("never-1")
    with pytest.raises(PartitionLost, match="restore it first") as lost:
        await committer.commit(*lives[1][0])
    assert not lost.value.fenced
    later = steps_of(plant.partition(2), 6)
    await committer.commit(*later[5])
    await committer.close()
    assert await plant.written() == texts_of([*lives[0], *lives[1], *later])


async def test_a_release_waits_for_the_commit_under_way(plant: CommitPlant, committer: KafkaCommitter) -> None:
    (step,) = steps_of(plant.partition(), 1)
    await committer.restore(plant.partition())
    committing = asyncio.create_task(committer.commit(*step))
    await asyncio.sleep(0)
    await committer.release(plant.partition())
    await committing
    assert await plant.written() == texts_of([step])


async def test_a_cancelled_commit_is_in_doubt_and_restored(plant: CommitPlant, committer: KafkaCommitter) -> None:
    steps = steps_of(plant.partition(), 12)
    for turns in range(12):
        await committer.restore(plant.partition())
        committing = asyncio.create_task(run(committer, plant.partition(), steps))
        await asyncio.sleep(turns * 0.02)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
    await run(committer, plant.partition(), steps)
    assert await plant.written() == texts_of(steps)
    assert await plant.progress() == merged(steps)


async def test_what_is_released_amid_its_restore_is_not_taken(plant: CommitPlant, committer: KafkaCommitter) -> None:
    restoring = asyncio.create_task(committer.restore(plant.partition()))
    await asyncio.sleep(0)  # it has begun, and waits for a first answer of the broker
    await committer.release(plant.partition())
    with pytest.raises(PartitionLost, match="released while"):
        await restoring


async def test_other_sinks_have_their_messages_before_the_commit(plant: CommitPlant) -> None:
    class Watched(ListSink):
        async def flush(self) -> None:
            await super().flush()
            flushed.append(await plant.progress())

    flushed: list[Any] = []
    other = Watched()
    committer = KafkaCommitter(plant.state(), {"events": plant.sinks()["events"], "verdicts": other})
    (step,) = steps_of(plant.partition(), 1)
    said = OutputRecord("verdicts", "s", step.outputs[0].message)
    await committer.restore(plant.partition())
    await committer.commit(step.update, [*step.outputs, said])
    await committer.close()
    assert other.records == [said]
    assert flushed == [None]
    assert (await plant.written())["events"] == texts_of([step])["events"]
    assert (await plant.written())["late"] == {}  # nobody wants them


# --- fences ---


async def test_who_starts_with_the_id_of_the_rights_check_fences(plant: CommitPlant, committer: KafkaCommitter) -> None:
    """``streamad topics check`` asks for the right to write this id: it must be the one that is used."""
    (step,) = steps_of(plant.partition(), 1)
    await committer.restore(plant.partition())
    name = transactional_id_of(plant.topic, 0, plant.group)
    async with AIOKafkaProducer(bootstrap_servers=plant.bootstrap, transactional_id=name):
        with pytest.raises(PartitionLost) as caught:
            await committer.commit(*step)
    assert caught.value.fenced


async def test_who_was_fenced_waits_before_it_fences_in_turn(plant: CommitPlant) -> None:
    clock = ManualClock()
    steps = steps_of(plant.partition(), 4)
    loser, owner = plant.committer(clock, heartbeat_interval="3s"), plant.committer()
    await loser.restore(plant.partition())
    await owner.restore(plant.partition())
    with pytest.raises(PartitionLost):
        await loser.commit(*steps[0])
    restoring = asyncio.create_task(loser.restore(plant.partition()))
    async with asyncio.timeout(LIMIT_S):
        while not clock.n_sleepers:  # noqa: ASYNC110 - only the loser knows
            await asyncio.sleep(0.01)
    await owner.commit(*steps[0])
    clock.advance(5.9)
    await asyncio.sleep(0.3)
    await owner.commit(*steps[1])
    clock.advance(0.1)
    assert await restoring == merged(steps[:2])
    await loser.commit(*steps[2])
    await loser.close()
    await owner.close()


async def test_two_that_fence_each_other_again_and_again_find_out(plant: CommitPlant) -> None:
    clock = ManualClock()
    step = steps_of(plant.partition(), 1)[0]
    ours, theirs = plant.committer(clock), plant.committer()

    async def restore() -> None:
        restoring = asyncio.create_task(ours.restore(plant.partition()))
        while not restoring.done():
            await asyncio.sleep(0.01)
            clock.advance(0.02)
        await restoring

    for _ in range(4):
        await restore()
        await theirs.restore(plant.partition())
        with pytest.raises(PartitionLost):
            await ours.commit(*step)
    with pytest.raises(CheckpointError, match=r"another process commits for .* running twice\?"):
        await restore()
    clock.advance(121)
    await restore()
    await ours.commit(*step)
    await ours.close()
    await theirs.close()


# --- refusals ---


async def test_a_foreign_record_in_the_progress_is_refused(plant: CommitPlant, committer: KafkaCommitter) -> None:
    await run(committer, plant.partition(), steps_of(plant.partition(), 1))
    await plant.damage(b"somebody's", b"{}")
    with pytest.raises(CheckpointError, match="something else wrote to its progress topic"):
        await committer.restore(plant.partition())


async def test_a_broker_that_stays_away_is_given_up() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listened to: nobody else answers there either
        plant = CommitPlant(f"127.0.0.1:{held.getsockname()[1]}", 1)
        committer = plant.committer(request_timeout="500ms", give_up_after="1s")
        started_s = time.monotonic()
        with pytest.raises(SourceError, match=r"no broker can be reached.*\(tried for 1 s\)"):
            await committer.restore(plant.partition())
        assert 1 <= time.monotonic() - started_s < IN_TIME_S
        await committer.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_restore_from_a_broker_that_hangs_can_be_cancelled(unstable_kafka: Broker) -> None:
    plant = await make_plant(unstable_kafka.bootstrap)
    committer = plant.committer(request_timeout="2m")
    unstable_kafka.pause()
    for wait_s in (0.0, 0.05, 0.5):
        restoring = asyncio.create_task(committer.restore(plant.partition()))
        await asyncio.sleep(wait_s)
        restoring.cancel()
        started_s = time.monotonic()
        await asyncio.gather(restoring, return_exceptions=True)
        assert time.monotonic() - started_s < IN_TIME_S
        assert asyncio.all_tasks() == {asyncio.current_task()}
    await committer.close()
