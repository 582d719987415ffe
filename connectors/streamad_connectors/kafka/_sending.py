"""An idempotent producer outside any transaction, with an end to every wait; shared by sink and feed."""

from __future__ import annotations

__all__ = ["Sender"]

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.producer.message_accumulator import BatchBuilder

from streamad.errors import OutputError
from streamad_connectors.kafka._errors import explain, is_retriable, why_unreachable
from streamad_connectors.kafka._messages import OutMessage
from streamad_connectors.kafka._stopping import stop_client
from streamad_connectors.kafka.options import Client

_T = TypeVar("_T")
_RETRY_S = 0.1
# Delivery, retries included, may take four times as long as one answer: so stand the Java client's defaults to each
# other (delivery.timeout.ms 120 s, request.timeout.ms 30 s, KIP-91). Retries of an idempotent producer repeat nothing
# (KIP-98).
_DELIVERY_REQUESTS = 4
_CLOSE_S = 5.0


class Sender:
    """Sends to the topic of ``client``; what could not be delivered in time raises OutputError, then and ever after."""

    def __init__(self, client: Client, *, max_batch_bytes: int, max_request_bytes: int) -> None:
        self._client = client
        self._max_batch_bytes = max_batch_bytes
        self._max_request_bytes = max_request_bytes
        self._producer: AIOKafkaProducer | None = None
        self._failure: OutputError | None = None
        self._waiting: set[asyncio.Future[object]] = set()

    @property
    def topic(self) -> str:
        """The one topic."""
        return self._client.place.topic

    async def partitions(self) -> tuple[int, ...]:
        """Return the topic's partitions, in order. Raises OutputError."""
        producer = await self._started()
        found = await self._guarded(lambda: producer.partitions_for(self.topic))
        return tuple(sorted(found))

    async def send(self, message: OutMessage) -> None:
        """Take one message; returns before it is delivered. Raises OutputError."""
        producer = await self._started()
        headers = message.headers
        self._take(
            await self._guarded(lambda: producer.send(message.topic, message.value, message.key, headers=headers))
        )

    async def batch(self) -> BatchBuilder:
        """Return an empty batch. Raises OutputError."""
        return (await self._started()).create_batch()

    async def send_batch(self, batch: BatchBuilder, partition: int) -> None:
        """Take a batch; returns once the one before it in ``partition`` is on its way. Raises OutputError."""
        producer = await self._started()
        self._take(await self._guarded(lambda: producer.send_batch(batch, self.topic, partition=partition)))

    async def flush(self) -> None:
        """Return once all that was taken is delivered. Raises OutputError."""
        self._raise_failure()
        if not self._waiting:
            return
        waiting, within_s = self._waiting, self._limit_s()
        done, pending = await asyncio.wait(waiting, timeout=within_s)
        self._waiting = set()
        self._raise_first(done)
        if pending:
            for future in pending:
                future.add_done_callback(_forget)
            where = ", ".join(self._client.place.brokers)
            raise self._failed(f"kafka {where}: could not write topic {self.topic} within {within_s:g} s")

    async def close(self) -> None:
        """Deliver what is on its way, in bounded time, and disconnect; safe to call twice. Raises OutputError."""
        try:
            if self._waiting and self._failure is None:
                await self.flush()
        finally:
            producer, self._producer = self._producer, None
            if producer is not None:
                await stop_client(producer, _CLOSE_S if self._failure is None else 0.0)
            for future in self._waiting:
                future.add_done_callback(_forget)

    def _limit_s(self) -> float:
        return _DELIVERY_REQUESTS * self._client.request_timeout_s

    async def _started(self) -> AIOKafkaProducer:
        self._raise_failure()
        if self._producer is None:
            producer = AIOKafkaProducer(
                **self._client.kwargs(),
                enable_idempotence=True,
                max_batch_size=self._max_batch_bytes,
                max_request_size=self._max_request_bytes,
            )
            await self._start(producer)
            self._producer = producer
        return self._producer

    async def _start(self, producer: AIOKafkaProducer) -> None:
        """Connect once: who begins while no broker is there is told so at once."""
        try:
            async with asyncio.timeout(self._limit_s()):
                await producer.start()
        except BaseException as error:
            await stop_client(producer, _CLOSE_S)
            if isinstance(error, KafkaError | OSError):
                unreachable = isinstance(error, KafkaConnectionError | TimeoutError)
                text = await why_unreachable(self._client) if unreachable else self._explained(error)
                raise self._failed(text) from error
            raise

    async def _guarded(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Do ``work``, again while the broker is away, for a bounded time: where it raises, it has taken nothing."""
        deadline = time.monotonic() + self._limit_s()
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    return await work()
            except (KafkaError, OSError) as error:  # a TimeoutError is an OSError
                if not is_retriable(error) or time.monotonic() + _RETRY_S >= deadline:
                    raise self._failed(self._explained(error)) from error
            await asyncio.sleep(_RETRY_S)

    def _take(self, future: asyncio.Future[object]) -> None:
        if future.done():
            self._raise_first([future])
        else:
            self._waiting.add(future)
            future.add_done_callback(self._arrived)

    def _arrived(self, future: asyncio.Future[object]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._waiting.discard(future)

    def _raise_first(self, done: Iterable[asyncio.Future[object]]) -> None:
        errors = [error for future in done if (error := future.exception()) is not None]
        if errors:
            raise self._failed(self._explained(errors[0])) from errors[0]

    def _explained(self, error: BaseException) -> str:
        return explain(error, self._client, f"write topic {self.topic}")

    def _failed(self, text: str) -> OutputError:
        self._failure = OutputError(text)
        return self._failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OutputError(str(self._failure))


def _forget(future: asyncio.Future[object]) -> None:
    """Look at the error of a future that nobody awaits any more, so that asyncio does not complain of it."""
    if not future.cancelled():
        future.exception()
