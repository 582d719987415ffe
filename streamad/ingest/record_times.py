"""Times of records in files: event times, for sources that sort by them, and the notice that a file's time is wrong."""

from __future__ import annotations

from functools import cached_property

import msgspec

from streamad.errors import DecodeError, SourceError
from streamad.ingest.decode import Decoder
from streamad.settings.numerals import option_decimal
from streamad.settings.plant_yaml import Settings
from streamad.types import FILE_OFFSETS, Record, from_us

_OF_READINGS = {"missing", "quality", "values", "fill"}
_NEWER = {"time_format": None, "decimal": ".", "thousands": None, "row_period": 1_000_000}
"""Settings that were added later, and their defaults."""
_NEWER_FIELDS = ("time_of_day", "start", "step", "nested", "each", "pattern", "begin")
_WITHOUT_EFFECT = {"sequence_from", "max_clock_skew", "max_dead_letter_bytes", "registry"} | _OF_READINGS


class DecodedTimes:
    """Reads event times as the pipeline will, whatever the clock says."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def identity(self) -> str:
        """Text that differs if the same bytes may have other times."""
        settings = self._settings.decode
        # The text must not change for a config of an earlier version: what is new is there only if it is set.
        new = {key for key, default in _NEWER.items() if getattr(settings, key) == default}
        source = self._settings.source
        if option_decimal(source.url, source.options) == settings.decimal:
            new.add("decimal")
        decode = settings.model_dump(mode="json", exclude=_WITHOUT_EFFECT | new)
        for key in _NEWER_FIELDS if settings.fields is not None else ():
            if decode["fields"][key] is None:
                del decode["fields"][key]
        channels = [channel.model_dump(mode="json", exclude=_OF_READINGS) for channel in self._settings.channels]
        return msgspec.json.encode([decode, channels]).decode()

    @cached_property
    def _decoder(self) -> Decoder:
        # Made when it is needed: a source that does not sort has no problems with it.
        decode = self._settings.decode.model_copy(update={"sequence_from": "message"})
        settings = self._settings
        return Decoder(decode, settings.channels, settings.route_field, settings.sequences.while_)

    def of(self, record: Record) -> int | None:
        """Return the time of the record's first sample in microseconds.

        None if it is unreadable, has none, or is a local time that comes twice: its place in the file tells them apart.
        """
        try:
            blocks = self._decoder.decode(record, None).blocks
        except DecodeError:
            return None
        if not blocks or any(block.later_us is not None for block in blocks):
            return None
        return min(int(block.times_us[0]) for block in blocks)


def times_for(settings: Settings) -> DecodedTimes | None:
    """Return the times of the plant's records; None if they count from a sequence's start, or are the records' own.

    None also if a registry must be asked before they can be read.
    """
    fields = settings.decode.fields
    if (
        settings.decode.registry is not None
        or settings.decode.counts_from_start
        or (fields is not None and fields.is_of_record)
    ):
        return None
    return DecodedTimes(settings)


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
