"""The line of CSV that names the columns: given, found to be another one, or refused with the line to write."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import ConfigError, SourceError
from streamad.plugins import ConnectorContext, connect_source
from streamad.testing import ManualClock
from streamad.types import PartitionAssigned, Record, RecordBatch
from streamad_connectors.files.source import FileSource
from tests.support.examples import examples
from tests.support.files import read, read_maps, read_one, source
from tests.support.follow import Tail, append

ABOVE = "Device;7\n# note;;\n\ntime;temp;flow\n[s];[C];\n"
TIMES = [f"06:00:{second:02}" for second in range(60)]
BELOW = "".join(f"{time};{20 + n};{n}\n" for n, time in enumerate(TIMES))
LINES = {"header": 4, "first_row": 6}


def write(folder: Path, text: str, name: str = "a.csv") -> str:
    (folder / name).write_bytes(text.encode())
    return name


async def test_rows_begin_where_they_are_said_to(tmp_path: Path) -> None:
    name = write(tmp_path, ABOVE + BELOW)
    rows = await read_maps(name, tmp_path, **LINES)
    assert rows[0] == {"time": "06:00:00", "temp": 20, "flow": 0}
    assert len(rows) == 60
    assert [record.offset for record in await read_one(name, tmp_path, **LINES)] == list(range(60))
    assert await read_maps(f"{name}?header=4&first_row=8", tmp_path) == rows[2:]
    for begin in range(61):
        again = await read_one(name, tmp_path, begin=begin, **LINES)
        assert [(record.offset, msgspec.msgpack.decode(record.value)) for record in again] == [
            *enumerate(rows[begin:], begin)
        ]
    units = await read_one(name, tmp_path, header=4)
    assert [(record.offset, b"[s]" in record.value) for record in units[:2]] == [(0, True), (1, False)]


async def test_joined_and_sorted_files_begin_there_too(tmp_path: Path) -> None:
    write(tmp_path, ABOVE + BELOW, "day-1.csv")
    write(tmp_path, ABOVE + BELOW, "day-2.csv")
    plain = [record.value for records in (await read("*.csv", tmp_path, **LINES)).values() for record in records]
    joined = await read_one("*.csv", tmp_path, files="joined", **LINES)
    assert [record.value for record in joined] == plain
    context = ConnectorContext((), ManualClock(), tmp_path, times=Backwards())
    opened = cast("FileSource", connect_source("day-1.csv", {**LINES, "sort": True}, context))
    backwards = (await first_batch(opened)).records
    assert [record.value for record in backwards] == plain[59::-1]
    assert [record.offset for record in backwards] == list(range(60))


class Backwards:
    """Times that go back from row to row."""

    identity = "backwards"

    def of(self, record: Record) -> int | None:
        return 1_000 - record.offset


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("sep=;\nn;v,w\n1;2\n", {"n": 1, "v,w": 2}),
        ('"sep=|"\r\nn|v;w\r\n1|2\r\n', {"n": 1, "v;w": 2}),
        ("\ufeffsep=\t\nn\tv\n1\t2\n", {"n": 1, "v": 2}),
        ("sep=,\n\nn,v\n1,2\n", {"n": 1, "v": 2}),
    ],
)
async def test_a_first_line_may_name_the_delimiter(text: str, first: dict[str, Any], tmp_path: Path) -> None:
    name = write(tmp_path, text)
    assert await read_maps(name, tmp_path) == [first]
    assert (await read_one(name, tmp_path))[0].offset == 0


async def test_a_byte_order_mark_belongs_to_no_name(tmp_path: Path) -> None:
    name = write(tmp_path, "\ufeffn,v\n1,2\n")
    for encoding in ("utf-8", "utf-8-sig"):
        for lines in ({}, {"header": 1}):
            assert await read_maps(name, tmp_path, encoding=encoding, **lines) == [{"n": 1, "v": 2}]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            ABOVE + BELOW,
            {},
            r"its first line holds no column names; the names seem to stand in line 4: .*options\.header",
        ),
        (ABOVE + BELOW, {}, r"header: 4 and first_row: 6 \(in a URL \?header=4&first_row=6\)$"),
        ("#a,b,b\nt,v,w\n1,2,3\n2,3,4\n", {}, r"2 and 3 of line 1 are both named 'b'; .* in line 2: .*header: 2 "),
        (ABOVE + BELOW, {"header": 200}, r"it has no line 200; .* in line 4: write source\.options\.header: 4 and"),
        (ABOVE + BELOW, {"header": 3}, r"line 3 holds no column names; .*header: 4 and first_row: 6 "),
        ("t,v\n1,2\n3,4\n", {"header": 2}, r"line 2 holds no column names; .*header: 1 "),
        ("t,v\n1,2\n3,4\n", {"first_row": 1}, r"first_row"),
        (
            "\n\nt,v\n1,2\n3,4\n",
            {"first_row": 2},
            r"line 3 names the columns, so line 2 cannot be .* write .*first_row: 4 or more",
        ),
        ("t,v\n1,2\n", {"header": 3, "first_row": 3}, r"first_row: 3 must lie below header: 3"),
        ("t|v\n1|2.5\n3|4.5\n", {}, r"its cells seem to be separated by '\|'; write source\.options\.delim.*: '\|'$"),
        ("t\tv,a,b,c\n1\t2.5\n3\t4.5\n", {}, r"seem to be separated by tab; write source\.options\.delimiter: tab$"),
        ('t,"v\n1,2\n3,4\n', {}, r"a quote in its first line is not closed there"),
        ("id,temp,temp\nx,1,2\n", {}, r"columns 2 and 3 of line 1 are both named 'temp'; rename one of them there$"),
        (
            "2026-03-02T06:00:00Z,B-1,20.1\n2026-03-02T06:00:01Z,B-1,20.2\n",
            {},
            r"its first line holds no column names: its cells look like those below: 2026-03-02T06:00:00Z, B-1, 20.1; "
            r"put a header line there, or, if these are names, write source\.options\.header: 1 ",
        ),
    ],
)
async def test_refusals_say_which_line_it_seems_to_be(
    text: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((SourceError, ConfigError), match=message) as caught:
        await read_one(write(tmp_path, text), tmp_path, **options)
    assert "\n" not in str(caught.value).removeprefix("1 problem\n")


@pytest.mark.parametrize(
    "text",
    [
        "time,20,temp\n06:00:00,1,2\n06:00:01,2,3\n",
        "unit,400,402\nR1,1.5,2.5\nR1,2.5,3.5\n",
        "id,2026-03-02\nB-1,20.1\n",
        "id,state\nB-1,RUN\n",
        "id,temp\n",
    ],
)
async def test_numbers_and_dates_may_be_names(text: str, tmp_path: Path) -> None:
    assert len(await read_one(write(tmp_path, text), tmp_path)) == text.count("\n") - 1


async def test_a_line_like_a_row_is_the_header_if_the_config_says_so(tmp_path: Path) -> None:
    name = write(tmp_path, "B-0,20,RUN\nB-1,21,RUN\n")
    assert await read_maps(name, tmp_path, header=1) == [{"B-0": "B-1", "20": 21, "RUN": "RUN"}]


# --- the law: a plain table is never refused, whatever is there of it -------------------------------------------------

CELLS = st.one_of(
    st.sampled_from(["", "RUN", "B-1", "bad", "NaN", "2026-03-02 06:00:00", "1,5", "x y", "-9999"]),
    st.floats(-1e6, 1e6).map(lambda number: f"{number:.3f}"),
)


@given(
    names=st.lists(st.text("abcdefgXYZ_", min_size=2, max_size=6), min_size=2, max_size=5, unique=True),
    rows=st.lists(st.lists(CELLS, min_size=5, max_size=5), max_size=12),
    delimiter=st.sampled_from(",;\t"),
)
@settings(max_examples=examples(200), deadline=None)
async def test_a_plain_table_is_read(
    names: list[str], rows: list[list[str]], delimiter: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Names are words that no row has; rows are anything as wide."""
    folder = tmp_path_factory.mktemp("plain")

    def line(cells: Sequence[str]) -> str:
        return delimiter.join(f'"{cell}"' if delimiter in cell else cell for cell in cells) + "\n"

    name = write(folder, line(names) + "".join(line(row[: len(names)]) for row in rows))
    n_blank = sum(not line(row[: len(names)]).strip() for row in rows)
    assert len(await read_one(name, folder)) == len(rows) - n_blank


