"""Every source that comes with streamad obeys the law of the Source port."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from streamad.plugins import ConnectorContext, connect_source
from streamad.ports import LabelledSource, NamedChannels, Source
from streamad.testing import ListSource, ManualClock, check_source
from streamad.types import ChannelSpec, PartitionAssigned, PartitionEnded, Record, RecordBatch
from streamad_connectors import memory

N_ROWS = 1300  # several batches of 512 records


def lines(n: int) -> bytes:
    return b"".join(
        json.dumps({"number": i, "text": "µ" * (i % 7)}).encode() + b"\n\r\n"[: 1 + i % 3] for i in range(n)
    )


def write_jsonl(folder: Path) -> str:
    (folder / "a.jsonl").write_bytes(lines(N_ROWS))
    return "a.jsonl"


def write_gz(folder: Path) -> str:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines(N_ROWS)))
    return "a.jsonl.gz"


def write_csv(folder: Path) -> str:
    rows = [f'{i},{i / 7:.3f},"two\nlines, {i}"' if i % 5 else f"{i},broken" for i in range(N_ROWS)]
    (folder / "a.csv").write_text("\n".join(["id,temp,note", *rows]))
    return "a.csv"


def write_parquet(folder: Path) -> str:
    table = pyarrow.table({"id": [f"b{i}" for i in range(N_ROWS)], "temp": np.arange(N_ROWS) / 7})
    parquet.write_table(table, folder / "a.parquet", row_group_size=400)
    return "a.parquet"


def write_npz(folder: Path) -> str:
    x = np.random.default_rng(0).normal(size=(40, 2, 600)).astype(np.float32)
    lengths = np.arange(40) * 15 + 1
    np.savez(folder / "a.npz", train_x=x[:20], train_len=lengths[:20], test_x=x[20:], test_len=lengths[20:])
    return "a.npz"


def write_folder(folder: Path) -> str:
    (folder / "mixed").mkdir()
    for write in (write_csv, write_jsonl, write_npz):
        write(folder / "mixed")
    (folder / "mixed" / "empty.jsonl").touch()
    (folder / "mixed" / "README.md").write_text("no recording")
    return "mixed"


WRITERS = [write_jsonl, write_gz, write_csv, write_parquet, write_npz, write_folder]


@pytest.fixture
def context(tmp_path: Path) -> ConnectorContext:
    return ConnectorContext((ChannelSpec("temp"), ChannelSpec("flow")), ManualClock(), tmp_path)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.removeprefix("write_"))
async def test_file_source(write: Callable[[Path], str], tmp_path: Path, context: ConnectorContext) -> None:
    url = write(tmp_path)
    await check_source(lambda: connect_source(url, {}, context))


async def test_joined_files(tmp_path: Path, context: ConnectorContext) -> None:
    url = write_folder(tmp_path)
    await check_source(lambda: connect_source(url, {"files": "joined"}, context))


def write_rotated(folder: Path) -> str:
    """A log of three generations, the oldest of which was rotated first."""
    for number, name in enumerate(("app.jsonl.2", "app.jsonl.1", "app.jsonl")):
        (folder / name).write_bytes(lines(N_ROWS // (number + 1)))
        os.utime(folder / name, (1000 + number, 1000 + number))
    return "app.jsonl*"


def write_logs(folder: Path) -> str:
    (folder / "logs").mkdir()
    for write in (write_csv, write_jsonl, write_rotated):
        write(folder / "logs")
    return "logs"


@pytest.mark.parametrize("files", ["separate", "joined"])
@pytest.mark.parametrize("write", [write_jsonl, write_csv, write_rotated, write_logs])
async def test_followed_files(
    write: Callable[[Path], str], files: str, tmp_path: Path, context: ConnectorContext
) -> None:
    url = write(tmp_path)
    options = {"follow": True, "follow_interval": "1ms", "files": files}
    await check_source(lambda: connect_source(url, options, context))


@pytest.fixture
def memory_name() -> Iterator[str]:
    yield "contract"
    memory.clear("contract")


async def test_memory_source(memory_name: str, context: ConnectorContext) -> None:
    memory.put_records(memory_name, [f"{i}".encode() for i in range(1200)])
    memory.put_records(memory_name, [Record(10, b"x"), Record(20, b"y")], partition="sparse")
    await check_source(lambda: connect_source(f"memory:{memory_name}", {}, context))


async def test_endless_list_source() -> None:
    def make() -> ListSource:
        batches = [RecordBatch("p", (Record(i, b"x"),), i + 1, caught_up=i == 4) for i in range(5)]
        return ListSource([PartitionAssigned("p"), *batches], endless=True)

    await check_source(make)


def test_sources_implement_the_ports(context: ConnectorContext) -> None:
    assert isinstance(connect_source("x.npz", {}, context), Source)
    assert isinstance(connect_source("x.npz", {}, context), LabelledSource)
    assert isinstance(connect_source("x.npz", {}, context), NamedChannels)
    assert isinstance(connect_source("memory:x", {}, context), Source)
    assert isinstance(ListSource([PartitionEnded("p")]), Source)
