"""Reads from messages what they say of where sequences begin and end: states, words, and tags that hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from streamad.ingest.decode_values import ABSENT, FieldPath, fail, read_id, shown
from streamad.settings.boundaries import WhileSettings, WordSet, WordSettings
from streamad.settings.decode import FieldSettings
from streamad.types import OUTSIDE, Boundaries, Boundary, SampleBlock


class BoundaryReader:
    """Reads the boundaries of parsed messages; ``state`` is ``sequences.while``."""

    def __init__(self, fields: FieldSettings, state: WhileSettings | None) -> None:
        self._states = WordSet(() if state is None else state.in_)
        self.state = None if state is None or state.field is None else FieldPath(state.field)
        self.state_tag = None if state is None else state.tag
        self.id_tag = fields.id_tag
        self.has_tags = self.state_tag is not None or self.id_tag is not None
        self._begin = None if fields.begin is None else FieldPath(fields.begin.field)
        self._begins = WordSet(() if fields.begin is None else fields.begin.value)
        word = fields.end if isinstance(fields.end, WordSettings) else None
        self.end = None if word is None else FieldPath(word.field)
        self._ends = WordSet(() if word is None else word.value)
        self.is_on = self.state is not None or self._begin is not None or self.has_tags

    @property
    def paths(self) -> list[FieldPath]:
        """Return the fields that it reads."""
        return [path for path in (self.state, self._begin, self.end) if path is not None]

    def ends(self, message: dict[Any, Any]) -> bool:
        """Return whether the message holds an end word."""
        return self.end is not None and self.end.get(message) in self._ends

    def begins(self, message: dict[Any, Any]) -> bool:
        """Return whether the message holds a begin word."""
        return self._begin is not None and self._begin.get(message) in self._begins

    def is_outside(self, message: dict[Any, Any]) -> bool:
        """Return whether the state of the message's one sample lies in no sequence. Raises DecodeError."""
        if self.state is None:
            return False
        value = self.state.get(message)
        if isinstance(value, dict | list):
            fail("wrong_type", f"{self.state.name}: must be one state, got {shown(value)}")
        return value not in self._states

    def of_sample(self, message: dict[Any, Any], *, end: bool, is_bare: bool) -> Boundary | None:
        """Return what the message of one sample says. Raises DecodeError."""
        outside, begins = self.is_outside(message), self.begins(message)
        ends = end and self._begin is not None
        if not (outside or begins or ends):
            return None
        return Boundary(state=False if outside else None, begins=begins, ends=ends, is_bare=is_bare)

    def around(self, boundary: Boundary | None, *, begins: bool, ends: bool) -> Boundary | None:
        """Return ``boundary`` of a sample with the begin or end of the message around it."""
        ends = ends and self._begin is not None
        if not (begins or ends):
            return boundary
        known = boundary or Boundary()
        return msgspec.structs.replace(known, begins=known.begins or begins, ends=known.ends or ends)

    def of_chunk(self, message: dict[Any, Any], times_us: Sequence[int], *, end: bool) -> Boundaries | None:
        """Return what the rows of a chunk say: a list of states has one for each row. Raises DecodeError."""
        n = len(times_us)
        found: list[Boundary | None] = [None] * n
        if self.state is not None:
            states = self.state.get(message)
            if not isinstance(states, list):
                states = [states] * n
            if len(states) != n:
                fail("wrong_shape", f"{self.state.name}: holds {len(states)} states for {n} rows")
            for state in states:
                if isinstance(state, dict | list):
                    fail("wrong_type", f"{self.state.name}: must be one state, or a list of them, got {shown(state)}")
            found = [None if state in self._states else OUTSIDE for state in states]
        if self.begins(message):
            found[min(range(n), key=lambda at: times_us[at])] = Boundary(begins=True)
        if end and self._begin is not None:
            last = max(range(n), key=lambda at: (times_us[at], at))
            found[last] = Boundary(begins=found[last] is not None, ends=True)
        return None if found.count(None) == n else tuple(found)

    def of_tag(self, name: str, value: object, where: str) -> Boundary | None:
        """Return what the reading of a tag says, None if it is no reading. Raises DecodeError.

        An empty text is no state, but says that no id holds.
        """
        is_empty = isinstance(value, str) and not value.strip()
        if value is None or value is ABSENT or (is_empty and name != self.id_tag):
            return None
        if isinstance(value, dict | list):
            fail("wrong_type", f"{where}: must be one reading of {name}, got {shown(value)}")
        state = value in self._states if name == self.state_tag else None
        if name != self.id_tag:
            return Boundary(is_bare=True, state=state)
        key = None if is_empty else read_id(value, f"{where} of {name}")
        return Boundary(is_bare=True, state=state, names=True, sequence=key)


def n_samples(block: SampleBlock) -> int:
    """Return the number of rows of ``block`` that are samples."""
    if block.boundaries is None:
        return len(block)
    return len(block) - sum(each is not None and each.is_bare for each in block.boundaries)
