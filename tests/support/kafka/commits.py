"""A committer against a real broker without a pipeline: a list of commits, and what they have left there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from aiokafka import AIOKafkaProducer, TopicPartition

from streamad.errors import PartitionLost
from streamad.messages import Event, OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate, StreamProgress, merge
from streamad.plugins import ConnectorContext
from streamad.ports import Clock
from streamad.system.clock import SystemClock
from streamad.types import from_us
from streamad_connectors.kafka.client.options import (
    Client,
    KafkaSinkOptions,
    KafkaSourceOptions,
    group_of,
    progress_topic_of,
    transactional_id_of,
)
from streamad_connectors.kafka.client.source_state import SourceState
from streamad_connectors.kafka.client.stopping import discard
from streamad_connectors.kafka.writing.committer import KafkaCommitter
from streamad_connectors.kafka.writing.progress_topic import Item, ProgressLog
from streamad_connectors.kafka.writing.sink import KafkaSink
from tests.support.kafka.broker import admin_of, create_topics, read_committed, unique_name

OUTPUT_PARTITIONS = 2
ROLES: tuple[Role, ...] = ("events", "late")


# Texts by role and stream.
Written: TypeAlias = dict[Role, dict[str, list[str]]]


class Step(NamedTuple):
    """One commit of the pipeline that there is not: it reads the record at ``update.next_offset - 1``."""

    update: ProgressUpdate
    outputs: list[OutputRecord]


class CommitPlant:
    """Topics of their own on a broker, and committers for them that differ only in their options."""

    def __init__(self, bootstrap: str, n_partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = unique_name("in")
        self.n_partitions = n_partitions
        self.outputs: dict[Role, str] = {role: unique_name(role) for role in ROLES}
        self.context = ConnectorContext((), SystemClock(), plant=unique_name("plant"))
        self.group = group_of(KafkaSourceOptions(), self.context)
        self.progress_topic = progress_topic_of(self.group, self.topic)

    def partition(self, number: int = 0) -> str:
        """Return the name of a partition of the input."""
        return f"{self.topic}-{number}"

    def state(self, clock: Clock | None = None, **options: Any) -> SourceState:
        """Return a source's state for its committer; time-outs are short unless ``options`` say otherwise."""
        short = {"request_timeout": "5s", "heartbeat_interval": "100ms", "give_up_after": "20s"}
        model = KafkaSourceOptions.model_validate({**short, **options})
        client = Client.of(f"{self.bootstrap}/{self.topic}", model, self.context)
        return SourceState(client, model, self.group, clock or SystemClock())

    def sinks(self, **options: Any) -> dict[Role, KafkaSink]:
        """Return the sinks of this cluster."""
        model = KafkaSinkOptions.model_validate(options)
        return {
            role: KafkaSink(f"{self.bootstrap}/{topic}", model, self.context) for role, topic in self.outputs.items()
        }

    def committer(self, clock: Clock | None = None, **options: Any) -> KafkaCommitter:
        """Return a new committer; the test closes it, or leaves it to a crash."""
        return KafkaCommitter(self.state(clock, **options), self.sinks())

    async def written(self) -> Written:
        """Return the texts of the committed messages by role and stream, in their order."""
        found: Written = {}
        for role, topic in self.outputs.items():
            streams = found.setdefault(role, {})
            for record in await read_committed(self.bootstrap, topic):
                texts = streams.setdefault((record.key or b"").decode(), [])
                texts.append(json.loads(record.value or b"")["message"])
        return found

    async def progress(self, number: int = 0) -> Progress | None:
        """Return the committed progress, without fencing anybody."""
        found = await read_committed(self.bootstrap, self.progress_topic)
        items = [Item(record.key or b"", record.value) for record in found if record.partition == number]
        _, saved = ProgressLog.read(self.partition(number), items)
        return None if saved is None else saved.progress

    async def committed_offset(self, number: int = 0) -> int:
        """Return the group's committed offset (-1: none)."""
        place = TopicPartition(self.topic, number)
        async with admin_of(self.bootstrap) as admin:
            return int((await admin.list_consumer_group_offsets(self.group, partitions=[place]))[place].offset)

    async def damage(self, key: bytes, value: bytes, number: int = 0) -> None:
        """Write to the progress topic what no committer writes."""
        async with AIOKafkaProducer(bootstrap_servers=self.bootstrap) as producer:
            await producer.send_and_wait(self.progress_topic, value, key, number)

    async def leave_open(self, number: int = 0) -> None:
        """Write to all topics in the committer's name, in a transaction of which the coordinator does not know.

        The broker must not verify transactions.
        """
        name = transactional_id_of(self.topic, number, self.group)
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name)
        await producer.start()
        await producer.begin_transaction()
        places = [TopicPartition(topic, each) for topic in self.outputs.values() for each in range(OUTPUT_PARTITIONS)]
        for place in [*places, TopicPartition(self.progress_topic, number)]:
            producer._txn_manager._txn_partitions.add(place)  # noqa: SLF001 - as if the coordinator knew
            await producer.send_and_wait(place.topic, b"never committed", b"p", place.partition)
        await discard(producer)

    async def settled(self) -> None:
        """Return once the markers of the last commit are written: they follow its answer, and end what was written."""
        await self.written()
        await self.progress()

    def leave_markers_out(self, committer: KafkaCommitter, where: str, *, commit: bool, number: int = 0) -> None:
        """Make the next commit of ``committer`` end without markers in some partitions, in an abort if not ``commit``.

        ``where``: "progress", "outputs" or "all but one" (output). The broker must not verify transactions.
        """
        producer = committer._held[self.partition(number)].producer._producer  # noqa: SLF001
        manager = producer._txn_manager  # noqa: SLF001
        outputs = [TopicPartition(topic, each) for topic in self.outputs.values() for each in range(OUTPUT_PARTITIONS)]
        progress = TopicPartition(self.progress_topic, number)
        places = {"progress": [progress], "outputs": outputs, "all but one": [progress, *outputs[1:]]}[where]
        add = manager.maybe_add_partition_to_txn

        def add_or_leave_out(place: TopicPartition) -> None:
            if place in places:
                manager._txn_partitions.add(place)  # noqa: SLF001 - as if the coordinator knew
            else:
                add(place)

        manager.maybe_add_partition_to_txn = add_or_leave_out
        if not commit:
            producer.commit_transaction = producer.abort_transaction


