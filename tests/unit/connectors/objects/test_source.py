"""Objects give the records of the same files in a folder, and every failure is one line that names the URL."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import obstore
import pyarrow
import pytest
from pyarrow import parquet

from streamad.errors import ConfigError, SourceError
from streamad.objects.stores import open_bucket
from streamad.offline.files import file_of
from streamad.offline.units import units_of
from streamad.ports import PartitionedSource
from streamad.testing import check_source
from streamad_connectors.files.source import FileSource
from streamad_connectors.objects.source import ObjectSource
from tests.support.files import file_size_limit
from tests.support.object_sources import copies, files_in, opened, read_all
from tests.support.objects import Bucket
from tests.support.s3_stub import StubS3


@pytest.fixture(autouse=True)
def place_of_copies(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("tmp")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubS3]:
    with StubS3().serving() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def lines(n: int, first: int = 0) -> bytes:
    rows = ({"stream": "s", "sequence": str(i // 10), "number": i} for i in range(first, first + n))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def every_format(folder: Path) -> Path:
    """Write recordings of every format, some packed, below hive folders too, and what is no recording."""
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(lines(1300))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines(700)))
    (folder / "c 10 ä+%.csv").write_text("id,temp\n" + "".join(f"{i},{i / 7:.3f}\n" for i in range(600)))
    (folder / "c 9.csv").write_text("id,temp\n1,2\nbroken\n")
    (folder / "empty.csv").touch()
    (folder / "notes.txt").write_text("no recording")
    table = pyarrow.table({"id": [f"b{i}" for i in range(900)], "temp": np.arange(900) / 7})
    parquet.write_table(table, folder / "d.parquet", row_group_size=400)
    x = np.random.default_rng(0).normal(size=(8, 2, 300)).astype(np.float32)
    np.savez(folder / "e.npz", train_x=x, train_len=np.arange(8) * 15 + 1)
    for day in ("day=2026-03-01", "day=2026-03-02", "day=__HIVE_DEFAULT_PARTITION__"):
        (folder / "line=A%2FB" / day).mkdir(parents=True)
        parquet.write_table(table.slice(0, 5), folder / "line=A%2FB" / day / "part-0.parquet")
    (folder / "line=C").mkdir()
    (folder / "line=C" / "x.jsonl").write_bytes(b'{"a": 1}\n { }\n[1]\n{"line": "own"}\n')
    return folder


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_a_folder_of_objects_gives_what_the_files_give(files: str, stub: StubS3, tmp_path: Path) -> None:
    folder = every_format(tmp_path / "in")
    stub.objects = {f"plant/in/{name}": body for name, body in files_in(folder).items()}
    stub.objects["plant/in/"] = stub.objects["plant/in/sub/"] = b""  # marks of folders
    stub.objects["plant/inner.csv"] = b"temp\n1\n"
    local = await read_all(opened(str(folder), folder, files=files))
    objects = await read_all(opened("s3://bucket/plant/in", tmp_path, files=files))
    if files == "joined":
        assert list(objects.records) == ["s3://bucket/plant/in"]
        assert list(local.records.values()) == list(objects.records.values())
    else:
        assert local.all[:2] == objects.all[:2]
        assert local.records.keys() == objects.records.keys()
        assert all(local.cursors[name][0] == objects.cursors[name][0] for name in local.cursors)
    assert copies() == [] or not any(any(folder.iterdir()) for folder in copies())


async def test_the_law_of_sources(stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(1300), "in/b.jsonl.gz": gzip.compress(lines(600)), "in/empty.csv": b""}
    await check_source(lambda: opened("s3://bucket/in/", tmp_path))


@pytest.mark.parametrize(
    ("url", "partitions"),
    [
        ("s3://bucket/in/a.jsonl", ["a.jsonl"]),
        ("s3://bucket/in", ["a.jsonl", "b.jsonl"]),
        ("s3://bucket/in/", ["a.jsonl", "b.jsonl"]),
        ("s3://bucket/in/[b]*.jsonl", ["b.jsonl"]),
        ("s3://bucket/in/*/*.jsonl", ["deep/c.jsonl"]),
        ("s3://bucket/in/**/c.jsonl", ["deep/c.jsonl"]),
        ("s3://bucket", ["root.jsonl"]),
        ("s3://bucket/odd", ["q?s*.csv"]),
        ("s3://bucket/bare?format=jsonl", ["data"]),
    ],
)
async def test_what_a_url_names(url: str, partitions: list[str], stub: StubS3, tmp_path: Path) -> None:
    names = ["in/b.jsonl", "in/a.jsonl", "in/.hidden.jsonl", "in/deep/c.jsonl", "root.jsonl", "odd/q?s*.csv"]
    stub.objects = dict.fromkeys([*names, "bare/data"], b"{}\n")
    stub.objects |= {"bare/": b"", "bare/sub/": b""}
    assert list((await read_all(opened(url, tmp_path))).records) == partitions


async def test_hive_folders_are_fields_of_each_row(stub: StubS3, tmp_path: Path) -> None:
    folder = every_format(tmp_path / "in")
    rows = (await read_all(opened(str(folder), folder))).records
    first = msgspec.msgpack.decode(rows["line=A%2FB/day=2026-03-01/part-0.parquet"][0].value)
    assert first == {"line": "A/B", "day": "2026-03-01", "id": "b0", "temp": 0.0}
    without = msgspec.msgpack.decode(rows["line=A%2FB/day=__HIVE_DEFAULT_PARTITION__/part-0.parquet"][0].value)
    assert without["day"] is None
    as_json = [record.value for record in rows["line=C/x.jsonl"]]
    assert as_json == [b'{"line":"C","a": 1}', b'{"line":"C"}', b"[1]", b'{"line":"C","line": "own"}']
    stub.objects = {"line=7/x.csv": b"temp\n1\n"}
    (record,) = (await read_all(opened("s3://bucket/line=7/x.csv", tmp_path))).records["x.csv"]
    assert msgspec.msgpack.decode(record.value) == {"line": "7", "temp": 1}


# --- resuming ---


def gets(stub: StubS3) -> list[str]:
    """Return the keys that were read since the last call."""
    found = [path.removeprefix("/bucket/") for (method, path) in stub.requests if method == "GET" and path != "/bucket"]
    stub.requests.clear()
    return found


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_the_next_run_goes_on_and_copies_nothing_that_is_done(files: str, stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(20), "in/b.jsonl": lines(20, first=20)}

    def source() -> Any:
        return opened("s3://bucket/in", tmp_path, files=files)

    first = await read_all(source())
    assert gets(stub) == ["in/a.jsonl", "in/b.jsonl"]
    stub.objects["in/c.jsonl"] = lines(20, first=40)
    second = await read_all(source(), first.cursors)
    assert gets(stub) == (["in/c.jsonl"] if files == "separate" else ["in/b.jsonl", "in/c.jsonl"])
    read = [record.value for part in (first, second) for records in part.records.values() for record in records]
    assert b"\n".join(read) + b"\n" == lines(60)


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_an_object_that_was_replaced_between_two_runs(files: str, stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(20)}
    first = await read_all(opened("s3://bucket/in", tmp_path, files=files))
    stub.objects["in/a.jsonl"] = lines(30)  # as a file that grew
    second = await read_all(opened("s3://bucket/in", tmp_path, files=files), first.cursors)
    assert sum(map(len, second.records.values())) == 10
    stub.objects["in/a.jsonl"] = lines(30, first=7)
    with pytest.raises(SourceError, match=r"^s3://bucket/in/a.jsonl: no longer holds the records that were judged"):
        await read_all(opened("s3://bucket/in", tmp_path, files=files), second.cursors)


# --- parts ---


@pytest.mark.parametrize("url", ["s3://bucket/in", "s3://bucket/in/a.jsonl", "s3://bucket/in/*/*.jsonl"])
async def test_each_partition_can_be_read_alone_without_a_listing(url: str, stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(5), "in/b.jsonl": lines(7), "in/line=C/c.jsonl": lines(3)}
    source = opened(url, tmp_path)
    assert isinstance(source, PartitionedSource)
    whole, parts = (await read_all(opened(url, tmp_path))).records, source.partitions()
    assert list(parts) == list(whole)
    for name, content in parts.items():
        stub.requests.clear()
        alone = source.only(name)
        assert isinstance(alone, PartitionedSource)
        assert alone.partitions() == {name: content}
        assert (await read_all(alone)).records == {name: whole[name]}
        assert ("GET", "/bucket") not in stub.requests
    name, content = next(iter(parts.items()))
    stub.objects = dict.fromkeys(stub.objects, lines(9))
    changed = source.only(name)
    assert isinstance(changed, PartitionedSource)
    assert changed.partitions()[name].digest != content.digest
    stub.objects = {}
    with pytest.raises(SourceError, match="is gone since it was listed"):
        await read_all(source.only(name))
    stub.refusal = (403, "AccessDenied")
    with pytest.raises(SourceError, match=r"refuses access \(403\)"):
        await read_all(source.only(name))


async def test_objects_of_one_name_in_two_folders_are_different_parts(stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"2024/day=1/a.jsonl": lines(5), "2025/day=1/a.jsonl": lines(7)}
    urls = ("s3://bucket/2024", "s3://bucket/2025", "s3://bucket/2025/*/a.jsonl", "s3://bucket/2025/day=1/a.jsonl")
    found = [units_of(opened(url, tmp_path)) for url in urls]
    assert [unit.place.removeprefix("s3://bucket/") for (unit,) in found] == [
        "2024/day=1/a.jsonl",
        *["2025/day=1/a.jsonl"] * 3,
    ]
    files = [file_of(tmp_path, "verdicts", unit.partition, unit.place) for (unit,) in found]
    assert files[0] != files[1] == files[2]


async def test_joined_objects_are_one_part(stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(5), "in/b.jsonl": lines(7)}
    source = opened("s3://bucket/in", tmp_path, files="joined")
    assert isinstance(source, PartitionedSource)
    (name,) = source.partitions()
    assert (await read_all(source.only(name))).records == (await read_all(source)).records


# --- bad input ---


async def failing(url: str, tmp_path: Path, **options: Any) -> str:
    """Return the error of reading ``url``, which is one line without a path and without a secret."""
    with pytest.raises((SourceError, ConfigError)) as caught:
        await read_all(opened(url, tmp_path, **options))
    text = str(caught.value)
    assert isinstance(caught.value, ConfigError) or "\n" not in text
    for hidden in (str(tmp_path), "streamad-objects-", "verysecret", "AKIDEXAMPLE"):
        assert hidden not in text
    return text


@pytest.mark.parametrize(
    ("objects", "url", "says"),
    [
        ({}, "s3://bucket/in", "s3://bucket/in: no recordings here (looked for"),
        ({"in/": b""}, "s3://bucket/in/", "s3://bucket/in: no recordings here"),
        ({}, "s3://bucket/in/a.csv", "s3://bucket/in/a.csv: no recordings here"),
        ({}, "s3://bucket/in/*.csv", "s3://bucket/in/*.csv: no object matches this pattern"),
        ({"in/a/x.csv.gz": b"x"}, "s3://bucket/in", "but 1 lie deeper: write 's3://bucket/in/*/*.csv.gz'"),
        ({"in/a/../x.csv": b"x"}, "s3://bucket/in", "s3://bucket/in: no object may have the name 'in/a/../x.csv' here"),
        ({"in/a.xyz": b"x"}, "s3://bucket/in", "no recordings here"),
        ({"in/a.parquet": b"x"}, "s3://bucket/in", "s3://bucket/in/a.parquet: cannot be read as Parquet"),
        ({"in/a.csv.gz": b"x" * 99}, "s3://bucket/in", "s3://bucket/in/a.csv.gz: cannot be read (Not a gzipped file"),
        ({f"in/{'x' * 300}.csv": b"x"}, "s3://bucket/in", "has over 255 bytes"),
        ({}, "s3:///in", "names no bucket; write s3://BUCKET/FOLDER"),
    ],
)
async def test_what_is_no_recording(
    objects: dict[str, bytes], url: str, says: str, stub: StubS3, tmp_path: Path
) -> None:
    stub.objects = objects
    assert says in await failing(url, tmp_path)


@pytest.mark.parametrize(
    ("refusal", "says"),
    [
        ((403, "AccessDenied"), "the store refuses access (AccessDenied); check its rights"),
        ((404, "NoSuchBucket"), "there is no such bucket"),
        ((403, "RequestTimeTooSkewed"), "the machine's clock is wrong"),
    ],
)
@pytest.mark.parametrize("url", ["s3://bucket/in", "s3://bucket/in/a.csv"])
async def test_a_store_that_refuses(
    url: str, refusal: tuple[int, str], says: str, stub: StubS3, tmp_path: Path
) -> None:
    stub.refusal = refusal
    text = await failing(url, tmp_path)
    assert text.startswith(f"{url}: ")
    assert says in text


async def test_a_store_that_is_away(stub: StubS3, tmp_path: Path) -> None:
    source = opened("s3://bucket/in", tmp_path)
    stub.stop()
    with pytest.raises(SourceError, match=r"^s3://bucket/in: the store cannot be reached \(Connection refused\)"):
        await read_all(source)


async def test_an_object_is_replaced_after_the_listing(stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(5), "in/b.jsonl": lines(5)}

    def replace(key: str) -> None:
        stub.objects["in/b.jsonl"] = lines(6)

    stub.before_get = replace
    source = opened("s3://bucket/in", tmp_path)
    with pytest.raises(SourceError, match=r"^s3://bucket/in/b.jsonl: was replaced after it was listed; run again"):
        await read_all(source)
    stub.before_get = lambda key: stub.objects.pop("in/b.jsonl", None)
    assert await failing("s3://bucket/in", tmp_path) == (
        "s3://bucket/in/b.jsonl: is gone since it was listed; run again to read what is there"
    )


async def test_an_object_is_replaced_while_it_is_copied(stub: StubS3, tmp_path: Path) -> None:
    """The connection breaks, and the rest would be of another version."""
    stub.objects, stub.cut_at = {"in/a.jsonl": lines(5000)}, 1000
    stub.before_get = lambda key: stub.objects.update({"in/a.jsonl": lines(5000, first=int(stub.cut_at is None))})

    def replace(key: str) -> None:
        if len(gets(stub)) and stub.cut_at is not None:
            stub.before_get = other

    def other(key: str) -> None:
        stub.cut_at, stub.objects["in/a.jsonl"] = None, lines(5000, first=1)

    stub.before_get = replace
    assert "in/a.jsonl: " in await failing("s3://bucket/in", tmp_path)


async def test_etags_that_are_listed_without_quotes(stub: StubS3, tmp_path: Path) -> None:
    stub.objects, stub.lists_quotes = {"in/a.jsonl": lines(5)}, False
    assert len((await read_all(opened("s3://bucket/in", tmp_path))).records["a.jsonl"]) == 5


async def test_a_truncated_object_is_continued_and_at_last_refused(stub: StubS3, tmp_path: Path) -> None:
    stub.objects, stub.cut_at = {"in/a.jsonl": lines(2000)}, 40_000
    (records,) = (await read_all(opened("s3://bucket/in", tmp_path))).records.values()
    assert len(records) == 2000
    assert len(gets(stub)) > 1
    stub.cut_at = 10
    assert await failing("s3://bucket/in", tmp_path) == "s3://bucket/in/a.jsonl: the answer ended early; try again"


async def test_no_room_for_a_copy(stub: StubS3, tmp_path: Path, place_of_copies: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(5000)}
    with file_size_limit(10_000):
        text = await failing("s3://bucket/in", tmp_path)
    assert text == (
        f"s3://bucket/in/a.jsonl: no room for its copy of {len(lines(5000)) / 1e6:.1f} MB in {place_of_copies}; "
        "free some, or set TMPDIR to another"
    )
    assert set(files_in(place_of_copies).values()) <= {b""}  # the lock


def test_what_a_killed_process_left_is_removed(stub: StubS3, tmp_path: Path, place_of_copies: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(5)}
    code = (
        "import os, signal, sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from streamad.objects.stores import Bucket\n"
        "from streamad_connectors.objects.copies import Copies\n"
        "copies = Copies(Bucket('s3://b', None)); (copies.folder / 'a').write_text('left')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(place_of_copies)], check=False)
    assert b"left" in files_in(place_of_copies).values()
    asyncio.run(read_all(opened("s3://bucket/in", tmp_path)))
    assert b"left" not in files_in(place_of_copies).values()


async def test_copies_of_a_process_that_runs_stay(place_of_copies: Path, stub: StubS3, tmp_path: Path) -> None:
    stub.objects = {"in/a.jsonl": lines(3000), "in/b.jsonl": lines(5), "in/c.jsonl": lines(5)}
    running = opened("s3://bucket/in", tmp_path)
    events = running.batches()
    await running.seek((await anext(events)).partition, None)  # type: ignore[union-attr]
    await anext(events)
    assert len(files_in(place_of_copies)) <= 3  # the lock, what is read, one ahead
    await read_all(opened("s3://bucket/in", tmp_path))
    assert any(name.endswith("a.jsonl") for name in files_in(place_of_copies))
    await events.aclose()  # type: ignore[attr-defined]
    assert not any(name.endswith(".jsonl") for name in files_in(place_of_copies))


async def test_a_stop_ends_a_copy_that_is_made(stub: StubS3, tmp_path: Path) -> None:
    """The store has sent half of the object, and the rest comes only after the reader was told to stop."""
    stub.objects = {"in/a.jsonl": lines(60_000)}
    source = opened("s3://bucket/in", tmp_path)
    stub.before_rest = threading.Event()
    events = source.batches()
    await source.seek((await anext(events)).partition, None)  # type: ignore[union-attr]
    reading = asyncio.ensure_future(anext(events, None))
    await asyncio.to_thread(stub.is_half_sent.wait)
    await source.close()
    stub.before_rest.set()
    with pytest.raises(SourceError, match=r"in/a.jsonl: reading it was interrupted; the next run goes on"):
        await reading
    assert copies() == [] or not any(files_in(folder) for folder in copies())


async def test_labels_are_read_before_and_after_the_records(stub: StubS3, tmp_path: Path) -> None:
    folder = every_format(tmp_path / "in")
    stub.objects = {"e.npz": (folder / "e.npz").read_bytes()}
    source = opened("s3://bucket", tmp_path)
    assert isinstance(source, ObjectSource)
    assert source.labels() == {}
    await read_all(source)
    assert source.labels() == {}
    assert source.channel_names() is None


async def test_follow_is_refused(stub: StubS3, tmp_path: Path) -> None:
    assert "follow is for files of this machine" in await failing("s3://bucket/in", tmp_path, follow=True)


def test_100_000_objects_are_listed_in_pages(stub: StubS3, tmp_path: Path) -> None:
    """Measured alone: 4 s with the stub's share, 109 MB."""
    stub.objects = dict.fromkeys((f"in/day={i // 1000}/line-{i}.csv" for i in range(100_000)), b"x")
    source = opened("s3://bucket/in", tmp_path)
    assert isinstance(source, ObjectSource)
    assert len(source.files()) == 100_000
    assert len(stub.requests) == 100


