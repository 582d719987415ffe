"""Iceberg tables as sources: ``iceberg:CATALOG.NAMESPACE.TABLE``, or ``iceberg:`` and the place of a metadata file."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from streamad.errors import ObjectError, SourceError
from streamad.objects.stores import Bucket
from streamad_connectors.objects.copies import StoredObject
from streamad_connectors.objects.tables import TablePart, TableSource

_METADATA = ".metadata.json"


@dataclass(frozen=True, slots=True)
class IcebergPart(StoredObject):
    """A file of a table: its copy holds the rows that are left of it, under the names that they have now."""

    write: Callable[[BinaryIO, Callable[[], None]], None] = field(kw_only=True, repr=False, compare=False)

    @property
    def content(self) -> str:
        """Return the snapshot: a later one may lack some of the rows, or name columns otherwise."""
        return self.tag

    def write_to(self, file: BinaryIO, check: Callable[[], None]) -> None:
        """Write the rows as Parquet; ``check`` raises once nobody waits for them. Raises SourceError."""
        self.write(file, check)


class IcebergSource(TableSource):
    """The rows of an Iceberg table, read by pyiceberg, which knows deleted rows and renamed columns.

    The catalog is one of ~/.pyiceberg.yaml or of PYICEBERG_CATALOG__NAME__... variables; they have its credentials.
    """

    scheme = "iceberg"

    def _url(self, rest: str) -> str:
        return f"iceberg:{rest}"

    def _opened(self, rest: str) -> tuple[Bucket, str]:
        if not rest.endswith(_METADATA) and rest.count(".") < 2:
            raise ObjectError("other", f"iceberg:{rest}: names no table; write iceberg:CATALOG.NAMESPACE.TABLE")
        return Bucket(self._url(rest), None), rest

    def _tag(self, version: int | None) -> str:
        return f"snapshot {version}"

    def _snapshot(self, version: int | None) -> tuple[int, list[TablePart]]:
        if importlib.util.find_spec("pyiceberg") is None:
            raise SourceError(f"{self._rest}: reading it needs pyiceberg: pip install 'streamad-monitor[iceberg]'")
        table = self._table()
        snapshot = table.current_snapshot() if version is None else table.snapshot_by_id(version)
        if snapshot is None:
            missing = "has no snapshot yet" if version is None else f"has no snapshot {version}"
            raise SourceError(f"{self._rest}: the table {missing}")
        scan = table.scan(snapshot_id=snapshot.snapshot_id)
        added_ms = _added_ms(table, snapshot)
        schema = table.schema() if version is None else scan.projection()  # of old snapshots their own names
        parts = [self._part(table, schema, task, added_ms, snapshot.snapshot_id) for task in scan.plan_files()]
        return snapshot.snapshot_id, parts

    def _table(self) -> Any:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra
        from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra

        if self._key.endswith(_METADATA):
            is_url = "://" in self._key
            return StaticTable.from_metadata(self._key if is_url else str(self._context.base_dir / self._key))
        catalog, _, name = self._key.partition(".")
        return load_catalog(catalog).load_table(name)

    def _part(self, table: Any, schema: Any, task: Any, added_ms: dict[str, int], snapshot: int) -> TablePart:
        place = str(task.file.file_path)
        location = f"{table.location().rstrip('/')}/"
        name = place.removeprefix(location) if place.startswith(location) else place.rpartition("://")[2]
        name = name.lstrip("/")

        def write(file: BinaryIO, check: Callable[[], None]) -> None:
            with self._one_line():
                _write_rows(table, schema, task, file, check)

        mtime_ns = added_ms.get(place, 0) * 10**6
        size, tag = task.file.file_size_in_bytes, self._tag(snapshot)
        remote = IcebergPart(name, size, mtime_ns, tag, self._copies, is_pinned=False, write=write)
        return TablePart(name, self._copies.path(name), remote, ())


def _added_ms(table: Any, snapshot: Any) -> dict[str, int]:
    """Return when each file was added; those of a snapshot that is forgotten have the time of none."""
    times = {each.snapshot_id: each.timestamp_ms for each in table.snapshots()}
    entries = table.inspect.entries(snapshot.snapshot_id).select(["snapshot_id", "data_file"]).to_pylist()
    return {entry["data_file"]["file_path"]: times.get(entry["snapshot_id"], 0) for entry in entries}


def _write_rows(table: Any, schema: Any, task: Any, file: BinaryIO, check: Callable[[], None]) -> None:
    from pyarrow import parquet  # noqa: PLC0415 - an extra
    from pyiceberg.expressions import AlwaysTrue  # noqa: PLC0415 - an extra
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow  # noqa: PLC0415 - an extra

    writer = parquet.ParquetWriter(file, schema_to_pyarrow(schema, include_field_ids=False))
    with writer:
        for batch in ArrowScan(table.metadata, table.io, schema, AlwaysTrue()).to_record_batches([task]):
            check()
            writer.write_batch(batch.cast(writer.schema))
