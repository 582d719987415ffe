"""How a plant writes numbers in text: its decimal mark, and the mark between thousands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from streamad.plugins import gives_files, split_url

DecimalMark = Literal[".", ","]
ThousandsMark = Literal[",", ".", "'", " "]

MISSING_WORDS = frozenset({"", "nan", "null", "none", "na", "n/a"})
"""Texts that always mean a missing reading, in lower case."""

# As typewriters and as typesetters have them: the apostrophe, the no-break and the narrow no-break space.
_WRITTEN = {"'": "'\u2019", " ": " \u00a0\u202f"}


class Numerals:
    """Reads numbers in text that use ``decimal`` and ``thousands``. Raises ValueError if both are the same.

    Groups have exactly three digits, from the first one on, or there are none; with commas those above the last may
    have two, as in India (1,23,456). A text that contradicts the marks is no number: without ``thousands`` 1,001 is
    none, and neither is 1.780 with a decimal comma.
    """

    def __init__(self, decimal: DecimalMark = ".", thousands: ThousandsMark | None = None) -> None:
        if decimal == thousands:
            raise ValueError(f"{decimal!r} cannot be the decimal mark and stand between thousands")
        self.are_usual = decimal == "." and thousands is None
        separators = _WRITTEN.get(thousands or "", thousands or "")
        groups = f"[1-9][0-9]{{0,2}}(?:[{re.escape(separators)}][0-9]{{3}})+|" if separators else ""
        if thousands == ",":
            groups += "[1-9][0-9]?(?:,[0-9]{2})+,[0-9]{3}|"
        mark = re.escape(decimal)
        number = rf"[+-]?(?:(?:{groups}[0-9]+)(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        self._regex = re.compile(number)
        self._as_usual = str.maketrans({**dict.fromkeys(separators), decimal: "."})

    def usual(self, text: str) -> str | None:
        """Return ``text`` with a decimal point and without groups; None if it contradicts the marks.

        What Python reads as no number stays as it is with the usual marks; with others only words do (nan, inf).
        """
        if self.are_usual:
            return text
        stripped = text.strip()
        if self._regex.fullmatch(stripped):
            return stripped.translate(self._as_usual)
        return stripped if stripped.lstrip("+-").isalpha() else None

    def number(self, text: str) -> float:
        """Return the number that ``text`` is. Raises ValueError if it is none, or contradicts the marks."""
        usual = self.usual(text)
        if usual is None:
            raise ValueError(f"{text!r} is no number")
        return float(usual)


def option_decimal(url: str, options: Mapping[str, Any]) -> Any:
    """Return the decimal mark that a file source's options name; None if they name none that there is."""
    decimal = split_url(url)[2].get("decimal", options.get("decimal")) if gives_files(url) else None
    return decimal if decimal in (".", ",") else None


def check_decimal(written: DecimalMark, url: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError if the options of a file source contradict ``decode.decimal``, which is ``written``."""
    decimal = option_decimal(url, options)
    if decimal is not None and decimal != written:
        raise ValueError(
            f"decode.decimal is {written!r}, but {url} has the option decimal {decimal!r}: leave the option "
            f"out, and write decode.decimal: {decimal!r} if numbers have that mark"
        )
