"""Messages that hold a list of readings or samples below a header (``decode.fields.each``).

Law (tests/unit/ingest/test_decode_each.py): n elements equal n messages, each with the fields of its element and those
around the list. Elements that follow each other in one sequence are one block.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from streamad.errors import DecodeError
from streamad.ingest.decode_fields import FieldReader
from streamad.ingest.decode_values import ABSENT, BadCells, FieldPath, Samples, Single, fail, located, shown
from streamad.ingest.sequences.runs import is_tag
from streamad.types import Record

Object = dict[Any, Any]


class ElementError(DecodeError):
    """Raised for one element that cannot be read; ``index`` is its place in the list of its message."""

    def __init__(self, error: DecodeError, name: str, index: int) -> None:
        located_error = located(error, f"{name}[{index}]")
        super().__init__(located_error.kind, str(located_error))
        self.index = index


@dataclass(slots=True)
class Elements:
    """The samples in the elements of a message, by stretch of one sequence, in order.

    ``second_us`` has the second readings of the times of each, if there may be some; ``unreadable`` are the elements
    without a sample.
    """

    samples: list[Samples] = field(default_factory=list)
    second_us: list[list[int]] = field(default_factory=list)
    unreadable: list[ElementError] = field(default_factory=list)


class EachReader:
    """Reads the elements of messages; fields are looked up in the element, then in the message around its list.

    An element that cannot be read is one error, and the others count; a message without elements that begins or ends a
    sequence is read itself.
    """

    def __init__(self, name: str, reader: FieldReader, max_samples: int) -> None:
        self.name = name
        self._reader = reader
        self._max_samples = max_samples

    def read(
        self,
        message: object,
        record: Record,
        check: Callable[[int], None] | None,
        second: Callable[[Object, int, int], int] | None,
    ) -> Elements:
        """Return the samples of a parsed message. Raises DecodeError if it holds no list of such elements.

        ``check`` raises DecodeError for a time that a sample may not have; ``second`` returns the second reading of a
        time that may come twice.
        """
        elements, header = self._parts(message)
        if len(elements) > self._max_samples:
            fail(
                "too_many_samples",
                f"{len(elements)} samples, decode.max_samples_per_message is {self._max_samples}",
            )
        found = Elements()
        around = self._around(header)
        singles: list[_Place] = []
        bad = BadCells()
        is_bare = not elements and self._says(header)
        for index, element in enumerate([header] if is_bare else elements):
            try:
                if not isinstance(element, dict):
                    fail("wrong_type", f"must be an object with a reading or a sample, got {shown(element)}")
                fields = self._reader.named(_with(around, element) if around else element, record)
                if bad.cells is not None:
                    bad = BadCells()
                bad.n_lists = 0
                single = None if fields is None else self._reader.single(fields, record, bad, index)
                if fields is None or single is None:
                    continue
                if check is not None:
                    check(single.time_us)
                second_us = single.time_us if second is None else second(fields, index, single.time_us)
            except DecodeError as error:
                if is_bare:
                    raise
                found.unreadable.append(ElementError(error, self.name, index))
                continue
            singles.append(_Place(index, single, second_us, None if bad.cells is None else bad))
        if self._reader.begins(header):
            self._mark(singles, begins=True)
        if singles and self._reader.end_of(header):
            self._mark(singles, begins=False)
        for stretch in _stretches(_tags_first(singles)):
            found.samples.append(self._samples(stretch))
            found.second_us.append([] if second is None else [place.second_us for place in stretch])
        return found

    def alone(self, message: Any, indexes: Iterable[int]) -> Iterator[Object]:
        """Yield for each of ``indexes`` the message with that element alone. Raises DecodeError as ``read``."""
        elements, _ = self._parts(message)
        for index in indexes:
            yield self._with_elements(message, [elements[index]]) if elements else message

    def _with_elements(self, message: Object, elements: list[Any]) -> Object:
        return FieldPath(self.name).changed(message, lambda _: elements) or message

    def _parts(self, message: object) -> tuple[list[Any], Object]:
        """Return the elements of a message, and the message without them."""
        if not isinstance(message, dict):
            fail("wrong_type", f"a message must be an object that holds the list {self.name}, got {shown(message)}")
        found = elements_in(message, self.name)
        if found is None and self._says(message):
            return [], message
        if found is None:
            fail("missing_field", f"{self.name}: is missing; decode.fields.each names it as the list of the readings")
        elements, header = found
        if elements is None:  # as some encoders write a list without elements
            return [], header
        if not isinstance(elements, list):
            fail("wrong_type", f"{self.name}: must be a list of objects (decode.fields.each), got {shown(elements)}")
        return elements, header

    def _says(self, message: Object) -> bool:
        """Return whether the message itself begins or ends a sequence: without elements it is a bare sample."""
        return self._reader.begins(message) or self._reader.end_of(message)

    def _around(self, header: Object) -> list[tuple[FieldPath, Any]]:
        """Return the fields of the message around the list that its elements may lack."""
        found = []
        for path in self._reader.paths:
            try:
                value = path.get(header)
            except DecodeError:
                continue  # it leads nowhere here; an element without the field says that it is missing
            if value is not ABSENT:
                found.append((path, value))
        return found

    def _mark(self, singles: list[_Place], *, begins: bool) -> None:
        """Give the begin word of a whole message to the earliest sample of each sequence, or its end to the latest."""
        ordered = sorted(singles, key=lambda place: place.single.time_us)  # of equal times in the order of the list
        if begins:
            ordered.reverse()
        for place in {place.single[:2]: place for place in ordered}.values():
            place.single = self._reader.bounded(place.single, begins=begins, ends=not begins)

    def _samples(self, stretch: Sequence[_Place]) -> Samples:
        bad = BadCells()
        bad.of_rows = {}
        for bad.row, place in enumerate(stretch):
            if place.bad is not None:
                bad.add_all(place.bad)
        first = stretch[0].single
        values = self._reader.rows.array([place.single.row for place in stretch], bad)
        boundaries = tuple(place.single.boundary for place in stretch)
        indexes = [place.index for place in stretch]
        return Samples(
            first.stream,
            first.sequence,
            np.array([place.single.time_us for place in stretch], dtype=np.int64),
            values,
            any(place.single.end for place in stretch),
            None if indexes == [*range(len(stretch))] else np.array(indexes, dtype=np.int64),
            first.route,
            bad.values(*values.shape),
            boundaries if any(boundaries) else None,
        )


@dataclass(slots=True)
class _Place:
    """One element with a sample: its index in the list, and its values that cannot be used."""

    index: int
    single: Single
    second_us: int
    bad: BadCells | None


def _with(around: Sequence[tuple[FieldPath, Any]], element: Object) -> Object:
    """Return the element with those fields of its message that it lacks."""
    fields = dict(element)
    for path, value in around:
        if path.name not in element and (not path.outer or path.get(element) is ABSENT):
            fields[path.name] = value
    return fields


def _tags_first(singles: list[_Place]) -> list[_Place]:
    """Return them with the readings of tags before their stream's first sample of their time or later."""
    tags: dict[str, list[_Place]] = {}
    for place in singles:
        if is_tag(place.single.boundary):
            tags.setdefault(place.single.stream, []).append(place)
    if not tags:
        return singles
    for waiting in tags.values():
        waiting.sort(key=lambda place: (place.single.time_us, place.index), reverse=True)
    ordered: list[_Place] = []
    for place in singles:
        if is_tag(place.single.boundary):
            continue
        waiting = tags.get(place.single.stream, [])
        while waiting and waiting[-1].single.time_us <= place.single.time_us:
            ordered.append(waiting.pop())
        ordered.append(place)
    return [*ordered, *(place for waiting in tags.values() for place in reversed(waiting))]


