"""An idempotent producer outside transactions, whose waits are all bounded; used by sink and feed."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from streamad.errors import OutputError, SourceError
from streamad.system.tasks import look_at
from streamad.telemetry.logs import get_logger
from streamad_connectors.kafka.client.admin import partition_counts
from streamad_connectors.kafka.client.errors import explain, is_retriable, why_failed, why_silent
from streamad_connectors.kafka.client.options import Client
from streamad_connectors.kafka.client.stopping import connected, stop_client
from streamad_connectors.kafka.writing.batches import batch_bytes, batched
from streamad_connectors.kafka.writing.messages import OutMessage

_T = TypeVar("_T")
_RETRY_S = 0.1
# Delivery with retries may take four request time-outs, the ratio of the Java client's defaults (delivery.timeout.ms
# 120 s, request.timeout.ms 30 s, KIP-91). Retries of an idempotent producer repeat nothing (KIP-98).
_DELIVERY_REQUESTS = 4
_CLOSE_S = 5.0
_SILENCE_S = 5.0
_TICK_S = 0.5


class Sender:
    """Sends to the topic of ``client``. After a failed delivery every later call raises OutputError, too.

    Absent brokers are waited for, with one warning, until nothing was delivered for ``give_up_s`` (default: four
    request time-outs). Meanwhile the producer retries the same batches: none is lost or repeated (KIP-98).
    """

    def __init__(self, client: Client, *, max_message_bytes: int, give_up_s: float | None = None) -> None:
        self._client = client
        self._max_message_bytes = max_message_bytes
        self._give_up_s = self._delivery_s if give_up_s is None else give_up_s
        self._producer: AIOKafkaProducer | None = None
        self._failure: OutputError | None = None
        self._waiting: set[asyncio.Future[object]] = set()
        self._heard_s = 0.0
        self._is_warned = False

    @property
    def topic(self) -> str:
        """The one topic."""
        return self._client.place.topic

    async def n_partitions(self) -> int:
        """Return how many partitions the topic has. Raises OutputError."""
        producer = await self._started()
        return len(await self._retried(lambda: producer.partitions_for(self.topic)))

    async def send(self, messages: Sequence[OutMessage]) -> None:
        """Accept messages for the topic, in order; returns before the last are delivered. Raises OutputError."""
        await self.n_partitions()
        producer = await self._started()
        for place, batch in batched(messages, producer):
            self._take(await self._retried(partial(producer.send_batch, batch, place.topic, partition=place.partition)))

    async def flush(self) -> None:
        """Return once all accepted messages are delivered. Raises OutputError."""
        self._raise_failure()
        waiting = set(self._waiting)
        await self._wait(waiting)
        self._raise_first(waiting)

    def hurry(self) -> None:
        """Shorten the wait for absent brokers, because the end was requested."""
        self._give_up_s = min(self._give_up_s, _CLOSE_S if self._is_warned else self._delivery_s)

    async def close(self) -> None:
        """Deliver accepted messages, in bounded time, and disconnect; safe to call twice. Raises OutputError."""
        self.hurry()
        try:
            if self._waiting and self._failure is None:
                await self.flush()
        finally:
            producer, self._producer = self._producer, None
            if producer is not None:
                await stop_client(producer, _CLOSE_S if self._failure is None else 0.0)
            for future in self._waiting:
                future.add_done_callback(look_at)

    async def abandon(self) -> None:
        """Disconnect at once: what is not delivered may be lost. Never raises."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_client(producer, 0.0)
        for future in self._waiting:
            future.add_done_callback(look_at)

    @property
    def _delivery_s(self) -> float:
        return _DELIVERY_REQUESTS * self._client.request_timeout_s

    async def _started(self) -> AIOKafkaProducer:
        self._raise_failure()
        if self._producer is None:
            producer = AIOKafkaProducer(
                **self._client.kwargs(),
                enable_idempotence=True,
                max_batch_size=batch_bytes(self._max_message_bytes),
            )
            # aiokafka 0.14 drops batches of a partition that had no leader for a request time-out, which leaves a hole
            # in their sequence. The wait is bounded here instead.
            producer._message_accumulator._batch_ttl = math.inf  # noqa: SLF001 - aiokafka has no option for it
            await self._start(producer)
            self._producer = producer
        return self._producer

    async def _start(self, producer: AIOKafkaProducer) -> None:
        """Connect; at the start an absent broker is an error at once."""
        try:
            await partition_counts(self._client, "write")
            async with asyncio.timeout(self._client.connect_timeout_s):
                await connected(producer.start())
        except SourceError as error:
            await stop_client(producer, _CLOSE_S)
            raise self._failed(str(error)) from error
        except BaseException as error:
            await stop_client(producer, _CLOSE_S)
            if isinstance(error, KafkaError | OSError):
                raise self._failed(await why_failed(error, self._client, f"write topic {self.topic}")) from error
            raise

    async def _retried(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Do ``work``, repeatedly while the broker is away, for a bounded time; if it raises, nothing was sent."""
        began_s = time.monotonic()
        while True:
            attempt = asyncio.ensure_future(work())
            try:
                await self._wait({attempt}, began_s)
                return attempt.result()
            except (KafkaError, OSError) as error:
                if not is_retriable(error) or self._silent_s(began_s) >= self._give_up_s:
                    raise self._failed(self._explained(error)) from error
            finally:
                attempt.cancel()
            await asyncio.sleep(_RETRY_S)

    async def _wait(self, awaited: Collection[asyncio.Future[Any]], began_s: float | None = None) -> None:
        """Return once all are done, or one has failed. Raises OutputError if nothing is delivered for too long."""
        began_s = time.monotonic() if began_s is None else began_s
        pending = {future for future in awaited if not future.done()}
        while pending:
            done, pending = await asyncio.wait(pending, timeout=_TICK_S, return_when=asyncio.FIRST_EXCEPTION)
            if any(future.cancelled() or future.exception() is not None for future in done):
                return
            silent_s = self._silent_s(began_s)
            if pending and silent_s >= self._give_up_s:
                for future in pending:
                    future.add_done_callback(look_at)
                raise self._failed(await self._why_silent())
            if pending and silent_s >= _SILENCE_S and not self._is_warned:
                self._is_warned = True
                where = ", ".join(self._client.place.brokers)
                limit = f"up to {self._give_up_s:g} s"
                get_logger().warning("waiting for the brokers", topic=self.topic, brokers=where, wait=limit)

    def _silent_s(self, since_s: float) -> float:
        return time.monotonic() - max(since_s, self._heard_s)

    async def _why_silent(self) -> str:
        where, within_s = ", ".join(self._client.place.brokers), self._give_up_s
        text = f"kafka {where}: could not write topic {self.topic} within {within_s:g} s"
        why = await why_silent(self._client)
        return text if why is None else f"{text}: {why}"

    def _take(self, future: asyncio.Future[object]) -> None:
        if future.done():
            self._raise_first([future])
        else:
            self._waiting.add(future)
            future.add_done_callback(self._arrived)

    def _arrived(self, future: asyncio.Future[object]) -> None:
        if future.cancelled() or future.exception() is not None:
            return
        self._waiting.discard(future)
        self._heard_s = time.monotonic()
        if self._is_warned:
            self._is_warned = False
            get_logger().warning("the brokers are back", topic=self.topic)

    def _raise_first(self, done: Iterable[asyncio.Future[object]]) -> None:
        errors = [error for future in done if future.done() and (error := future.exception()) is not None]
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
