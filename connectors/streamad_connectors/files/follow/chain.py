"""One partition of followed files: the file being written, and those that it continues, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace as with_fields
from pathlib import Path

from msgspec.structs import replace

from streamad.plugins import ConnectorContext
from streamad.telemetry.logs import get_logger
from streamad.types import FILE_OFFSETS, RecordBatch
from streamad_connectors.files.cursors import FileCursor, JoinedCursor, encode_cursor
from streamad_connectors.files.finding import with_ids
from streamad_connectors.files.follow.growing import GrowingFile, OtherBytesError
from streamad_connectors.files.follow.lines import CsvRows, Cutter, JsonLines
from streamad_connectors.files.follow.listing import ListedFile, Listing
from streamad_connectors.files.follow.places import Piece, Places
from streamad_connectors.files.formats.known import format_of
from streamad_connectors.files.formats.options import FileOptions
from streamad_connectors.files.formats.reading import ReadRecord, batched, shrunk_error
from streamad_connectors.files.hive import fields_of, with_columns
from streamad_connectors.files.joined import History, grew_error, placed


class Chain:
    """Reads files one after the other; the last one grows. Methods block; none is called beside another one.

    A file is finished once a later one holds something: then it is read to its end, and the next one begins. ``log``:
    the path that all of them were written under; None: any files of the URL. ``next_offset`` is the end of what was
    returned.
    """

    def __init__(
        self, name: str, log: Path | None, listing: Listing, options: FileOptions, context: ConnectorContext
    ) -> None:
        # Above 15 attributes: the present file, the one before and those to come; a look may move all three at once.
        self.name = name
        self.next_offset = 0
        self._is_log = log is not None
        self._listing, self._options, self._context = listing, options, context
        self._places = Places(listing, options, context, log)
        self._history = History(None)
        self._plan: deque[Piece] = deque()
        self._later: list[ListedFile] = []
        self._is_polled = False
        self._piece: Piece | None = None
        self._file: GrowingFile | None = None
        self._cutter: Cutter = JsonLines(options, 0, is_line_start=True)
        self._cursor: FileCursor | None = None
        self._mtime_ns = 0  # of the current file, when it was begun
        self._finished: GrowingFile | None = None
        self._resting: tuple[int, int] | None = None

    @property
    def path(self) -> Path:
        """Return the path of the current file, or what stands for it before there is one."""
        return Path(self.name) if self._piece is None else self._piece.listed.path

    @property
    def is_open(self) -> bool:
        """Return whether a file is open."""
        return self._file is not None

    def holds(self, listed: ListedFile) -> bool:
        """Return whether ``listed`` is the file being read, or the one before, under whatever name."""
        return any(file is not None and file.identity == listed.identity for file in (self._file, self._finished))

    def has_older(self, listed: Iterable[ListedFile]) -> bool:
        """Return whether files were rotated out of the first one that are not among the ``listed``."""
        return self._places.has_older(listed)

    def begin(self, offset: int, known: JoinedCursor | None, listed: Iterable[ListedFile]) -> None:
        """Begin at ``offset``, after reading went as far as ``known``.

        Raises SourceError if the files do not continue what was read.
        """
        self.close()
        listed = list(listed)
        if known is None and offset == 0 and self._places.has_older(listed):
            get_logger().warning(
                "rotated files are there that the URL does not name: they are not read", partition=self.name
            )
        self._history = History(known)
        self._plan = deque(self._places.plan(offset, known, listed))
        self._later, self._is_polled = [], False
        self._cursor = None if known is None else known.current
        self._mtime_ns = 0 if known is None else known.mtime_ns
        self.next_offset = offset

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for file in (self._file, self._finished):
            if file is not None:
                file.close()
        self._file = self._finished = self._piece = self._resting = None

    def poll(self, listed: Iterable[ListedFile]) -> None:
        """Notice which files come after the current one. Raises SourceError if they do not continue it, OSError."""
        finished = self._finished
        if finished is not None and finished.has_grown():
            raise grew_error(finished.path)
        if self._resting is not None:
            self._wake_if_changed()
        self._is_polled = not self._plan or self._resting is not None
        if self._plan:
            return
        known = self._history.at
        if self._piece is None or self._file is None or known is None:
            self._later = self._places.first(listed)
        else:
            self._later = self._places.after(self._piece.listed, self._file, self._mtime_ns, known, listed)

    def take(self) -> list[RecordBatch]:
        """Return further batches, none if all whole lines were read. Raises SourceError, OSError."""
        found: list[RecordBatch] = []
        while not found and self._resting is None:
            if self._file is None and not self._open_next(found):
                break
            try:
                records = self._further()
            except OtherBytesError:
                self._find_again()
                continue
            if records is not None:
                found += self._batches(records)
                if not found and self._file is not None and self._file.is_searching:
                    break  # other files, and a stop, have their turn
            elif self._file is not None and self._file.is_through:
                self._finish()
            else:
                break
        return found

    @property
    def is_caught_up(self) -> bool:
        """Return whether no file waits to be opened or looked for; for use after ``take`` returned nothing."""
        if self._file is not None and self._file.is_searching:
            return False
        is_there = self._file is not None or self._resting is not None
        return self._is_polled and (is_there or not (self._plan or self._later))

    def beat(self) -> RecordBatch:
        """Return the batch that says that nothing waits to be read."""
        return RecordBatch(self.name, (), self.next_offset, caught_up=True, begins_at=self.next_offset)

    def rest(self) -> None:
        """Close the files until the current one changes, if nothing of it is left to be read."""
        if self._file is None or self._piece is None or self._later or self._piece.listed.is_rotated:
            return
        if self._file.is_searching:
            return
        stamp, begin = self._file.stamp, self.next_offset - self._piece.ordinal * FILE_OFFSETS
        piece = with_fields(self._piece, begin=begin)
        self.close()
        self._piece, self._resting = piece, stamp
        self._plan.append(piece)

    def _wake_if_changed(self) -> None:
        assert self._piece is not None
        listed = self._listing.look_at(self._piece.listed.path)
        is_same = listed is not None and listed.identity == self._piece.listed.identity
        if listed is None or not is_same or (listed.size, listed.mtime_ns) != self._resting:
            self._resting = None
            self._plan[0] = with_fields(self._plan[0], listed=self._places.find(self._known))

    # --- one file after the other ---

    @property
    def _is_over(self) -> bool:
        """Return whether the current file does not grow any more."""
        is_again = self._piece is not None and self._piece.size is not None
        return is_again or any(file.size for file in self._later)

    def _open_next(self, found: list[RecordBatch]) -> bool:
        """Open the next file, if there is one; append the batch with its cursor."""
        if self._plan:
            piece = self._plan[0]
        elif self._later:
            piece = Piece(self._later[0], self._n_begun, 0)
        else:
            return False
        if not self._open(piece):
            return False
        if self._plan:
            self._plan.popleft()
        else:
            del self._later[0]
            self._cursor = None
        if piece.size is None:
            found.append(self._begun(piece))
        return True

    @property
    def _known(self) -> JoinedCursor:
        """Return how far the files were read."""
        assert self._history.at is not None
        return self._history.at

    @property
    def _n_begun(self) -> int:
        """Return the ordinal of the next file."""
        return 0 if self._history.at is None else self._history.at.ordinal + 1

    def _open(self, piece: Piece) -> bool:
        """Open the file of ``piece``; return whether it still has that name: if not, the next poll finds it."""
        try:
            file = GrowingFile(piece.listed.path, self._options.max_record_bytes)
        except FileNotFoundError:
            file = None
        if file is None or file.identity != piece.listed.identity:
            if self._plan:
                self._plan[0] = with_fields(piece, listed=self._places.moved(piece.listed))
            if file is not None:
                file.close()
            return False
        self._piece, self._file = piece, file
        self._cutter = self._cutter_of(piece, file)
        return True

    def _cutter_of(self, piece: Piece, file: GrowingFile) -> Cutter:
        if format_of(piece.listed.log, self._options).name == "csv":
            numeric = "" if self._cursor is None else self._cursor.numeric
            return CsvRows(piece.listed.path, self._options, self._context, piece.begin, numeric)
        if piece.begin > file.size:
            raise shrunk_error(piece.listed.path, piece.begin, file.size, "bytes")
        return JsonLines(self._options, piece.begin, is_line_start=file.is_line_start(piece.begin))

    def _begun(self, piece: Piece) -> RecordBatch:
        """Return the empty batch with the cursor of a file that was not read before."""
        if self._cursor is None:
            name = self._listing.name(piece.listed.log)
            begin = piece.begin
            self._cursor = FileCursor(
                name=name, size=0, digest="", begin=begin, next_offset=begin, lines=self._options.lines
            )
            self._mtime_ns = piece.listed.mtime_ns
            get_logger().info("file begun", partition=self.name, path=str(piece.listed.path))
        self._history.begin(piece.ordinal, self._mtime_ns, self._cursor)
        return self._placed(RecordBatch(self.name, (), piece.begin), piece)

    def _further(self) -> list[ReadRecord] | None:
        """Return further records of the current file, None if there are none now."""
        file, cutter = self._file, self._cutter
        assert file is not None
        if file.is_through:
            return None
        file.look()
        records = file.take(cutter)
        if records is None and file.is_searching:
            return []
        return file.take_rest(cutter) if records is None and self._is_over else records

    def _finish(self) -> None:
        """End the current file: it was read to its end, and another one continues it."""
        assert self._file is not None
        assert self._piece is not None
        if self._piece.size is not None:
            self._file.close()
        else:
            self._note(RecordBatch(self.name, (), self._cutter.next_offset))
            if self._finished is not None:
                self._finished.close()
            self._finished = self._file
        self._file = None

    def _find_again(self) -> None:
        """Go on in the file that holds what was read of the current one, which was cut or overwritten."""
        assert self._file is not None
        assert self._piece is not None
        self._file.close()
        self._file = None
        self._later, self._is_polled = [], False  # they came after the file that was taken for the current one
        piece = self._piece
        if piece.size is not None:
            raise self._places.replaced(piece.listed.path)
        local = max(piece.begin, self.next_offset - piece.ordinal * FILE_OFFSETS)
        listed = self._places.find(self._known)
        self._plan.appendleft(with_fields(piece, listed=listed, begin=local))
        get_logger().warning("file cut: going on where its content is", partition=self.name, path=str(listed.path))

    # --- batches ---

    def _batches(self, records: list[ReadRecord]) -> list[RecordBatch]:
        assert self._file is not None
        assert self._piece is not None
        log = self._piece.listed.log
        rows = with_columns(iter(records), fields_of(self._listing.name(log).split("/")[:-1]))
        named = with_ids(rows, log, self._context.sequence_from)
        found = list(batched(named, self.name))
        after = self._cutter.next_offset
        if found:
            found[-1] = with_fields(found[-1], next_offset=after)
        elif after > self.next_offset - self._piece.ordinal * FILE_OFFSETS:
            found = [RecordBatch(self.name, (), after)]
        return [self._placed(batch, self._piece) for batch in found]

    def _placed(self, batch: RecordBatch, piece: Piece) -> RecordBatch:
        """Return ``batch`` at its place in the partition, with its cursor unless its records are read again."""
        cursor, written = None, piece.written
        if piece.size is None:
            cursor = self._note(batch)
            written = () if self._cursor is None else self._cursor.written
        begins_at = self.next_offset
        found = placed(batch, piece.ordinal, piece.listed.path, cursor=cursor, written=written, begins_at=begins_at)
        self.next_offset = found.next_offset
        return found

    def _note(self, batch: RecordBatch) -> str:
        """Return the cursor after ``batch``, which holds local offsets."""
        file, cursor = self._file, self._cursor
        assert file is not None
        assert cursor is not None
        numeric = self._cutter.numeric if isinstance(self._cutter, CsvRows) else ""
        cursor = cursor.after(batch, file.mtime_ns // 1_000)
        self._cursor = cursor = replace(
            cursor, size=file.whole, digest=file.digest, numeric=numeric, inode=file.identity.inode
        )
        text = self._history.cursor(cursor, is_log=self._is_log)
        # As without ``follow``, so that a checkpoint fits both until the file is rotated.
        is_plain = self._is_log and self._n_begun == 1 and not cursor.is_unread
        return encode_cursor(cursor) if is_plain else text
