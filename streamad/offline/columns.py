"""Messages as rows of Parquet: the columns are the fields of the message, with the types of ``streamad schema``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from importlib.util import find_spec
from types import NoneType
from typing import Any

import msgspec
import msgspec.inspect as inspected

from streamad.errors import PluginError

_TAG = "type"
_ALIASES: dict[type[inspected.Type], str] = {
    inspected.StrType: "string",
    inspected.LiteralType: "string",
    inspected.IntType: "int64",
    inspected.FloatType: "double",
    inspected.BoolType: "bool",
    inspected.BytesType: "binary",
}


def check_extra() -> None:
    """Raise PluginError if pyarrow is missing."""
    if find_spec("pyarrow") is None:
        raise PluginError("writing Parquet needs pyarrow: pip install 'streamad-monitor[parquet]'")


@cache
def schema_of(*kinds: type[msgspec.Struct]) -> Any:
    """Return the ``pyarrow.Schema`` of messages of ``kinds``: their fields, each once, in order.

    Objects are structs, mappings of texts are maps, times are ``timestamp[us, UTC]``. Messages of several kinds have
    their ``type`` first. A field may be null.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra

    fields: dict[str, Any] = {_TAG: pa.string()} if len(kinds) > 1 else {}
    for kind in kinds:
        for field in msgspec.structs.fields(kind):
            fields.setdefault(field.encode_name, _type_of(inspected.type_info(field.type)))
    return pa.schema(list(fields.items()))


def table_of(messages: Sequence[msgspec.Struct], schema: Any) -> Any:
    """Return ``messages`` as a ``pyarrow.Table`` of ``schema``."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    rows = [msgspec.to_builtins(message, builtin_types=(datetime, bytes)) for message in messages]
    columns = [[row.get(name) for row in rows] for name in schema.names]
    return pa.Table.from_arrays(
        [
            pa.array([_pairs(value) for value in values] if pa.types.is_map(kind) else values, kind)
            for values, kind in zip(columns, schema.types, strict=True)
        ],
        schema=schema,
    )


def _pairs(value: dict[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if value is None else list(value.items())


def _type_of(of: inspected.Type) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - an extra

    if (alias := _ALIASES.get(type(of))) is not None:
        return pa.type_for_alias(alias)
    made = None
    if isinstance(of, inspected.Metadata):
        made = _type_of(of.type)
    elif isinstance(of, inspected.UnionType):
        (one,) = [each for each in of.types if not _is_absent(each)]
        made = _type_of(one)
    elif isinstance(of, inspected.DateTimeType):
        made = pa.timestamp("us", tz="UTC")
    elif isinstance(of, inspected.ListType | inspected.CollectionType):
        made = pa.list_(_type_of(of.item_type))
    elif isinstance(of, inspected.DictType):
        made = pa.map_(_type_of(of.key_type), _type_of(of.value_type))
    elif isinstance(of, inspected.StructType):
        made = pa.struct([(field.encode_name, _type_of(field.type)) for field in of.fields])
    if made is None:
        raise TypeError(f"no column for {of}")
    return made


def _is_absent(of: inspected.Type) -> bool:
    inner = of.type if isinstance(of, inspected.Metadata) else of
    return isinstance(inner, inspected.NoneType) or (
        isinstance(inner, inspected.CustomType) and inner.cls in (NoneType, msgspec.UnsetType)
    )
