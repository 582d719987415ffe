"""Messages as columns: the schema of verdicts is a promise, and nothing of a message is lost in a file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamad.messages import EarlyWarning, Event, ModelRef, Verdict, WarningRef, message_types
from streamad.offline.columns import schema_of
from streamad.offline.files import Made, file_of, made_of, writing_rows
from streamad.offline.tally import Tally
from streamad.offline.units import units_of
from streamad.testing import ListSource

AT = datetime(2026, 3, 1, 8, 15, 30, 250_001, tzinfo=UTC)
MADE = Made("in/a.csv", "1", "2", {"default": "3", "default.x": ""}, "0.1.0", Tally({"samples": 3}, {"normal": 2}))
VERDICT = Verdict(
    verdict_id="00ff", stream="r1", sequence="B-1", decision="normal", reason="marker", start_time=AT, end_time=AT,
    n_samples=7, score=0.1 + 0.2, p_value=1 / 3, tail="empirical", model=ModelRef("default", "0001"),
    means=[1.5, -2e300], spreads=[0.0, 5e-324], batch={"operator": "Zoë", "": "x"}, created_at=AT,
    warning=WarningRef("ab", 0.25),
)  # fmt: skip


def test_the_columns_of_a_verdict_are_promised() -> None:
    """A change of them breaks what others read: it needs a line in the changelog."""
    assert {name: str(kind) for name, kind in zip(schema_of(Verdict).names, schema_of(Verdict).types, strict=True)} == {
        "verdict_id": "string",
        "stream": "string",
        "sequence": "string",
        "decision": "string",
        "reason": "string",
        "start_time": "timestamp[us, tz=UTC]",
        "end_time": "timestamp[us, tz=UTC]",
        "n_samples": "int64",
        "score": "double",
        "p_value": "double",
        "tail": "string",
        "detail": "string",
        "model": "struct<name: string, version: string>",
        "means": "list<item: double>",
        "spreads": "list<item: double>",
        "n_merged": "int64",
        "n_late": "int64",
        "batch": "map<string, string>",
        "warning": "struct<warning_id: string, age: double>",
        "created_at": "timestamp[us, tz=UTC]",
        "schema_version": "int64",
    }


@pytest.mark.parametrize("kind", message_types().values(), ids=message_types().keys())
def test_every_message_has_columns_and_messages_of_two_kinds_have_those_of_both(kind: type[msgspec.Struct]) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(kind)]
    assert schema_of(kind).names == fields
    assert schema_of(kind, Verdict).names == ["type", *dict.fromkeys([*fields, *schema_of(Verdict).names])]


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 33_000])
def test_what_is_written_is_read_bit_for_bit_in_its_order(n: int, tmp_path: Path) -> None:
    path = file_of(tmp_path, "verdicts", MADE.partition, "")
    with writing_rows(path, [Verdict]) as rows:
        rows.add([VERDICT] * n)
        rows.finish(MADE)
    table = pq.read_table(path)
    assert table.num_rows == n
    assert made_of(path) == MADE
    for row in table.slice(max(0, n - 1)).to_pylist():
        row["batch"] = dict(row["batch"])
        assert msgspec.convert({**row, "type": "verdict"}, Verdict) == VERDICT


def test_messages_of_several_kinds_lie_in_one_file(tmp_path: Path) -> None:
    event = Event(kind="drift", message="m", created_at=AT, figures={"a": 1.5})
    with writing_rows(tmp_path / "x.parquet", [Event, EarlyWarning]) as rows:
        rows.add([event])
        rows.finish(MADE)
    (row,) = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert (row["type"], row["kind"], dict(row["figures"]), row["warning_id"]) == ("event", "drift", {"a": 1.5}, None)


def test_an_error_leaves_the_file_before_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with writing_rows(path, [Verdict]) as rows:
        rows.finish(MADE)
    before = path.read_bytes()
    writer = writing_rows(path, [Verdict])
    writer.__enter__().add([VERDICT])
    assert not writer.__exit__(RuntimeError, RuntimeError("broken"), None)
    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 no parquet PAR1", None])
def test_a_foreign_file_was_made_of_nothing(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x.parquet").write_bytes(content)
    assert made_of(tmp_path / "x.parquet") is None


@pytest.mark.parametrize("own", [b"[" * 100_000, b'{"partition":"' + b"[" * 10 + b'\xff"}', b'{"x":' + b"[" * 100_000])
def test_a_foreign_digest_was_made_of_nothing(own: bytes, tmp_path: Path) -> None:
    table = pa.table({"score": [0.5]}).replace_schema_metadata({"streamad": own})
    pq.write_table(table, path := tmp_path / "x.parquet")
    assert made_of(path) is None


def test_a_fifo_was_made_of_nothing(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "x.parquet")
    assert made_of(path) is None


def test_no_name_can_be_chosen_to_have_the_file_of_another(tmp_path: Path) -> None:
    tail = "/recordings-of-the-line-of-cans-number-seven-of-the-plant/a.csv"  # 48 bits of their sha256 are the same
    assert len({file_of(tmp_path, "verdicts", name + tail, "") for name in ("3eeed", "df1cd7")}) == 2


def test_names_of_files_are_safe_and_distinct(tmp_path: Path) -> None:
    names = ["a/b.csv", "a_b.csv", "../../etc/passwd", "ü" * 300, "", "A/B.csv", "/"]
    files = [file_of(tmp_path, "verdicts", name, place) for name in names for place in ("", "s3://a/b.csv")]
    assert len(set(files)) == 2 * len(names)
    assert {file.parent for file in files} == {tmp_path / "verdicts"}
    assert all(file.name.isascii() and len(file.name) < 100 and file.name[0] not in ".-" for file in files)


def test_topics_read_into_one_folder_have_files_of_their_own(tmp_path: Path) -> None:
    urls = ("kafka://host/a", "kafka://host/b", "kafka://user:password@host/b")
    units = [unit for url in urls for unit in units_of(ListSource([]), url)]
    files = [file_of(tmp_path, "verdicts", unit.partition, unit.place) for unit in units]
    assert files[0] != files[1]
    assert "password" not in str(units)


def test_tallies_add_up_by_name() -> None:
    one = Tally({"samples": 3, "dead_letters": {"json": 1}}, {"normal": 2}, errors={"a": "gone"}, n_scored=2)
    two = Tally({"samples": 4, "dead_letters": {"time": 5}}, {"anomalous": 1}, errors={"a": "bad"}, n_known=1)
    assert one + two == Tally(
        {"samples": 7, "dead_letters": {"json": 1, "time": 5}},
        {"normal": 2, "anomalous": 1},
        errors={"a": "gone"},
        n_scored=2,
        n_known=1,
    )
    assert Tally() + one == one
