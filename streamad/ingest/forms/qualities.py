"""The qualities of readings: a message or a channel has a field for it, and the config names the good ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from streamad.errors import DecodeError
from streamad.ingest.decode_values import ABSENT, QUALITY, BadCells, FieldPath, shown
from streamad.settings.decode import QualitySettings


class Quality:
    """Tells from a message whether a reading's quality is good."""

    def __init__(self, settings: QualitySettings) -> None:
        self.path = FieldPath(settings.field)
        self._good = {_plain(code) for code in settings.good}

    def of(self, message: dict[Any, Any], index: int) -> object:
        """Return the quality of the message, or in a list of them that of the row ``index``; None if there is none."""
        try:
            found = self.path.get(message)
        except DecodeError as error:
            return error
        if isinstance(found, list):
            return found[index] if index < len(found) else None
        return None if found is ABSENT else found

    def is_good(self, quality: object) -> bool:
        """Return whether readings of this quality are used."""
        return _plain(quality) in self._good


def _plain(quality: object) -> str | None:
    """Return a quality for comparison: 192, 192.0 and "192" are the same, "Good" and "good" too; "" is none."""
    if quality is None:
        return None
    if isinstance(quality, str):
        return quality.strip().lower() or None
    return shown(int(quality) if type(quality) is float and quality.is_integer() else quality)


class Qualities:
    """The qualities of a plant's readings: each channel's own, else that of the whole message."""

    def __init__(self, common: QualitySettings | None, own: Sequence[QualitySettings | None]) -> None:
        self._common = None if common is None else Quality(common)
        self._own = [None if one is None else Quality(one) for one in own]

    @property
    def paths(self) -> list[FieldPath]:
        """Return the fields of the channels' own qualities."""
        return [one.path for one in self._own if one is not None]

    @property
    def common(self) -> list[FieldPath]:
        """Return the field of the message's quality, if there is one."""
        return [] if self._common is None else [self._common.path]

    @property
    def are_given(self) -> bool:
        """Return whether any reading has a quality."""
        return self._common is not None or any(self._own)

    def is_good(self, message: dict[Any, Any]) -> bool:
        """Return whether the quality of the message itself is good, if messages have one."""
        return self._common is None or self._common.is_good(self._common.of(message, 0))

    def apply(self, row: list[float], message: dict[Any, Any], beside: dict[Any, Any], bad: BadCells) -> None:
        """Make readings of ``row`` missing whose quality is not good; ``beside`` has the channels' own qualities."""
        common = None if self._common is None else self._common.of(message, bad.row)
        is_good = self._common is None or self._common.is_good(common)
        for column, (value, own) in enumerate(zip(row, self._own, strict=True)):
            if math.isnan(value) or (own is None and is_good):
                continue
            quality = common if own is None else own.of(beside, bad.row)
            if own is None or not own.is_good(quality):
                bad.add(column, QUALITY, quality)
                row[column] = math.nan
