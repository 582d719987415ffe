"""A message of any kind as a line of JSON, its bytes unchanged as far as a line allows."""

from __future__ import annotations

from base64 import b64encode

import msgspec

from streamad.types import FeedRecord, from_us

TOPIC, TIME = "mqtt_topic", "mqtt_time"
"""The members that a line gets; a topic of Kafka has the first as a header."""
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_encode = msgspec.json.encode
_raw = msgspec.json.Decoder(msgspec.Raw)


def line_of(record: FeedRecord, *, with_topic: bool) -> bytes:
    """Return the message as a line without its end.

    An object or a list stays as it is, but for its line ends, which are blanks in JSON. With ``with_topic`` an object
    ends with its topic and the time of its receipt, so that they count if its publisher has written others. Anything
    else becomes such an object: a number, a text or ``true`` as its ``value``, what is no text as ``value_base64``.
    Whether JSON is sound, the decoder says.
    """
    value = record.value.translate(_ONE_LINE).strip(b" \t")
    is_object = value[:1] == b"{" and value[-1:] == b"}"
    if not with_topic and (is_object or (value[:1] == b"[" and value[-1:] == b"]")):
        return value
    time = from_us(record.timestamp_us or 0).isoformat().replace("+00:00", "Z")
    known = _encode({TOPIC: record.label, TIME: time})[1:]
    members = value[1:-1].strip(b" \t") if is_object else _member(value, record.value)
    return b"{" + members + (b"," if members else b"") + known


def _member(value: bytes, original: bytes) -> bytes:
    try:
        if value and bytes(_raw.decode(value)) == value:
            return b'"value":' + value
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return b'"value":' + _encode(original.decode() or None)
    except UnicodeDecodeError:
        return b'"value_base64":' + _encode(b64encode(original).decode())
