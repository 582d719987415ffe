"""The requests to an object store that a registry makes: plain reads and writes, and writes under a condition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from streamad.errors import ObjectError
from streamad.objects.failures import one_line_errors
from streamad.objects.stores import Bucket, open_bucket, split_root

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_RETRIES = 2  # of each request; a worker polls every second, and a start does not wait for long
_MOST_BYTES = 64 << 20  # of what is held in memory: manifests and CURRENT


@dataclass(frozen=True, slots=True)
class Found:
    """The content of an object, and the mark of its version, for ``replace``."""

    content: bytes
    mark: Any


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing: its key, size, time of writing by the store's clock, and ETag."""

    key: str
    size_bytes: int
    written: datetime
    e_tag: str | None


class Objects(Protocol):
    """The objects under a URL, by their keys. Each method may raise ObjectError."""

    @property
    def root(self) -> str:
        """Return the URL, without a slash at its end."""

    def get(self, key: str) -> Found | None:
        """Return an object, None if it is missing. One that is too large for memory has no content."""

    def has(self, key: str) -> bool:
        """Return whether there is an object."""

    def fetch(self, key: str, path: Path, size_bytes: int) -> bool:
        """Write an object into a new file, one of another size as a hole of that size; False if it is missing."""

    def put(self, key: str, path: Path) -> None:
        """Write the content of a file, whatever was there."""

    def create(self, key: str, content: bytes) -> None:
        """Write an object where there is none; else ObjectError of the kind ``exists``."""

    def replace(self, key: str, content: bytes, mark: Any) -> None:
        """Write an object in place of the version ``mark``; if that is gone, ObjectError of the kind ``changed``."""

    def under(self, prefix: str) -> list[Listed]:
        """Return all objects whose keys begin with ``prefix`` and a slash."""

    def folders(self) -> list[str]:
        """Return the first parts of all keys."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is missing is no error."""


class BucketObjects:
    """Objects in a bucket, or under a prefix in it, by obstore; opened at the first request.

    obstore is an extra: it is imported only once ``open_bucket`` has found it.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._bucket, prefix = split_root(self._url)
        self._prefix = f"{prefix}/" if prefix else ""
        self._opened: Bucket | None = None

    @property
    def root(self) -> str:
        """Return the URL, without a slash at its end."""
        return self._url

    def get(self, key: str) -> Found | None:
        """Return an object, None if it is missing. One that is too large for memory has no content."""
        with missing_is_none(), self._asking(key) as store:
            import obstore  # noqa: PLC0415

            result = obstore.get(store, self._prefix + key)
            content = bytes(result.bytes()) if result.meta["size"] <= _MOST_BYTES else b""
            marks = {"e_tag": result.meta["e_tag"], "version": result.meta["version"]}
            return Found(content, {name: mark for name, mark in marks.items() if mark is not None})
        return None

    def has(self, key: str) -> bool:
        """Return whether there is an object."""
        with missing_is_none(), self._asking(key) as store:
            import obstore  # noqa: PLC0415

            obstore.head(store, self._prefix + key)
            return True
        return False

    def fetch(self, key: str, path: Path, size_bytes: int) -> bool:
        """Write an object into a new file, one of another size as a hole of that size; False if it is missing."""
        with path.open("xb") as file, missing_is_none():
            with self._asking(key) as store:
                import obstore  # noqa: PLC0415

                found = obstore.get(store, self._prefix + key)
                if found.meta["size"] != size_bytes:
                    file.truncate(found.meta["size"])
                    return True
                chunks = iter(found.stream())
            while True:
                with self._asking(key):
                    if (chunk := next(chunks, None)) is None:
                        return True
                file.write(chunk)
        path.unlink()
        return False

    def put(self, key: str, path: Path) -> None:
        """Write the content of a file, whatever was there."""
        with path.open("rb") as file, self._asking(key) as store:
            import obstore  # noqa: PLC0415

            obstore.put(store, self._prefix + key, file)

    def create(self, key: str, content: bytes) -> None:
        """Write an object where there is none; else ObjectError of the kind ``exists``."""
        with self._asking(key) as store:
            import obstore  # noqa: PLC0415

            obstore.put(store, self._prefix + key, content, mode="create", use_multipart=False)

    def replace(self, key: str, content: bytes, mark: Any) -> None:
        """Write an object in place of the version ``mark``; if that is gone, ObjectError of the kind ``changed``."""
        with self._asking(key) as store:
            import obstore  # noqa: PLC0415

            obstore.put(store, self._prefix + key, content, mode=mark, use_multipart=False)

    def under(self, prefix: str) -> list[Listed]:
        """Return all objects whose keys begin with ``prefix`` and a slash."""
        with self._asking(prefix) as store:
            import obstore  # noqa: PLC0415

            found = [each for some in obstore.list(store, f"{self._prefix}{prefix}/") for each in some]
        n = len(self._prefix)
        return [Listed(each["path"][n:], each["size"], each["last_modified"], each["e_tag"]) for each in found]

    def folders(self) -> list[str]:
        """Return the first parts of all keys."""
        with self._asking("") as store:
            import obstore  # noqa: PLC0415

            found = obstore.list_with_delimiter(store, self._prefix or None)
        return [each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"]]

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; one that is missing is no error."""
        for key in keys:
            with missing_is_none(), self._asking(key) as store:
                import obstore  # noqa: PLC0415

                obstore.delete(store, self._prefix + key)

    @contextmanager
    def _asking(self, key: str) -> Iterator[ObjectStore]:
        if self._opened is None:
            self._opened = open_bucket(self._bucket, retries=_RETRIES)
        with one_line_errors(f"{self._url}/{key}" if key else self._url):
            yield self._opened.store


@contextmanager
def missing_is_none() -> Iterator[None]:
    """Leave the block where an object in it is missing."""
    try:
        yield
    except ObjectError as error:
        if error.kind != "missing":
            raise
