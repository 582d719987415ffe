"""The local committer at its edges; its law, at every crash point, is in tests/faults."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from streamad.errors import CheckpointError, OutputError
from streamad.messages import Event, OutputRecord, Role
from streamad.partition_progress import Progress, ProgressUpdate, StreamProgress, merge
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.system.saved_progress import SavedState, read_checkpoint
from streamad.testing import ListSink
from streamad.types import from_us


def event(number: int, role: Role = "events") -> OutputRecord:
    return OutputRecord(role, "s", Event(kind=f"{number}", message="", created_at=from_us(0)))


def committer(folder: Path, sinks: Mapping[Role, Any], **names: str) -> LocalCommitter:
    return LocalCommitter(folder, sinks, {role: names.get(role, f"file:{role}") for role in sinks})


async def restarted(folder: Path, sinks: Mapping[Role, Any], *partitions: str, **names: str) -> list[Progress | None]:
    """Return the progress of ``partitions`` that the next process finds."""
    following = committer(folder, sinks, **names)
    try:
        return [await following.restore(partition) for partition in partitions]
    finally:
        await following.close()


def update(next_offset: int, partition: str = "p", **streams: StreamProgress | None) -> ProgressUpdate:
    return ProgressUpdate(partition=partition, next_offset=next_offset, low_watermark=next_offset, streams=streams)


def kinds(sink: ListSink) -> list[str]:
    return [record.message.kind for record in sink.records]  # type: ignore[union-attr]


async def test_progress_comes_back_and_outputs_are_cut_to_the_newest_commit(tmp_path: Path) -> None:
    sinks = {"events": ListSink(), "alerts": ListSink()}
    first = committer(tmp_path, sinks)
    assert await first.restore("p") is None
    await first.commit(update(3, a=StreamProgress(done_below=3)), [event(1), event(2, "alerts")])
    await first.commit(update(5, "q"), [event(3)])
    for sink in sinks.values():  # written, and then the process died before the commit
        await sink.write([event(9)])
        await sink.flush()
    await first.close()

    assert await restarted(tmp_path, sinks, "p", "q", "unknown") == [
        Progress(partition="p", next_offset=3, low_watermark=3, streams={"a": StreamProgress(done_below=3)}),
        Progress(partition="q", next_offset=5, low_watermark=5),
        None,
    ]
    assert (kinds(sinks["events"]), kinds(sinks["alerts"])) == (["1", "3"], ["2"])


async def test_a_commit_writes_what_is_named_before_what_names_it(tmp_path: Path) -> None:
    written = list[Role]()

    class Noting(ListSink):
        def __init__(self, role: Role) -> None:
            super().__init__()
            self.role = role

        async def flush(self) -> None:
            written.append(self.role)
            await super().flush()

    roles: tuple[Role, ...] = ("verdicts", "attributions", "warnings", "alerts")
    one = committer(tmp_path / "state", {role: Noting(role) for role in roles})
    await one.restore("p")
    await one.commit(update(1), [event(1, role) for role in (*roles, *roles)])
    await one.close()
    assert written == ["warnings", "alerts", "attributions", "verdicts"]


async def test_what_was_written_before_the_first_commit_is_cut_too(tmp_path: Path) -> None:
    sink = ListSink([event(0)])  # from before there was a checkpoint
    first = committer(tmp_path, {"events": sink})
    await first.restore("p")
    await sink.write([event(9)])
    await sink.flush()
    await first.close()
    await restarted(tmp_path, {"events": sink}, "p")
    assert kinds(sink) == ["0"]


async def test_an_output_of_another_name_begins_where_it_is(tmp_path: Path) -> None:
    old, new = ListSink(), ListSink([event(7)])
    first = committer(tmp_path, {"events": old}, events="file:old")
    await first.restore("p")
    await first.commit(update(1), [event(1), event(2)])
    await first.close()
    second = committer(tmp_path, {"events": new}, events="file:new")
    assert (await second.restore("p")) is not None
    await second.commit(update(2), [event(3)])
    assert kinds(new) == ["7", "3"]
    await second.close()


async def test_an_output_shorter_than_the_checkpoint_is_refused(tmp_path: Path) -> None:
    sink = ListSink()
    first = committer(tmp_path, {"events": sink})
    await first.restore("p")
    await first.commit(update(1), [event(1)])
    await first.close()
    sink.records.clear()
    with pytest.raises(CheckpointError):
        await restarted(tmp_path, {"events": sink}, "p")
    (progress,) = await restarted(tmp_path, {"events": ListSink([event(1)])}, "p")  # the folder is free again
    assert progress is not None


async def test_one_checkpoint_serves_one_run_at_a_time(tmp_path: Path) -> None:
    first = committer(tmp_path, {})
    await first.restore("p")
    with pytest.raises(CheckpointError, match="another streamad"):
        await restarted(tmp_path, {}, "p")
    await first.close()
    await first.close()


DAMAGED = "cannot be read .* to begin anew"
DEEP = b'{"other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        *((content, DAMAGED) for content in (b"", b"{", b"{}", b"\xff", b'[{"number": 1}]', DEEP, b'{"\xff": 1}')),
        (b'{"outputs": {"\xff": 1}}', DAMAGED),
        (b'{"number": "one", "outputs": {}}', DAMAGED),
        (b'{"number": 1, "outputs": {}, "schema_version": 2}', "written by another version"),
    ],
)
async def test_a_damaged_or_foreign_checkpoint_is_refused(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"x\.json: {text}"):
        await restarted(tmp_path, {}, "p")
    assert (tmp_path / "x.json").read_bytes() == content
    with pytest.raises(CheckpointError, match=rf"x\.json: {text}"):
        read_checkpoint(tmp_path)


async def test_a_sink_that_cannot_be_cut_back_is_written_and_not_measured(tmp_path: Path) -> None:
    class Printer:
        def __init__(self) -> None:
            self.written: list[OutputRecord] = []

        async def write(self, records: list[OutputRecord]) -> None:
            self.written += records

        async def flush(self) -> None:
            pass

        async def close(self) -> None:
            pass

    printer = Printer()
    first = committer(tmp_path, {"events": printer})
    await first.restore("p")
    await first.commit(update(1), [event(1)])
    await first.close()
    assert len(printer.written) == 1
    assert json.loads((tmp_path / "start.json").read_bytes())["outputs"] == {}


class Unwilling(ListSink):
    async def close(self) -> None:
        await super().close()
        raise OutputError("cannot close")


@pytest.mark.parametrize("kind", ["local", "unsaved"])
async def test_every_sink_is_closed_and_the_folder_unlocked_whatever_one_of_them_does(
    tmp_path: Path, kind: str
) -> None:
    sinks: dict[Role, Any] = {"events": ListSink(), "alerts": Unwilling(), "late": ListSink()}
    first = committer(tmp_path, sinks) if kind == "local" else UnsavedCommitter(sinks)
    await first.restore("p")
    with pytest.raises(OutputError, match="cannot close"):
        await first.close()
    assert all(sink.closed for sink in sinks.values())
    await restarted(tmp_path, {}, "p")


async def test_without_a_checkpoint_outputs_are_written_and_nothing_is_remembered() -> None:
    sink = ListSink()
    unsaved = UnsavedCommitter({"events": sink})
    await unsaved.commit(update(1), [event(1), event(2, "alerts")])
    assert kinds(sink) == ["1"]
    assert await unsaved.restore("p") is None


def test_merging_updates_is_reading_a_compacted_log_to_its_end() -> None:
    a, b, c = (StreamProgress(done_below=n) for n in (1, 2, 3))
    once = merge(None, update(3, x=a, y=b))
    assert once.streams == {"x": a, "y": b}
    twice = merge(once, update(4, x=c, y=None, z=None))
    assert (twice.next_offset, twice.streams) == (4, {"x": c})
    assert once.streams == {"x": a, "y": b}


async def test_a_checkpoint_is_read_without_its_lock(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none") == SavedState("", 0, {}, {})
    sinks = {"events": ListSink(), "alerts": ListSink()}
    running = committer(tmp_path, sinks)
    await running.restore("p")
    await running.commit(update(3), [event(1), event(2)])
    await running.commit(update(5, "q"), [event(3, "alerts")])
    saved = read_checkpoint(tmp_path)
    assert {name: progress.next_offset for name, progress in saved.progress.items()} == {"p": 3, "q": 5}
    assert saved.outputs == {
        "file:events": await sinks["events"].position(),
        "file:alerts": await sinks["alerts"].position(),
    }
    assert saved.number == 3
    await running.close()


async def test_a_failed_commit_is_not_made_durable_by_the_next_one(tmp_path: Path) -> None:
    """Its first output was written before the second failed; the other partition's commit was waiting behind it."""
    sinks: dict[Role, ListSink] = {"alerts": ListSink(), "events": ListSink()}
    first = committer(tmp_path, sinks)
    await first.restore("p")
    await first.restore("q")
    sinks["events"].failure = OutputError("disk full")
    done = await asyncio.gather(
        first.commit(update(1, "p"), [event(1, "alerts"), event(1)]),
        first.commit(update(1, "q"), [event(2, "alerts")]),
        return_exceptions=True,
    )
    assert [(type(error), str(error)) for error in done] == [(OutputError, "disk full")] * 2
    await first.close()
    assert await restarted(tmp_path, sinks, "p", "q") == [None, None]
    assert kinds(sinks["alerts"]) == []


