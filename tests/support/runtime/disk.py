"""A disk that dies at the n-th operation on files below a folder, with or without the loss of what was not synced."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import TracebackType
from typing import Any

_OPERATIONS = ("write", "fsync", "ftruncate", "replace", "unlink", "mkdir")


class Crash(BaseException):
    """Raised where the process died; nothing catches it, and no cleaning up reaches the disk any more."""


class Disk:
    """Within the block, counts operations on files below ``root`` and dies before the ``dies_at``-th.

    A write dies half way. ``loses_power``: at the end of a block that died, what was written, cut or renamed and not
    yet synced is undone, as a machine without power may do; a file that was written anew and renamed without a sync of
    its content is there under its new name, and empty.
    """

    def __init__(self, root: Path, dies_at: int | None = None, *, loses_power: bool = False) -> None:
        self._root = root.resolve()
        self._dies_at = dies_at
        self._loses_power = loses_power
        self._real: dict[str, Any] = {}
        self._unsynced: dict[Path, bytes] = {}  # content as it was when last synced
        self._renamed: dict[Path, bytes | None] = {}
        self.n_operations = 0
        self.is_dead = False

    def __enter__(self) -> Disk:
        self._real = {name: getattr(os, name) for name in _OPERATIONS} | {"open": io.open}
        for name in _OPERATIONS:
            setattr(os, name, getattr(self, f"_{name}"))
        io.open = self._open  # type: ignore[assignment]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        for name in _OPERATIONS:
            setattr(os, name, self._real[name])
        io.open = self._real["open"]
        if self.is_dead and self._loses_power:
            for path, content in self._unsynced.items():
                path.write_bytes(content)
            for path, old in self._renamed.items():
                path.unlink() if old is None else path.write_bytes(old)
        return isinstance(error, Crash)

    def _path(self, place: Any) -> Path | None:
        path = Path(f"/proc/self/fd/{place}").readlink() if isinstance(place, int) else Path(place).absolute()
        return path if path.is_relative_to(self._root) else None

    def _step(self, place: Any) -> Path | None:
        path = self._path(place)
        if path is not None:
            self.n_operations += 1
            if self.is_dead or self.n_operations == self._dies_at:
                self.is_dead = True
                raise Crash
        return path

    def _change(self, path: Path) -> None:
        if path not in self._unsynced:
            with self._real["open"](path, "rb") as file:
                self._unsynced[path] = file.read()

    def _write(self, descriptor: int, data: Any) -> Any:
        path = self._path(descriptor)
        if path is None:
            return self._real["write"](descriptor, data)
        self._change(path)
        try:
            self._step(descriptor)
        except Crash:
            if self.n_operations == self._dies_at:
                self._real["write"](descriptor, bytes(data)[: len(data) // 2])
            raise
        return self._real["write"](descriptor, data)

    def _ftruncate(self, descriptor: int, length: int) -> None:
        path = self._step(descriptor)
        if path is not None:
            self._change(path)
        self._real["ftruncate"](descriptor, length)

    def _fsync(self, descriptor: int) -> None:
        path = self._step(descriptor)
        if path is None:
            self._real["fsync"](descriptor)
        else:  # what a real one would add is time
            self._unsynced.pop(path, None)
            self._renamed = {renamed: old for renamed, old in self._renamed.items() if renamed.parent != path}

    def _replace(self, source: Any, target: Any) -> None:
        path = self._step(target)
        if path is not None:
            self._renamed.setdefault(path, self._on_disk(path))
        self._real["replace"](source, target)
        if path is not None:
            self._unsynced.pop(path, None)
            if (content := self._unsynced.pop(Path(source).absolute(), None)) is not None:
                self._unsynced[path] = content

    def _on_disk(self, path: Path) -> bytes | None:
        """Return what the loss of power would leave of ``path``, None where it does not exist."""
        if path in self._unsynced:
            return self._unsynced[path]
        return path.read_bytes() if path.exists() else None

    def _unlink(self, path: Any, **how: Any) -> None:
        gone = self._step(path)
        self._real["unlink"](path, **how)
        if gone is not None:
            self._unsynced.pop(gone, None)

    def _mkdir(self, path: Any, *how: Any, **more: Any) -> None:
        self._step(path)
        self._real["mkdir"](path, *how, **more)

    def _open(self, file: Any, mode: str = "r", *how: Any, **more: Any) -> Any:
        path = None if isinstance(file, int) or mode in ("r", "rb") else self._step(file)
        if path is not None:
            # What goes through a file object reaches the disk behind our back, so it counts as not synced at once.
            self._unsynced[path] = b"" if mode[0] in "wx" else self._on_disk(path) or b""
        return self._real["open"](file, mode, *how, **more)
