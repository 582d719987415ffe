"""Objects as files: each is copied to a temporary folder while it is read, and the next one ahead of it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final

from streamad.errors import ObjectError, SourceError
from streamad.objects.failures import one_line_errors
from streamad.objects.stores import Bucket
from streamad.system.locks import try_lock
from streamad_connectors.files.formats.reading import InterruptedReadError, check_stop

_PREFIX: Final = "streamad-objects-"
_LOCK: Final = ".lock"
_CHUNK_BYTES = 1 << 20
_LOOK_S = 0.1
_UTC: Final = "+00:00"
"""The end of a tag that is a time."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was listed; ``tag`` is its ETag without quotes, or else its time of change, "" if it has neither.

    Unless it ``is_pinned``, its tag is no ETag, and it may not be replaced, such as a file of a table.
    """

    key: str
    size: int
    mtime_ns: int
    tag: str
    copies: Copies = field(repr=False, compare=False)
    is_pinned: bool = True

    @property
    def content(self) -> str:
        """Return the tag of an object that may be replaced; files of tables are not."""
        return self.tag if self.is_pinned else ""

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep a copy of this very version at its path for the block. Raises SourceError."""
        with self.copies.held(self):
            yield

    def write_to(self, file: BinaryIO, check: Callable[[], None]) -> None:
        """Write what the object holds; ``check`` raises once nobody waits for it. Raises SourceError, OSError."""
        bucket = self.copies.bucket
        url, n_bytes = bucket.url(self.key), 0
        try:
            with one_line_errors(url):
                found = fetched(bucket, self.key, pinned_to=self.tag if self.is_pinned else "")
                is_same = found.meta["size"] == self.size and (not self.is_pinned or _tag_of(found.meta) == self.tag)
                chunks = iter(found.stream(min_chunk_size=_CHUNK_BYTES))
            if not is_same:
                raise ObjectError("changed", url)
            while True:
                check()
                with one_line_errors(url):
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                if (n_bytes := n_bytes + len(chunk)) > self.size:
                    raise SourceError(f"{url}: the answer has more than the {self.size} bytes that it names; try again")
                file.write(chunk)
        except ObjectError as error:
            raise _unread(error, url) from None
        if n_bytes != self.size:
            raise SourceError(f"{url}: the answer ended after {n_bytes} of {self.size} bytes; try again")


