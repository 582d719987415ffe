"""Reads a Kafka source as the pipeline does: every partition that is offered is sought, what comes is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, cast

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext, connect_source
from streamad.ports import Source
from streamad.system.clock import SystemClock
from streamad.types import ChannelSpec, PartitionAssigned, PartitionRevoked, Rebalanced, RecordBatch, SourceEvent
from streamad_connectors.kafka import KafkaSource
from tests.support.kafka.broker import Broker, admin_of, set_right
from tests.support.waiting import LIMIT_S

# Settings of a broker that heeds rights and denies nothing at first; resources and operations of KIP-11.
ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:nobody",
}
TOPIC, GROUP = 2, 3
_ALL, READ, DESCRIBE_CONFIGS = 2, 3, 10


async def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Delete the records of partition 0 below ``offset``, as retention does."""
    async with admin_of(broker.bootstrap) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(offset)})


async def deny(broker: Broker, resource: int, name: str, operation: int) -> None:
    """Take a right from everybody, on a broker with ``ACLS``."""
    await set_right(broker.bootstrap, "*", resource, name, operation, allow=False)
    await set_right(broker.bootstrap, "*", resource, name, _ALL)


def source_of(bootstrap: str, topics: str, **options: Any) -> KafkaSource:
    """Return a source as a config would make it; time-outs are short unless given."""
    given = {"session_timeout": "3s", "heartbeat_interval": "300ms", "request_timeout": "3s", **options}
    context = ConnectorContext((ChannelSpec("temp_c"),), SystemClock(), plant="test")
    return cast("KafkaSource", connect_source(f"kafka://{bootstrap}/{topics}", given, context))


def our_tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks that run beside the caller."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.done()}


class Pulling:
    """Pulls a source in a task until left: ``events`` with the monotonic time of each, ``error`` what ended it.

    A partition begins where ``begin`` says, by default where the source is configured to begin.
    """

    def __init__(self, source: Source, begin: Mapping[str, int] | None = None, *, seeks: bool = True) -> None:
        self.source = source
        self.events: list[tuple[float, SourceEvent]] = []
        self.begun: dict[str, int] = {}
        self.error: BaseException | None = None
        self._begin = begin or {}
        self._seeks = seeks
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Pulling:
        self._task = asyncio.create_task(self._pull())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None):  # type: ignore[no-untyped-def]
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.source.close()

    @property
    def is_over(self) -> bool:
        """Whether the iterator has ended."""
        return self._task is not None and self._task.done()

    async def _pull(self) -> None:
        try:
            async with aclosing(cast("Any", self.source.batches())) as events:
                async for event in events:
                    self.events.append((time.monotonic(), event))
                    if isinstance(event, PartitionAssigned) and self._seeks:
                        begin = await self.source.seek(event.partition, self._begin.get(event.partition))
                        self.begun[event.partition] = begin
                    self._changed.set()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self._changed.set()

    async def until(self, holds: Callable[[], object], within_s: float = LIMIT_S) -> float:
        """Return how long it took until ``holds``; fails where the source ends before, or it takes too long."""
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    assert not self.is_over, f"the source has ended: {self.error!r}"
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within_s} s; the last events: {self.events[-5:]}") from None
        return time.monotonic() - began_s

    async def end(self, within_s: float = LIMIT_S) -> None:
        """Return when the iterator has ended, in whatever way."""
        assert self._task is not None
        await asyncio.wait([self._task], timeout=within_s)
        assert self._task.done(), f"the source has not ended within {within_s} s: {self.events[-5:]}"

    async def failure(self, *texts: str, within_s: float = LIMIT_S) -> SourceError:
        """Return the error that ends the source, which contains ``texts``."""
        await self.end(within_s)
        assert isinstance(self.error, SourceError), f"the source has ended otherwise: {self.error!r}"
        assert all(text in str(self.error) for text in texts), self.error
        return self.error

    def of(self, kind: type[Any]) -> list[Any]:
        """Return the events of ``kind``."""
        return [event for _, event in self.events if isinstance(event, kind)]

    def batches(self, partition: str, since_s: float = 0.0) -> list[RecordBatch]:
        """Return the batches of a partition that came at ``since_s`` or later."""
        return [
            event
            for at_s, event in self.events
            if isinstance(event, RecordBatch) and event.partition == partition and at_s >= since_s
        ]

    def values(self, partition: str | None = None) -> list[bytes]:
        """Return the values that came, those of one partition or all."""
        return [
            record.value
            for batch in self.of(RecordBatch)
            if partition in (None, batch.partition)
            for record in batch.records
        ]

    def assigned(self) -> set[str]:
        """Return the partitions that are the source's now."""
        ours: set[str] = set()
        for _, event in self.events:
            if isinstance(event, PartitionAssigned):
                ours.add(event.partition)
            elif isinstance(event, PartitionRevoked):
                ours.discard(event.partition)
        return ours

    def shares(self, n: int) -> bool:
        """Return whether the last rebalance is over and gave the source ``n`` partitions, which are its now.

        Partitions come and go one by one: their number alone may be right amid a rebalance.
        """
        rebalanced = self.of(Rebalanced)
        ours = set(rebalanced[-1].partitions) if rebalanced else set()
        return bool(rebalanced) and len(ours) == n and self.assigned() == ours

    def is_caught_up(self, partition: str, since_s: float = 0.0) -> bool:
        """Return whether the last batch of a partition says that nothing waits behind it."""
        batches = self.batches(partition, since_s)
        return bool(batches) and batches[-1].caught_up
