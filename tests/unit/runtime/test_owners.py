"""No start cuts off what another checkpoint committed: whoever shares a file is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamad.errors import CheckpointError, OutputError
from streamad.messages import Event, OutputRecord
from streamad.partition_progress import ProgressUpdate
from streamad.plugins import ConnectorContext
from streamad.runtime.checkpoint import LocalCommitter, UnsavedCommitter
from streamad.testing import ManualClock
from streamad.types import from_us
from streamad_connectors.files.sink import JsonlSink, JsonlSinkOptions


def sink_in(folder: Path) -> JsonlSink:
    return JsonlSink("events.jsonl", JsonlSinkOptions(), ConnectorContext((), ManualClock(), folder))


def event(kind: str) -> OutputRecord:
    return OutputRecord("events", "s", Event(kind=kind, message="", created_at=from_us(0)))


def update(n: int) -> ProgressUpdate:
    return ProgressUpdate(partition="p", next_offset=n, low_watermark=n)


async def run(folder: Path, checkpoint: str | None, kinds: list[str], *, dies: bool = False) -> None:
    """Commit an event of each kind, and, if it ``dies``, write one more without its commit."""
    sink = sink_in(folder)
    at: LocalCommitter | UnsavedCommitter = UnsavedCommitter({"events": sink})
    if checkpoint is not None:
        at = LocalCommitter(folder / checkpoint, {"events": sink}, {"events": "events.jsonl"})
    try:
        await at.restore("p")
        for kind in kinds:
            await at.commit(update(1), [event(kind)])
        if dies:
            await sink.write([event("uncommitted")])
            await sink.flush()
    finally:
        await at.close()


def written(folder: Path) -> list[str]:
    path = folder / "events.jsonl"
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()] if path.exists() else []


RUNS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2), st.booleans()), max_size=6)


@given(runs=RUNS)
@settings(max_examples=60)
def test_what_was_committed_stays_whoever_starts_next(runs: list[tuple[str | None, int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, committed = Path(name), []
        for number, (checkpoint, n, dies) in enumerate(runs):
            kinds = [f"{checkpoint}{number}.{i}" for i in range(n)]
            before = written(folder)
            try:
                asyncio.run(run(folder, checkpoint, kinds, dies=dies))
            except CheckpointError:
                assert written(folder) == before
            else:
                committed += kinds
            assert [kind for kind in written(folder) if kind != "uncommitted"] == committed


async def test_of_two_checkpoints_with_one_file_none_cuts_off_what_the_other_wrote(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"])
    await run(tmp_path, "b", ["b1"])
    before = (tmp_path / "events.jsonl").read_bytes()
    with pytest.raises(CheckpointError) as refused:
        await run(tmp_path, "a", ["a2"])
    assert f"the checkpoint {tmp_path / 'b'} wrote there since the last commit of this one" in str(refused.value)
    assert "sinks.events (events.jsonl): " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert (tmp_path / "events.jsonl").read_bytes() == before
    await run(tmp_path, "b", ["b2"])
    for name in ("events.jsonl", "a"):  # as the line says
        (tmp_path / name).rename(tmp_path / f"former-{name}")
    await run(tmp_path, "a", ["a2"])
    assert written(tmp_path) == ["a2"]


async def test_a_run_without_a_checkpoint_is_not_cut_off(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"])
    await run(tmp_path, None, ["c1"])
    with pytest.raises(CheckpointError, match="a run without a checkpoint wrote there since the last commit"):
        await run(tmp_path, "a", ["a2"])
    assert written(tmp_path) == ["a1", "c1"]


async def test_a_new_checkpoint_appends_after_one_that_is_gone(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"])
    shutil.rmtree(tmp_path / "a")
    await run(tmp_path, "b", ["b1"], dies=True)
    await run(tmp_path, "b", ["b2"])
    assert written(tmp_path) == ["a1", "b1", "b2"]


async def test_a_plant_whose_folder_was_moved_goes_on_and_cuts_its_uncommitted_messages(tmp_path: Path) -> None:
    await run(tmp_path / "old", "a", ["a1"], dies=True)
    (tmp_path / "old").rename(tmp_path / "new")
    await run(tmp_path / "new", "a", ["a2"])
    assert written(tmp_path / "new") == ["a1", "a2"]


async def test_a_copy_of_a_plant_goes_on_by_itself_beside_the_plant(tmp_path: Path) -> None:
    await run(tmp_path / "plant", "a", ["a1"], dies=True)
    shutil.copytree(tmp_path / "plant", tmp_path / "copy")
    await run(tmp_path / "copy", "a", ["a2"])
    await run(tmp_path / "plant", "a", ["a3"])
    assert (written(tmp_path / "copy"), written(tmp_path / "plant")) == (["a1", "a2"], ["a1", "a3"])


async def test_a_copy_of_a_plant_that_writes_to_the_same_file_is_refused(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    await run(tmp_path, "a", ["a2"])
    with pytest.raises(CheckpointError, match="wrote there since the last commit"):
        await run(tmp_path, "b", ["b1"])
    assert written(tmp_path) == ["a1", "a2"]


async def test_a_checkpoint_of_a_former_release_gets_an_id_and_is_cut_as_before(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"], dies=True)
    for path in (tmp_path / "a").glob("*.json"):
        content = json.loads(path.read_text())
        del content["checkpoint"]
        path.write_text(json.dumps(content))
    (tmp_path / ".events.jsonl.owner").unlink()
    await run(tmp_path, "a", ["a2"], dies=True)
    await run(tmp_path, "a", ["a3"])
    assert written(tmp_path) == ["a1", "a2", "a3"]


async def test_a_claim_that_cannot_be_read_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    await run(tmp_path, "a", ["a1"])
    (tmp_path / ".events.jsonl.owner").write_text("{")
    with pytest.raises(OutputError, match=r"events\.jsonl\.owner: cannot be read .*; delete it if no other plant does"):
        await run(tmp_path, "a", ["a2"])
