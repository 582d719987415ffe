"""The bridge's side that reads: a persistent session, and acknowledgements in the order of the messages."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, cast

from paho.mqtt.client import MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions
from pydantic import BaseModel

from streamad.bridge.inlet import InletCounts
from streamad.errors import ConfigError, Problem, SourceError
from streamad.plugins import ConnectorContext
from streamad.system.tasks import Backoff, wait_for_either
from streamad.telemetry.logs import get_logger, get_status_logger
from streamad.types import FeedRecord
from streamad_connectors.mqtt.connection import Connection, ConnectionFailedError
from streamad_connectors.mqtt.options import MqttInletOptions, Place, client_id_of, credentials_of
from streamad_connectors.mqtt.topics import TopicPattern, key_of

DROPPED = "$SYS/broker/publish/messages/dropped"
"""The topic in which mosquitto counts the messages that it has dropped, of all clients."""
_FIRST_PAUSE_US, _LONGEST_PAUSE_US = 100_000, 30_000_000
_MOST_HELD, _MOST_HELD_BYTES = 2, 64 << 20
_DIGITS = 18
_SHORT_S, _MOST_SHORT = 5.0, 5  # lives of connections that end again and again
_TOPICS = 10_000  # whose keys are remembered
_NO_RETAINED = 2  # MQTT 5, section 3.8.3.1: what is retained is no news


@dataclass(slots=True, eq=False)
class _Held:
    """A message that is not acknowledged; ``number``: its packet on ``connection``, 0 with QoS 0."""

    connection: Connection
    number: int
    record: FeedRecord
    is_released: bool = False


class MqttInlet:
    """Reads topics with QoS 1 in a session that the broker keeps.

    At most ``receive_maximum`` messages are in flight: none is acknowledged before ``release``, and a broker should
    send no more. mosquitto 2.0.11 does, once it has a queue, and what was published with QoS 0 does not count: from
    twice as many on, or from 64 MB on, nothing is read. What comes again after a connection has ended, and was not
    acknowledged, is not yielded again; its acknowledgement goes to the connection that it came on last.
    """

    options_model: type[BaseModel] = MqttInletOptions
    encrypts: ClassVar[bool] = False

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        given = cast("MqttInletOptions", options)
        self._broker = Place.of(rest, encrypts=self.encrypts)
        topics = (*([self._broker.topic] if self._broker.topic or not given.topics else []), *given.topics)
        try:
            self._patterns = [TopicPattern.of(topic) for topic in topics]
        except ValueError as error:
            raise ConfigError([Problem("url", str(error))]) from None
        self._key_of = lru_cache(_TOPICS)(lambda topic: key_of(topic, self._patterns).encode())
        # $SYS/# takes it, # does not (MQTT 5, section 4.7.2).
        self._wants_dropped = any(one.filter[0] == "$" and one.matches(DROPPED.split("/")) for one in self._patterns)
        self._options = given
        self._clock = context.clock
        self._credentials = credentials_of(given.security, context.base_dir, encrypts=self.encrypts)
        self._client_id = client_id_of(given, context, *topics)
        self._connection: Connection | None = None
        self._arrived: deque[FeedRecord] = deque()
        self._held: deque[_Held] = deque()
        self._held_bytes = 0
        self._unacknowledged: dict[int, _Held] = {}
        self._news = asyncio.Event()
        self._opened_s, self._n_short = 0.0, 0
        self._is_stopped = False
        self.counts = InletCounts()

    @property
    def names_parts(self) -> bool:
        """Return whether a topic's pattern names stream, channel or sequence."""
        return any(pattern.names for pattern in self._patterns)

    @property
    def place(self) -> str:
        """Return broker, topics and session, for people."""
        topics = " and ".join(pattern.filter for pattern in self._patterns)
        return f"{topics} of {self._broker} (session {self._client_id})"

    @property
    def is_connected(self) -> bool:
        """Return whether there is a connection with its subscriptions."""
        return self._connection is not None and not self._connection.ended.done()

    async def messages(self) -> AsyncGenerator[FeedRecord, None]:
        """Yield messages, through as many connections as it takes. Raises SourceError."""
        backoff = Backoff(_FIRST_PAUSE_US, _LONGEST_PAUSE_US)
        while not self._is_stopped:
            connection = await self._connected(backoff)
            while connection is not None and not self._is_stopped and not connection.ended.done():
                while self._arrived:
                    yield self._arrived.popleft()
                self._news.clear()
                if not self._is_stopped:
                    await wait_for_either(self._news, connection.ended)
            if connection is not None and connection.ended.done() and not self._is_stopped:
                await self._pause_after(connection, backoff)
        while self._arrived:
            yield self._arrived.popleft()

    def release(self, n: int) -> None:
        """Acknowledge the ``n`` oldest messages, in the order in which they came (MQTT 5, section 4.6)."""
        connection = self._connection if self.is_connected else None
        numbers: list[int] = []
        for _ in range(n):
            held = self._held.popleft()
            held.is_released = True
            self._held_bytes -= len(held.record.value)
            if held.connection is connection and self._unacknowledged.get(held.number) is held:
                numbers.append(held.number)
                del self._unacknowledged[held.number]
        if connection is not None:
            connection.acknowledge(numbers)
            if _MOST_HELD * self._room_taken() <= 1:
                connection.resume()
        self.counts.in_flight = len(self._held)

    def stop(self) -> None:
        """Let ``messages`` end; safe to call from a signal handler of the loop."""
        self._is_stopped = True
        self._news.set()

    async def close(self) -> None:
        """Disconnect and leave the session at the broker; safe to call twice."""
        self._is_stopped = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- connections ---

    async def _connected(self, backoff: Backoff) -> Connection | None:
        """Return a new connection with its subscriptions, None after a failure and a pause. Raises SourceError."""
        is_first = not self.counts.connections
        connection = Connection(
            self._broker,
            self._options,
            self._credentials,
            self._client_id,
            on_message=self._received,
            session_expiry_s=self._options.session_expiry // 1_000_000,
        )
        self._connection = connection  # before it opens: what comes with a session that was kept comes at once
        try:
            is_resumed = await connection.open()
            if not is_resumed:
                self._unacknowledged.clear()  # a new session gives its packets other numbers
            await self._subscribe(connection)
        except ConnectionFailedError as error:
            connection.drop()
            if is_first or error.ended.is_final:
                raise SourceError(str(error)) from None
            get_logger().info("the broker is still away", broker=str(self._broker), why=str(error))
            await self._pause(backoff)
            return None
        except BaseException:
            connection.drop()
            raise
        if not self._n_short:
            backoff.reset()
        self._opened_s = time.monotonic()
        self.counts.connections += 1
        if is_first:
            kept = "kept" if is_resumed else "new: messages are kept from now on"
            get_status_logger().info("connected", broker=str(self._broker), session=kept)
        elif is_resumed:
            get_logger().warning("the broker is back, with the session", broker=str(self._broker))
        else:
            self.counts.sessions_lost += 1
            get_logger().warning(
                "the broker has lost the session: what came while it was away may be lost",
                broker=str(self._broker),
                see="persistence true and persistent_client_expiration in mosquitto.conf",
            )
        return connection

    async def _subscribe(self, connection: Connection) -> None:
        wanted = SubscribeOptions(qos=1, retainHandling=_NO_RETAINED)
        answers = await connection.subscribe([(pattern.filter, wanted) for pattern in self._patterns])
        for pattern, answer in zip(self._patterns, answers, strict=True):
            if answer.is_failure:
                raise SourceError(f"mqtt {self._broker} refuses the subscription to {pattern.filter}: {answer}")
            if answer.value == 0:
                raise SourceError(
                    f"mqtt {self._broker} gives {pattern.filter} with QoS 0 alone, which keeps nothing for the bridge: "
                    "let it allow QoS 1"
                )
        await connection.subscribe([(DROPPED, SubscribeOptions(qos=0))])  # a broker without it says nothing

    async def _pause_after(self, connection: Connection, backoff: Backoff) -> None:
        """Wait after a connection has ended; raise SourceError if another one cannot help.

        A client with the same session ends ours by its own, as ours ends that; mosquitto 2.0.11 does not say why.
        """
        ended = connection.ended.result()
        is_short = time.monotonic() - self._opened_s < _SHORT_S
        self._n_short = self._n_short + 1 if is_short else 0
        if self._n_short >= _MOST_SHORT and not ended.is_told:
            ended = connection.taken_over
        if ended.is_final:
            raise SourceError(ended.text)
        if self._n_short < 2 or ended.is_told:
            get_logger().warning("the broker is away: waiting", broker=str(self._broker), why=ended.text)
        await self._pause(backoff)

    async def _pause(self, backoff: Backoff) -> None:
        self._news.clear()
        if not self._is_stopped:
            await wait_for_either(self._news, timeout_s=backoff.pause_us / 1e6)
        backoff.failed()

    # --- messages ---

    def _received(self, connection: Connection, message: MQTTMessage) -> None:
        topic = message.topic
        if topic == DROPPED:
            self._count_dropped(bytes(message.payload))
            if not self._wants_dropped:
                return
        now_us = self._clock.now_us()
        record = FeedRecord(bytes(message.payload), self._key_of(topic), now_us, label=topic)
        number = message.mid if message.qos else 0
        before = self._unacknowledged.get(number) if message.dup else None
        if before is not None and (before.record.value, before.record.label) == (record.value, topic):
            before.connection = connection
            self.counts.again += 1
            if before.is_released:  # after its connection had ended
                del self._unacknowledged[number]
                connection.acknowledge([number])
            return
        held = _Held(connection, number, record)
        self._held.append(held)
        self._held_bytes += len(record.value)
        self._arrived.append(record)
        if number:
            self._unacknowledged[number] = held
        self.counts.received += 1
        self.counts.in_flight = len(self._held)
        if self._room_taken() >= 1:
            connection.pause()
        self._news.set()

    def _room_taken(self) -> float:
        """Return what share of the room for messages is taken: from 1 on nothing is read."""
        return max(len(self._held) / (_MOST_HELD * self._options.receive_maximum), self._held_bytes / _MOST_HELD_BYTES)

    def _count_dropped(self, payload: bytes) -> None:
        text = payload.decode(errors="replace").strip()
        if not text.isdecimal() or len(text) > _DIGITS:
            return
        before, self.counts.broker_dropped = self.counts.broker_dropped, int(text)
        if before is not None and self.counts.broker_dropped > before:
            get_logger().warning(
                "the broker has dropped messages, of any of its clients",
                dropped=self.counts.broker_dropped - before,
                see="max_queued_messages in mosquitto.conf",
            )


class MqttsInlet(MqttInlet):
    """The same, encrypted."""

    encrypts: ClassVar[bool] = True
