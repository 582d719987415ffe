"""The sink: messages to one topic, by a transaction of the source's committer or, beside other sources, on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad_connectors.kafka.client.options import Client, KafkaSinkOptions, Place
from streamad_connectors.kafka.writing import messages
from streamad_connectors.kafka.writing.messages import OutMessage
from streamad_connectors.kafka.writing.sender import Sender

_BATCH_BYTES = 256 * 1024
_REQUEST_BYTES = 1 << 20  # aiokafka's own default


class KafkaSink:
    """Writes messages to one topic; see ``messages.encode`` for value, key and headers.

    Where source and sink are of one cluster, the source's committer takes the messages from ``encode`` and writes them
    in its transaction: exactly once. Elsewhere this sink has an idempotent producer (KIP-98) of its own, started by
    the first ``write``: at least once, since what was flushed before a crash is not cut back. A broker that is away
    is waited for, four request time-outs at most. A sink that failed goes on failing: what follows a message that was
    lost must not come before it.
    """

    options_model: type[BaseModel] = KafkaSinkOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self.client = Client.of(rest, cast("KafkaSinkOptions", options), context, "sinks")
        self._max_bytes = cast("KafkaSinkOptions", options).max_message_bytes
        self._sender = Sender(
            self.client, max_batch_bytes=_BATCH_BYTES, max_request_bytes=max(_REQUEST_BYTES, self._max_bytes)
        )

    @property
    def place(self) -> Place:
        """Where the topic is."""
        return self.client.place

    def encode(self, record: OutputRecord) -> list[OutMessage]:
        """Return ``record`` as messages for the topic, usually one. Raises OutputError where it does not fit."""
        return messages.encode(record, self.place.topic, self._max_bytes)

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Send ``records`` in order. Raises OutputError."""
        for record in records:
            for message in self.encode(record):
                await self._sender.send(message)

    async def flush(self) -> None:
        """Return once the brokers in sync have all messages. Raises OutputError."""
        await self._sender.flush()

    async def close(self) -> None:
        """Deliver what was written and disconnect, in bounded time; safe to call twice. Raises OutputError."""
        await self._sender.close()
