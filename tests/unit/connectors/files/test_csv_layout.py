"""Which line of CSV names the columns, which holds units, where rows begin: right, or said not to be known."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.tables import TableLayout, TableSource
from streamad_connectors.files.formats.csv_files.layout import find_layout
from streamad_connectors.files.formats.options import FileOptions
from tests.support.examples import examples
from tests.support.files import source


def layout(text: str, **options: str) -> TableLayout:
    return find_layout(text.splitlines(keepends=True), FileOptions.model_validate(options))


ANNOTATED = (
    "#group,false,false,true\r\n#datatype,string,long,dateTime:RFC3339,double,string\r\n#default,mean,,,,\r\n"
    ",result,table,_time,_value,batch\r\n,,0,2026-03-02T06:00:00Z,20.06,B-1\r\n,,0,2026-03-02T06:00:10Z,24.1,B-1\r\n"
)
COMMENTS = (
    '# Export : 02.03.2026 06:00:00;;;\n# Units : Metric;;;\n"# Period: ""Drill 0""";;;\n'
    "Timestamp;Seconds;Velocity;Heart Rate\n02.03.2026 07:00;0;20.24;99\n02.03.2026 07:00;0.1;20.13;101\n"
)
BLOCKS = (
    "Measurement\t\nSeparator\tTab\nDecimal_Separator\t,\nTime\t06:00:00,938\n***End_of_Header***\t\n\t\n"
    "Channels\t2\t\t\nSamples\t56\t56\t\nX_Dimension\tTime\tTime\t\nX0\t0,0E+0\t0,0E+0\t\nDelta_X\t0,001\t0,001\t\n"
    "***End_of_Header***\t\t\t\nX_Value\tForce\tWay\tComment\n"
    "0,000\t19,96\t0,998\t\n0,001\t24,24\t1,083\t\n0,002\t28,32\t1,241\t\n0,003\t28,32\t1,241\t\n"
)
DEVICE = (
    "sep=,\nDeviceTag:,DOT-0\nFirmware:,3.0.0\nOutputRate:,60Hz\nStartTime:,2026-03-02_06:00:00_000 UTC\n\n"
    "PacketCounter,SampleTimeFine,Acc_X\n0,4279967296,19.99\n1,4279983963,23.72\n"
)
LOGGER = (
    '"TOA5","CR1000","1234","CR1000.Std.10","CPU:prog"\n"TIMESTAMP","RECORD","BattV","Temp"\n'
    '"TS","RN","Volts","Deg C"\n"","","Min","Avg"\n'
    '"2026-03-02 06:00:00",1,12.5,20.1\n"2026-03-02 06:01:00",2,12.5,20.2\n'
)


