"""The files of a local checkpoint, one for each partition, as any process may read them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from streamad.errors import CheckpointError
from streamad.partition_progress import Progress
from streamad.system.opening import read_state
from streamad.system.rights import is_refusal, missing_right
from streamad.system.untrusted_json import decode_json

SCHEMA_VERSION = 1


class CommitFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the checkpoint: a partition's progress and the length of every output at that commit.

    ``checkpoint``: the id of the checkpoint, the same in all its files; "" in those of former releases.
    """

    number: int
    outputs: dict[str, int]
    progress: Progress | None = None
    checkpoint: str = ""
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class SavedState:
    """The content of a checkpoint: the progress of each partition, and the length in bytes of each output.

    ``id`` is "" if there is no checkpoint yet, or one of a former release.
    """

    id: str
    number: int
    progress: dict[str, Progress]
    outputs: dict[str, int]


def read_checkpoint(folder: Path) -> SavedState:
    """Read the checkpoint in ``folder`` without locking it, debts without their windows.

    Raises CheckpointError if it is damaged.
    """
    commits = [_read(path) for path in sorted(folder.glob("*.json"))]
    newest = max(commits, key=lambda commit: commit.number, default=CommitFile(number=0, outputs={}))
    progress = {commit.progress.partition: commit.progress for commit in commits if commit.progress}
    return SavedState(newest.checkpoint, newest.number, progress, newest.outputs)


def newest_commit_us(folder: Path) -> int | None:
    """Return when the newest file of a checkpoint was written, in Unix microseconds; None if there is none."""
    times_ns = []
    for path in folder.glob("*.json"):
        with suppress(OSError):
            times_ns.append(path.stat().st_mtime_ns)
    return max(times_ns) // 1_000 if times_ns else None


def _read(path: Path) -> CommitFile:
    try:
        commit = decode_json(read_state(path), CommitFile)
    except (OSError, msgspec.MsgspecError) as error:
        remedy = "move the folder and the outputs away to begin anew"
        if is_refusal(error):
            remedy = missing_right(path, "read")
        raise CheckpointError(f"{path}: cannot be read ({error}); {remedy}") from error
    if commit.schema_version != SCHEMA_VERSION:
        raise CheckpointError(f"{path}: written by another version of streamad; finish with that version first")
    return commit
