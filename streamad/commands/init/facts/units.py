"""Units behind numbers in text: ``1.5 bar``, ``20,11 °C``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from streamad.commands.init.facts.columns import Column
from streamad.commands.init.facts.words import VALUE, hints
from streamad.ingest.decode_elapsed import read_elapsed
from streamad.settings.numerals import Numerals

_WITH_UNIT = re.compile(
    r"\s*([+-]?[0-9](?:[0-9.,'\u2019 \u00a0\u202f]*[0-9.])?(?:[eE][+-]?[0-9]{1,4})?)"
    r"(\s*)(?![eE][+-]?[0-9])((?:[^\W\d_]|[°%‰])\S{0,15})\s*"
)
_NEARLY_ALL = 0.9
_USUAL = Numerals()


def with_unit(text: object) -> re.Match[str] | None:
    """Return the match of a number (group 1) and its unit (group 3); None for anything else, and for times."""
    match = _WITH_UNIT.fullmatch(text) if isinstance(text, str) else None
    return None if match is None or read_elapsed(f"1 {match[3]}", _USUAL) is not None else match


def take_units(columns: Mapping[str, Column]) -> dict[str, str]:
    """Leave the numbers alone in columns of numbers with a unit; return the units by path.

    A column has one unit; a text with another one stays as it is. Only values of several channels may have several:
    their ``written`` texts are kept then. Digits next to letters, as in 17A, are a name.
    """
    found = {}
    for path, column in columns.items():
        texts = [value for value in column.values if isinstance(value, str)]
        if 2 * len(texts) < len(column.values) or with_unit(texts[0] if texts else None) is None:
            continue
        matches = [with_unit(text) for text in texts]
        units = Counter(match[3] for match in matches if match is not None)
        if sum(units.values()) < _NEARLY_ALL * len(texts) or not any(map(_is_measured, matches)):
            continue
        unit, n = units.most_common(1)[0]
        is_one = n >= _NEARLY_ALL * len(texts)
        if not is_one and not hints(path) & VALUE:
            continue
        column.written = list(column.values)
        column.values[:] = [
            value if match is None or (is_one and match[3] != unit) else match[1]
            for value, match in ((value, with_unit(value)) for value in column.values)
        ]
        if is_one:
            found[path] = unit
    return found


def _is_measured(match: re.Match[str] | None) -> bool:
    return match is not None and bool(match[2] or not match[1].isdecimal() or set(match[3]) & set("°%/"))