@pytest.mark.parametrize(
    ("text", "header", "first_row", "delimiter", "options"),
    [
        (ANNOTATED, 4, 5, ",", {"header": 4}),
        (COMMENTS, 4, 5, ";", {"header": 4}),
        (BLOCKS, 13, 14, "\t", {"header": 13}),
        (DEVICE, 7, 8, ",", {"header": 7}),
        ("batch,n,t,p\nB,1,2,3\nB,2,Bad,3\nB,3,I/O,3\nB,4,2,4\nB,5,2,3\nB,6,2,3\nB,7,2,3\nB,8,2,3\n", 1, 2, ",", {}),
        (LOGGER, 2, 5, ",", {"header": 2, "first_row": 5}),
        ('"Time (s)","Acc (m/s^2)"\n1.8E-02,2.0E+01\n2.3E-02,2.4E+01\n', 1, 2, ",", {}),
        ("a|b\n2026-03-02|1\n2026-03-03|2\n", 1, 2, "|", {"delimiter": "|"}),
        ("ts,batch,t,open\n2026-03-02 06:00:00.5+01,B-1,20.1,f\n2026-03-02 06:00:01+01,B-1,\\N,f\n", 1, 2, ",", {}),
        ("Timestamp,TI,Timestamp.1,PI\n02-Mar-26 06:00:00,1,02-Mar-26 06:00:03,2\n", 1, 2, ",", {}),
        ("time;20;temp\n06:00:01;1,5;2,5\n06:00:02;1,5;2,5\n", 1, 2, ";", {}),
        (
            " time |  t\n------+----\n 06:00:00 |  1.5\n 06:00:01 |  1.6\n",
            1,
            3,
            "|",
            {"first_row": 3, "delimiter": "|"},
        ),
        (
            "Trajectories\nFrame,X,Y,X,Y\n,mm,mm,mm,mm\n1,1.5,1.6,1.7,1.8\n2,1.5,1.6,1.7,1.8\n",
            *(2, 4, ",", {"header": 2, "first_row": 4}),
        ),
        ("time,temp\n0 sec,20\n0.01 sec,21\n", 1, 2, ",", {}),
        ("sep=;\nt;v,w\n1;2,5\n2;3,5\n", 2, 3, ";", {}),
        ("sensor export\n\nn,v\n1,2\n", 3, 4, ",", {"header": 3}),
        ('id,note,v\n1,"two\nlines",2\n2,"three\n\nlines",3\n', 1, 2, ",", {}),
        ("\ufefft,v\n\n1,2\n", 1, 3, ",", {}),
    ],
)
def test_the_line_of_names_is_found(
    text: str, header: int, first_row: int, delimiter: str, options: dict[str, object]
) -> None:
    found = layout(text)
    assert (found.header, found.first_row, found.delimiter, found.is_sure) == (header, first_row, delimiter, True)
    assert found.options == options
    assert f"line {header} holds the names" in found.why


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("t;temp;flow\n[s];[°C];[l/min]\n0;1;2\n1;2;3\n", ("s", "°C", "l/min")),
        ("Zeit;Druck;Status\n;bar;\n06:00:01;1,5;ok\n06:00:02;1,6;ok\n", (None, "bar", None)),
        ("time,V,A\ns,V,A\n0,1,2\n1,2,3\n", ("s", "V", "A")),
        (LOGGER, ("TS", "RN", "Volts", "Deg C")),
        ("Tag,T,P\nUnit,C,bar\n06:00:01,1,2\n06:00:02,1,2\n", (None, "C", "bar")),
        ("time,V,A\n0,1,2\n1,2,3\n", ()),  # short names are no units
    ],
)
def test_units_below_the_names_are_told_by_column(text: str, units: tuple[str | None, ...]) -> None:
    assert layout(text).units == units


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-02T06:00:00Z,B-1,20.058,1.0\n2026-03-02T06:00:10Z,B-1,24.1,1.1\n",
        "B-0001,20,RUN\nB-0001,21,RUN\nB-0002,22,HOLD\n",
        "1,2.5\n3,4.5\n5,6.5\n",
    ],
)
def test_a_first_line_like_those_below_holds_no_names(text: str) -> None:
    found = layout(text)
    assert (found.header, found.first_row, found.is_sure) == (None, 1, True)
    assert found.why.startswith("its cells look like those below: ")


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("unit,20,state\nR1,1.5,RUN\nR1,2.5,RUN\n", 1),  # 20 may be a name
        ("A,0,1\n1.00,1.00,1.00\n", None),  # "A" may name a column of numbers
        ('id,temp,note\no\nlines, "5" µ"\nB-6,0\n', 3),  # a lone row below, and a wider first line
        ("id,state\nB-1,RUN\nB-2,HOLD\n", 1),  # texts alone
        ("Inlet,Outlet\nTI-1,TI-2\n1,2\n3,4\n", 1),  # both lines may hold the names
        ("t,v\n1,2\n2,3\n3,4\n4,5\n5,6\n6,7\nx,y,z\n" + "1,2,3\n" * 20, 8),  # two tables
        ("Device,DOT\nName,X\nt,v\n1,2\n2,3\n", 1),
        ("# device\n1,2\n3,4\n", None),
        ("", None),
    ],
)
def test_what_is_doubtful_is_said_so(text: str, header: int | None) -> None:
    found = layout(text)
    assert (found.header, found.is_sure) == (header, False)


