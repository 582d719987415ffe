"""InfluxDB's line protocol (docs.influxdata.com, "Line protocol"): ``machine,unit=R1 temp=20.1,rpm=405i 1700000``."""

from __future__ import annotations

import re
from typing import Any

from streamad.ingest.decode_values import fail, shown
from streamad.settings.decode import LINES

MEASUREMENT, TIME = "measurement", "time"
# Possessive throughout: nothing here can match in two ways, and going back would cost 200 bytes a character.
_TEXT = r"(?:[^,= \\\r\n]++|\\.)++"
_VALUE = r"(?:\"(?:[^\"\\]++|\\.)*+\"|[^,\s\"]++)"
_LINE = re.compile(
    rf"(?P<measurement>(?:[^, \\\r\n]++|\\.)++)(?P<tags>(?:,{_TEXT}={_TEXT})*+) ++"
    rf"(?P<fields>{_TEXT}={_VALUE}(?:,{_TEXT}={_VALUE})*+)(?: ++(?P<time>-?[0-9]{{1,20}}))? *+(?:\r?\n|\Z)",
    re.DOTALL,
)
_TAG = re.compile(rf"({_TEXT})=({_TEXT})", re.DOTALL)
_FIELD = re.compile(rf"({_TEXT})=({_VALUE})", re.DOTALL)
_ESCAPED = re.compile(r"\\([,= ])")
_ESCAPED_IN_QUOTES = re.compile(r"\\([\"\\])")
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}[iu]")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
_WORDS = {word: value for value, short in ((True, "t"), (False, "f")) for word in (short, short.upper())} | {
    word: value for value, name in ((True, "true"), (False, "false")) for word in (name, name.title(), name.upper())
}


def read_lines(value: bytes, most: int | None = None) -> dict[str, list[Any]]:
    """Return the message of a record of line protocol: an object for each line, the text of a line that is none.

    A line's measurement, tags, fields and time are fields of its object. Raises DecodeError if no line is one, or if
    there are more than ``most``.
    """
    try:
        text = value.decode()
    except UnicodeDecodeError:
        fail("malformed", "not line protocol: text that is not UTF-8")
    lines: list[Any] = []
    at = 0
    while at < len(text):
        match = _LINE.match(text, at)
        end = match.end() if match is not None else text.find("\n", at) + 1 or len(text)
        line = text[at:end].strip()
        at = end
        if line and not line.startswith("#"):
            found = None if match is None else _object(match)
            lines.append(line if found is None else found)
            if most is not None and len(lines) > most:
                fail("too_many_samples", f"more than {most} lines, decode.max_samples_per_message is {most}")
    if lines and not any(isinstance(line, dict) for line in lines):
        fail("malformed", f"not line protocol: {shown(lines[0])}")
    return {LINES: lines}


def _object(match: re.Match[str]) -> dict[str, Any] | None:
    """Return the fields of a line; None if two have one name, or a value is none."""
    found: dict[str, Any] = {MEASUREMENT: _ESCAPED.sub(r"\1", match["measurement"])}
    if match["time"] is not None:
        found[TIME] = int(match["time"])
    pairs: list[tuple[str, Any]] = [(name, _ESCAPED.sub(r"\1", text)) for name, text in _TAG.findall(match["tags"])]
    pairs += [(name, _value(text)) for name, text in _FIELD.findall(match["fields"])]
    for name, value in pairs:
        key = _ESCAPED.sub(r"\1", name)
        if value is None or key in found:
            return None
        found[key] = value
    return found


def _value(text: str) -> str | float | bool | None:
    if text[0] == '"':
        return _ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1])
    if _INTEGER.fullmatch(text):
        return int(text[:-1])
    return float(text) if _FLOAT.fullmatch(text) else _WORDS.get(text)
