"""Registered Protobuf schemas to the descriptors of their messages.

A registry gives a schema as a FileDescriptorProto (``?format=serialized``: Confluent, Redpanda since 25.2), or as text
alone (``text.py``). Protobuf's own library links and checks either. Files of Google and Confluent that registries know
without a reference are known here.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import DecodeError as ParseError
from google.protobuf.message import EncodeError

from streamad.errors import SchemaError
from streamad.ingest.decode_values import shown
from streamad.ingest.schemas.protobuf.text import file_of
from streamad.ingest.schemas.registered import MAX_NAME_CHARACTERS, RegisteredSchema

_MAIN = "streamad/registered.proto"
DECIMAL_FILE = "confluent/type/decimal.proto"
_GOOGLE = (
    any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2,
)  # fmt: skip


class SchemaFiles:
    """The files of a registered schema, checked and linked; raises SchemaError."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._main = _parsed(schema.text, _MAIN)
        files = _known_files()
        for name, reference in _references(schema):
            if name not in files:
                files[name] = _parsed(reference.text, name)
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for file in _in_order(self._main, files):
                self._pool.AddSerializedFile(file.SerializeToString())
        except (TypeError, EncodeError) as error:
            raise SchemaError(f"not a Protobuf schema: {str(error)[:160]}") from None

    def message(self, indexes: tuple[int, ...]) -> Descriptor | None:
        """Return the message at a path of places among the messages of a file, and of those inside; None if none is.

        Entries of maps do not count, as in the .proto text.
        """
        names, inner = [self._main.package] if self._main.package else [], list(self._main.message_type)
        for index in indexes:
            if not 0 <= index < len(inner):
                return None
            names.append(inner[index].name)
            inner = [one for one in inner[index].nested_type if not one.options.map_entry]
        found: Descriptor = self._pool.FindMessageTypeByName(".".join(names))
        return found


def _parsed(text: str, name: str) -> FileDescriptorProto:
    """Return the file in ``text``, called ``name``."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, ParseError):
        file = file_of(text)
    file.name = name
    file.ClearField("source_code_info")
    _check(file)
    return file


def _check(file: FileDescriptorProto) -> None:
    """Raise SchemaError for what protobuf's own library lets pass: maps without values, and names without end.

    It keeps each name with all names around it.
    """
    named: list[Any] = [*file.extension, *file.service, *(method for one in file.service for method in one.method)]
    longest = len(file.package) + max([len(one.name) for one in named], default=0)
    waiting = [(len(file.package), [*file.message_type], [*file.enum_type])]
    while waiting and longest <= MAX_NAME_CHARACTERS:
        around, messages, enums = waiting.pop()
        for one in (*messages, *enums):
            within = around + len(one.name)
            parts: list[Any] = [*one.value] if isinstance(one, EnumDescriptorProto) else [*one.field]
            if isinstance(one, DescriptorProto):
                if one.options.map_entry and [part.name for part in parts] != ["key", "value"]:
                    raise SchemaError("not a Protobuf schema: a map without keys or values")
                parts += [*one.oneof_decl, *one.extension]
                waiting.append((within, [*one.nested_type], [*one.enum_type]))
            longest = max(longest, within + max([len(part.name) for part in parts], default=0))
    if longest > MAX_NAME_CHARACTERS:
        raise SchemaError(f"a name of more than {MAX_NAME_CHARACTERS} characters, with those around it")


def _references(schema: RegisteredSchema) -> list[tuple[str, RegisteredSchema]]:
    """Return what a schema refers to, and then what that refers to."""
    found = list(schema.references)
    for _, one in found:
        found += one.references
    return found


def _in_order(main: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return ``main`` and what it imports, each behind all that it imports itself. Raises SchemaError."""
    ordered: list[FileDescriptorProto] = []
    begun, done = {main.name}, set()
    waiting = [(main, iter(main.dependency))]
    while waiting:
        file, imports = waiting[-1]
        name = next((name for name in imports if name not in done), None)
        if name is None:
            waiting.pop()
            ordered.append(file)
            done.add(file.name)
        elif name not in files or name in begun:
            why = "imports itself" if name in begun else "which its references do not hold"
            raise SchemaError(f"a Protobuf schema imports {shown(name)}, {why}")
        else:
            begun.add(name)
            waiting.append((files[name], iter(files[name].dependency)))
    return ordered


def _known_files() -> dict[str, FileDescriptorProto]:
    files = {}
    for module in _GOOGLE:
        file = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
        files[file.name] = file
    fields = [("value", FieldDescriptorProto.TYPE_BYTES), ("precision", FieldDescriptorProto.TYPE_UINT32)]
    fields.append(("scale", FieldDescriptorProto.TYPE_INT32))
    decimal = DescriptorProto(name="Decimal")
    for number, (name, of) in enumerate(fields, 1):
        decimal.field.add(name=name, number=number, type=of, label=FieldDescriptorProto.LABEL_OPTIONAL)
    files[DECIMAL_FILE] = FileDescriptorProto(
        name=DECIMAL_FILE, package="confluent.type", syntax="proto3", message_type=[decimal]
    )
    # It only extends the options of fields, which say nothing about bytes.
    files["confluent/meta.proto"] = FileDescriptorProto(name="confluent/meta.proto", package="confluent")
    return files
