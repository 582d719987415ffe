"""One text that names several things: stream, channel and sequence in a tag, a topic or a key.

Law (tests/unit/ingest/test_decode_patterns.py): a message with a pattern equals the message with a field for each part.
"""

from __future__ import annotations

from typing import Any

from streamad.errors import DecodeError
from streamad.ingest.decode_values import ABSENT, FieldPath, fail, key_text, read_id, shown
from streamad.settings.decode import PatternSettings
from streamad.types import Record


def part_name(part: str) -> str:
    """Return the name of the field that stands for a part."""
    return f"{{{part}}}"


class Pattern:
    """Gives messages a field for each part of the text; ``path`` is the text's field, None for the record's key."""

    def __init__(self, settings: PatternSettings) -> None:
        self._settings = settings
        self._match = settings.regex.fullmatch
        self.path = None if settings.field == "key" else FieldPath(settings.field)

    def named(self, message: dict[Any, Any], record: Record) -> dict[Any, Any] | None:
        """Return ``message`` with the parts; None if the text has others. Raises DecodeError if there is no text."""
        text = self._text(message, record)
        if text is ABSENT or text is None or text == "":
            fail("missing_field", f"{self._settings.field}: is missing")
        match = self._match(read_id(text, self._settings.field))
        if match is None:
            return None
        return {**message, **{part_name(part): match[part] for part in self._settings.names}}

    def unmatched(self, message: dict[Any, Any], record: Record) -> DecodeError:
        """Return the error of a text that has other parts."""
        where = f"{self._settings.field}: {shown(self._text(message, record))}"
        return DecodeError("unknown_channel", f"{where} is not of the pattern {shown(self._settings.parts)}")

    def _text(self, message: dict[Any, Any], record: Record) -> Any:
        if self.path is None:
            return key_text(record)
        text = self.path.get(message)
        return record.label if text is ABSENT and self._settings.is_of_label else text
