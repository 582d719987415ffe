"""Registered schemas to readers of their messages."""

from __future__ import annotations

from streamad.errors import PluginError
from streamad.ingest.schemas.json_schema import JsonReader
from streamad.ingest.schemas.registered import MessageReader, RegisteredSchema, check_size


def message_reader(schema: RegisteredSchema) -> MessageReader:
    """Return the reader of the messages written with ``schema``. Raises SchemaError, with one line.

    Raises PluginError without the library that the kind of schema needs.
    """
    check_size(schema)
    if schema.kind == "avro":
        from streamad.ingest.schemas.avro.reader import AvroReader  # noqa: PLC0415 - only where it is used

        return AvroReader(schema)
    if schema.kind == "protobuf":
        try:
            from streamad.ingest.schemas.protobuf.reader import ProtobufReader  # noqa: PLC0415 - needs an extra
        except ImportError as error:
            raise PluginError("Protobuf messages need protobuf: pip install 'streamad-monitor[registry]'") from error
        return ProtobufReader(schema)
    return JsonReader()
