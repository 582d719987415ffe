"""Finds the objects of a URL as a local folder's files are found: a key, a folder, hive folders, or a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import Any

from streamad.errors import ObjectError, SourceError
from streamad.objects.failures import one_line_errors
from streamad.objects.stores import Bucket
from streamad_connectors.files.finding import FoundFile, found_file
from streamad_connectors.files.formats.known import ENDINGS, format_by_ending
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.hive import is_partition
from streamad_connectors.objects.copies import Copies, StoredObject, fetched, listed

_PAGE = 1000
_MARKS = "*?["


class Objects:
    """The objects of ``key`` in ``bucket`` that are recordings."""

    def __init__(self, bucket: Bucket, key: str, options: FileOptions, copies: Copies) -> None:
        self._bucket, self._options, self._copies = bucket, options, copies
        self._key = key.strip("/")

    def find(self) -> list[FoundFile]:
        """Return the recordings in the order of their keys; partitions are named below the key. Raises SourceError."""
        try:
            if (single := self._single()) is not None:
                return [self._found(single, Path(single.key).name)]
            base, objects = self._many()
        except ObjectError as error:
            raise SourceError(str(error)) from None
        n_base = len(base) + 1 if base else 0
        objects.sort(key=lambda item: item.key.split("/"))
        return [self._found(item, item.key[n_base:]) for item in objects]

    def only(self, partition: str) -> list[FoundFile]:
        """Return the recording that is ``partition``, without a listing. Raises SourceError."""
        base = self._base()
        keys = [f"{base}/{partition}" if base else partition]
        if self._key.rpartition("/")[2] == partition:
            keys.insert(0, self._key)
        try:
            for key in keys:
                if (item := self._head(key, may_list=False)) is not None:
                    return [self._found(item, partition)]
        except ObjectError as error:
            raise SourceError(str(error)) from None
        raise SourceError(f"{self._bucket.url(keys[0])}: is gone since it was listed; run again to read what is there")

    def _found(self, item: StoredObject, partition: str) -> FoundFile:
        return found_file(self._copies.path(item.key), partition, self._options, item, folders=item.key)

    def _single(self) -> StoredObject | None:
        """Return the object of the key itself, None if it is a folder or a pattern."""
        if not self._key or (self._options.format == "auto" and format_by_ending(Path(self._key)) is None):
            return None
        return self._head(self._key)

    def _head(self, key: str, *, may_list: bool = True) -> StoredObject | None:
        """Return the object ``key``, None if there is none, or if it cannot be told: listing says why.

        Raises ObjectError, if it is not listed afterwards also why it cannot be told.
        """
        import obstore  # noqa: PLC0415 - an extra

        try:
            with one_line_errors(self._bucket.url(key)):
                if self._bucket.root.startswith("http"):  # a signed URL is for GET alone
                    return listed(fetched(self._bucket, key).meta, self._copies)
                return listed(obstore.head(self._bucket.store, key), self._copies)
        except ObjectError as error:
            is_http = self._bucket.root.startswith("http")
            if error.kind == "missing" and not (is_http and may_list):
                return None
            if error.kind in ("refused", "other") and may_list and not is_http:
                return None
            raise

    def _base(self) -> str:
        """Return the folder that the names of partitions begin below: what comes before a wildcard."""
        parts = self._key.split("/")
        first = next((i for i, part in enumerate(parts) if any(mark in part for mark in _MARKS)), len(parts))
        return "/".join(parts[:first])

    def _many(self) -> tuple[str, list[StoredObject]]:
        base = self._base()
        pattern = self._key[len(base) :].strip("/").split("/") if base != self._key else None
        n_base = len(base) + 1 if base else 0
        found, deeper = [], None
        n_deeper = 0
        for meta in self._listed(base):
            parts = meta["path"][n_base:].split("/")
            if parts[-1].startswith(".") or not self._is_recording(parts[-1], meta["size"]):
                continue
            if _matches(parts, pattern) if pattern is not None else all(map(is_partition, parts[:-1])):
                found.append(listed(meta, self._copies))
            elif pattern is None:
                n_deeper, deeper = n_deeper + 1, deeper or parts
        if not found:
            raise SourceError(self._nothing(n_deeper, deeper))
        return base, found

    def _listed(self, base: str) -> Iterator[Any]:
        import obstore  # noqa: PLC0415 - an extra

        url = self._bucket.url(base)
        with one_line_errors(url):
            pages = iter(obstore.list(self._bucket.store, base or None, chunk_size=_PAGE))
        while True:
            with one_line_errors(url):
                page = next(pages, None)
            if page is None:
                return
            yield from page

    def _is_recording(self, name: str, size: int) -> bool:
        """Return whether an object is one: with the option ``format`` all are but empty ones, which mark folders."""
        if format_by_ending(Path(name)) is not None:
            return True
        return self._options.format != "auto" and size > 0

    def _nothing(self, n_deeper: int, deeper: list[str] | None) -> str:
        url = self._bucket.url(self._key)
        if any(mark in self._key for mark in _MARKS):
            return f"{url}: no object matches this pattern; check it"
        if deeper is not None:
            ending = "".join(Path(deeper[-1]).suffixes[-2:])
            pattern = "/".join([escape(url), *("*" for _ in deeper[:-1]), f"*{ending}"])
            return f"{url}: no recordings in this folder itself, but {n_deeper} lie deeper: write '{pattern}'"
        return f"{url}: no recordings here (looked for {' '.join(ENDINGS)}); check the name, or write ?format=csv"


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Return whether the glob ``pattern`` matches; ``**`` is any number of folders."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