async def make_plant(bootstrap: str, n_partitions: int = 1) -> CommitPlant:
    """Return a plant whose topics are there."""
    plant = CommitPlant(bootstrap, n_partitions)
    outputs = dict.fromkeys(plant.outputs.values(), OUTPUT_PARTITIONS)
    await create_topics(bootstrap, {plant.topic: n_partitions, plant.progress_topic: n_partitions, **outputs})
    return plant


def steps_of(partition: str, n_steps: int, n_outputs: int = 2) -> list[Step]:
    """Return ``n_steps`` commits of ``partition``: each reads one record, and its outputs say which."""
    steps = []
    for step in range(n_steps):
        stream = f"{partition}/{step % 3}"
        closed = {f"id{number:04}": number for number in range(step % 3, step + 1, 3) if number > step - 30}
        update = ProgressUpdate(
            partition=partition,
            next_offset=step + 1,
            low_watermark=max(0, step - 1),
            clock_us=step * 1_000_000,
            low_watermark_us=step * 1_000_000,
            streams={stream: StreamProgress(done_below=step, closed=closed)},
        )
        outputs = [message(role, stream, f"{step}.{number}") for number in range(n_outputs) for role in ROLES]
        steps.append(Step(update, outputs))
    return steps


def texts_of(steps: Iterable[Step]) -> Written:
    """Return what ``CommitPlant.written`` finds where each of ``steps`` was committed exactly once."""
    expected: Written = {role: {} for role in ROLES}
    for step in steps:
        for record in step.outputs:
            assert isinstance(record.message, Event)
            expected[record.role].setdefault(record.key, []).append(record.message.message)
    return expected


async def run(committer: KafkaCommitter, partition: str, steps: Sequence[Step]) -> None:
    """Do what a pipeline does: restore, then go on behind what is committed; a lost partition is restored again."""
    while True:
        progress = await committer.restore(partition)
        try:
            for step in steps[0 if progress is None else progress.next_offset :]:
                await committer.commit(*step)
        except PartitionLost:
            continue
        return


def message(role: Role, stream: str, text: str) -> OutputRecord:
    """Return a small message of ``stream``."""
    return OutputRecord(role, stream, Event(kind="test", message=text, stream=stream, created_at=from_us(0)))


def merged(steps: Iterable[Step]) -> Progress | None:
    """Return the progress after ``steps``."""
    progress = None
    for step in steps:
        progress = merge(progress, step.update)
    return progress