# --- growing files and checkpoints ------------------------------------------------------------------------------------


async def test_a_growing_file_waits_for_its_header(tmp_path: Path) -> None:
    text = (ABOVE + BELOW[:70]).encode()
    append(tmp_path / "a.csv", text[:1])
    async with Tail("a.csv", tmp_path, **LINES) as tail:
        await tail.begin()
        for at in range(1, len(text)):
            append(tmp_path / "a.csv", text[at : at + 1])
            await tail.catch_up()
        finished = await read_one(write(tmp_path, text.decode(), "b.csv"), tmp_path, **LINES)
        assert [record.value for record in tail.records] == [record.value for record in finished]
        assert len(finished) == 5


@pytest.mark.parametrize("options", [{}, {"files": "joined"}, {"follow": True}])
async def test_a_checkpoint_remembers_where_rows_begin(options: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, ABOVE + BELOW)
    batch = await first_batch(source("*.csv", tmp_path, **LINES, **options))
    for lines in ({**LINES, "first_row": 7}, {"header": 4}):
        other = source("*.csv", tmp_path, **lines, **options)
        with pytest.raises(
            SourceError, match=r"the checkpoint was made with header: 4 and first_row: 6 in source\.options"
        ):
            await first_batch(other, batch)
    again = await first_batch(source("*.csv", tmp_path, **LINES, **options), batch)
    assert again.next_offset == batch.next_offset == 60


async def first_batch(opened: FileSource, after: RecordBatch | None = None) -> RecordBatch:
    """Read until there is a cursor with records behind it, from the beginning or from ``after`` on."""
    found = after
    async for event in opened.batches():
        if isinstance(event, PartitionAssigned):
            if after is not None:
                assert after.cursor is not None
                await opened.resume(event.partition, 0, after.cursor)
            else:
                await opened.seek(event.partition, None)
        elif isinstance(event, RecordBatch) and event.records:
            found = event
            break
    await opened.close()
    assert found is not None
    return found
