"""An output in several files: one stream of lines for its readers and its checkpoint, whatever is cut or deleted."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import CheckpointError, OutputError, SourceError
from streamad.messages import Event, OutputRecord
from streamad.plugins import ConnectorContext, connect_sink
from streamad.ports import Owner, StoredMessage
from streamad.system.files import write_atomically
from streamad.system.output_files import end_of_output, output_files
from streamad.system.saved_progress import CommitFile
from streamad.testing import ManualClock
from streamad_connectors.files.sink import JsonlSink
from streamad_connectors.files.subscription import FileSubscription, FileSubscriptionOptions

SINK = "windows.jsonl"
NOW_US = 1_600_000_000_000_000  # before the real time, so that files just written are young
DAY_US = 86_400_000_000


def context_in(folder: Path) -> ConnectorContext:
    return ConnectorContext((), ManualClock(NOW_US), base_dir=folder)


def record(text: str) -> OutputRecord:
    return OutputRecord("windows", "s", Event(kind="k", message=text, created_at=datetime(2026, 1, 1, tzinfo=UTC)))


class Worker:
    """Writes and commits as a worker does, and begins again after a kill: cut back to the newest commit."""

    def __init__(self, folder: Path, rotate: int | None) -> None:
        self.folder, self._rotate = folder, rotate
        (folder / "checkpoint").mkdir()
        self.sink = self._begun()
        self.committed: list[str] = []
        self.uncommitted: list[str] = []
        self._length = self._number = 0

    def _begun(self) -> JsonlSink:
        return cast("JsonlSink", connect_sink(f"file:{SINK}", {"rotate": self._rotate}, context_in(self.folder)))

    async def write(self, *texts: str) -> None:
        await self.sink.write([record(text) for text in texts])
        await self.sink.flush()
        self.uncommitted += texts

    async def commit(self) -> None:
        self._length, self._number = await self.sink.position(), self._number + 1
        content = msgspec.json.encode(CommitFile(number=self._number, outputs={SINK: self._length}))
        write_atomically(self.folder / "checkpoint" / "p0.json", content, is_state=True)
        self.committed += self.uncommitted
        self.uncommitted.clear()

    async def begin_again(self) -> None:
        await self.sink.close()
        self.sink = self._begun()
        await self.sink.truncate(self._length)
        self.uncommitted.clear()


class Learner:
    """Reads what is committed with a group, holds it, and has files deleted that are old and read."""

    def __init__(self, folder: Path, **options: Any) -> None:
        given = {"group": "learner", "checkpoint": "checkpoint", "sink": SINK, "poll": "1ms", "warn_missing": False}
        model = FileSubscriptionOptions.model_validate({**given, "keep": "1d", **options})
        self.subscription = FileSubscription(SINK, model, context_in(folder))
        self.subscription.hold()
        self._messages: AsyncIterator[StoredMessage] = self.subscription.messages()
        self.held: list[str] = []
        self.problems: list[str] = []
        self.released: list[str] = []

    async def read_present(self) -> None:
        self.subscription.end_with_present()
        async for message in self._messages:
            self.problems += [] if message.problem is None else [message.problem]
            self.held.append("" if message.problem else msgspec.json.decode(message.value)["message"])

    def release(self, n: int) -> None:
        self.subscription.release(n)
        self.released += self.held[:n]
        del self.held[:n]

    async def end(self) -> list[str]:
        await cast("Any", self._messages).aclose()
        await self.subscription.close()
        return self.released


def make_old(folder: Path) -> None:
    for file in output_files(folder / SINK):
        os.utime(file.path, ns=(0, (NOW_US - 2 * DAY_US) * 1_000))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["commit", "kill", "age"]), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 9)),
    ),
    max_size=30,
)


@given(steps=STEPS, rotate=st.sampled_from([1, 200, 500]))
@settings(deadline=None)
def test_each_committed_line_is_released_in_order_and_no_other_is_seen(
    steps: list[tuple[str, int]], rotate: int
) -> None:
    """Law: kills, cuts and deleted files lose and repeat no committed line for a group that releases what it stored."""

    async def run(folder: Path) -> None:
        worker, released, n_written = Worker(folder, rotate), list[str](), 0
        for step, n in [*steps, ("commit", 0), ("read", 10**9)]:
            if step == "write":
                await worker.write(*(str(n_written + i) for i in range(n)))
                n_written += n
            elif step == "commit":
                await worker.commit()
            elif step == "kill":
                await worker.begin_again()
            elif step == "age":
                make_old(folder)
            else:
                learner = Learner(folder)
                await learner.read_present()
                assert released + learner.held == worker.committed
                learner.release(min(n, len(learner.held)))
                released += await learner.end()
                assert not learner.problems
        assert released == worker.committed
        assert end_of_output(folder / SINK) == await worker.sink.position()
        await worker.sink.close()

    with tempfile.TemporaryDirectory() as name:
        asyncio.run(run(Path(name)))


async def test_files_that_are_old_and_read_are_deleted_and_no_others(tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    for text in ("a", "b", "c"):
        await worker.write(text)
    await worker.commit()
    starts = [file.start for file in output_files(tmp_path / SINK)]
    assert len(starts) == 4
    learner = Learner(tmp_path)
    await learner.read_present()
    learner.release(2)
    await learner.end()
    assert [file.start for file in output_files(tmp_path / SINK)] == starts  # young
    make_old(tmp_path)
    learner = Learner(tmp_path)
    await learner.read_present()
    assert learner.held == ["c"]
    learner.release(0)
    await learner.end()
    assert [file.start for file in output_files(tmp_path / SINK)] == starts[2:]  # "c" is not stored yet
    await worker.begin_again()
    await worker.write("d")
    await worker.commit()
    learner = Learner(tmp_path)
    await learner.read_present()
    assert (learner.held, learner.problems) == (["c", "d"], [])
    await learner.end()
    await worker.sink.close()


@pytest.mark.parametrize("reader", ["saved position", "from the beginning"])
async def test_a_file_that_somebody_deleted_is_said_if_it_was_to_be_read(reader: str, tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    await worker.write("a")
    await worker.commit()
    if reader == "saved position":
        learner = Learner(tmp_path, keep=None)
        await learner.read_present()
        learner.release(1)
        await learner.end()
    for text in ("b", "c"):
        await worker.write(text)
    await worker.commit()
    files = output_files(tmp_path / SINK)
    for file in files[:2]:
        file.path.unlink()
    learner = Learner(tmp_path)
    await learner.read_present()
    if reader == "saved position":
        assert learner.held == ["", "c"]
        assert learner.problems == [
            f"{files[2].start - files[1].start} bytes before {files[2].path} were deleted before they were read"
        ]
    else:
        assert (learner.held, learner.problems) == (["c"], [])
    await learner.end()
    await worker.sink.close()


async def test_a_file_deleted_amid_others_is_said(tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    for text in ("a", "b", "c"):
        await worker.write(text)
    await worker.commit()
    output_files(tmp_path / SINK)[1].path.unlink()
    learner = Learner(tmp_path)
    await learner.read_present()
    assert learner.held == ["a", "", "c"]
    assert len(learner.problems) == 1
    await learner.end()
    await worker.sink.close()


async def test_a_checkpoint_before_what_is_left_is_refused(tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    await worker.write("a")
    await worker.write("b")
    output_files(tmp_path / SINK)[0].path.unlink()
    with pytest.raises(CheckpointError, match=r"says 0 bytes, but all before \d+ were deleted"):
        await worker.begin_again()
    await worker.sink.close()


async def test_the_owner_stays_known_when_the_first_file_is_gone(tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    await worker.write("a")
    await worker.sink.claim(Owner("id", "folder"))
    await worker.write("b")
    await worker.write("c")
    for file in output_files(tmp_path / SINK)[:-1]:
        file.path.unlink()
    assert await worker.sink.owner() is None  # what is left is empty
    await worker.write("d")
    assert await worker.sink.owner() == Owner("id", "folder")
    await worker.sink.close()


async def test_only_one_sink_writes_and_later_files_are_as_readable_as_the_first(tmp_path: Path) -> None:
    worker = Worker(tmp_path, rotate=1)
    await worker.sink.position()
    (tmp_path / SINK).chmod(0o640)
    await worker.write("a")
    assert {file.path.stat().st_mode & 0o777 for file in output_files(tmp_path / SINK)} == {0o640}
    other = connect_sink(f"file:{SINK}", {}, context_in(tmp_path))
    with pytest.raises(OutputError, match="another sink or process is writing to it"):
        await other.flush()
    await worker.sink.close()
    await other.write([record("b")])
    await other.flush()  # without ``rotate`` it goes on with the last file
    assert len(output_files(tmp_path / SINK)) == 2
    await other.close()


async def test_without_a_right_to_begin_another_file_the_present_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = Worker(tmp_path, rotate=1)
    await worker.sink.position()
    monkeypatch.setattr(os, "open", _refusing_new(os.open))
    await worker.write("a")
    await worker.write("b")
    assert [file.start for file in output_files(tmp_path / SINK)] == [0]
    assert capsys.readouterr().err.count("no other file can be begun") == 1
    await worker.sink.close()


async def test_a_file_whose_rights_cannot_be_set_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network drive: a reader would wait at it for what the present one grows by."""
    worker = Worker(tmp_path, rotate=1)
    await worker.sink.position()
    monkeypatch.setattr(os, "fchmod", _refused)
    await worker.write("a")
    await worker.write("b")
    assert [file.start for file in output_files(tmp_path / SINK)] == [0]
    await worker.sink.close()


