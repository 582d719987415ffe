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


class _Lengths(msgspec.Struct):
    number: int
    outputs: dict[str, int]


class CommittedLength:
    """How many bytes of the output ``name`` the newest commit of the checkpoint in ``folder`` covers.

    The bytes behind them may still be cut off. ``now`` may be called often: only files that changed are read.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._seen: dict[Path, tuple[tuple[int, int, int], _Lengths]] = {}

    def now(self) -> int:
        """Return the number of bytes, 0 without a commit. Raises CheckpointError."""
        seen: dict[Path, tuple[tuple[int, int, int], _Lengths]] = {}
        for path in self._folder.glob("*.json"):
            try:
                there = path.stat()
                identity = there.st_ino, there.st_mtime_ns, there.st_size
                known = self._seen.get(path)
                is_known = known is not None and known[0] == identity
                seen[path] = known if known and is_known else (identity, decode_json(read_state(path), _Lengths))
            except FileNotFoundError:  # moved away at this moment
                continue
            except (OSError, msgspec.MsgspecError) as error:
                raise CheckpointError(f"{path}: cannot be read ({error})") from error
        self._seen = seen
        newest = max((lengths for _, lengths in seen.values()), key=lambda each: each.number, default=None)
        return 0 if newest is None else newest.outputs.get(self._name, 0)


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
