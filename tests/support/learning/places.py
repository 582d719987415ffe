"""A registry in a folder or in an object store, how to damage it, and stores that die or lose answers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from streamad.errors import ObjectError, ObjectFailure
from streamad.learn.registry.manifest import MANIFEST_FILE, Manifest
from streamad.learn.registry.places.objects import ObjectPlace
from streamad.learn.registry.places.requests import BucketObjects, Found, Listed, Objects
from streamad.learn.registry.registry import Registry

NAME = "default"


class Killed(BaseException):
    """In place of SIGKILL: nothing that the process does from then on has an effect."""


class Held(Protocol):
    """A registry that tests look at from several machines, and damage."""

    kind: str

    def registry(self, machine: str = "here") -> Registry: ...

    def damage_current(self, content: bytes) -> None: ...

    def damage(self, version: str, file: str, change: Callable[[bytes], bytes]) -> None: ...

    def killed_at(self, number: int, *, after: bool) -> Any: ...


class HeldInFolder:
    kind = "folder"

    def __init__(self, root: Path) -> None:
        self.root = root

    def registry(self, machine: str = "here") -> Registry:
        return Registry(self.root)

    def damage_current(self, content: bytes) -> None:
        (self.root / NAME / "CURRENT").write_bytes(content)

    def damage(self, version: str, file: str, change: Callable[[bytes], bytes]) -> None:
        path = self.root / NAME / "versions" / version / file
        path.write_bytes(change(path.read_bytes()))

    @contextmanager
    def killed_at(self, number: int, *, after: bool) -> Iterator[tuple[Registry, list[str]]]:
        """Die before the ``number``-th change of the file system (after: a folder's changes have no lost answers)."""
        with dying_in_files(self.root, number + after) as changes:
            yield Registry(self.root), changes


class HeldInStore:
    kind = "s3"

    def __init__(self, url: str, machines: Path) -> None:
        self.url, self.machines = url, machines
        self.objects = BucketObjects(url)

    def registry(self, machine: str = "here", objects: Objects | None = None) -> Registry:
        return Registry(ObjectPlace(objects or BucketObjects(self.url), self.machines / machine))

    def damage_current(self, content: bytes) -> None:
        self._put(f"{NAME}/CURRENT", content)

    def damage(self, version: str, file: str, change: Callable[[bytes], bytes]) -> None:
        """Change an object; no machine has a copy of it any more."""
        key = self.key_of(version, file)
        found = self.objects.get(key)
        assert found is not None
        self._put(key, change(found.content))
        shutil.rmtree(self.machines, ignore_errors=True)

    def key_of(self, version: str, file: str) -> str:
        key = f"{NAME}/versions/{version}/{MANIFEST_FILE}"
        if file == MANIFEST_FILE:
            return key
        found = self.objects.get(key)
        assert found is not None
        manifest = msgspec.json.decode(found.content, type=Manifest)
        return f"{NAME}/files/{manifest.claim}/{manifest.files[file].sha256}"

    def _put(self, key: str, content: bytes) -> None:
        self.machines.mkdir(exist_ok=True)
        path = self.machines / "content"
        path.write_bytes(content)
        self.objects.put(key, path)

    @contextmanager
    def killed_at(self, number: int, *, after: bool) -> Iterator[tuple[Registry, list[str]]]:
        """Die before or after the ``number``-th write of an object."""
        store = FailingObjects(BucketObjects(self.url), number, after=after, dies=True)
        yield self.registry(f"killed-{number}-{after}", store), store.writes


class FailingObjects:
    """Passes requests on, but for the ``number``-th write (from 1 on): that fails before or after it is carried out.

    ``dies``: the process dies there; else it gets no answer, for ``times`` requests, writes and reads alike.
    ``refusal`` comes in place of no answer: that of a second try by the client, whose first one was carried out.
    """

    def __init__(
        self,
        objects: Objects,
        number: int,
        *,
        after: bool,
        dies: bool = False,
        times: int = 1,
        refusal: ObjectFailure = "away",
    ) -> None:
        self.objects, self.number, self.after, self.dies, self.times = objects, number, after, dies, times
        self.refusal = refusal
        self.writes: list[str] = []
        self.on_write: Callable[[str], None] = lambda key: None
        self._is_dead = False
        self._n_failed = 0

    @property
    def root(self) -> str:
        return self.objects.root

    def get(self, key: str) -> Found | None:
        self._read()
        return self.objects.get(key)

    def has(self, key: str) -> bool:
        self._read()
        return self.objects.has(key)

    def fetch(self, key: str, path: Path, size_bytes: int) -> bool:
        self._read()
        return self.objects.fetch(key, path, size_bytes)

    def under(self, prefix: str) -> list[Listed]:
        self._read()
        return self.objects.under(prefix)

    def folders(self) -> list[str]:
        self._read()
        return self.objects.folders()

    def put(self, key: str, path: Path) -> None:
        self._written(key, lambda: self.objects.put(key, path))

    def create(self, key: str, content: bytes) -> None:
        self._written(key, lambda: self.objects.create(key, content))

    def replace(self, key: str, content: bytes, mark: Any) -> None:
        self._written(key, lambda: self.objects.replace(key, content, mark))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._written(key, lambda key=key: self.objects.delete([key]))  # type: ignore[misc]

    def _read(self) -> None:
        if self._is_dead:
            raise Killed
        if len(self.writes) >= self.number and self._n_failed < self.times:
            self._fail()

    def _written(self, key: str, write: Callable[[], None]) -> None:
        if self._is_dead:
            raise Killed
        if not key.startswith(".streamad-check"):
            self.writes.append(key)
        fails = len(self.writes) >= self.number and self._n_failed < self.times
        if fails and not self.after:
            self._fail()
        write()
        self.on_write(key)
        if fails:
            self._fail()

    def _fail(self) -> None:
        self._n_failed += 1
        if self.dies:
            self._is_dead = True
            raise Killed
        raise ObjectError(self.refusal, f"{self.root}: the store cannot be reached; check the endpoint and the network")


_dying: list[tuple[str, int, list[str]]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _dying or event not in {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}:
        return
    root, number, changes = _dying[-1]
    if len(changes) >= number:
        raise Killed
    path = arguments[0]
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & 0o103):  # O_WRONLY, O_RDWR, O_CREAT
        return
    if not str(path).startswith(root) and not isinstance(path, int):
        return
    changes.append(f"{event} {path}")
    if len(changes) >= number:
        raise Killed


_hooked: list[bool] = []


@contextmanager
def dying_in_files(root: Path, number: int) -> Iterator[list[str]]:
    if not _hooked:
        sys.addaudithook(_hook)  # for good: Python removes none
        _hooked.append(True)
    _dying.append((str(root), number, changes := []))
    try:
        yield changes
    finally:
        _dying.pop()
        for descriptor in Path("/proc/self/fd").iterdir():  # a dead process holds no locks
            with suppress(OSError):
                if str(descriptor.readlink()).startswith(str(root)):
                    os.close(int(descriptor.name))
