"""Reads the plant's outputs into the view: every place by a subscription of its own, at least once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import partial
from heapq import heappush, heappushpop
from pathlib import Path
from typing import Any

import msgspec

from streamad.errors import OutputError, StreamadError
from streamad.judge.gate import is_shown
from streamad.messages import (
    Alert,
    Attribution,
    DecisionEntry,
    EarlyWarning,
    Event,
    Feedback,
    Message,
    Role,
    Running,
    Verdict,
    Window,
    WorkerStatus,
)
from streamad.outputs.reader import Decoder, Reader
from streamad.outputs.reading import accepted_by, place_of, readable_urls, subscription_of
from streamad.plant import Plant
from streamad.settings.places import file_path
from streamad.system.opening import read_regular
from streamad.telemetry.logs import get_logger
from streamad.web.store.view import View
from streamad.web.workers import Workers

_RETRY_S = 5.0
_TRIM_S = 60.0
_ANEW_S = 60.0
_LOOK_S = 1.0
_MOST_FILES = 1_000
_MOST_FILE_BYTES = 8 << 20
_MOST_FOLDER_BYTES = 64 << 20
_KINDS: dict[Role, tuple[type[Message], ...]] = {
    "verdicts": (Verdict,),
    "alerts": (Alert, Verdict, EarlyWarning),
    "warnings": (EarlyWarning,),
    "attributions": (Attribution,),
    "windows": (Window,),
    "events": (Event,),
    "decisions": (DecisionEntry,),
    "feedback": (Feedback,),
}
_STATUS: Decoder[WorkerStatus | Running] = Decoder((WorkerStatus, Running))


class Reading:
    """Follows the outputs until it is cancelled; what cannot be read is a trouble on the page, and is tried again.

    ``on_change`` is called after each commit of the view, and when ``workers`` have changed. Messages that arrived
    together are committed together. Law: a message is done only after its commit. The status of workers is no part of
    the view: it is read anew at every start.
    """

    def __init__(self, plant: Plant, view: View, on_change: Callable[[], None], workers: Workers | None = None) -> None:
        self._plant, self._view, self._on_change = plant, view, on_change
        self.workers = workers if workers is not None else Workers(plant.clock)
        self.troubles: dict[str, str] = {}
        """Why messages are not read, by their role or the place's name; empty if all is well."""
        self._begun_s = float("-inf")

    def _places(self) -> Iterator[tuple[str, Role, str]]:
        """Yield each place that the page reads: its name in ``troubles``, its role and its URL."""
        for role in _KINDS:
            for number, url in enumerate(readable_urls(self._plant, role)):
                others = "all others" if role == "decisions" else "the learner"
                yield role if number == 0 else f"{role} of {others}", role, url

    @property
    def _group(self) -> str:
        return f"streamad.{self._plant.settings.name}.web.{self._view.view_id}"

    async def run(self) -> None:
        """Read until it is cancelled; if the view is damaged, begin it anew and read all again."""
        while True:
            reading = asyncio.ensure_future(self._read_all())
            damaged = asyncio.ensure_future(self._damaged())
            try:
                await asyncio.wait({reading, damaged}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in (reading, damaged):
                    each.cancel()
                await asyncio.wait({reading, damaged})
            if not damaged.cancelled():
                damaged.result()
                await self._begin_anew()
            elif not reading.cancelled():
                reading.result()

    def note_end(self, task: asyncio.Task[None]) -> None:
        """Note that the task of ``run`` has ended by an error, or the page would stay as it is and say nothing."""
        if not task.cancelled() and (error := task.exception()) is not None:
            get_logger().error("the page reads no more", why=repr(error))
            self._trouble("outputs", f"reading has ended by an error: restart the page, and report it ({error!r})")

    async def _damaged(self) -> None:
        """Return once the view must be begun anew."""
        while not self._view.look():  # noqa: ASYNC110 - requests in threads find damage, and files go silently
            await asyncio.sleep(_LOOK_S)

    async def _begin_anew(self) -> None:
        """Begin the view anew, once a minute at most: each damaged file stays, and a broken disk damages many."""
        now_s = asyncio.get_running_loop().time()
        if (wait_s := self._begun_s + _ANEW_S - now_s) > 0:
            self._trouble("view", f"{self._view.damage}; it is begun anew in {wait_s:.0f} s")
            await asyncio.sleep(wait_s)
        self._begun_s = now_s + max(0.0, wait_s)
        get_logger().warning("the page's view is begun anew", why=self._view.damage)
        while True:
            try:
                await asyncio.to_thread(self._view.begin_anew)
            except StreamadError as error:
                self._trouble("view", str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            self.troubles.pop("view", None)
            self._on_change()
            return

    async def _read_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, role, url in self._places():
                tasks.create_task(self._follow(name, partial(self._read, name, role, url)))
            tasks.create_task(self._trim())
            tasks.create_task(self._look())
            if (status := self._plant.settings.sinks.status) is not None:
                folder = file_path(status)
                reading = self._read_status if folder is None else self._watch(self._plant.base_dir / folder)
                if folder is not None or place_of(self._plant, "status") is not None:
                    tasks.create_task(self._follow("status", reading))

    async def _follow(self, name: str, reading: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await reading()
            except StreamadError as error:
                if name not in self.troubles:
                    get_logger().warning("the page does not read", role=name, why=str(error))
                self._trouble(name, str(error))
            await asyncio.sleep(_RETRY_S)

    async def _read(self, name: str, role: Role, url: str) -> None:
        """Read a place; what has arrived is taken up in one commit, and done after it."""
        wanted = {"group": self._group, "start": "earliest"}
        subscription = subscription_of(self._plant, role, wanted, url=url, is_patient=True)
        decoder = Decoder(_KINDS[role], accept=accepted_by(self._plant))
        async with Reader(subscription, decoder, ahead=True) as messages:
            while batch := await messages.arrived():
                if kept := [one.message for one in batch if self._is_shown(one.message)]:
                    await self._put(kept)
                    self.troubles.pop(name, None)
                messages.done(one.number for one in batch)

    def _is_shown(self, message: Message) -> bool:
        """Return whether the view keeps ``message``: some windows are there for learning alone."""
        display = self._plant.settings.display
        return not isinstance(message, Window) or is_shown(message.verdict_id, alerted=message.alerted, display=display)

    async def _read_status(self) -> None:
        """Follow the topic of the workers' status from its beginning: it holds the newest of each worker."""

        def remove(key: str) -> None:
            self.workers.remove(key)
            self._heard()

        subscription = subscription_of(self._plant, "status", {"start": "earliest"})
        async with Reader(subscription, _STATUS, on_removed=remove) as messages:
            async for one in messages:
                self.workers.take(one.message)
                self._heard()

    def _watch(self, folder: Path) -> Callable[[], Coroutine[Any, Any, None]]:
        async def watch() -> None:
            known: dict[Path, tuple[int, ...]] = {}
            names: dict[Path, str] = {}
            while True:
                try:
                    there, n_left = await asyncio.to_thread(_status_files, folder)
                    self._say_left_out(folder, len(there), n_left)
                    for path in names.keys() - there.keys():
                        self.workers.forget(names.pop(path))
                    for path, stamp in there.items():
                        if known.get(path) != stamp and (found := await asyncio.to_thread(_messages_in, path)):
                            names[path] = found[0].instance
                            self.workers.replace(found[0].instance, found)
                            self._heard()
                except OSError as error:
                    raise OutputError(f"{folder} cannot be read: {error.strerror or error}") from error
                known = there
                self.troubles.pop("status", None)
                await asyncio.sleep(_LOOK_S)

        return watch

    def _say_left_out(self, folder: Path, n_read: int, n_left: int) -> None:
        if n_left:
            held = f"{folder} holds {n_left:,} files beyond the {n_read:,} newest, which are read"
            self._trouble("workers", f"{held}: remove those that are no worker's")
        elif self.troubles.pop("workers", None) is not None:
            self._on_change()

    def _heard(self) -> None:
        if self.troubles.pop("status", None) is not None:
            self._on_change()

    async def _look(self) -> None:
        """Tell of what workers have written, once for all of them, and notice those that fall silent."""
        told = 0
        while True:
            self.workers.look()
            if self.workers.number != told:
                told = self.workers.number
                self._on_change()
            await asyncio.sleep(_LOOK_S)

    async def _put(self, messages: list[Message]) -> None:
        """Commit ``messages`` to the view; a full disk is waited for."""
        while True:
            try:
                await asyncio.to_thread(self._view.put, messages)
            except OutputError as error:
                self._trouble("view", str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            self.troubles.pop("view", None)
            self._on_change()
            return

    def _trouble(self, name: str, why: str) -> None:
        """Note why something is not read or written, and tell the pages."""
        if self.troubles.get(name) != why:
            self.troubles[name] = why
            self._on_change()

    async def _trim(self) -> None:
        while True:
            try:
                if await asyncio.to_thread(self._view.trim):
                    continue  # a portion at a time
            except OutputError as error:
                self._trouble("view", str(error))
            await asyncio.sleep(_TRIM_S)


def _status_in(value: bytes) -> WorkerStatus | Running | None:
    """Return the message about what runs, None if it is none."""
    with suppress(msgspec.DecodeError):
        return _STATUS.decoded(value)
    return None


def _status_files(folder: Path) -> tuple[dict[Path, tuple[int, ...]], int]:
    """Return the newest files of workers with what tells one state of a file from another, and how many are left out.

    Left out are those beyond 1,000 files or 64 MB, and too large ones. Raises OSError.
    """
    found: list[tuple[int, str, int, int]] = []
    n = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    n += 1
                    if stat.st_size <= _MOST_FILE_BYTES:
                        one = (stat.st_mtime_ns, entry.path, stat.st_ino, stat.st_size)
                        (heappush if len(found) < _MOST_FILES else heappushpop)(found, one)
    kept: dict[Path, tuple[int, ...]] = {}
    n_bytes = 0
    for at_ns, path, inode, size in sorted(found, reverse=True):
        n_bytes += size
        if n_bytes > _MOST_FOLDER_BYTES:
            break
        kept[Path(path)] = (inode, at_ns, size)
    return kept, n - len(kept)


def _messages_in(path: Path) -> list[WorkerStatus | Running]:
    """Return the messages of one worker's file; none if it is gone or is no such file."""
    try:
        content = read_regular(path, most_bytes=_MOST_FILE_BYTES, follows_links=False)
    except OSError:
        return []
    found = [message for line in content.splitlines() if (message := _status_in(line)) is not None]
    return found if found and isinstance(found[0], WorkerStatus) else []
