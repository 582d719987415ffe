"""The storage of an inlier store: a folder or an object store behind one small port.

Every file is written once and is whole or absent: in a folder by temporary file, fsync and rename, in an object store
by one PUT.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from fsspec.core import split_protocol, url_to_fs

from streamad.errors import OutputError, StoreError, StreamadError
from streamad.plugins import split_url
from streamad.system.files import sync_folder, write_atomically, writing
from streamad.system.opening import open_regular
from streamad.system.rights import reason

_LOCAL = (None, "file", "local")
_ABANDONED_AFTER_S = 3600
_CHECK = "check that it exists, the credentials and rights, and the network"
_EXTRAS = {"s3": "pip install s3fs", "s3a": "pip install s3fs"}


class UnreadableError(Exception):
    """Raised if one file cannot be used, while others may be; the text is the reason in a few words."""


class UnreadError(UnreadableError):
    """Raised if a file cannot be read at all (rights, disk, network): it may be whole."""


class Storage(Protocol):
    """Named files of bytes: names are relative paths with '/', of two parts at most.

    Reading raises FileNotFoundError for a name that is gone and UnreadError for a file that cannot be read; every
    method raises StoreError if the storage as a whole does not answer.
    """

    label: str

    def prepare(self) -> None:
        """Make ready for writing; temporary files of killed writers are removed after an hour."""
        ...

    def names(self) -> dict[str, int]:
        """Return the present size in bytes of each file that is not hidden, by name."""
        ...

    def read(self, name: str, start: int = 0) -> bytes:
        """Return the content from ``start`` on."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a new file, durable once this returns; after a StoreError there is no such file."""
        ...

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        ...


def open_storage(url: str, base_dir: Path) -> Storage:
    """Return the storage at ``url``: a path (relative ones from ``base_dir``) or any fsspec URL. Raises StoreError."""
    protocol, path = split_protocol(url)
    if protocol in _LOCAL:
        return _Folder(base_dir / (split_url(url)[1] if protocol else path))  # file://localhost/store, too
    try:
        return _ObjectStore(url, *url_to_fs(url, use_listings_cache=False))
    except (ImportError, ValueError) as error:
        advice = _EXTRAS.get(protocol or "", "install its fsspec package or correct learning.store")
        raise StoreError(f"the inlier store {url} cannot be opened ({_line(error)}): {advice}") from error
    except Exception as error:  # some backends connect here, and every one has errors of its own
        raise StoreError(f"the inlier store {url} cannot be opened ({_line(error)}); {_CHECK}") from error


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


# --- a folder -------------------------------------------------------------------------------------------------------


class _Folder:
    def __init__(self, root: Path) -> None:
        self.label = str(root)
        self._root = root

    def prepare(self) -> None:
        with _as_store_error(), writing(self._root):
            self._root.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):  # a process with read rights alone removes nothing
            self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        probe = self._root / f".{secrets.token_hex(8)}.tmp"
        probe.touch()
        now_s = probe.stat().st_mtime  # by the clock of the file system, which may be on another machine
        probe.unlink()
        for path in (*self._root.glob(".*.tmp"), *self._root.glob("*/.*.tmp")):
            with suppress(FileNotFoundError):
                if now_s - path.stat().st_mtime > _ABANDONED_AFTER_S:
                    path.unlink()

    def names(self) -> dict[str, int]:
        """Return the sizes by name; none if the folder was removed: the next write makes it again."""
        sizes = {}
        for folder in self._entries(self._root):
            with _listing(folder):
                paths = self._entries(folder) if folder.is_dir() else []
            for path in paths:
                with _listing(path), suppress(FileNotFoundError):
                    sizes[f"{folder.name}/{path.name}"] = path.stat().st_size
        return sizes

    def _entries(self, folder: Path) -> list[Path]:
        with _listing(folder), suppress(FileNotFoundError):
            return [path for path in folder.iterdir() if not path.name.startswith(".")]
        return []

    def read(self, name: str, start: int = 0) -> bytes:
        try:
            with os.fdopen(open_regular(self._root / name), "rb") as file:
                file.seek(start)
                return file.read()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UnreadError(reason(error, self._root / name, "read")) from error

    def write(self, name: str, content: bytes) -> None:
        path = self._root / name
        with _as_store_error():
            with writing(path):
                if not path.parent.is_dir():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    sync_folder(path.parent.parent)
            write_atomically(path, content, temporary=path.with_name(f".{secrets.token_hex(8)}.tmp"))

    def delete(self, name: str) -> None:
        with _as_store_error(), writing(self._root / name):
            (self._root / name).unlink(missing_ok=True)


@contextmanager
def _listing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # such as a stale handle of a network share, which recovers by itself
        raise StoreError(
            f"cannot read the inlier store: {path}: {reason(error, path, 'read')}; check learning.store"
        ) from error


@contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except OutputError as error:
        raise StoreError(f"inlier store: {error}") from error


# --- an object store ------------------------------------------------------------------------------------------------


class _ObjectStore:
    def __init__(self, url: str, fs: Any, root: str) -> None:
        self.label = url
        self._fs = fs
        self._root = root.rstrip("/")

    def prepare(self) -> None:
        """List the names: a missing bucket or right shows at once."""
        self.names()

    def names(self) -> dict[str, int]:
        with self._answering("read"):
            found = self._fs.find(self._root, detail=True)
            sizes = {path[len(self._root) :].lstrip("/"): int(entry["size"]) for path, entry in found.items()}
        return {name: size for name, size in sizes.items() if not name.rpartition("/")[2].startswith(".")}

    def read(self, name: str, start: int = 0) -> bytes:
        with self._answering("read"):
            try:
                return bytes(self._fs.cat_file(f"{self._root}/{name}", start=start or None))
            except FileNotFoundError as error:
                raise _GoneError(name) from error
            except PermissionError as error:
                raise UnreadError(_line(error)) from error

    def write(self, name: str, content: bytes) -> None:
        with self._answering("write"):
            self._fs.pipe_file(f"{self._root}/{name}", content)

    def delete(self, name: str) -> None:
        with self._answering("write"), suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{name}")

    @contextmanager
    def _answering(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (_GoneError, UnreadableError, StreamadError):
            raise
        except Exception as error:  # every backend has errors of its own
            raise StoreError(f"cannot {verb} the inlier store {self.label}: {_line(error)}; {_CHECK}") from error


class _GoneError(FileNotFoundError):
    """Raised if an object is missing, not if the bucket is."""
