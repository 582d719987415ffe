"""Tells whether a cell of CSV is a number, a time, nothing, or text."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from streamad.settings.numerals import MISSING_WORDS, Numerals

Kind: TypeAlias = Literal["number", "time", "blank", "text"]

_BLANK = MISSING_WORDS | {"\\n", "-", "--", "---", "#n/a", "inf", "-inf"}
_LONGEST_TYPED = 64
_MAX_INTEGER_DIGITS = 18  # more do not fit msgpack's 64 bits

_MONTH = r"[^\W\d_]{3,9}\.?"
_ZONE = r"(?: ?(?:Z|[A-Z]{2,5}|[-+]\d{2}(?::?\d{2})?))?"
_CLOCK = rf"\d{{1,3}}:\d{{2}}(?::\d{{2}}(?:[.,:]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?{_ZONE}"
_DATE = rf"(?:\d{{1,4}}[-./]\d{{1,2}}[-./]\d{{1,4}}|\d{{1,2}}[-. ]{{0,2}}{_MONTH}[-. ]{{0,2}}\d{{2,4}})"
_LONG_DATE = rf"(?:{_MONTH},? )?{_MONTH} \d{{1,2}},? \d{{4}}"
_TIME = re.compile(
    rf"(?:{_DATE}|{_LONG_DATE})(?:(?:,? |[T_:]){_CLOCK})?|\d{{8}}T\d{{4,6}}{_ZONE}|(?:[-+]?\d+ days? )?[-+]?{_CLOCK}"
)
_NUMBER = re.compile(
    r"[-+]?(?=[.,]?\d)\d*(?:(?:,\d{2})+,\d{3}|(?:[.,'\u2019\u00a0\u202f ]\d{3})*)(?:[.,]\d*)?(?:[eE][-+]?\d+)?"
    r"(?: ?%| [^\W\d_]{1,4})?"
)


def kind_of(cell: str) -> Kind:
    """Return what ``cell`` looks to be, whatever the decimal mark, with thousands or a unit behind."""
    text = cell.strip(" \r\n")  # a tab may be the delimiter
    if len(text) > _LONGEST_TYPED:
        return "text"
    if text.lower() in _BLANK:
        return "blank"
    if _NUMBER.fullmatch(text):
        return "number"
    return "time" if _TIME.fullmatch(text) else "text"


def shape_of(text: str) -> str:
    """Return ``text`` with each run of digits, capitals and small letters as one sign: B-0001 and C-2 are alike."""
    signs = ("0" if sign.isdigit() else "A" if sign.isupper() else "a" if sign.isalpha() else sign for sign in text)
    return re.sub(r"(.)\1+", r"\1", "".join(signs))


def number_of(text: str, numerals: Numerals) -> int | float | None:
    """Return ``text`` as a number; None for anything else, such as ``007`` or ``1_000``, or with other marks."""
    if not numerals.are_usual:
        usual = numerals.usual(text)
        if usual is None:
            return None
        text = usual
    if "." in text and "_" not in text:  # the usual case, first for speed
        return _float(text)
    digits = text[1:] if text[:1] in ("-", "+") else text
    if "_" in text or (digits[:1] == "0" and digits[1:2].isdecimal()):
        return None
    if digits.isascii() and digits.isdecimal():
        return int(text) if len(digits) <= _MAX_INTEGER_DIGITS else None
    return _float(text)


def is_text(text: str) -> bool:
    """Return whether all bytes were in the file's encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