def _refused(_descriptor: int, _mode: int) -> None:
    raise PermissionError(1, "Operation not permitted")


def _refusing_new(real: Any) -> Any:
    def refusing(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT and not os.path.lexists(path):
            raise PermissionError(13, "Permission denied", str(path))
        return cast("int", real(path, flags, *more, **named))

    return refusing


FOREIGN = msgspec.json.encode(record("foreign").message) + b"\n"


def put(folder: Path, offset: int, kind: str) -> Path:
    """Put what is no file of the output where its file from ``offset`` on would lie."""
    path = folder / f"{SINK}.{offset:020d}"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "dead link":
        path.symlink_to(folder / "nothing")
    elif kind == "link":
        (folder / "another's").write_bytes(FOREIGN)
        path.symlink_to(folder / "another's")
    else:
        path.write_bytes(FOREIGN * (100 if kind == "large file" else 1))
    return path


async def written(folder: Path, rotate: int | None) -> Worker:
    worker = Worker(folder, rotate)
    for number in range(6):
        await worker.write(str(number))
        await worker.commit()
    return worker


@pytest.mark.parametrize("rotate", [1, 300, None])
@pytest.mark.parametrize("offset", [0, 123, 100_000, 10**20 - 1])
@pytest.mark.parametrize("kind", ["fifo", "folder", "dead link"])
async def test_what_is_no_file_is_none_of_the_output(
    kind: str, offset: int, rotate: int | None, tmp_path: Path
) -> None:
    worker = await written(tmp_path, rotate)
    put(tmp_path, offset, kind)
    await worker.write("6")
    await worker.commit()
    await worker.begin_again()
    await worker.write("7")
    await worker.commit()
    learner = Learner(tmp_path)
    await learner.read_present()
    assert (learner.held, learner.problems) == (worker.committed, [])
    await learner.end()
    await worker.sink.close()


@pytest.mark.parametrize("rotate", [300, None])
@pytest.mark.parametrize("kind", ["file", "large file", "link"])
async def test_a_file_that_begins_amid_another_is_refused_and_nothing_is_lost(
    kind: str, rotate: int | None, tmp_path: Path
) -> None:
    """Somebody put it there: its lines are not read, it is neither cut nor deleted, and it hides no line."""
    worker = await written(tmp_path, rotate)
    before = Learner(tmp_path)
    await before.read_present()
    before.release(1)
    released = await before.end()
    foreign = put(tmp_path, 123, kind)
    content = foreign.read_bytes()
    make_old(tmp_path)
    learner = Learner(tmp_path)
    with pytest.raises(SourceError, match=f"{foreign} begins amid {SINK}, so it is no file of this output"):
        await learner.read_present()
    await learner.end()
    with pytest.raises(OutputError, match=f"{foreign} begins amid {SINK}, so it is no file of this output"):
        await worker.begin_again()
    assert foreign.read_bytes() == content
    foreign.unlink()
    await worker.begin_again()
    learner = Learner(tmp_path)
    await learner.read_present()
    assert released + learner.held == worker.committed
    await learner.end()
    await worker.sink.close()


@pytest.mark.parametrize("rotate", [300, None])
async def test_a_file_far_behind_the_end_is_not_deleted(rotate: int | None, tmp_path: Path) -> None:
    worker = await written(tmp_path, rotate)
    foreign = put(tmp_path, 100_000, "file")
    with pytest.raises(CheckpointError, match=f"bytes before {foreign} begins: put back what is missing"):
        await worker.begin_again()
    assert foreign.read_bytes() == FOREIGN
    foreign.unlink()
    await worker.begin_again()
    await worker.sink.close()


@pytest.mark.parametrize("kind", ["fifo", "folder", "dead link", "link", "file"])
async def test_what_lies_where_another_file_would_begin_is_left_alone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The full file goes on: what is committed is in a file, and in that of nobody else."""
    worker = Worker(tmp_path, rotate=1)
    await worker.sink.position()
    foreign = put(tmp_path, len(FOREIGN), kind)
    content = foreign.read_bytes() if foreign.is_file() else None
    for text in ("another", "and one more"):  # as long as ``FOREIGN``
        await worker.write(text)
        await worker.commit()
    assert capsys.readouterr().err.count("no other file can be begun") == 1
    assert len((tmp_path / SINK).read_bytes().splitlines()) == 2
    assert (foreign.read_bytes() if foreign.is_file() else None) == content
    await worker.sink.close()


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_file_that_logrotate_moves_during_a_run_ends_it_and_nothing_is_lost(
    is_replaced: bool, tmp_path: Path
) -> None:
    """Its readers find no message any more that is written to a moved file."""
    worker = await written(tmp_path, None)
    (tmp_path / SINK).rename(tmp_path / f"{SINK}.1")
    if is_replaced:
        (tmp_path / SINK).touch()
    with pytest.raises(OutputError, match="was deleted, moved or changed by somebody else"):
        await worker.write("6")
    (tmp_path / f"{SINK}.1").rename(tmp_path / SINK)
    await worker.begin_again()
    learner = Learner(tmp_path)
    await learner.read_present()
    assert learner.held == worker.committed
    await learner.end()
    await worker.sink.close()