# --- web servers ---


async def test_a_file_of_a_web_server(stub: StubS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.objects = {"in/a b.jsonl": lines(5)}
    url = stub.url.replace("https", "http") + "/web/in/a%20b.jsonl"
    assert list((await read_all(opened(url, tmp_path))).records) == ["a b.jsonl"]
    monkeypatch.setenv("SIGNED", "X-Amz-Signature=verysecret&part=verysecret")
    await read_all(opened(url, tmp_path, query={"env": "SIGNED"}))
    assert stub.queries[-1] == os.environ["SIGNED"]
    stub.gives_etags = False
    await read_all(opened(url, tmp_path, query={"env": "SIGNED"}))
    stub.refusal = (403, "AccessDenied")
    assert "check its rights, and source.options.query or" in await failing(url, tmp_path, query={"env": "SIGNED"})
    signed = await failing(f"{url}?X-Amz-Signature=verysecret", tmp_path)
    assert "the URL holds the secret X-Amz-Signature: name its variable or file in source.options.query" in signed
    keyed = await failing("s3://AKIDEXAMPLE:verysecret@bucket/in", tmp_path)
    assert "the URL holds a password: leave it out: credentials come from the environment's variables" in keyed
    assert "holds the secret sig" in await failing(url, tmp_path, query="sig=verysecret")
    assert "SIGNET is not set" in await failing(url, tmp_path, query={"env": "SIGNET"})
    assert "name one file" in await failing(stub.url, tmp_path)


async def test_a_secret_goes_to_no_web_server_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "Bearer verysecret")
    text = await failing("http://plant.example/a.csv", tmp_path, authorization={"env": "TOKEN"})
    assert "source.options.authorization: is secret, and http:// sends it openly: use https" in text


