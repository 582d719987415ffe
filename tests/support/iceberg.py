"""Iceberg tables in a folder, with a catalog that needs no database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile, ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata
from pyiceberg.utils.config import Config


def put_in_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``folder`` the catalog ``plant``, in place of pyiceberg's own in memory, which needs SQLAlchemy."""
    monkeypatch.setenv("PYICEBERG_CATALOG__PLANT__TYPE", "in-memory")
    monkeypatch.setenv("PYICEBERG_CATALOG__PLANT__WAREHOUSE", str(folder))
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when pyiceberg was imported
    monkeypatch.setitem(
        AVAILABLE_CATALOGS, CatalogType.IN_MEMORY, lambda name, properties: FolderCatalog(name, **properties)
    )


class FolderCatalog(NoopCatalog):
    """A folder for each table, NAMESPACE.NAME; the metadata file with the highest number is the table's."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name)
        self._folder = Path(properties["warehouse"])
        self._io = load_file_io({})

    def create(self, name: str, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
        location = (self._folder / name).as_posix()
        self._write(name, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location, {}))
        return self.load_table(name)

    def load_table(self, name: Any) -> Table:
        place = str(max((self._folder / name / "metadata").glob("*.metadata.json")))
        metadata = FromInputFile.table_metadata(self._io.new_input(place))
        return Table(tuple(name.split(".")), metadata, place, self._io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        metadata = update_table_metadata(table.metadata, updates)
        place = self._write(".".join(table.name()), metadata)
        return CommitTableResponse(metadata=metadata, metadata_location=place)

    def _write(self, name: str, metadata: Any) -> str:
        folder = self._folder / name / "metadata"
        folder.mkdir(parents=True, exist_ok=True)
        place = str(folder / f"{len(list(folder.glob('*.metadata.json'))):05}.metadata.json")
        ToOutputFile.table_metadata(metadata, self._io.new_output(place))
        return place


def rows(first: int, n: int, line: str | None) -> pyarrow.Table:
    k = list(range(first, first + n))
    return pyarrow.table(
        {
            "line": pyarrow.array([line] * n, pyarrow.string()),
            "k": pyarrow.array(k, pyarrow.int64()),
            "temp": pyarrow.array([i / 7 for i in k], pyarrow.float64()),
        }
    )