class Copies:
    """The copies of the objects of ``bucket``: those held, and the one that is read next (``set_order``).

    They lie under their keys in a folder that is removed by ``close``, with this object, at the end of the process,
    or after a kill when the next one is made.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._after: dict[str, StoredObject] = {}
        self.bucket = bucket
        self._folder: Path | None = None
        self._held: Counter[str] = Counter()
        self._ahead: tuple[StoredObject, Future[None]] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closed = threading.Event()
        self._lock = threading.RLock()

    @property
    def folder(self) -> Path:
        """Return the folder of the copies; it is made at the first call."""
        with self._lock:
            if self._folder is None:
                _remove_orphans()
                self._folder, descriptor = _new_folder()
                weakref.finalize(self, _remove_own, self._folder, descriptor, os.getpid())
            return self._folder

    def path(self, key: str) -> Path:
        """Return where the copy of ``key`` lies while it is held. Raises SourceError if that is not in the folder."""
        if key.startswith("/") or "\0" in key or not {".", ".."}.isdisjoint(key.split("/")):
            raise SourceError(f"{self.bucket.url(key)!a}: no file may have this name here; rename it")
        return self.folder / key

    def named(self, text: str) -> str:
        """Return ``text`` with the URLs of objects in place of the paths of their copies."""
        return text if self._folder is None else text.replace(str(self._folder), self.bucket.root)

    def set_order(self, items: Sequence[StoredObject]) -> None:
        """Say in which order objects are read."""
        self._after = {item.key: following for item, following in pairwise(items)}

    @contextmanager
    def held(self, item: StoredObject) -> Iterator[None]:
        """Keep a copy of ``item`` for the block, and begin to copy what comes after it. Raises SourceError."""
        with self._lock:
            self._held[item.key] += 1
            is_there = self._held[item.key] > 1
        try:
            if not is_there:
                self._obtain(item)
                self._begin_ahead(item)
            yield
        finally:
            with self._lock:
                self._held[item.key] -= 1
                if not self._held[item.key]:
                    del self._held[item.key]
                    self._drop(item)

    def close(self) -> None:
        """Stop copying, and remove all copies; safe to call twice, and to read again afterwards."""
        with self._lock:
            closed, self._closed = self._closed, threading.Event()
            pool, self._pool, self._ahead = self._pool, None, None
        closed.set()
        if pool is not None:
            pool.shutdown(cancel_futures=True)
        if self._folder is not None:
            _empty(self._folder)

    def _obtain(self, item: StoredObject) -> None:
        check = self._checks_stop()
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is item:
            while not ahead[1].done():
                check()
                wait((ahead[1],), timeout=_LOOK_S)
            if ahead[1].exception() is None:
                return
            # It is tried again: there may be room now, and the store may be back.
        elif ahead is not None:  # not what was asked for: at most one lies there unread
            with suppress(SourceError, InterruptedReadError, OSError):
                ahead[1].result()
            self._drop(ahead[0])
        self._copy(item, check)

    def _begin_ahead(self, item: StoredObject) -> None:
        """Begin to copy the object after ``item``; if that fails, it is tried again once it is asked for."""
        following = self._after.get(item.key)
        with self._lock:
            if following is None or self._ahead is not None:
                return
            self._pool = self._pool or ThreadPoolExecutor(1, "streamad-copy")
            self._ahead = following, self._pool.submit(self._copy, following, self._checks_stop())

    def _checks_stop(self) -> Callable[[], None]:
        """Return what raises InterruptedReadError once these copies are closed, or nobody waits for the reader."""
        closed = self._closed

        def check() -> None:
            if closed.is_set():
                raise InterruptedReadError
            check_stop()

        return check

    def _copy(self, item: StoredObject, check: Callable[[], None]) -> None:
        """Copy ``item`` as it was listed. Raises SourceError, InterruptedReadError."""
        path, url = self.path(item.key), self.bucket.url(item.key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                if item.size:  # of nothing, as a mark of a folder is, there may be no object to get
                    item.write_to(file, check)
            os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
        except BaseException as error:
            with suppress(OSError):
                path.unlink()
            if isinstance(error, OSError):
                raise _unwritten(error, url, item.size) from error
            raise

    def _drop(self, item: StoredObject) -> None:
        path = self.path(item.key)
        with suppress(OSError):  # it was not made, or another copy lies in one of its folders
            path.unlink()
            for parent in path.parents:
                if parent == self.folder:
                    break
                parent.rmdir()


def fetched(bucket: Bucket, key: str, pinned_to: str = "") -> Any:
    """Begin to read ``key``, of the version with the tag ``pinned_to``; raises what obstore does.

    Web servers may give weak ETags, which match nothing (RFC 9110, 13.1.1): the answer's must be compared.
    """
    import obstore  # noqa: PLC0415 - an extra

    is_sent = pinned_to and not pinned_to.endswith(_UTC) and not bucket.root.startswith("http")
    return obstore.get(bucket.store, key, options={"if_match": f'"{pinned_to}"'} if is_sent else {})


def listed(meta: Any, copies: Copies) -> StoredObject:
    """Return the object of what obstore says of it."""
    changed = meta["last_modified"]
    return StoredObject(meta["path"], meta["size"], round(changed.timestamp()) * 10**9, _tag_of(meta), copies)


def _tag_of(meta: Any) -> str:
    changed = meta["last_modified"]
    tag = (meta["e_tag"] or "").strip('"')  # Azure lists them without
    return tag or (changed.isoformat() if changed.timestamp() > 0 else "")


def _unread(error: ObjectError, url: str) -> SourceError:
    if error.kind == "changed":
        return SourceError(f"{url}: was replaced after it was listed; run again to read one version of it")
    if error.kind == "missing":
        return SourceError(f"{url}: is gone since it was listed; run again to read what is there")
    return SourceError(str(error))


def _unwritten(error: OSError, url: str, size: int) -> SourceError:
    place = tempfile.gettempdir()
    if error.errno in _FULL:
        return SourceError(
            f"{url}: no room for its copy of {size / 1e6:,.1f} MB in {place}; free some, or set TMPDIR to another"
        )
    if error.errno == errno.ENAMETOOLONG:
        return SourceError(f"{url}: a part of its name has over 255 bytes, too many for a file here; rename it")
    return SourceError(f"{url}: its copy in {place} cannot be written ({error.strerror or error}); set TMPDIR")


def _new_folder() -> tuple[Path, int]:
    """Return a new folder and the descriptor that holds its lock. Raises SourceError."""
    try:
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            descriptor = try_lock(folder.with_name(folder.name + _LOCK))
            if descriptor is not None and folder.is_dir():
                return folder, descriptor
            if descriptor is not None:  # another process took it for an orphan before it was locked
                os.close(descriptor)
    except OSError as error:
        raise _unwritten(error, "temporary folder", 0) from error


def _remove_orphans() -> None:
    """Remove the folders of this user's processes that were killed: nobody holds their locks."""
    place = Path(tempfile.gettempdir())
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.name.endswith(_LOCK) or folder.lstat().st_uid != os.geteuid():
                continue
            if (descriptor := try_lock(folder.with_name(folder.name + _LOCK))) is not None:
                _remove(folder, descriptor)


def _remove_own(folder: Path, descriptor: int, pid: int) -> None:
    """Remove a folder, unless this process is only a copy (fork) of the one that made it."""
    if os.getpid() == pid:
        _remove(folder, descriptor)


def _remove(folder: Path, descriptor: int) -> None:
    _empty(folder)
    with suppress(OSError):
        folder.rmdir()
    folder.with_name(folder.name + _LOCK).unlink(missing_ok=True)
    os.close(descriptor)


def _empty(folder: Path) -> None:
    for item in list(folder.iterdir()) if folder.is_dir() else []:
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item, ignore_errors=True)
        else:
            item.unlink(missing_ok=True)