# --- the law ---------------------------------------------------------------------------------------------------------

WORD = st.text("abcdefghijklmnopqrstuvwxyzABCXYZäß_. ", min_size=1, max_size=9).map(str.strip).filter(bool)
NAMES = st.one_of(WORD, st.integers(0, 99).map(str), st.just("Temp [°C]"), st.just('a "b"'))


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, int, int, str]:
    """A file's text, the lines of its names and of its first row, and the delimiter."""
    delimiter = draw(st.sampled_from(",;\t|"))
    point = draw(st.sampled_from("." if delimiter == "," else ".,"))
    kinds = draw(st.lists(st.sampled_from(["number", "number", "text", "time", "empty"]), min_size=2, max_size=6))
    kinds[0] = draw(st.sampled_from(["time", "number"]))
    names = draw(st.lists(NAMES, min_size=len(kinds), max_size=len(kinds), unique=True))
    if not any(name.isalpha() and kind in ("time", "number") for name, kind in zip(names, kinds, strict=True)):
        names[0] = "Zeit"
    n_rows = draw(st.integers(1, 30))

    def cell(kind: str, row: int) -> str:
        if kind == "time":
            return f"2026-03-02 06:{row // 60:02}:{row % 60:02}"
        if kind == "number":
            return draw(st.sampled_from(["", "NaN"])) if row % 7 == 6 else f"{row * 3.7 + 1:.2f}".replace(".", point)
        return "" if kind == "empty" else draw(st.sampled_from(["RUN", "HOLD", "B-1", f"x{delimiter}y", 'say "x"']))

    def line(cells: list[str]) -> str:
        is_quoted = draw(st.booleans())
        return delimiter.join(
            '"' + text.replace('"', '""') + '"' if is_quoted or delimiter in text or '"' in text else text
            for text in cells
        )

    above = draw(
        st.lists(
            st.one_of(
                st.just(""),
                WORD.map(lambda text: f"# {text}"),
                st.tuples(WORD, WORD).map(lambda pair: f"{pair[0]}:{pair[1]}"),
                WORD.map(lambda text: f"# {text}" + delimiter * (len(kinds) - 1)),
                st.integers(0, 9).map(lambda n: f"Key {n}: {n}"),
            ),
            max_size=9,
        )
    )
    between = []
    if draw(st.booleans()):
        between.append(line([draw(st.sampled_from(["[s]", "[°C]", ""])) for _ in kinds[1:]] + ["[bar]"]))
    between += [""] * draw(st.integers(0, 2))
    rows = [line([cell(kind, row) for kind in kinds]) for row in range(n_rows)]
    if n_rows > 8:
        rows[draw(st.integers(6, n_rows - 1))] = draw(st.sampled_from(["", "logger restarted", "1", delimiter * 9]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join([*above, line(names), *between, *rows]) + draw(st.sampled_from(["", end, end + "END" + end]))
    return text, len(above) + 1, len(above) + len(between) + 2, delimiter


@given(tables())
@settings(max_examples=examples(300), deadline=None)
def test_names_are_found_or_said_not_to_be_known(table: tuple[str, int, int, str]) -> None:
    text, header, first_row, delimiter = table
    found = layout(text)
    if found.is_sure:
        assert (found.header, found.first_row, found.delimiter) == (header, first_row, delimiter)


@given(st.text('ab12 ,;\t|"\n\r#=.:-', max_size=200))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_has_a_layout(text: str) -> None:
    n_lines = len(text.splitlines()) + 1
    found = layout(text)
    assert found.header is None or 1 <= found.header <= n_lines
    assert found.why


async def test_the_source_tells_it_of_its_first_table(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(COMMENTS, encoding="utf-8")
    (tmp_path / "b.jsonl").write_text("{}\n", encoding="utf-8")
    opened = source(tmp_path, tmp_path)
    assert isinstance(opened, TableSource)
    assert opened.table_layout() == layout(COMMENTS)
    assert source("b.jsonl", tmp_path).table_layout() is None
