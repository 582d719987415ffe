"""Finds the files of a partition: those to read again, the current one, and those that come after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from streamad.errors import SourceError
from streamad.plugins import ConnectorContext
from streamad.types import FILE_OFFSETS
from streamad_connectors.files.cursors import (
    FinishedFile,
    JoinedCursor,
    check_unchanged,
    sample_digest,
)
from streamad_connectors.files.follow.growing import GrowingFile
from streamad_connectors.files.follow.listing import Key, ListedFile, Listing
from streamad_connectors.files.formats.csv_files.rows import read_csv
from streamad_connectors.files.formats.jsonl import read_jsonl
from streamad_connectors.files.formats.known import format_of
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord
from streamad_connectors.files.joined import forgotten_error, gone_error, grew_error, order_key, too_late_error


@dataclass(frozen=True, slots=True)
class Piece:
    """A file to read from a local offset on.

    ``size``: that of a finished one that is read again, and ``written`` the times when it was written.
    """

    listed: ListedFile
    ordinal: int
    begin: int
    size: int | None = None
    written: tuple[tuple[int, int], ...] = ()


class Places:
    """Finds files of a partition by what they hold, because rotation renames them.

    ``log``: the path that all of them were written under; None: any files of the URL.
    """

    def __init__(self, listing: Listing, options: FileOptions, context: ConnectorContext, log: Path | None) -> None:
        self._listing, self._options, self._context, self._log = listing, options, context, log

    def first(self, listed: Iterable[ListedFile]) -> list[ListedFile]:
        """Return the partition's own of the ``listed`` files, in order."""
        return self._in_order(file for file in listed if self._log in (None, file.log))

    def has_older(self, listed: Iterable[ListedFile]) -> bool:
        """Return whether files were rotated out of the first one that are not among the ``listed``."""
        files = self.first(listed)
        known = {file.identity for file in files}
        return bool(files) and any(file.identity not in known for file in self._listing.rotated(files[0].log))

    def plan(self, offset: int, known: JoinedCursor | None, listed: Iterable[ListedFile]) -> list[Piece]:
        """Return the finished files to read again from ``offset`` on, and the current one as ``known`` has it.

        Without ``known``, the file of ``offset``. Raises SourceError if one is gone or holds other records.
        """
        ordinal, local = divmod(offset, FILE_OFFSETS)
        if known is None:
            files = self.first(listed)
            if ordinal >= len(files) > 0:
                raise gone_error(f"file {ordinal} of {self._listing.name(files[0].log)}")
            return [Piece(files[ordinal], ordinal, local)] if files else []
        if ordinal < known.dropped:
            raise forgotten_error(known.current.name, known.dropped - ordinal)
        if self._log is None:
            self._check_finished(known)
        pieces = [
            Piece(self._find_finished(old), number, 0, old.size, old.written)
            for number, old in enumerate(known.finished, known.dropped)
            if number >= ordinal
        ]
        pieces.append(Piece(self.find(known), known.ordinal, 0))
        return [replace(pieces[0], begin=local), *pieces[1:]]

    def find(self, known: JoinedCursor) -> ListedFile:
        """Return the file that holds what was read of the current one. Raises SourceError if there is none."""
        cursor = known.current
        log = self._path(cursor.name)
        files = self._written_under(log)
        if cursor.is_unread:  # the oldest that is not from before
            files = [file for file in files if not file.is_rotated or file.mtime_ns >= known.mtime_ns]
            if files := [file for file in files if not self._is_finished(file, known)]:
                return files[0]
        for file in sorted(files, key=lambda file: file.identity.inode != cursor.inode):
            if file.size >= cursor.size and sample_digest(file.path, cursor.size) == cursor.digest:
                return file
        if not files:
            raise SourceError(
                f"{log}: is gone, and was not finished; put it back, unpacked, so that its rest can be read, or move "
                "the checkpoint and the outputs away to begin anew"
            )
        active = next((file for file in files if not file.is_rotated), files[-1])
        try:
            check_unchanged(active.path, cursor, lambda: self._records(active, cursor.begin))
        except SourceError as error:
            raise self.replaced(log) from error
        return active

    def moved(self, listed: ListedFile) -> ListedFile:
        """Return a file that was renamed since it was listed. Raises SourceError if it is gone."""
        for file in self._written_under(listed.log):
            if file.identity == listed.identity:
                return file
        raise gone_error(self._listing.name(listed.log))

    def replaced(self, log: Path) -> SourceError:
        """Return the error that no file holds any more what was read of ``log``."""
        return SourceError(
            f"{log}: no longer holds the records that were read, nor does a rotated file such as {log.name}.1: "
            "it was replaced or cut; put that file back, unpacked, or give the new one another name"
        )

    def after(
        self, before: ListedFile, file: GrowingFile, mtime_ns: int, known: JoinedCursor, listed: Iterable[ListedFile]
    ) -> list[ListedFile]:
        """Return the files that come after the current one, ``file``, which was found as ``before``.

        ``mtime_ns`` was its time of change when it was begun. Raises SourceError if a new file comes before it, or a
        finished one grew.
        """
        files = self.first(listed)
        here = next((found for found in files if found.identity == file.identity), None)
        is_newest = here is not None and not here.is_rotated
        if self._log is not None and is_newest:
            return []
        if not is_newest:
            rotated = self._listing.rotated(before.log)
            here = here or next((found for found in rotated if found.identity == file.identity), None)
            files = list({found.identity: found for found in (*files, *rotated)}.values())
        if here is None:  # deleted
            here = before._replace(path=before.log.with_name(f"{before.log.name}.1"), rank=-1, mtime_ns=file.mtime_ns)
        position = self._key(here, mtime_ns)
        if self._log is None:
            self._check_order(files, position, known)
        later = (found for found in files if self._key(found) > position and found.identity != file.identity)
        return self._in_order(found for found in later if not self._is_finished(found, known))

    def _check_order(self, files: Iterable[ListedFile], position: Key, known: JoinedCursor) -> None:
        if known.dropped and not known.through:
            return  # reading began at a later file: those before it are not known
        finished = {old.name: old for old in known.finished}
        order = self._options.order
        forgotten = order_key(known.through, known.through_ns, order) if known.dropped else None
        for file in files:
            name, key = self._listing.name(file.log), self._key(file)
            if file.is_rotated or key >= position or name == known.current.name:
                continue
            if name in finished:
                if file.size > finished[name].size:
                    raise grew_error(file.path)
            elif forgotten is None or key[0] > forgotten:
                raise too_late_error(file.path, known.current.name)

    def _is_finished(self, file: ListedFile, known: JoinedCursor) -> bool:
        """Return whether ``file``, which by its time comes after what was read, was read all the same."""
        name = self._listing.name(file.log)
        return any(
            old.name == name and old.size == file.size and sample_digest(file.path, old.size) == old.digest
            for old in known.finished
        )

    def _check_finished(self, known: JoinedCursor) -> None:
        """Raise SourceError if a finished file that kept its name grew, or holds other records."""
        names = [known.current.name, *(old.name for old in known.finished)]
        for old in known.finished:
            if names.count(old.name) == 1 and (file := self._listing.look_at(self._path(old.name))) is not None:
                self._holds(file, old, is_named=True)

    def _find_finished(self, old: FinishedFile) -> ListedFile:
        files = self._written_under(self._path(old.name))
        for file in sorted(files, key=lambda file: file.size != old.size):  # others may begin with the same bytes
            if self._holds(file, old, is_named=False):
                return file
        raise gone_error(old.name)

    def _holds(self, file: ListedFile, old: FinishedFile, *, is_named: bool) -> bool:
        """Return whether ``file`` is the finished one. Raises SourceError if it grew; if ``is_named``, else too."""
        is_same = file.size >= old.size and sample_digest(file.path, old.size) == old.digest
        if is_same and file.size > old.size:
            raise grew_error(file.path)
        if not is_same and is_named:
            raise self.replaced(file.path)
        return is_same

    def _written_under(self, log: Path) -> list[ListedFile]:
        """Return the files written under ``log`` that are there, the oldest first."""
        active = self._listing.look_at(log)
        return self._in_order([*self._listing.rotated(log), *([] if active is None else [active])])

    def _records(self, file: ListedFile, begin: int) -> Iterator[ReadRecord]:
        read = read_csv if format_of(file.log, self._options).name == "csv" else read_jsonl
        return read(file.path, begin, self._options, self._context)

    def _path(self, name: str) -> Path:
        return self._listing.path(name)

    def _key(self, file: ListedFile, since_ns: int | None = None) -> Key:
        return file.key(self._listing.name(file.log), self._options.order, since_ns)

    def _in_order(self, files: Iterable[ListedFile]) -> list[ListedFile]:
        return sorted(files, key=self._key)
