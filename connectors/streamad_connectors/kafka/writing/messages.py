"""Messages for Kafka: the JSON of the other sinks with key and headers, none larger than a broker accepts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from streamad.errors import OutputError
from streamad.messages import (
    DeadLetter,
    LateRecord,
    Message,
    Origin,
    OutputRecord,
    Window,
    message_type,
)

# A topic's name as brokers allow it, "-" and the number: how this connector's source names its partitions.
_PARTITION = re.compile(r"([A-Za-z0-9._-]{1,249})-([0-9]+)")
# Most bytes that the record format (KIP-98) adds: the head of a batch, a record's lengths, a header's lengths.
_BATCH_BYTES, _RECORD_BYTES, _HEADER_BYTES = 61, 21, 10
_ERROR_HEADER_BYTES = 500
_PART_BYTES = 16  # most digits of a window's part and parts beyond the first ones
_encoder = msgspec.json.Encoder()
_NO_IDS: Mapping[str, int] = MappingProxyType({})


class OutMessage(NamedTuple):
    """One record for a topic; a ``value`` of None is a tombstone, without a ``partition`` the key decides.

    ``time_ms``: the record's own time, None: the present.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None
    time_ms: int | None = None


def size_bytes(message: OutMessage) -> int:
    """Return the largest size of a batch of this message alone; a broker's limit counts batches."""
    headers = sum(len(name.encode()) + len(value) + _HEADER_BYTES for name, value in message.headers)
    return _BATCH_BYTES + _RECORD_BYTES + len(message.key or b"") + len(message.value or b"") + headers


def encode(
    record: OutputRecord, topic: str, max_bytes: int, schema_ids: Mapping[str, int] = _NO_IDS
) -> list[OutMessage]:
    """Return ``record`` as messages of at most ``max_bytes`` (see ``size_bytes``), usually one.

    The value is the line that a file sink writes, without its end; the key is the record's key as UTF-8. Headers, all
    of them UTF-8 text: ``streamad-message`` (the message's type), ``streamad-schema`` (the schema's version),
    ``content-type`` (application/json). Dead letters and late records also have ``streamad-origin-topic`` (if the
    origin is a topic), ``streamad-origin-partition`` (its number, else the file), ``streamad-origin-offset``; dead
    letters ``streamad-error-kind`` and ``streamad-error`` (cut at 500 bytes); late records ``streamad-late-cause``
    (closed, late). A message whose type is in ``schema_ids`` names that registered schema in ``__value_schema_id``, as
    Confluent's deserializers read it (0x00 and four bytes).

    A late record that is too large is split by samples, in order. A dead letter that is too large loses the end of its
    value, then of its key, and is marked ``truncated`` (``size_bytes`` and ``sha256`` stay those of the original
    value). A window that is too large is cut into parts (``part`` of ``parts``), each with a piece of its values and
    course, one text after the other. Any other message that is too large raises OutputError.
    """
    return list(_encoded(record, record.message, topic, max_bytes, _schema_header(record.message, schema_ids)))


def _encoded(
    record: OutputRecord, message: Message, topic: str, max_bytes: int, more: list[tuple[str, bytes]]
) -> Iterator[OutMessage]:
    found = OutMessage(topic, record.key.encode(), _encoder.encode(message), _headers(message) + more)
    excess = size_bytes(found) - max_bytes
    if excess <= 0:
        yield found
    elif isinstance(message, LateRecord) and len(message.times) > 1:
        n_parts = size_bytes(found) // max_bytes + 1
        for part in _split(message, n_parts):
            yield from _encoded(record, part, topic, max_bytes, more)
    elif isinstance(message, DeadLetter) and (message.value or message.key):
        yield from _encoded(record, _shortened(message, excess), topic, max_bytes, more)
    elif isinstance(message, Window) and (room := _room_in_part(message, excess)) > 0:
        for piece in _parts(message, room):
            yield from _encoded(record, piece, topic, max_bytes, more)
    else:
        raise OutputError(
            f"a message for {record.role} takes {size_bytes(found)} bytes, topic {topic} is given {max_bytes} at most: "
            "raise the option max_message_bytes and the topic's max.message.bytes"
        )


def _schema_header(message: Message, schema_ids: Mapping[str, int]) -> list[tuple[str, bytes]]:
    schema = schema_ids.get(message_type(type(message))) if schema_ids else None
    return [] if schema is None else [("__value_schema_id", b"\0" + schema.to_bytes(4, "big"))]


def _headers(message: Message) -> list[tuple[str, bytes]]:
    common = _common_headers(type(message), message.schema_version)
    if not isinstance(message, DeadLetter | LateRecord):
        return common
    headers = _origin(message.origin)
    if isinstance(message, DeadLetter):
        headers["streamad-error-kind"] = message.kind
        headers["streamad-error"] = message.error.encode()[:_ERROR_HEADER_BYTES].decode(errors="ignore")
    else:
        headers["streamad-late-cause"] = message.cause
    return common + [(name, value.encode()) for name, value in headers.items()]


@cache
def _common_headers(kind: type[Message], schema_version: int) -> list[tuple[str, bytes]]:
    return [
        ("streamad-message", message_type(kind).encode()),
        ("streamad-schema", str(schema_version).encode()),
        ("content-type", b"application/json"),
    ]


def _origin(origin: Origin) -> dict[str, str]:
    if match := _PARTITION.fullmatch(origin.partition):
        where = {"streamad-origin-topic": match[1], "streamad-origin-partition": match[2]}
    else:
        where = {"streamad-origin-partition": origin.partition}
    return where | {"streamad-origin-offset": str(origin.offset)}


def _split(message: LateRecord, n_parts: int) -> Iterator[LateRecord]:
    """Yield ``message`` in about ``n_parts`` (2 at least), each with one sample at least."""
    step = max(1, len(message.times) // max(2, n_parts))
    for start in range(0, len(message.times), step):
        stop = start + step
        yield msgspec.structs.replace(message, times=message.times[start:stop], values=message.values[start:stop])


def _room_in_part(message: Window, excess: int) -> int:
    """Return how many characters of its texts a part may have; whole groups of base64, so that each is base64, too."""
    return (len(message.values) + len(message.course or "") - excess - _PART_BYTES) // 4 * 4


def _parts(message: Window, room: int) -> Iterator[Window]:
    """Yield ``message`` in parts with ``room`` characters of its texts each; joined in order they are its texts."""
    n_values, course = len(message.values), message.course or ""
    begins = range(0, n_values + len(course), room)
    for number, begin in enumerate(begins, 1):
        values, end = message.values[begin : begin + room], begin + room - n_values
        piece = course[max(0, end - room) : end] if end > 0 else ""
        yield msgspec.structs.replace(
            message, values=values, course=piece or msgspec.UNSET, part=number, parts=len(begins)
        )


def _shortened(message: DeadLetter, excess: int) -> DeadLetter:
    """Return ``message`` with its value (if empty, its key) cut so that its base64 is ``excess`` bytes shorter."""
    n_bytes = (excess + 3) // 4 * 3 + 3  # base64 writes 3 bytes as 4
    if message.value:
        kept = message.value[: max(0, len(message.value) - n_bytes)]
        return msgspec.structs.replace(message, value=kept, truncated=True)
    assert message.key
    kept = message.key[: max(0, len(message.key) - n_bytes)]
    return msgspec.structs.replace(message, key=kept, truncated=True)
