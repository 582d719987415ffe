"""The event time of a raw record, for sources that sort by it."""

from __future__ import annotations

from functools import cached_property

import msgspec

from streamad.errors import DecodeError
from streamad.ingest.decode import Decoder
from streamad.settings.plant_yaml import Settings
from streamad.types import Record

_OF_READINGS = {"missing", "quality"}
_WITHOUT_EFFECT = {"sequence_from", "max_clock_skew", "max_dead_letter_bytes"} | _OF_READINGS


class DecodedTimes:
    """Reads event times as the pipeline will, whatever the clock says."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def identity(self) -> str:
        """Text that differs if the same bytes may have other times."""
        settings = self._settings.decode
        # The text must not change for a config of an earlier version: what is new is there only if it is set.
        new = {"time_format"} if settings.time_format is None else set()
        decode = settings.model_dump(mode="json", exclude=_WITHOUT_EFFECT | new)
        if settings.fields is not None and settings.fields.time_of_day is None:
            del decode["fields"]["time_of_day"]
        channels = [channel.model_dump(mode="json", exclude=_OF_READINGS) for channel in self._settings.channels]
        return msgspec.json.encode([decode, channels]).decode()

    @cached_property
    def _decoder(self) -> Decoder:
        # Made when it is needed: a source that does not sort has no problems with it.
        decode = self._settings.decode.model_copy(update={"sequence_from": "message"})
        return Decoder(decode, self._settings.channels, self._settings.route_field)

    def of(self, record: Record) -> int | None:
        """Return the time of the record's first sample in microseconds.

        None if it is unreadable, has none, or is a local time that comes twice: its place in the file tells them apart.
        """
        try:
            block = self._decoder.decode(record, None)
        except DecodeError:
            return None
        return None if block is None or not len(block) or block.later_us is not None else int(block.times_us[0])


def times_for(settings: Settings) -> DecodedTimes | None:
    """Return the times of the plant's records; None if they count from a sequence's start, or are the records' own."""
    fields = settings.decode.fields
    if settings.decode.time == "relative" or (fields is not None and fields.time == "record"):
        return None
    return DecodedTimes(settings)
