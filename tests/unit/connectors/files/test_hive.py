"""Folders NAME=VALUE are fields of each row: a row has what it had, and theirs where it has none."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.types import PartitionAssigned, Record, RecordBatch
from streamad_connectors.files.hive import Fields, fields_of, with_columns
from tests.support.files import read, read_one, source

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.none() | st.integers(-(2**31), 2**31) | NAMES
FIELDS: Fields = (("line", "A"), ("day", None), ("müller", '"'))


@pytest.mark.parametrize(
    ("folders", "fields"),
    [
        (["data", "line=A", "day=2026-03-01"], (("line", "A"), ("day", "2026-03-01"))),
        (["a%20b=c%2Fd%25"], (("a b", "c/d%"),)),
        (["x=__HIVE_DEFAULT_PARTITION__"], (("x", None),)),
        (["x=", "y=1=2", "=z", "plain"], (("x", ""), ("y", "1=2"))),
        ([], ()),
    ],
)
def test_folders_are_fields(folders: list[str], fields: Fields) -> None:
    assert fields_of(folders) == fields


def added(value: bytes, fields: Fields = FIELDS) -> bytes:
    ((record, after),) = with_columns(iter([(Record(7, value, key=b"k"), 8)]), fields)
    assert (record.offset, record.key, after) == (7, b"k", 8)
    return record.value


@given(st.dictionaries(NAMES, VALUES, max_size=20))
def test_a_row_has_its_own_fields_and_those_of_its_folders(row: dict[str, Any]) -> None:
    wanted = {**dict(FIELDS), **row}
    assert msgspec.msgpack.decode(added(msgspec.msgpack.encode(row))) == wanted
    for text in (json.dumps(row), json.dumps(row, indent=1), f"  {json.dumps(row)} "):
        assert msgspec.json.decode(added(text.encode())) == wanted


@pytest.mark.parametrize("n", [12, 13, 15, 16, 65_532, 65_533, 65_536])
def test_rows_of_any_width(n: int) -> None:
    row = {str(i): i for i in range(n)}
    assert msgspec.msgpack.decode(added(msgspec.msgpack.encode(row))) == {**dict(FIELDS), **row}


@pytest.mark.parametrize("value", [b"", b"[1]", b"1", b"\x93\x01\x02\x03", b"\xc0", b"\xde", b"\xdf\x00", b"text"])
def test_what_is_no_row_stays(value: bytes) -> None:
    assert added(value) == value


async def test_hive_folders_are_read_at_any_depth_and_others_are_not(tmp_path: Path) -> None:
    for name in ("in/a.csv", "in/line=A/b.csv", "in/line=A/day=1/c.csv", "in/line=A/plain/d.csv", "in/plain/e.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("temp\n1\n")
    rows = {name: msgspec.msgpack.decode(of[0].value) for name, of in (await read("in", tmp_path)).items()}
    assert rows == {
        "in/a.csv": {"temp": 1},
        "in/line=A/b.csv": {"line": "A", "temp": 1},
        "in/line=A/day=1/c.csv": {"line": "A", "day": "1", "temp": 1},
    }
    (record,) = await read_one("in/line=A/*/d.csv", tmp_path)
    assert record.value == added(msgspec.msgpack.encode({"temp": 1}), (("line", "A"),))


async def test_followed_files_have_the_fields_of_their_folders(tmp_path: Path) -> None:
    (tmp_path / "in" / "line=A").mkdir(parents=True)
    (tmp_path / "in" / "line=A" / "a.jsonl").write_text('{"temp":1}\n')
    opened = source("in", tmp_path, follow=True, follow_interval="1ms")
    found: list[bytes] = []
    async with asyncio.timeout(30), aclosing(cast("Any", opened.batches())) as events:
        async for event in events:
            if isinstance(event, PartitionAssigned):
                await opened.seek(event.partition, None)
            elif isinstance(event, RecordBatch) and event.records:
                found += [record.value for record in event.records]
                break
    await opened.close()
    assert found == [b'{"line":"A","temp":1}']
