"""CSV: rows as maps, with numbers where a column holds numbers and text everywhere else."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import ConfigError, SourceError
from tests.support.files import read_maps, read_one


def write(folder: Path, text: str | bytes, name: str = "a.csv") -> str:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


async def test_wide(tmp_path: Path) -> None:
    text = "batch,time,temp_c,flow\r\nB-1,2026-03-01T08:15:30Z,81.25,\r\nB-1,2026-03-01T08:15:31Z,NaN,3\r\n"
    assert await read_maps(write(tmp_path, text), tmp_path) == [
        {"batch": "B-1", "time": "2026-03-01T08:15:30Z", "temp_c": 81.25, "flow": None},
        {"batch": "B-1", "time": "2026-03-01T08:15:31Z", "temp_c": pytest.approx(float("nan"), nan_ok=True), "flow": 3},
    ]


async def test_long(tmp_path: Path) -> None:
    text = "unit,batch,ts,tag,value\nR1,17,1772352930.25,temp_c,81.25\nR1,17,1772352930.5,valve,1\n"
    assert await read_maps(write(tmp_path, text), tmp_path) == [
        {"unit": "R1", "batch": 17, "ts": 1772352930.25, "tag": "temp_c", "value": 81.25},
        {"unit": "R1", "batch": 17, "ts": 1772352930.5, "tag": "valve", "value": 1},
    ]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["007", "012"], ["007", "012"]),  # ids with leading zeros
        (["12", "007"], ["12", "007"]),  # one is enough for the column
        (["3f2a", "12e4", "77aa"], ["3f2a", "12e4", "77aa"]),  # mostly no numbers: all text
        (["1.5", "2.5", "Bad Input"], [1.5, 2.5, "Bad Input"]),  # one bad reading costs itself, not its column
        (["1", "-2", "+3", "0", "1e3", "-0.5"], [1, -2, 3, 0, 1000.0, -0.5]),
        (["1", "2", "1_000", "N/A", "null"], [1, 2, "1_000", None, None]),
        (["1", "2", "99999999999999999999"], [1, 2, "99999999999999999999"]),
        (["", "", "x"], [None, None, "x"]),
        (["inf", "1", "2"], [float("inf"), 1, 2]),
    ],
)
async def test_cells(cells: list[str], expected: list[Any], tmp_path: Path) -> None:
    text = "id,cell\n" + "".join(f"x,{cell}\n" for cell in cells)
    assert [row["cell"] for row in await read_maps(write(tmp_path, text), tmp_path)] == expected


async def test_a_column_can_be_kept_as_text_and_a_channel_is_always_numbers(tmp_path: Path) -> None:
    name = write(tmp_path, "batch,temp\n1.10,off\n1.1,off\n1.2,5\n")
    assert [row["batch"] for row in await read_maps(f"{name}?text=batch", tmp_path)] == ["1.10", "1.1", "1.2"]
    rows = await read_maps(name, tmp_path, channels=("temp",))
    assert [row["temp"] for row in rows] == ["off", "off", 5]
    with pytest.raises(SourceError, match="option text names 'btch', which is no column"):
        await read_maps(f"{name}?text=btch", tmp_path)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("id;temp;note\nx;1,5;a,b\n", "?decimal=,"),
        ("id\ttemp\tnote\nx\t1.5\ta,b\n", ""),
        ('id,temp,note\nx,1.5,"a,b"\n', ""),
        ("id|temp|note\nx|1.5|a,b\n", "?delimiter=|"),
    ],
)
async def test_dialects(text: str, query: str, tmp_path: Path) -> None:
    assert await read_maps(write(tmp_path, text) + query, tmp_path) == [{"id": "x", "temp": 1.5, "note": "a,b"}]


@pytest.mark.parametrize(
    ("encoded", "query"),
    [
        ("id,Temperatur °C\nx,1.5\n".encode("utf-8-sig"), ""),
        ("id,Temperatur °C\nx,1.5\n".encode("cp1252"), "?encoding=cp1252"),
        ("id,Temperatur °C\r\nx,1.5\r\n".encode("utf-16"), "?encoding=utf-16"),
        (b"\n\nid,Temperatur \xc2\xb0C\rx,1.5\r", ""),
    ],
)
async def test_encodings(encoded: bytes, query: str, tmp_path: Path) -> None:
    assert await read_maps(write(tmp_path, encoded) + query, tmp_path) == [{"id": "x", "Temperatur °C": 1.5}]


async def test_packed(tmp_path: Path) -> None:
    name = write(tmp_path, gzip.compress(b"id,v\nx,1\n"), "a.csv.gz")
    assert await read_maps(name, tmp_path) == [{"id": "x", "v": 1}]


async def test_rows_that_do_not_fit_are_passed_on_as_they_are(tmp_path: Path) -> None:
    name = write(tmp_path, b"id,v\nx,1\nshort\na,b,c\n\n\xff\xfe\ny,2\n")
    records = await read_one(name, tmp_path)
    assert [record.value for record in records[1:4]] == [b"short", b"a,b,c", b"\xff\xfe"]
    assert [record.offset for record in records] == [0, 1, 2, 3, 4]


async def test_a_cell_in_another_encoding_is_bytes_and_costs_no_other_cell(tmp_path: Path) -> None:
    name = write(tmp_path, b"id,v,remark\nx,1,St\xf6rung\ny,\xb0,fine\nz,2,\n")
    assert await read_maps(name, tmp_path) == [
        {"id": "x", "v": 1, "remark": b"St\xf6rung"},
        {"id": "y", "v": b"\xb0", "remark": "fine"},
        {"id": "z", "v": 2, "remark": None},
    ]


async def test_a_quote_that_is_never_closed_costs_a_bounded_part(tmp_path: Path) -> None:
    rows = "".join(f"x{i},{i}\n" for i in range(40_000))
    name = write(tmp_path, f'id,v\nfirst,1\n"open,2\n{rows}')
    records = await read_one(name, tmp_path)
    assert records[1].value.startswith(b'"open,2\nx0,0\n')
    assert len(records[1].value) < 140_000
    assert records[-1].value == b"\x82\xa2id\xa6x39999\xa1v\xcd\x9c\x3f"


async def test_a_huge_line_is_cut(tmp_path: Path) -> None:
    name = write(tmp_path, f"id,v\n{'x' * 5_000_000},1\ny,2\n")
    huge, after = await read_one(name, tmp_path, max_record_bytes=1000)
    assert huge.value == b"x" * 1001
    assert after.offset == 1


async def test_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    assert await read_maps(write(tmp_path, "id,,v,\nx,0,1,\n"), tmp_path) == [{"id": "x", "v": 1}]


async def test_a_first_column_without_a_name_is_called_as_pandas_calls_it(tmp_path: Path) -> None:
    assert await read_maps(write(tmp_path, ",v\n2026-03-02 06:00:00,1\n"), tmp_path) == [
        {"Unnamed: 0": "2026-03-02 06:00:00", "v": 1}
    ]
    assert await read_maps(write(tmp_path, ",Unnamed: 0\n7,1\n"), tmp_path) == [{"Unnamed: 0": 1}]


@pytest.mark.parametrize("text", ["id,v\nx,1,\ny,2, ,\n", "id,v,,\nx,1\ny,2,\n"])
async def test_delimiters_at_the_ends_of_rows_or_of_the_header_alone_mean_nothing(text: str, tmp_path: Path) -> None:
    assert await read_maps(write(tmp_path, text), tmp_path) == [{"id": "x", "v": 1}, {"id": "y", "v": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2.5\n3,4.5\n", "its first line holds no column names"),
        ("id,temp,temp\nx,1,2\n", "columns 2 and 3 of line 1 are both named 'temp'; rename one of them there"),
        (b"id,temp \xb0C\nx,1\n", r"its header is not utf-8-sig; set the option encoding, .*\?encoding=cp1252"),
        ("id,temp °C\nx,1\n".encode("utf-16"), r"its header is not utf-8-sig; .* \?encoding=utf-16"),
        ("id,temp\nx,1\n".encode("utf-16-le"), r"its header is not utf-8-sig; .* \?encoding=utf-16-le"),
        ("id,temp\nx,1\n".encode("utf-16-be"), r"its header is not utf-8-sig; .* \?encoding=utf-16-be"),
    ],
)
async def test_bad_headers(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message):
        await read_one(write(tmp_path, text), tmp_path)


async def test_an_unknown_encoding(tmp_path: Path) -> None:
    for name in ("utf-9", "hex"):
        with pytest.raises(ConfigError, match=f"source.options.encoding: '{name}' is no text encoding"):
            await read_one(write(tmp_path, "id\nx\n") + f"?encoding={name}", tmp_path)