def _stretches(singles: Sequence[_Place]) -> Iterator[Sequence[_Place]]:
    """Yield the samples that follow each other in one sequence and have one route; an end mark is the last in time."""
    for _, together in groupby(singles, key=_sequence_of):
        stretch: list[_Place] = []
        latest_us = 0
        for place in together:
            single = place.single
            if stretch and (stretch[-1].single.end or (single.end and single.time_us < latest_us)):
                yield stretch
                stretch = []
            latest_us = max(latest_us, single.time_us) if stretch else single.time_us
            stretch.append(place)
        yield stretch


def _sequence_of(place: _Place) -> tuple[str, str | None, str | None]:
    single = place.single
    return single.stream, single.sequence, single.route


def elements_in(message: Object, name: str) -> tuple[Any, Object] | None:
    """Return the value at a dotted path and the message without it; None if there is none (``FieldPath``)."""
    found: list[Any] = []

    def take(value: Any) -> Any:
        found.append(value)
        return ABSENT

    header = FieldPath(name).changed(message, take)
    return None if header is None else (found[0], header)


def encoded(message: Object, *, as_msgpack: bool) -> bytes | None:
    """Return a parsed message as bytes; None if it holds what the encoder cannot write."""
    try:
        return msgspec.msgpack.encode(message) if as_msgpack else msgspec.json.encode(message)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        try:
            return None if as_msgpack else json.dumps(message).encode()  # integers of any length, NaN
        except (ValueError, TypeError, RecursionError):
            return None
