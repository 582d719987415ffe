"""The local checkpoint: outputs in files and the progress of their inputs become durable together, or not at all."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from hashlib import blake2b
from pathlib import Path

import msgspec
from msgspec.structs import replace

from streamad.errors import CheckpointError
from streamad.messages import ROLES, OutputRecord, Role
from streamad.partition_progress import Debt, Progress, ProgressUpdate, merge
from streamad.ports import DurableSink, OwnedSink, Owner, Sink
from streamad.settings.places import place_key
from streamad.system.files import clear_leftovers, write_atomically, writing
from streamad.system.locks import try_lock
from streamad.system.opening import STATE_FOLDER, read_state
from streamad.system.saved_progress import CommitFile, SavedState, read_checkpoint
from streamad.system.tasks import look_at

# The windows of debts lie beside the checkpoint, in a file each that is written once, not at every commit.
_WINDOW_SUFFIX = ".zlib"
_WINDOW_ID = re.compile(r"[0-9a-f]{32}")


class LocalCommitter:
    """Exactly-once output on one machine: progress in a folder, outputs in sinks that can be cut back.

    A commit appends to the outputs, syncs them, then replaces the partition's file (write, fsync, rename). After a
    crash the outputs are cut back to the lengths of the newest commit, which removes uncommitted messages. A start that
    would cut off what another checkpoint has written is refused before anything is cut. Sinks that cannot be cut back
    (stdout) may repeat uncommitted messages. The windows of debts have files of their own, which are written before the
    partition's file. ``check_cursors`` gets the cursor of each partition before anything is changed.
    """

    max_item_bytes: int | None = None

    def __init__(
        self,
        folder: Path,
        sinks: Mapping[Role, Sink],
        names: Mapping[Role, str],
        check_cursors: Callable[[Mapping[str, str | None]], None] | None = None,
    ) -> None:
        self._folder = folder
        self._check_cursors = check_cursors
        self._sinks = sinks
        self._names = names
        self._id = ""
        self._number = 0
        self._progress: dict[str, Progress] = {}
        self._windows = SavedWindows(folder / "windows")
        self._lock: int | None = None
        self._is_open = False
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """Lock the folder, cut the outputs back to the newest commit.

        Raises CheckpointError, OutputError, and what ``check_cursors`` raises.
        """
        with writing(self._folder):
            self._folder.mkdir(STATE_FOLDER, parents=True, exist_ok=True)
            self._lock = try_lock(self._folder / "lock")
        if self._lock is None:
            raise CheckpointError(f"{self._folder}: another streamad is running with this checkpoint; stop it first")
        clear_leftovers(self._folder)
        saved = read_checkpoint(self._folder)
        self._id, self._number = saved.id or secrets.token_hex(16), saved.number
        self._progress = await asyncio.to_thread(self._windows.restored, saved.progress)
        if self._check_cursors is not None:
            cursors = {name: progress.cursor for name, progress in saved.progress.items()}
            await asyncio.to_thread(self._check_cursors, cursors)
        await self._open_outputs(saved)
        self._is_open = True

    async def _open_outputs(self, saved: SavedState) -> None:
        """Cut the outputs back and claim them; a refused start changes none of them."""
        sinks, folder = self._durable(), str(self._folder.absolute())
        lengths = {role: saved.outputs.get(self._names[role]) for role in sinks}
        for sink in sinks.values():
            await sink.position()  # locks it: nobody may write between the check and the cut
        for role, sink in sinks.items():
            place = f"{place_key(role)} ({self._names[role]})"
            await check_owner(sink, Owner(saved.id, folder), lengths[role], place)
        for role, sink in sinks.items():
            if (length := lengths[role]) is not None:
                await sink.truncate(length)
        # Before the first message: a crash before the first commit must find the present lengths. And before the
        # claims, which name the id that it stores.
        await self._write("start", None)
        for sink in sinks.values():
            if isinstance(sink, OwnedSink):
                await sink.claim(Owner(self._id, folder))

    async def restore(self, partition: str) -> Progress | None:
        """Return the last committed progress of ``partition``; None at the first start."""
        async with self._one_at_a_time:
            if not self._is_open:
                await self.open()
            return self._progress.get(partition)

    async def owing(self) -> Mapping[str, Progress]:
        """Return the progress of all partitions with debts."""
        async with self._one_at_a_time:
            if not self._is_open:
                await self.open()
            return {name: progress for name, progress in self._progress.items() if progress.debts}

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Make ``outputs`` and ``update`` durable as one. Raises OutputError.

        It runs to its end even if the caller is cancelled. After one failed commit every later one fails, because its
        lengths would include the uncommitted messages.
        """
        commit = asyncio.create_task(self._commit_alone(update, outputs))
        self._under_way.add(commit)
        commit.add_done_callback(self._ended)
        await asyncio.shield(commit)

    def _ended(self, commit: asyncio.Task[None]) -> None:
        self._under_way.discard(commit)
        look_at(commit)  # in case the caller was cancelled

    async def _commit_alone(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        async with self._one_at_a_time:
            if self._failure is not None:
                raise self._failure
            try:
                await self._commit(update, outputs)
            except BaseException as error:
                self._failure = error
                raise

    async def _commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        await asyncio.to_thread(self._windows.write, update.debts)
        # In the order of ``Role``, whatever lies first in ``outputs``: who reads the files as they grow, or after a
        # crash, finds no verdict before the warning that it names, and no attribution before its alert.
        for role in (role for role in ROLES if role in self._sinks):
            if records := [record for record in outputs if record.role == role]:
                await self._sinks[role].write(records)
                await self._sinks[role].flush()
        progress = merge(self._progress.get(update.partition), update)
        await self._write(blake2b(update.partition.encode(), digest_size=12).hexdigest(), progress)
        self._progress[update.partition] = progress
        await asyncio.to_thread(self._windows.remove_paid, update.debts)

    async def release(self, partition: str) -> None:
        """Do nothing: the folder's lock keeps other owners away."""

    async def close(self) -> None:
        """Close the sinks and unlock the folder; safe to call twice. Raises OutputError."""
        await asyncio.gather(*self._under_way, return_exceptions=True)
        try:
            await _close_all(self._sinks.values())
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _durable(self) -> dict[Role, DurableSink]:
        return {role: sink for role, sink in self._sinks.items() if isinstance(sink, DurableSink)}

    async def _write(self, name: str, progress: Progress | None) -> None:
        self._number += 1
        lengths = {self._names[role]: await sink.position() for role, sink in self._durable().items()}
        commit = CommitFile(
            number=self._number,
            outputs=lengths,
            progress=progress and without_windows(progress),
            checkpoint=self._id,
        )
        path = self._folder / f"{name}.json"
        await asyncio.to_thread(write_atomically, path, msgspec.json.encode(commit), is_state=True)


def without_windows(progress: Progress) -> Progress:
    """Return ``progress`` as a partition's file holds it: debts without their windows."""
    if not progress.debts:
        return progress
    return replace(progress, debts={name: replace(debt, window=b"") for name, debt in progress.debts.items()})


class SavedWindows:
    """The files of one checkpoint in ``folder``, named by alert_id.

    Law: a window is durable before the commit that names its debt, and is removed only after the one that pays it. A
    file that no debt names was left by a killed process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def restored(self, progress: Mapping[str, Progress]) -> dict[str, Progress]:
        """Return ``progress`` by partition, its debts with their windows, and remove files that belong to none.

        A window that is gone, or cannot be read, stays empty: its debt ends with an attribution without reasons.
        """
        owed = {name for each in progress.values() for name in each.debts if _WINDOW_ID.fullmatch(name)}
        if self._folder.is_dir() and not self._folder.is_symlink():
            clear_leftovers(self._folder)
            for path in self._folder.glob(f"*{_WINDOW_SUFFIX}"):
                if path.stem not in owed:
                    with suppress(OSError):
                        path.unlink()
        return {
            partition: replace(each, debts={name: self._filled(name, debt) for name, debt in each.debts.items()})
            for partition, each in progress.items()
        }

    def _filled(self, name: str, debt: Debt) -> Debt:
        if _WINDOW_ID.fullmatch(name):
            with suppress(OSError):
                return replace(debt, window=read_state(self._path(name)))
        return debt

    def write(self, debts: Mapping[str, Debt | None]) -> None:
        """Write the windows of new debts, durably. Raises OutputError."""
        new = {name: debt.window for name, debt in debts.items() if debt is not None}
        if not new:
            return
        with writing(self._folder):
            self._folder.mkdir(STATE_FOLDER, exist_ok=True)
        for name, window in new.items():
            write_atomically(self._path(name), window, is_state=True)

    def remove_paid(self, debts: Mapping[str, Debt | None]) -> None:
        """Remove the windows of paid debts; what cannot be removed is removed at the next start."""
        for name, debt in debts.items():
            if debt is None and _WINDOW_ID.fullmatch(name):
                with suppress(OSError):
                    self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}{_WINDOW_SUFFIX}"


async def check_owner(sink: Sink, owner: Owner, length: int | None, place: str) -> None:
    """Raise CheckpointError if a start of ``owner`` would cut off what another one wrote to ``sink``.

    ``length``: where the last commit of ``owner`` ended, None before its first: then nothing is cut. ``place``: the
    sink, for people.
    """
    last = await sink.owner() if isinstance(sink, OwnedSink) else None
    if last is None or not isinstance(sink, OwnedSink) or length is None or _is_same(last, owner):
        return
    if await sink.position() > length:
        who = f"the checkpoint {last.folder}" if last.folder else "a run without a checkpoint"
        raise CheckpointError(
            f"{place}: {who} wrote there since the last commit of this one, and this start would cut it off; nothing "
            "was changed: give each plant, and each run.checkpoint, files of its own under sinks, or move this file "
            "and this checkpoint away to begin anew"
        )


async def other_checkpoint(sink: Sink, owner: Owner) -> str | None:
    """Return the folder of another checkpoint that is there and wrote to ``sink`` last, None if there is none."""
    last = await sink.owner() if isinstance(sink, OwnedSink) else None
    is_other = last is not None and last.folder not in ("", owner.folder) and _id_in(last.folder) == last.checkpoint
    return last.folder if last is not None and is_other else None


def _is_same(last: Owner, owner: Owner) -> bool:
    """Return whether both are one checkpoint: also if it was moved, or is of a former release, which gave no id.

    A copy has the same id, too: it is another one while the original is there.
    """
    if not owner.checkpoint:
        return last.folder == owner.folder
    return last.checkpoint == owner.checkpoint and (
        last.folder == owner.folder or _id_in(last.folder) != owner.checkpoint
    )


def _id_in(folder: str) -> str | None:
    """Return the id of the checkpoint in ``folder``, None if there is none that can be read."""
    try:
        return read_checkpoint(Path(folder)).id or None
    except CheckpointError:
        return None


class UnsavedCommitter:
    """Writes outputs and keeps no progress: every run begins anew (replay, or ``run.checkpoint: null``)."""

    max_item_bytes: int | None = None

    def __init__(self, sinks: Mapping[Role, Sink]) -> None:
        self._sinks = sinks
        self._is_open = False
        self._one_at_a_time = asyncio.Lock()

    async def owing(self) -> Mapping[str, Progress]:
        """Return nothing: no progress is kept."""
        return {}

    async def restore(self, partition: str) -> Progress | None:
        """Return None: no progress is kept."""
        return None

    async def commit(self, update: ProgressUpdate, outputs: Sequence[OutputRecord]) -> None:
        """Write ``outputs``. Raises OutputError."""
        async with self._one_at_a_time:
            if not self._is_open:
                await self._open()
            for record in outputs:
                if record.role in self._sinks:
                    await self._sinks[record.role].write([record])
            for sink in self._sinks.values():
                await sink.flush()

    async def _open(self) -> None:
        for sink in self._sinks.values():  # a checkpoint must not cut off what comes now
            if isinstance(sink, OwnedSink):
                await sink.claim(Owner("", ""))
        self._is_open = True

    async def release(self, partition: str) -> None:
        """Do nothing: no partition is owned."""

    async def close(self) -> None:
        """Close the sinks; safe to call twice. Raises OutputError."""
        await _close_all(self._sinks.values())


async def _close_all(sinks: Iterable[Sink]) -> None:
    """Close every sink, even if some raise."""
    async with AsyncExitStack() as stack:
        for sink in sinks:
            stack.push_async_callback(sink.close)