async def test_a_commit_goes_on_if_its_caller_is_cancelled(tmp_path: Path) -> None:
    """Half of it would be counted by the next commit: of a partition taken away while others go on."""

    begun, may_end = asyncio.Event(), asyncio.Event()

    class Slow(ListSink):
        async def flush(self) -> None:
            begun.set()
            await may_end.wait()
            await super().flush()

    sinks: dict[Role, ListSink] = {"alerts": Slow(), "events": Slow()}
    first = committer(tmp_path, sinks)
    await first.restore("p")
    commit = asyncio.create_task(first.commit(update(1), [event(1, "alerts"), event(1)]))
    await begun.wait()
    commit.cancel()
    may_end.set()
    await asyncio.gather(commit, return_exceptions=True)
    assert commit.cancelled()
    restored = await first.restore("p")
    assert restored is not None
    assert restored.next_offset == 1
    await first.commit(update(1, "q"), [event(2)])
    await first.close()
    await restarted(tmp_path, sinks, "p")
    assert (kinds(sinks["alerts"]), kinds(sinks["events"])) == (["1"], ["1", "2"])


@pytest.mark.parametrize("name", ["lock", "start.json", ".start.json.tmp"])
async def test_a_link_in_the_folder_leads_no_write_to_another_file(tmp_path: Path, name: str) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "checkpoint"
    victim.write_bytes(b"precious")
    folder.mkdir()
    (folder / name).symlink_to(victim)
    is_state = name != ".start.json.tmp"
    with pytest.raises((OutputError, CheckpointError), match="a link is in its place") if is_state else nullcontext():
        await restarted(folder, {"events": ListSink()}, "p")
    assert victim.read_bytes() == b"precious"


def test_the_folder_and_its_files_are_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    before = os.umask(0)
    try:
        asyncio.run(restarted(folder, {"events": ListSink()}, "p"))
    finally:
        os.umask(before)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())} == {
        "checkpoint": 0o700,
        "lock": 0o600,
        "start.json": 0o600,
    }


async def test_leftovers_of_killed_runs_go_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / ".start.json.0123456789abcdef.tmp").touch()
    await restarted(tmp_path, {"events": ListSink()}, "p")
    assert list(tmp_path.glob(".*")) == []  # noqa: ASYNC240 - nothing else runs
