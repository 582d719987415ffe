"""Notices that a file's time of change is wrong, before anything of the file is committed."""

from __future__ import annotations

from streamad.errors import DecodeError, SourceError
from streamad.types import FILE_OFFSETS, Record, from_us

_FIRST_RECORDS = 100


class FirstTimes:
    """Notices that a file's first samples all lie in its future: the file's time of change is wrong.

    Nothing is committed meanwhile, so nothing is lost. ``begin`` is where reading goes on: nothing of later files was
    committed, and if ``is_new`` no sample of this one. Records without readable samples tell nothing.
    """

    def __init__(self, partition: str, begin: int, *, is_new: bool) -> None:
        self._partition = partition
        self._is_open = is_new
        self._begin = begin
        self._file = begin // FILE_OFFSETS
        self._n_wrong = 0
        self._written_us = 0

    @property
    def are_all_wrong(self) -> bool:
        """Return whether all records so far, at least one, have wrong times."""
        return self._is_open and self._n_wrong > 0

    def found(self, record: Record, written_us: int | None, error: DecodeError | None) -> None:
        """Note a record. Raises SourceError if it is the last of the first 100 of a file, and all are wrong."""
        if record.offset // FILE_OFFSETS > self._file and record.offset >= self._begin:
            self.check()
            self._file, self._is_open, self._n_wrong = record.offset // FILE_OFFSETS, True, 0
        if not self._is_open or (error is not None and error.kind != "clock_skew"):
            return
        if record.timestamp_us is None and written_us is not None and error is not None:
            self._n_wrong, self._written_us = self._n_wrong + 1, written_us
            if self._n_wrong >= _FIRST_RECORDS:
                self.check()
        else:
            self._is_open = False

    def is_settled(self, offset: int) -> bool:
        """Return whether the record at ``offset`` changes nothing here: its file's times are known to be right."""
        return not self._is_open and offset // FILE_OFFSETS <= self._file

    def check(self) -> None:
        """Raise SourceError if all records so far, at least one, have wrong times."""
        if self.are_all_wrong:
            where = f" of file {self._file + 1} in its order" if self._file else ""
            raise SourceError(
                f"{self._partition}: the first {self._n_wrong} records{where} all lie after the file's last change "
                f"({from_us(self._written_us).isoformat()}): set the file's time (touch) or decode.max_clock_skew"
            )