async def test_an_answer_that_is_longer_than_it_says_does_not_fill_the_disk(tmp_path: Path) -> None:
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "9")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(OSError):
                for _ in range(64):
                    self.wfile.write(b"100000\r\n" + b"temp\n1\n" * (1 << 17) + b"\r\n")

        def log_message(self, *_: object) -> None:
            pass

        protocol_version = "HTTP/1.1"

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        text = await failing(f"http://127.0.0.1:{server.server_port}/in/a.csv", tmp_path)
    finally:
        server.shutdown()
        server.server_close()
    assert "the answer has more than the 9 bytes that it names" in text


def test_local_files_have_no_tag(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("temp\n1\n")
    source = opened("a.csv", tmp_path)
    assert isinstance(source, FileSource)
    assert [(file.tag, file.size) for file in source.files()] == [("", 7)]


# --- another implementation of S3 ---


@pytest.mark.parametrize("files", ["separate", "joined"])
async def test_the_same_from_moto(files: str, bucket: Bucket, tmp_path: Path) -> None:
    folder = every_format(tmp_path / "in")
    store = open_bucket(bucket.url).store
    for name, body in files_in(folder).items():
        obstore.put(store, f"plant/in/{name}", body)
    local = await read_all(opened(str(folder), folder, files=files))
    objects = await read_all(opened(f"{bucket.url}/plant/in", tmp_path, files=files))
    assert list(local.records.values()) == list(objects.records.values())
    again = await read_all(opened(f"{bucket.url}/plant/in", tmp_path, files=files), objects.cursors)
    assert not any(again.records.values())
    source = opened(f"{bucket.url}/plant/in", tmp_path, files=files)
    assert isinstance(source, ObjectSource)
    source.files()
    obstore.put(store, "plant/in/a.jsonl", lines(3))
    with pytest.raises(SourceError, match=r"/plant/in/a.jsonl: was replaced after it was listed"):
        await read_all(source)
    assert "there is no such bucket" in await failing(f"{bucket.url}-none/in", tmp_path)
