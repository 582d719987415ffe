"""Topics with the messages of a monitor, without a monitor."""

from __future__ import annotations

from streamad.messages import OutputRecord, Role
from streamad_connectors.kafka.writing.messages import encode
from tests.support.kafka.broker import Message
from tests.support.notify.plant import message


def record(role: Role, kind: str, i: int) -> Message:
    """Return the record of a message of sequence ``i`` as a monitor writes it."""
    (found,) = encode(OutputRecord(role, f"reactor-{i % 3}", message(kind, i)), "t", 900_000)
    return Message(found.value, found.key, headers=found.headers)
