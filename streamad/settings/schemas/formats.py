"""``decode.format``: what messages are written in, and whether a schema must say it."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Wire: TypeAlias = Literal["auto", "json", "msgpack", "influx"]
Format: TypeAlias = Wire | Literal["avro", "json_schema", "protobuf"]
SchemaKind: TypeAlias = Literal["avro", "json", "protobuf"]
_KINDS: Final[dict[Format, SchemaKind]] = {"avro": "avro", "json_schema": "json", "protobuf": "protobuf"}


def kind_of(form: Format) -> SchemaKind | None:
    """Return the kind of schema that every message must have, None if none must."""
    return _KINDS.get(form)


def wire_of(form: Format) -> Wire | None:
    """Return the wire format of messages that no serializer has framed, None if all must be framed."""
    return None if form in _KINDS else form  # type: ignore[return-value]


def check_format(form: Format, *, has_registry: bool) -> None:
    """Raise ValueError if a format needs a registry, or has no schemas."""
    if kind_of(form) is not None and not has_registry:
        raise ValueError(f"format: {form} needs the schemas of messages: set decode.registry.url")
    if has_registry and form in {"msgpack", "influx"}:
        raise ValueError(f"format: {form} has no schemas: leave registry out, or write format: auto")
