"""Recordings between two runs: replaced, grown, cut, joined; no verdict is lost or doubled without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamad.errors import SourceError
from tests.support.runtime.recordings import batches_of, run_recordings, verdicts, write_recording


def names(first: int, after: int) -> list[str]:
    return [f"B-{number}" for number in range(first, after)]


async def test_a_recording_replaced_by_a_longer_one_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    recording = tmp_path / "in" / "a.jsonl"
    write_recording(recording, batches_of(names(0, 20)))
    await run_recordings(tmp_path)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    write_recording(recording, batches_of(names(100, 130)))
    with pytest.raises(SourceError, match="it was replaced or cut"):
        await run_recordings(tmp_path)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    recording.rename(tmp_path / "in" / "b.jsonl")
    await run_recordings(tmp_path)
    assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, 20) + names(100, 130)), 1)


async def test_a_recording_that_grew_is_continued(tmp_path: Path) -> None:
    for after in (10, 20, 30):
        write_recording(tmp_path / "in" / "a.jsonl", batches_of(names(0, after)))
        await run_recordings(tmp_path)
        assert verdicts(tmp_path) == dict.fromkeys(((name, "normal", 2) for name in names(0, after)), 1)
