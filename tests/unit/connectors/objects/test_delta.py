"""Delta tables: the rows of one version, here and in S3, and what is no such table."""

from __future__ import annotations

import datetime
import json
import string
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow
import pytest

from streamad.commands.shared.console import local_url
from streamad.errors import SourceError
from streamad.ports import PartitionedSource
from streamad_connectors.objects.delta import DeltaSource
from tests.support.object_sources import Read, files_in, opened, read_all
from tests.support.s3_stub import StubS3

DAY = datetime.date(2026, 3, 1)


def rows(first: int, n: int, line: str | None) -> pyarrow.Table:
    k = list(range(first, first + n))
    return pyarrow.table(
        {
            "line": pyarrow.array([line] * n, pyarrow.string()),
            "day": [DAY] * n,
            "k": pyarrow.array(k, pyarrow.int64()),
            "temp": [i / 7 for i in k],
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of two versions."""
    path = tmp_path / "table"
    deltalake.write_deltalake(path, rows(0, 5, "A/B"), partition_by=["line", "day"])
    deltalake.write_deltalake(path, rows(5, 4, None), mode="append")
    return path


@pytest.fixture
def stub(table: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StubS3]:
    with StubS3({f"lake/table/{name}": body for name, body in files_in(table).items()}).serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def messages(read: Read) -> list[Any]:
    found = [msgspec.msgpack.decode(record.value) for records in read.records.values() for record in records]
    return sorted(found, key=lambda row: row["k"])


WANTED = [
    {"line": "A/B" if k < 5 else None, "day": "2026-03-01", "k": k, "temp": pytest.approx(k / 7)} for k in range(9)
]


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_the_rows_with_their_partition_columns(
    files: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert messages(await read_all(opened("delta:table", tmp_path, files=files))) == WANTED
    told = json.loads(capsys.readouterr().err.splitlines()[0])
    assert (told["event"], told["table"], told["version"], told["files"]) == ("snapshot", "delta:table", 1, 2)
    assert messages(await read_all(opened("delta:table?version=0", tmp_path, files=files))) == WANTED[:5]


async def test_a_table_in_s3(stub: StubS3, tmp_path: Path) -> None:
    assert messages(await read_all(opened("delta:s3://bucket/lake/table", tmp_path))) == WANTED


async def test_a_table_that_changes_is_read_in_one_version(table: Path, tmp_path: Path) -> None:
    source = opened("delta:table", tmp_path, files="joined", order="time")
    assert isinstance(source, DeltaSource)
    source.files()
    deltalake.write_deltalake(table, rows(9, 4, "C"), mode="append")
    assert messages(await read_all(source)) == WANTED
    first = await read_all(opened("delta:table?version=1", tmp_path))
    assert messages(first) == WANTED
    with pytest.raises(SourceError, match=r"delta:table: the checkpoint is of version 1 of the table, and this is ver"):
        await read_all(opened("delta:table", tmp_path), first.cursors)
    assert messages(await read_all(opened("delta:table", tmp_path, version=1), first.cursors)) == []


async def test_a_later_version_has_the_same_parts_and_more(table: Path, tmp_path: Path) -> None:
    first = opened("delta:table", tmp_path)
    assert isinstance(first, PartitionedSource)
    before = first.partitions()
    deltalake.write_deltalake(table, rows(9, 4, "C"), mode="append")
    later = opened("delta:table", tmp_path)
    assert isinstance(later, PartitionedSource)
    assert before.items() < later.partitions().items()
    (added,) = later.partitions().keys() - before.keys()
    assert [row["k"] for row in messages(await read_all(later.only(added)))] == [9, 10, 11, 12]


async def failing(url: str, base: Path) -> str:
    with pytest.raises(SourceError) as caught:
        await read_all(opened(url, base))
    text = str(caught.value)
    assert "\n" not in text
    assert "verysecret" not in text
    assert "\x1b" not in text
    return text


async def test_what_is_no_table(table: Path, tmp_path: Path) -> None:
    assert "delta:none: there is no Delta table" in await failing("delta:none", tmp_path)
    assert "names no table" in await failing("delta:", tmp_path)
    assert "delta:table: the table cannot be read" in await failing("delta:table?version=7", tmp_path)
    (table / "_delta_log" / f"{1:020}.json").write_text("{")
    assert "delta:table: the table cannot be read" in await failing("delta:table", tmp_path)


async def test_a_file_that_was_vacuumed(table: Path, tmp_path: Path) -> None:
    for name in files_in(table):
        if name.endswith(".parquet"):
            (table / name).unlink()
    text = await failing("delta:table", tmp_path)
    assert text.endswith("no such file; check the path")


async def test_tables_whose_files_are_not_their_rows(table: Path, tmp_path: Path) -> None:
    deltalake.write_deltalake(table / "mapped", rows(0, 2, "A"))
    log = table / "mapped" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    assert "maps the names of its columns" in await failing("delta:table/mapped", tmp_path)


@pytest.mark.parametrize("where", ["here", "s3"])
async def test_a_file_of_the_log_that_leads_elsewhere(
    where: str, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.parquet"
    other.write_bytes(content := files_in(table).popitem()[1])
    place = "../other.parquet" if where == "here" else "../" * 30 + str(other).lstrip("/")
    action = {"path": place, "partitionValues": {"line": "A", "day": "2026-03-01"}, "size": 0, "modificationTime": 0}
    (table / "_delta_log" / f"{2:020}.json").write_text(json.dumps({"add": {**action, "dataChange": True}}))
    with StubS3({f"lake/table/{name}": body for name, body in files_in(table).items()}).serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        text = await failing("delta:table" if where == "here" else "delta:s3://bucket/lake/table", tmp_path)
    assert "other.parquet' lies elsewhere" in text
    assert other.read_bytes() == content


def deleted(*numbers: int) -> dict[str, Any]:
    """Return a deletion vector that lies in the log: one Roaring bitmap with one array of row numbers, in Z85."""
    roaring = struct.pack("<IIHHI", 12346, 1, 0, len(numbers) - 1, 16) + struct.pack(f"<{len(numbers)}H", *numbers)
    content = struct.pack("<IQI", 1681511377, 1, 0) + roaring
    signs = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    text = "".join(signs[word // 85**place % 85] for word in words for place in range(4, -1, -1))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(content), "cardinality": len(numbers)}


async def test_rows_that_are_deleted_but_still_in_their_file(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "table", rows(0, 30, "A"))
    log = tmp_path / "table" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
        if "add" in action:
            action["add"]["deletionVector"] = deleted(3, 4, 7, 11, 18, 29)
    log.write_text("\n".join(map(json.dumps, actions)))
    assert "rows of the table are deleted by deletion vectors" in await failing("delta:table", tmp_path)


@pytest.mark.parametrize(
    ("refusal", "says"), [((403, "AccessDenied"), "refuses access (AccessDenied)"), ((404, "NoSuchBucket"), "no such")]
)
async def test_a_store_that_refuses(refusal: tuple[int, str], says: str, stub: StubS3, tmp_path: Path) -> None:
    stub.refusal = refusal
    assert says in await failing("delta:s3://bucket/lake/table", tmp_path)


async def test_no_table_in_s3(stub: StubS3, tmp_path: Path) -> None:
    assert "there is no Delta table" in await failing("delta:s3://bucket/lake/none", tmp_path)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("delta:table?version=1", "delta:{here}/table?version=1"),
        ("delta:/data/table", "delta:/data/table"),
        ("delta:s3://bucket/table", "delta:s3://bucket/table"),
    ],
)
def test_a_path_on_the_command_line_begins_where_one_is(
    given: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_url(given) == url.format(here=tmp_path)
