"""Publishes raw messages with QoS 1, as the devices of a plant would; for the simulator and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar, cast

from pydantic import BaseModel

from streamad.errors import ConfigError, OutputError, Problem
from streamad.plugins import ConnectorContext
from streamad.types import FeedRecord
from streamad_connectors.mqtt.connection import Connection, ConnectionFailedError, first_of
from streamad_connectors.mqtt.options import MqttOptions, Place, client_id_of, credentials_of

_STREAM = "{stream}"


class MqttFeed:
    """Publishes each record to the URL's topic, in which ``{stream}`` stands for the record's key.

    ``flush`` returns once the broker has acknowledged all. A broker that goes away ends the feed: what was not flushed
    may have come or not.
    """

    options_model: type[BaseModel] = MqttOptions
    encrypts: ClassVar[bool] = False

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self._options = cast("MqttOptions", options)
        self._broker = Place.of(rest, encrypts=self.encrypts)
        topic = self._broker.topic
        if not topic or {"+", "#", "\0"} & {*topic} or {"{", "}"} & {*topic.replace(_STREAM, "")}:
            text = f"{topic!r} is no topic to publish to: write such as plant/{_STREAM}/samples"
            raise ConfigError([Problem("url", text)])
        self._credentials = credentials_of(self._options.security, context.base_dir, encrypts=self.encrypts)
        self._client_id = client_id_of(self._options, context, "feed", topic)
        self._connection: Connection | None = None
        self._waiting: set[int] = set()
        self._has_news = asyncio.Event()

    async def send(self, records: Sequence[FeedRecord]) -> None:
        """Publish ``records`` in order. Raises OutputError."""
        connection = await self._connected()
        for record in records:
            while len(self._waiting) >= self._options.receive_maximum:
                await self._until(len(self._waiting) - 1)
            topic = self._broker.topic.replace(_STREAM, (record.key or b"").decode())
            self._waiting.add(connection.publish(topic, record.value))

    async def flush(self) -> None:
        """Return once the broker has all records. Raises OutputError."""
        await self._until(0)

    async def close(self) -> None:
        """Disconnect; safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> Connection:
        if self._connection is None:
            connection = Connection(self._broker, self._options, self._credentials, self._client_id)
            connection.delivered = self._delivered
            try:
                await connection.open()
            except ConnectionFailedError as error:
                connection.drop()
                raise OutputError(str(error)) from None
            self._connection = connection
        return self._connection

    def _delivered(self, number: int) -> None:
        self._waiting.discard(number)
        self._has_news.set()

    async def _until(self, n_waiting: int) -> None:
        """Return once at most ``n_waiting`` records are not acknowledged. Raises OutputError."""
        while len(self._waiting) > n_waiting:
            connection = self._connection
            if connection is None or connection.ended.done():
                why = "it was closed" if connection is None else connection.ended.result().text
                raise OutputError(f"{why}: {len(self._waiting)} messages are not acknowledged")
            self._has_news.clear()
            news = asyncio.ensure_future(self._has_news.wait())
            await first_of(news, connection.ended)
            news.cancel()


class MqttsFeed(MqttFeed):
    """The same, encrypted."""

    encrypts: ClassVar[bool] = True
