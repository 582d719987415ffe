"""Fields of fixed size that follow each other in an Avro record, read at once by ``struct``.

A nullable field has a byte that says which it is. The patterns of the messages before are tried first: plants send
the same channels again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct, calcsize
from typing import Any

from streamad.ingest.schemas.avro.types import Primitive, Type, Union
from streamad.ingest.schemas.avro.values import Read, State

_CODES = {"double": "d", "float": "f", "boolean": "?"}
_MAX_PATTERNS, _MAX_PLACES = 64, 200_000  # a pattern has a place for each field
_TRIED = 4
_NULL_FIRST, _NULL_LAST = "n", "N"


def fixed_code(of: Type) -> str | None:
    """Return the code of a type of fixed size, with a letter before it if it may be null; None for other types."""
    if isinstance(of, Primitive):
        return _CODES.get(of.name)
    if not isinstance(of, Union) or len(of.branches) != 2:
        return None
    first, second = of.branches
    if not isinstance(first, Primitive) or not isinstance(second, Primitive):
        return None
    if first.name == "null" and second.name in _CODES:
        return _NULL_FIRST + _CODES[second.name]
    return _NULL_LAST + _CODES[first.name] if second.name == "null" and first.name in _CODES else None


class Run:
    """Reads the fields of a run: name, code and reader of each."""

    def __init__(self, fields: Sequence[tuple[str, str, Read]]) -> None:
        self._fields = [(name, read) for name, _, read in fields]
        self._codes = [(name, code) for name, code, _ in fields]
        self._marks = [(_present(code), calcsize(f"<{code[-1]}")) for _, code, _ in fields]
        self._most = max(_TRIED, min(_MAX_PATTERNS, _MAX_PLACES // len(fields)))
        self._patterns: dict[tuple[bool, ...], _Pattern] = {}
        self._recent = [self._pattern((False,) * len(fields))]  # the last one first

    def step(self, data: bytes, at: int, state: State, message: dict[str, Any]) -> int:
        """Put the fields into ``message``; return where they end."""
        end = self._recent[0].read(data, at, message) or self._other(data, at, message)
        if end:
            return end
        for name, read in self._fields:
            message[name], at = read(data, at, state)
        return at

    def _other(self, data: bytes, at: int, message: dict[str, Any]) -> int:
        """Read another pattern than the last one; return 0 if there is none, or too many others were seen."""
        recent = self._recent
        for pattern in recent[1:]:
            end = pattern.read(data, at, message)
            if end:
                self._recent = [pattern, *(one for one in recent if one is not pattern)]
                return end
        nulls, place = [], at
        for present, size in self._marks:
            is_null = False
            if present is not None:
                mark = data[place]
                is_null = mark == 2 - present
                if not is_null and mark != present:
                    return 0
                place += 1
            nulls.append(is_null)
            if not is_null:
                place += size
        if tuple(nulls) not in self._patterns and len(self._patterns) >= self._most:
            return 0
        pattern = self._pattern(tuple(nulls))
        self._recent = [pattern, *(one for one in recent if one is not pattern)][:_TRIED]
        return pattern.read(data, at, message)

    def _pattern(self, nulls: tuple[bool, ...]) -> _Pattern:
        found = self._patterns.get(nulls)
        if found is None:
            found = self._patterns[nulls] = _Pattern(self._codes, nulls)
        return found


def _present(code: str) -> int | None:
    """Return the byte before a value that is not null; None if there is none."""
    if len(code) == 1:
        return None
    return 2 if code[0] == _NULL_FIRST else 0


class _Pattern:
    """The bytes of a run of which certain fields are null."""

    __slots__ = ("_expected", "_marks", "_names", "_nulls", "_size", "_unpack", "_values")

    def __init__(self, codes: Sequence[tuple[str, str]], nulls: Sequence[bool]) -> None:
        form, marks, expected, values = "<", [], [], []
        at = 0
        for (_, code), is_null in zip(codes, nulls, strict=True):
            present = _present(code)
            if present is not None:
                marks.append(at)
                expected.append(2 - present if is_null else present)
                form, at = form + "B", at + 1
            if not is_null:
                values.append(at)
                form, at = form + code[-1], at + 1
        layout = Struct(form)
        self._size, self._unpack = layout.size, layout.unpack_from
        self._names = [name for (name, _), is_null in zip(codes, nulls, strict=True) if not is_null]
        self._nulls = {name: None for (name, _), is_null in zip(codes, nulls, strict=True) if is_null}
        self._marks = _picker(marks) if marks else None
        self._expected = tuple(expected)
        self._values = _picker(values)

    def read(self, data: bytes, at: int, message: dict[str, Any]) -> int:
        """Put the fields into ``message``; return where they end, 0 if the message has another pattern."""
        end = at + self._size
        if end > len(data):
            return 0
        found = self._unpack(data, at)
        if self._marks is not None:
            if self._marks(found) != self._expected:
                return 0
            found = self._values(found)
        message.update(zip(self._names, found, strict=True))
        if self._nulls:
            message.update(self._nulls)
        return end


def _picker(places: list[int]) -> Any:
    """Return what gives the elements at ``places`` of a tuple as a tuple."""
    if len(places) > 1:
        return itemgetter(*places)
    return itemgetter(slice(places[0], places[0] + 1) if places else slice(0, 0))
