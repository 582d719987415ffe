"""CSV files that nobody can read end in one line, and a row that cannot be read costs itself only.

Law: whatever the bytes of a file are, reading it raises SourceError or returns.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import SourceError
from tests.support.examples import examples
from tests.support.files import read_one, source

ROWS = b"".join(b"2026-01-01T00:00:%02dZ,1.5,s\n" % second for second in range(20))
LIMIT = 131_072  # csv.field_size_limit()


@pytest.mark.parametrize("name", [b"x" * (LIMIT + 1), b'"' + b"x" * (LIMIT + 1), b"\0" * (LIMIT + 1)])
async def test_a_header_with_a_name_above_the_limit(name: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,value," + name + b"\n" + ROWS)
    with pytest.raises(SourceError, match=r"a\.csv: its header has a name of more than 131072 characters") as caught:
        await read_one("a.csv", tmp_path)
    assert str(caught.value).endswith("put a header line there")


async def test_a_header_with_a_name_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,value," + b"x" * LIMIT + b"\n" + ROWS)
    assert len(await read_one("a.csv", tmp_path)) == 20


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
async def test_a_header_of_many_columns(delimiter: str, tmp_path: Path) -> None:
    """No name is long, but the header is longer than a cell may be."""
    names, cells = (delimiter.join(texts) for texts in ([f"c{i}" for i in range(49_000)], ["1"] * 49_000))
    assert len(names) > 2 * LIMIT
    (tmp_path / "a.csv").write_text(f"{names}\n{cells}\n", encoding="utf-8")
    (row,) = await read_one("a.csv", tmp_path)
    assert len(msgspec.msgpack.decode(row.value)) == 49_000


@pytest.mark.parametrize("cell", [b"y" * (LIMIT + 1), b"1\0", b"\xff\xfe"])
async def test_a_row_that_cannot_be_read_costs_itself_only(cell: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,value,s\n" + ROWS + b"2026-01-01T00:01:00Z,1.5," + cell + b"\n" + ROWS)
    assert len(await read_one("a.csv", tmp_path)) == 41


@given(
    st.one_of(st.binary(max_size=400), st.text('a1;,\t|"#=-.:\r\n', max_size=300).map(str.encode)),
    st.sampled_from(["utf-8", "utf-16", "cp1252", "utf-8-sig", "utf-7", "idna", "punycode"]),
    st.sampled_from([{}, {"header": 2}, {"header": 1, "first_row": 3}, {"first_row": 2}]),
)
@settings(max_examples=examples(150), deadline=None)
async def test_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, encoding: str, lines: dict[str, int]
) -> None:
    folder = tmp_path_factory.mktemp("csv")
    (folder / "a.csv").write_bytes(content)
    with suppress(SourceError):
        await read_one("a.csv", folder, encoding=encoding, **lines)
    with suppress(SourceError):
        source("a.csv", folder, encoding=encoding, **lines).table_layout()


def test_a_layout_of_long_lines_is_found_in_bounded_time(tmp_path: Path) -> None:
    """Each content is cut after a megabyte; none took more than 1.5 s of CPU when this was written."""
    contents = ["," * (1 << 21), ("1.5," * 40_000 + "\n") * 40, ('"' + "x,1;2\t" * 300 + "\n") * 2_000]
    for content in contents:
        (tmp_path / "a.csv").write_text(content, encoding="utf-8")
        begun_s = time.process_time()
        assert source("a.csv", tmp_path).table_layout() is not None
        assert time.process_time() - begun_s < 10
