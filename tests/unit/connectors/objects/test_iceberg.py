"""Iceberg tables: the rows of one snapshot, under the names that they have in it, and what is no such table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import parquet
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from streamad.errors import SourceError
from streamad.ports import PartitionedSource
from streamad_connectors.objects.iceberg import IcebergSource
from tests.support.iceberg import FolderCatalog, put_in_service, rows
from tests.support.object_sources import Read, copies, opened, read_all

SCHEMA = Schema(
    NestedField(1, "line", StringType(), required=False),
    NestedField(2, "k", LongType(), required=False),
    NestedField(3, "temp", DoubleType(), required=False),
)
URL = "iceberg:plant.lake.batches"
WANTED = [{"line": "A/B" if k < 5 else None, "k": k, "temp": pytest.approx(k / 7)} for k in range(9)]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table of two snapshots, with a file each."""
    put_in_service(tmp_path / "warehouse", monkeypatch)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "line"))
    table = FolderCatalog("plant", warehouse=tmp_path / "warehouse").create("lake.batches", SCHEMA, spec)
    table.append(rows(0, 5, "A/B"))
    table.append(rows(5, 4, None))
    return table


def messages(read: Read) -> list[Any]:
    found = [msgspec.msgpack.decode(record.value) for records in read.records.values() for record in records]
    return sorted(found, key=lambda row: row["k"])


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_the_rows_of_the_newest_snapshot_and_of_another(
    files: str, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = {"order": "time"} if files == "joined" else {}
    assert messages(await read_all(opened(URL, tmp_path, files=files, **order))) == WANTED
    told = json.loads(capsys.readouterr().err.splitlines()[0])
    assert (told["table"], told["version"], told["files"]) == (URL, table.current_snapshot().snapshot_id, 2)
    first = table.snapshots()[0].snapshot_id
    assert messages(await read_all(opened(f"{URL}?version={first}", tmp_path, files=files))) == WANTED[:5]
    assert messages(await read_all(opened(f"iceberg:{table.metadata_location}", tmp_path))) == WANTED
    assert not any(any(folder.iterdir()) for folder in copies())


async def test_deleted_rows_and_renamed_columns_are_as_the_table_says(table: Table, tmp_path: Path) -> None:
    table.delete(EqualTo("k", 6))
    with table.update_schema() as update:
        update.rename_column("temp", "temp_c")
    found = messages(await read_all(opened(URL, tmp_path)))
    assert [row["k"] for row in found] == [0, 1, 2, 3, 4, 5, 7, 8]
    assert {tuple(row) for row in found} == {("line", "k", "temp_c")}


async def test_a_table_that_changes_is_read_in_one_snapshot(table: Table, tmp_path: Path) -> None:
    source = opened(URL, tmp_path)
    assert isinstance(source, IcebergSource)
    source.files()
    table.append(rows(9, 3, "C"))
    first = await read_all(source)
    assert messages(first) == WANTED
    with pytest.raises(SourceError, match=r"^iceberg:plant.lake.batches: the checkpoint is of snapshot \d+ of the tab"):
        await read_all(opened(URL, tmp_path), first.cursors)


async def test_a_later_snapshot_has_other_parts(table: Table, tmp_path: Path) -> None:
    source = opened(URL, tmp_path)
    assert isinstance(source, PartitionedSource)
    before = source.partitions()
    table.append(rows(9, 3, "C"))
    name = next(iter(before))
    later = source.only(name)
    assert isinstance(later, PartitionedSource)
    assert list(later.partitions()) == [name]
    assert later.partitions()[name].digest != before[name].digest


async def test_files_beside_the_table_that_have_one_name_are_all_read(table: Table, tmp_path: Path) -> None:
    places = [str(tmp_path / f"day={day}" / "part-0.parquet") for day in (1, 2)]
    for day, place in enumerate(places):
        Path(place).parent.mkdir()
        parquet.write_table(rows(9 + 3 * day, 3, "C"), place)
    table.add_files(places)
    assert [row["k"] for row in messages(await read_all(opened(URL, tmp_path)))] == [*range(15)]


async def test_a_file_whose_name_leads_elsewhere(table: Table, tmp_path: Path) -> None:
    parquet.write_table(rows(9, 3, "C"), place := str(tmp_path / "added.parquet"))
    table.add_files([f"{table.location()}/{'../' * 30}{place.lstrip('/')}"])
    with pytest.raises(SourceError, match="no file may have this name here"):
        await read_all(opened(URL, tmp_path))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("iceberg:plant.lake.none", "iceberg:plant.lake.none: the table cannot be read"),
        ("iceberg:other.lake.batches", "iceberg:other.lake.batches: the table cannot be read"),
        (f"{URL}?version=7", f"{URL}: the table has no snapshot 7"),
        ("iceberg:batches", "names no table; write iceberg:CATALOG.NAMESPACE.TABLE"),
    ],
)
async def test_what_is_no_table(url: str, says: str, table: Table, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        await read_all(opened(url, tmp_path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_file_of_the_table_is_gone(table: Table, tmp_path: Path) -> None:
    for task in table.scan().plan_files():
        table.io.delete(task.file.file_path)
    with pytest.raises(SourceError, match=f"^{URL}: the table cannot be read"):
        await read_all(opened(URL, tmp_path))
