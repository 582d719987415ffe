"""Finding files, partitions, seeking, and the texts of errors."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from streamad.errors import ConfigError, SourceError
from streamad.ports import SizedSource
from streamad.types import PartitionAssigned, PartitionEnded, RecordBatch
from tests.support.files import read, read_one, read_source, source


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


async def test_a_folder_gives_its_recordings_sorted_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path / "in" / "b.ndjson", "{}")
    write(tmp_path / "in" / "A.csv", "id,temp", "x,1.5")
    write(tmp_path / "in" / "README.md", "no recording")
    write(tmp_path / "in" / ".hidden.jsonl", "{}")
    write(tmp_path / "in" / "deeper" / "c.jsonl", "{}")
    assert list(await read("in", tmp_path)) == ["in/A.csv", "in/b.ndjson"]
    assert list(await read("in/**/*.jsonl", tmp_path)) == ["in/deeper/c.jsonl"]


async def test_patterns(tmp_path: Path) -> None:
    for name in ("r10", "r2", "s1"):
        write(tmp_path / f"{name}.jsonl", "{}")
    assert list(await read("r*.jsonl", tmp_path)) == ["r10.jsonl", "r2.jsonl"]
    assert list(await read("[rs]?.jsonl", tmp_path)) == ["r2.jsonl", "s1.jsonl"]
    write(tmp_path / "odd[1].jsonl", "{}")
    assert list(await read("odd[1].jsonl", tmp_path)) == ["odd[1].jsonl"]


async def test_a_partition_outside_the_folder_has_its_absolute_path(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside.jsonl", "{}")
    (tmp_path / "plant").mkdir()
    assert list(await read("../outside.jsonl", tmp_path / "plant")) == [outside.as_posix()]
    assert list(await read(f"file://{outside}", tmp_path / "plant")) == [outside.as_posix()]
    assert list(await read(outside, tmp_path)) == ["outside.jsonl"]


async def test_the_format_can_be_given(tmp_path: Path) -> None:
    write(tmp_path / "log.txt", "{}", "{}")
    assert len(await read_one("log.txt?format=ndjson", tmp_path)) == 2
    write(tmp_path / "table.txt", "a;b", "1;2")
    for name, found in (("log.txt", "jsonl"), ("table.txt", "csv")):
        with pytest.raises(SourceError, match=rf"{name}: the file's ending names no .* write \?format={found} behind"):
            await read(name, tmp_path)


async def test_a_grown_file_and_a_new_file_are_continued(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", "1", "2")
    after = path.stat().st_size
    write(tmp_path / "a.jsonl", "1", "2", "3")
    assert [record.value for record in await read_one("a.jsonl", tmp_path, begin=after)] == [b"3"]
    write(tmp_path / "b.jsonl", "9")
    assert list(await read("*.jsonl", tmp_path)) == ["a.jsonl", "b.jsonl"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", b"1\n2\n"), ("a.csv", b"id,v\nx,1\n")],
)
async def test_a_file_cut_since_the_last_run(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=r"has only \d+ .*, but reading resumes at 99: it was replaced or cut"):
        await read(name, tmp_path, begin=99)


async def test_an_ended_partition_can_be_sought_again(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "1", "2")
    opened = source("a.jsonl", tmp_path)
    seen: list[bytes] = []
    ends = 0
    async for event in opened.batches():
        if isinstance(event, RecordBatch):
            seen.extend(record.value for record in event.records)
            continue
        ends += not isinstance(event, PartitionAssigned)
        if ends < 2:
            await opened.seek("a.jsonl", 2 * ends)
    assert (seen, ends) == ([b"1", b"2", b"2"], 2)


async def test_cancelled_while_reading_leaves_nothing_open(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", *["x" * 100] * 20_000)
    opened = source("a.jsonl", tmp_path)
    events = cast("Any", opened.batches())
    await anext(events)
    await opened.seek("a.jsonl", None)
    task = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await events.aclose()  # would raise "generator already executing" had the thread not left


async def test_close_ends_the_iterator_without_claiming_the_end(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "1")
    opened = source("a.jsonl", tmp_path)
    events = cast("Any", opened.batches())
    await anext(events)
    await opened.close()
    assert [event async for event in events] == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet", "a.npz"])
async def test_missing_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file or folder; check the path in the config") as caught:
        await read(name, tmp_path)
    assert "\n" not in str(caught.value)
    assert "relative paths begin at the config's folder" in str(caught.value)


async def test_the_error_for_a_missing_absolute_path_does_not_mention_the_config(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"/gone\.csv: no such file or folder; check the path$"):
        await read(str(tmp_path / "gone.csv"), tmp_path)


async def test_urls_without_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for url, text in [
        ("empty", "no recordings in this folder"),
        ("x*.csv", "no file matches this pattern"),
        ("file:", "needs a path, a folder or a pattern"),
        ("/dev/null", "neither a file nor a folder"),
    ]:
        with pytest.raises(SourceError, match=text):
            await read(url, tmp_path)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet", "a.npz"])
async def test_no_permission(name: str, unprivileged_folder: Path) -> None:
    (unprivileged_folder / name).touch(mode=0o000)
    with pytest.raises(SourceError, match=r"needs the right to read "):
        await read(name, unprivileged_folder)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.parquet", "a.npz"])
async def test_damaged_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08 this is no such file")
    with pytest.raises(SourceError) as caught:
        await read(name, tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "b.tsv"])
async def test_empty_text_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    assert await read(name, tmp_path) == {name: []}


async def test_options_of_other_formats_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "1")
    with pytest.raises(SourceError, match=r"option 'split' is for npz files only"):
        await read("a.jsonl?split=train", tmp_path)
    with pytest.raises(ConfigError, match=r"source\.options\.perod: unknown key 'perod'; did you mean 'period'\?"):
        await read("a.jsonl?perod=3", tmp_path)


async def test_two_files_may_not_be_one_stream(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "press.npz", x=np.zeros((1, 1, 1)))
    with pytest.raises(SourceError, match=r"would both be stream 'press'; rename one"):
        await read("*/press.npz", tmp_path)


async def test_joined_files_are_one_partition_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        write(tmp_path / "in" / f"day-{number}.jsonl", f"{number}")
    records = await read_one("in/day-*.jsonl", tmp_path, files="joined")
    assert [record.value for record in records] == [b"1", b"9", b"10"]
    assert [record.offset for record in records] == [0, 2**40, 2**41]
    assert list(await read("in", tmp_path, files="joined")) == ["in"]


async def test_an_order_needs_joined_files(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "1")
    with pytest.raises(SourceError, match=r"option 'order' is for files: joined only; leave it out"):
        await read("a.jsonl", tmp_path, order="time")


@pytest.mark.parametrize(
    ("options", "holds_open"),
    [
        ({}, False),
        ({"files": "joined"}, True),
        ({"files": "joined", "at_end": "judge"}, False),
        ({"at_end": "hold"}, True),
    ],
)
async def test_whether_the_end_holds_open_sequences(options: dict[str, str], holds_open: bool, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "1")
    opened = source("a.jsonl", tmp_path, **options)
    ends = []
    for one in (opened, opened.between(None, None)):  # replay reads between limits
        async for event in one.batches():
            if isinstance(event, PartitionAssigned):
                await one.seek(event.partition, None)
            elif isinstance(event, PartitionEnded):
                ends.append(event.holds_open)
    assert ends == [holds_open, options.get("at_end") == "hold"]


@pytest.mark.parametrize("options", [{}, {"files": "joined"}])
def test_a_name_that_is_not_utf8_is_refused_by_its_name(tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "a\udcff.jsonl").write_bytes(b"{}\n")
    with pytest.raises(SourceError, match=r"a\\udcff\.jsonl': its name is not UTF-8"):
        source("*.jsonl", tmp_path, **options).files()


@pytest.mark.parametrize("path", ["~nobody-of-this-name/a.csv", "~nobody-of-this-name"])
async def test_a_path_of_an_unknown_user(path: str, tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"nobody-of-this-name.*: there is no user of this name; write the path in full"
    ):
        await read_one(path, tmp_path)


@pytest.mark.parametrize("path", ["a\0.csv", "a\udc80.csv", "a" * 5_000, "\0*"])
async def test_a_path_that_no_file_can_have(path: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        await read_one(path, tmp_path)


async def shares(url: str, folder: Path) -> list[float | None]:
    """Return the share that was read after each batch with records, and at the end."""
    made = cast(SizedSource, source(url, folder))
    found = []
    async for event in made.batches():
        if isinstance(event, PartitionAssigned):
            await made.seek(event.partition, None)
        elif isinstance(event, RecordBatch) and event.records:
            found.append(made.share_read())
    await made.close()
    return [*found, made.share_read()]


@pytest.mark.parametrize("url", ["in", "in?files=joined"])
async def test_the_share_that_was_read_grows_to_one(url: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "in" / f"{name}.jsonl", *(f'{{"x": "{"0" * 1_000}"}}' for _ in range(2_000)))
    found = await shares(url, tmp_path)
    assert len(found) > 4
    assert found == sorted(found)
    assert 0 < found[0] < 0.5
    assert found[-1] == 1.0


async def test_the_share_of_packed_files_grows_by_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        path = tmp_path / "in" / f"{name}.jsonl.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(b"{}\n" * 10))
    assert await shares("in", tmp_path) == [0.0, 0.5, 1.0]


async def test_a_file_that_is_followed_has_no_share(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", "{}")
    assert source("a.jsonl", tmp_path).share_read() == 0.0
    assert source("a.jsonl?follow=true", tmp_path).share_read() is None


@pytest.mark.parametrize("options", [{}, {"files": "joined"}])
async def test_each_partition_alone_has_the_records_that_it_has_among_the_others(
    options: dict[str, str], tmp_path: Path
) -> None:
    for name in ("a.jsonl", "b 2.jsonl", "~c.jsonl"):
        write(tmp_path / name, f"{name}1\n{name}2")
    whole = source("*.jsonl", tmp_path, **options)
    alone = [await read_source(whole.only(name)) for name in whole.partitions()]
    assert {name: records for each in alone for name, records in each.items()} == await read_source(whole)
    assert len(alone) == (1 if options else 3)


def test_the_digest_of_a_partition_changes_with_its_file_and_with_no_other(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, "1")
    before = source("*.jsonl", tmp_path).partitions()
    joined = source("*.jsonl", tmp_path, files="joined").partitions()
    write(tmp_path / "b.jsonl", "12")
    after = source("*.jsonl", tmp_path).partitions()
    assert before["a.jsonl"] == after["a.jsonl"]
    assert before["b.jsonl"].digest != after["b.jsonl"].digest
    assert after["b.jsonl"].n_bytes == before["b.jsonl"].n_bytes + 1
    assert source("*.jsonl", tmp_path, files="joined").partitions() != joined
