"""The sink: messages to one topic, in a transaction of the source's committer or, beside other sources, by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel

from streamad.messages import OutputRecord
from streamad.plugins import ConnectorContext
from streamad_connectors.kafka.client.options import Client, KafkaSinkOptions
from streamad_connectors.kafka.writing.messages import encode
from streamad_connectors.kafka.writing.sender import Sender


class KafkaSink:
    """Writes messages to one topic; see ``messages.encode`` for value, key and headers.

    If source and sink are of one cluster, the source's committer writes the messages in its transaction: exactly once.
    Otherwise the first ``write`` starts an idempotent producer (KIP-98): at least once, because messages flushed before
    a crash stay. It waits for an absent broker, four request time-outs at most. After one failure every later call
    fails, because later messages must not come before a lost one.
    """

    options_model: type[BaseModel] = KafkaSinkOptions

    def __init__(self, rest: str, options: BaseModel, context: ConnectorContext) -> None:
        self.client = Client.of(rest, cast("KafkaSinkOptions", options), context, "sinks")
        self.place = self.client.place
        self.max_message_bytes = cast("KafkaSinkOptions", options).max_message_bytes
        self.schema_ids = cast("KafkaSinkOptions", options).schema_ids
        self._sender = Sender(self.client, max_message_bytes=self.max_message_bytes)

    async def write(self, records: Sequence[OutputRecord]) -> None:
        """Send ``records`` in order. Raises OutputError."""
        found = [encode(record, self.place.topic, self.max_message_bytes, self.schema_ids) for record in records]
        await self._sender.send([message for messages in found for message in messages])

    async def flush(self) -> None:
        """Return once the brokers in sync have all messages. Raises OutputError."""
        await self._sender.flush()

    async def close(self) -> None:
        """Deliver written messages and disconnect, in bounded time; safe to call twice. Raises OutputError."""
        await self._sender.close()
