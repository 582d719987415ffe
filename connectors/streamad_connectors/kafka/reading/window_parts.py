"""Puts windows together that were too large for one message (``writing/messages.py`` cuts them into parts)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from aiokafka import ConsumerRecord, TopicPartition

from streamad.messages import Window
from streamad.system.untrusted_json import decode_json

_MOST_BYTES = 128 << 20
_MOST_APART = 100_000  # a transaction of seconds holds fewer messages of other producers between two parts
_WINDOW_BYTES, _PART_BYTES = 1_000, 100  # what an open window, and each of its parts, takes beside the texts
_IS_WINDOW = ("streamad-message", b"window")


class Taken(NamedTuple):
    """A message whose first record has the offset ``first``; a ``value`` of None: a window that is lost."""

    first: int
    value: bytes | None


class _Head(msgspec.Struct):
    verdict_id: str = ""
    part: int = 1
    parts: int = 1


@dataclass(slots=True)
class _Open:
    """A window whose last part has not come yet."""

    first: int
    n_bytes: int = _WINDOW_BYTES
    values: list[str] = field(default_factory=list)
    course: list[str] = field(default_factory=list)


class WindowParts:
    """The windows of one topic whose last part has not come yet.

    Law: a window whose parts all come in order is the message that was cut, byte for byte, whatever lies between them.
    A part 1 begins its window anew, because what comes twice comes whole; another part that comes twice changes
    nothing. Memory is bounded, whatever anybody writes: above 128 MiB the windows that have waited longest are lost.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, str], _Open] = {}  # by partition and verdict id; the one that grew last is the last
        self.n_bytes = 0
        """About how much memory they take."""
        self._from_earliest: set[int] = set()  # partitions whose messages before the first that we read are deleted

    def take(self, record: ConsumerRecord[bytes | None, bytes | None]) -> Taken | None:
        """Return the message that ``record`` is, or whose last part it is; else None, or what is lost."""
        value = record.value or b""
        try:
            head = decode_json(value, _Head) if _IS_WINDOW in record.headers else _Head()
            part = decode_json(value, Window) if head.parts > 1 and head.part > 0 else None
        except msgspec.DecodeError:  # whoever reads it says so
            part = None
        if part is None:
            return Taken(record.offset, value)
        name = record.partition, part.verdict_id
        former = self._open.get(name)
        if former is not None and 1 < part.part <= len(former.values):
            return None
        self._forget(name)
        if part.part == 1:
            window = _Open(record.offset, _WINDOW_BYTES + len(part.verdict_id))
        elif former is not None and part.part == len(former.values) + 1:
            window = former
        else:  # its beginning was deleted; or the group, which stands behind it, has the window already
            is_lost = former is not None or (part.part == part.parts and record.partition in self._from_earliest)
            return Taken(record.offset, None) if is_lost else None
        window.values.append(part.values)
        window.course.append(part.course or "")
        window.n_bytes += len(part.values) + len(part.course or "") + _PART_BYTES
        if part.part < part.parts:
            self._open[name] = window
            self.n_bytes += window.n_bytes
            return Taken(record.offset, None) if self._bound() else None
        values, course = "".join(window.values), "".join(window.course) or msgspec.UNSET
        whole = msgspec.structs.replace(part, values=values, course=course, part=1, parts=1)
        return Taken(window.first, msgspec.json.encode(whole))

    def _bound(self) -> bool:
        """Keep the memory bounded; return whether windows are lost by that."""
        is_lost = self.n_bytes > _MOST_BYTES
        while self.n_bytes > _MOST_BYTES:
            self._forget(next(iter(self._open)))
        return is_lost

    def _forget(self, name: tuple[int, str]) -> None:
        if (window := self._open.pop(name, None)) is not None:
            self.n_bytes -= window.n_bytes

    def begin(self, partition: TopicPartition, reached: int) -> int:
        """Return where to read ``partition`` again so that every open window comes whole: ``reached`` at most.

        A window whose last part does not come, because its writer ended amid it, is forgotten after 100,000 messages.
        """
        firsts = {name: window.first for name, window in self._open.items() if name[0] == partition.partition}
        for name in [name for name, first in firsts.items() if first < reached - _MOST_APART]:
            self._forget(name)
            del firsts[name]
        return min([reached, *firsts.values()])

    def begin_anew(self, partition: TopicPartition, *, is_earliest: bool = False) -> None:
        """Forget the open windows of ``partition``: it is read from another offset now, the earliest or not."""
        (self._from_earliest.add if is_earliest else self._from_earliest.discard)(partition.partition)
        for name in [name for name in self._open if name[0] == partition.partition]:
            self._forget(name)
