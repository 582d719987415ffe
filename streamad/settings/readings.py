"""Types of config fields about readings: what means missing, and which qualities are good."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from streamad.settings.fields import ConfigSection


def is_numeral(text: str) -> bool:
    """Return whether ``text`` is read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _texts(value: Any) -> Any:
    for item in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(item, str):
            if isinstance(item, bool) or item is None:
                raise ValueError("holds what YAML does not read as text (null, yes, no, on, off): put it in quotes")
            raise ValueError(f"{item!r} is a number: numbers that mean missing go into channels[].missing")
        if is_numeral(item):
            raise ValueError(f"{item!r} is read as a number: numbers that mean missing go into channels[].missing")
    return value


def _numbers(value: Any) -> Any:
    for item in value if isinstance(value, list | tuple) else [value]:
        if isinstance(item, str) and not is_numeral(item):
            raise ValueError(f"{item!r} is a text: texts that mean missing go into decode.missing")
        if isinstance(item, bool) or item is None or not math.isfinite(float(item)):
            raise ValueError("must be finite numbers such as -9999")
    return value


MissingTexts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Texts that mean a missing value."""

MissingNumbers = Annotated[tuple[float, ...], BeforeValidator(_numbers)]
"""Numbers that mean a missing value of one channel."""


class QualitySettings(ConfigSection):
    """The quality that a plant's system gives each reading."""

    field: str
    """Field of the quality (dotted path for nested ones)."""
    good: Annotated[tuple[bool | int | float | str | None, ...], Field(min_length=1)]
    """Qualities of readings to use: numbers, texts, true or false (null: no quality given); all others are missing."""
