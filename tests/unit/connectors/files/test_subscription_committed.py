"""A reader that names the writer's checkpoint gets each committed line once, in order, and no other."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.system.files import write_atomically
from streamad.system.saved_progress import CommitFile
from streamad.testing import ManualClock
from streamad_connectors.files.subscription import FileSubscription, FileSubscriptionOptions
from tests.support.waiting import LIMIT_S

SINK = "out/windows.jsonl"


class Writer:
    """What a worker does to its file: append, sync, commit the length; after a crash cut back to the last commit."""

    def __init__(self, folder: Path) -> None:
        self.file, self.checkpoint = folder / SINK, folder / "checkpoint"
        self.file.parent.mkdir()
        self.checkpoint.mkdir()
        self.file.touch()
        self.committed: list[bytes] = []
        self._uncommitted: list[bytes] = []
        self._length = self._number = 0

    def append(self, line: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(line + b"\n")
        self._uncommitted.append(line)

    def commit(self, partition: str) -> None:
        self._number += 1
        self._length = self.file.stat().st_size
        content = msgspec.json.encode(CommitFile(number=self._number, outputs={SINK: self._length, "other": 9**9}))
        write_atomically(self.checkpoint / f"{partition}.json", content, is_state=True)
        self.committed += self._uncommitted
        self._uncommitted.clear()

    def crash(self) -> None:
        with self.file.open("ab") as file:
            file.truncate(self._length)
        self._uncommitted.clear()


def reader_of(folder: Path) -> FileSubscription:
    given_options = {"group": "learner", "poll": "1ms", "checkpoint": "checkpoint", "sink": SINK}
    options = FileSubscriptionOptions.model_validate(given_options)
    return FileSubscription(SINK, options, ConnectorContext((), ManualClock(), base_dir=folder))


async def present(folder: Path) -> list[bytes]:
    """Read on with the group, up to what is there now."""
    subscription = reader_of(folder)
    subscription.end_with_present()
    try:
        return [message.value.rstrip(b"\n") async for message in subscription.messages()]
    finally:
        await subscription.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=9).map(lambda text: text.hex().encode())),
        st.tuples(st.just("commit"), st.sampled_from(["p0", "p1"])),
        st.tuples(st.sampled_from(["crash", "read"]), st.none()),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_each_committed_line_comes_once_and_no_other_ever(steps: list[tuple[str, bytes | str | None]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        writer, found = Writer(Path(name)), list[bytes]()
        for number, (step, value) in enumerate([*steps, ("commit", "p0"), ("read", None)]):
            if step == "append":
                writer.append(b"%d %s" % (number, value))
            elif step == "commit":
                writer.commit(str(value))
            elif step == "crash":
                writer.crash()
            else:
                found += asyncio.run(present(Path(name)))
                assert found == writer.committed


async def test_a_line_is_yielded_once_its_commit_is_there(tmp_path: Path) -> None:
    writer, subscription = Writer(tmp_path), reader_of(tmp_path)
    messages = subscription.messages()
    writer.append(b"first")
    coming = asyncio.ensure_future(anext(messages))
    done, _ = await asyncio.wait({coming}, timeout=0.05)
    assert not done
    writer.commit("p0")
    async with asyncio.timeout(LIMIT_S):
        assert (await coming).value == b"first\n"
        writer.append(b"so")
        writer.commit("p0")  # its file is as long as before
        assert (await anext(messages)).value == b"so\n"
    await subscription.close()


async def test_a_damaged_checkpoint_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.append(b"first")
    (tmp_path / "checkpoint" / "p0.json").write_bytes(b"{")
    with pytest.raises(SourceError, match=r"p0\.json: cannot be read"):
        await present(tmp_path)
