"""The courses of stored sequences: what looks at them have seen while they ran."""

from __future__ import annotations

from collections.abc import Iterable

from streamad.judge.early.course import Course
from streamad.judge.early.packing import unpacked
from streamad.learn.store.records import StoredSequence


def courses_of(sequences: Iterable[StoredSequence]) -> dict[str, Course]:
    """Return the courses of those ``sequences`` that have one, by id; of former releases' records none has."""
    return {each.id: _course(each, each.course) for each in sequences if each.course is not None}


def _course(sequence: StoredSequence, content: bytes) -> Course:
    values = sequence.window.values
    return unpacked(content, values[:, : sequence.window.length], values.shape[1])
