"""The JSON lines sink: durable, cut back exactly, every failure one line."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from streamad.errors import CheckpointError, OutputError
from streamad.messages import Event, OutputRecord
from streamad.plugins import ConnectorContext
from streamad.ports import Owner
from streamad.testing import ManualClock
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions
from tests.support.files import file_size_limit

FULL_DISK = Path("/dev/full")


def event(text: str) -> OutputRecord:
    return OutputRecord("events", "s", Event(kind="k", message=text, created_at=datetime(2026, 1, 1, tzinfo=UTC)))


def line(text: str) -> bytes:
    fields = '"partition":null,"stream":null,"model":null,"figures":{},"created_at":"2026-01-01T00:00:00Z"'
    fields += ',"schema_version":2'
    return f'{{"type":"event","kind":"k","message":"{text}",{fields}}}\n'.encode()


def sink_at(path: str | Path, base: Path = Path("/")) -> JsonlSink:
    return JsonlSink(str(path), JsonlSinkOptions(), ConnectorContext((), ManualClock(), base))


async def test_one_line_each_in_a_new_folder(tmp_path: Path) -> None:
    sink = sink_at("deep/er/out.jsonl", tmp_path)
    assert await sink.position() == 0
    await sink.write([event("a"), event("b")])
    await sink.flush()
    assert (tmp_path / "deep/er/out.jsonl").read_bytes() == line("a") + line("b")
    assert await sink.position() == len(line("a") + line("b"))
    await sink.close()


async def test_large_writes_go_out_before_flush(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "out.jsonl")
    await sink.write([event("x" * 300_000)])
    assert (tmp_path / "out.jsonl").read_bytes() == line("x" * 300_000)
    await sink.close()


async def test_close_writes_the_buffer(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "out.jsonl")
    await sink.write([event("a")])
    await sink.close()
    assert (tmp_path / "out.jsonl").read_bytes() == line("a")


async def test_a_half_line_of_before_gets_its_end(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(b'{"half')
    sink = sink_at(tmp_path / "out.jsonl")
    await sink.write([event("a")])
    await sink.flush()
    assert (tmp_path / "out.jsonl").read_bytes() == b'{"half\n' + line("a")
    assert await sink.position() == 7 + len(line("a"))
    await sink.close()


@pytest.mark.parametrize(("shorter_by", "fits"), [(-1, False), (0, True), (1, True)])
async def test_truncate_at_the_very_end(shorter_by: int, fits: bool, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_bytes(line("a"))
    sink = sink_at(tmp_path / "out.jsonl")
    position = len(line("a")) - shorter_by
    if fits:
        await sink.truncate(position)
    else:
        with pytest.raises(CheckpointError, match=rf"has {len(line('a'))} bytes, the checkpoint says {position}"):
            await sink.truncate(position)
    await sink.close()
    assert len((tmp_path / "out.jsonl").read_bytes()) == min(position, len(line("a")))


@pytest.mark.skipif(not FULL_DISK.exists(), reason="no /dev/full on this system")
async def test_full_disk() -> None:
    sink = sink_at(FULL_DISK)
    await sink.write([event("a")])
    for attempt in (sink.flush, sink.close):
        with pytest.raises(OutputError, match="cannot write /dev/full: No space left on device; free disk space"):
            await attempt()


async def test_a_half_written_line_is_cut_back_and_written_later(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = sink_at(path)
    await sink.write([event("a")])
    await sink.flush()
    await sink.write([event("b")])
    too_large = pytest.raises(OutputError, match=r"out\.jsonl: File too large; .* try again")
    with file_size_limit(len(line("a")) + 10), too_large:
        await sink.flush()
    assert path.read_bytes() == line("a")
    await sink.flush()
    assert path.read_bytes() == line("a") + line("b")
    await sink.close()


async def test_a_folder_a_file_in_the_way_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder; name a file in it"):
        await sink_at(tmp_path).position()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="a file is in the way where a folder is needed"):
        await sink_at(tmp_path / "file" / "out.jsonl").position()
    with pytest.raises(OutputError, match=r"needs a path, for example file:alerts\.jsonl"):
        sink_at("")


async def test_no_permission(unprivileged_folder: Path) -> None:
    (unprivileged_folder / "locked").mkdir(mode=0o500)
    for path in ("locked/out.jsonl", "locked/deeper/out.jsonl"):
        with pytest.raises(OutputError, match=r"denied; user .* needs the right to write in .*locked$") as caught:
            await sink_at(unprivileged_folder / path).flush()
        assert "\n" not in str(caught.value)


async def test_two_sinks_on_one_file(tmp_path: Path) -> None:
    first, second = sink_at(tmp_path / "out.jsonl"), sink_at(tmp_path / "out.jsonl")
    await first.position()
    with pytest.raises(OutputError, match="another sink or process is writing to it; give every sink its own file"):
        await second.position()
    await first.close()
    assert await second.position() == 0
    await second.close()


@pytest.mark.parametrize("change", ["delete", "append", "cut"])
async def test_a_file_changed_by_somebody_else(change: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    sink = sink_at(path)
    await sink.write([event("a")])
    await sink.flush()
    if change == "delete":
        path.unlink()
    else:
        os.truncate(path, 3 if change == "cut" else 1000)
    with pytest.raises(OutputError, match="was deleted, moved or changed by somebody else"):
        await sink.flush()
    await sink.close()


async def test_writes_of_several_tasks_are_whole_lines(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "out.jsonl")

    async def write(name: str) -> None:
        for i in range(20):
            await sink.write([event(f"{name}{i}" + "x" * 20_000)])
            await sink.flush()

    await asyncio.gather(write("a"), write("b"), write("c"))
    await sink.close()
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines(keepends=True)
    assert sorted(lines) == sorted(line(f"{name}{i}" + "x" * 20_000) for name in "abc" for i in range(20))


async def test_a_file_in_a_folder_that_cannot_be_written_is_written_all_the_same(
    unprivileged_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (unprivileged_folder / "out").mkdir()
    (unprivileged_folder / "out/a.jsonl").touch()
    (unprivileged_folder / "out").chmod(0o555)
    sink = sink_at("out/a.jsonl", unprivileged_folder)
    await sink.claim(Owner("id", "/folder"))
    await sink.write([event("a")])
    await sink.flush()
    assert (unprivileged_folder / "out/a.jsonl").read_bytes() == line("a")
    assert await sink.owner() is None
    await sink.close()
    assert "allow its folder to be written" in capsys.readouterr().err
    (unprivileged_folder / "out").chmod(0o755)


async def test_the_owner_is_as_readable_as_the_output(tmp_path: Path) -> None:
    sink = sink_at(tmp_path / "a.jsonl")
    await sink.claim(Owner("id", "/folder"))
    await sink.write([event("a")])
    await sink.close()
    assert await sink_at(tmp_path / "a.jsonl").owner() == Owner("id", "/folder")
    assert (tmp_path / ".a.jsonl.owner").stat().st_mode == (tmp_path / "a.jsonl").stat().st_mode
