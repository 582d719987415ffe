"""Reads the committed messages of one place: decoded and accepted, each done in its order, whatever else lies there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from streamad.errors import StreamadError
from streamad.messages import SCHEMA_VERSION, Feedback, Message, message_type, message_types
from streamad.messages.accepting import MOST_BYTES, MOST_BYTES_ELSE, accepted
from streamad.outputs.ledger import Ledger
from streamad.ports import EndingSubscription, HoldingSubscription, StoredMessage, Subscription
from streamad.system.tasks import Arrived
from streamad.system.untrusted_json import decode_json

M = TypeVar("M", bound=Message)
_COUNT_S = 1.0


class Received(NamedTuple, Generic[M]):
    """A message, its place for people to find, and its number among those that were read.

    ``sender``: as ``StoredMessage`` has it.
    """

    message: M
    place: str
    sender: str | None = None
    number: int = 0


class Unreadable(NamedTuple):
    """A line that is no message to read, and why."""

    place: str
    why: str


@dataclass(slots=True)
class Skipped:
    """How many lines were unreadable, and which was the first."""

    n: int = 0
    first: Unreadable | None = None

    def add(self, unreadable: Unreadable) -> None:
        """Count a line."""
        self.n += 1
        self.first = self.first or unreadable

    @property
    def text(self) -> str:
        """Return what was skipped, for people; "" if nothing was."""
        if self.first is None:
            return ""
        lines = "1 line is" if self.n == 1 else f"{self.n} lines are"
        return f"{lines} unreadable and left out, the first: {self.first.place}: {self.first.why}"


class Decoder(Generic[M]):
    """Decodes messages of ``kinds`` and lets ``accept`` check them, which raises DecodeError or returns what is kept.

    A message that is too long for its kind is not decoded. With ``accept`` None any length is taken.
    Messages of other kinds are not wanted, and with ``only`` are unreadable; so are all types that streamad does not
    know. ``is_wanted`` gets the id of an alert or verdict, "" if there is none, before the whole message is decoded. A
    mark may lack its type, or have another program's: people and other programs write marks.
    """

    def __init__(
        self,
        kinds: tuple[type[M], ...],
        *,
        accept: Callable[[M], M] | None = accepted,
        is_wanted: Callable[[str], bool] | None = None,
        only: bool = False,
    ) -> None:
        self._kinds: Mapping[str, type[M]] = {message_type(kind): kind for kind in kinds}
        self._known = message_types()
        self._most_bytes = max(MOST_BYTES.get(kind, MOST_BYTES_ELSE) for kind in kinds)
        self._accept, self._is_wanted, self._only = accept, is_wanted, only

    def decoded(self, value: bytes) -> M | None:
        """Return the message, None if it is not wanted. Raises DecodeError if it is unreadable."""
        if self._accept is not None and len(value) > self._most_bytes:
            raise msgspec.ValidationError(f"it is longer than {self._most_bytes} bytes")
        head = decode_json(value, _Head)
        if self._is_wanted is not None and not self._is_wanted(head.alert_id or head.verdict_id or ""):
            return None
        is_known = isinstance(head.type, str) and head.type in self._known
        if not is_known and "feedback" in self._kinds:
            return self._checked(_mark_in(value))
        if head.type is None:
            raise msgspec.ValidationError(
                f"it has no field `type`, which messages have from schema {SCHEMA_VERSION} on"
            )
        if not is_known:
            raise msgspec.ValidationError(f"`type` is {head.type!r}, known are {', '.join(self._known)}")
        if (kind := self._kinds.get(head.type)) is not None:
            return self._checked(decode_json(value, kind))
        if self._only:
            raise msgspec.ValidationError(f"`type` is {head.type!r}, which does not belong there")
        return None

    def _checked(self, message: M) -> M:
        return message if self._accept is None else self._accept(message)


class _Head(msgspec.Struct):
    type: Any = None
    alert_id: str | None = None
    verdict_id: str | None = None


def _mark_in(value: bytes) -> Any:
    fields = decode_json(value, dict[str, Any])
    fields.pop("type", None)
    return msgspec.convert(fields, Feedback)


class Reader(Generic[M]):
    """Reads from ``subscription`` what ``decoder`` wants, and closes it at the end of ``async with`` or ``async for``.

    ``async for`` yields one message after the other: each is done when the next one is asked for, or when ``async
    with`` ends without an error. With ``ahead`` it reads ahead, ``arrived`` returns together what is there, and a
    message is done by ``done`` alone. All else is skipped; ``on_unreadable`` is told of each line that is no message to
    read, ``on_removed`` of each key of a topic that was removed.
    """

    def __init__(
        self,
        subscription: Subscription,
        decoder: Decoder[M],
        *,
        on_unreadable: Callable[[Unreadable], None] = lambda _: None,
        on_removed: Callable[[str], None] | None = None,
        ahead: bool = False,
    ) -> None:
        self._subscription = subscription
        self._lines = _Lines(decoder, on_unreadable, on_removed)
        self._ledger: Ledger | None = None
        if ahead and isinstance(subscription, HoldingSubscription):
            subscription.hold()
            self._ledger = Ledger(subscription.release)
        self._messages = subscription.messages()
        self._iterator = _one_by_one(subscription, self._messages, self._lines)
        self._arrived: Arrived[StoredMessage] | None = None

    async def __aenter__(self) -> Reader[M]:
        if self._ledger is not None:
            self._arrived = Arrived(self._messages, lambda stored: len(stored.value))
            await self._arrived.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._arrived is not None:
            await self._arrived.__aexit__()
        elif kind is None:
            self._subscription.done()
        await self.close()

    async def close(self) -> None:
        """Store how far it was read and disconnect; safe to call twice."""
        await self._iterator.aclose()
        await _end(self._subscription, self._messages)

    async def n_left(self) -> int | None:
        """End reading; return how many messages wait, None if that cannot be known in a second."""
        await _end_reading(self._messages)
        if isinstance(self._subscription, EndingSubscription):
            with suppress(TimeoutError, StreamadError):
                async with asyncio.timeout(_COUNT_S):
                    return await self._subscription.n_present()
        return None

    # --- one by one ---

    def __aiter__(self) -> AsyncIterator[Received[M]]:
        return self._iterator

    # --- ahead ---

    async def arrived(self) -> list[Received[M]]:
        """Return what has arrived since the last call, in order, at least one message; nothing at the end.

        Of a subscription that cannot hold messages it is one, which is done when the next one is asked for. Raises
        SourceError.
        """
        if self._arrived is None or self._ledger is None:
            one = await anext(self._iterator, None)
            return [] if one is None else [one]
        while batch := await self._arrived.take():
            numbers = [self._ledger.read() for _ in batch]
            read = await asyncio.to_thread(lambda each, first: list(map(self._lines.read, each, first)), batch, numbers)
            found = [each for each in map(self._lines.told, read) if each is not None]
            self._ledger.done(set(numbers) - {each.number for each in found})
            if found:
                return found
        return []

    def done(self, numbers: Iterable[int]) -> None:
        """Mark the messages with these ``numbers`` as done, in any order: a group begins with the first that is not."""
        if self._ledger is not None:
            self._ledger.done(numbers)


@dataclass(frozen=True, slots=True)
class _Lines(Generic[M]):
    """What becomes of each stored message. It knows no reader: one that is dropped amid a loop is freed at once."""

    decoder: Decoder[M]
    on_unreadable: Callable[[Unreadable], None]
    on_removed: Callable[[str], None] | None

    def read(self, stored: StoredMessage, number: int = 0) -> Received[M] | Unreadable | StoredMessage | None:
        """Return the message; why it is none; what says that a key was removed; None if it is not wanted."""
        if stored.problem is not None:
            return Unreadable(stored.place, stored.problem)
        if self.on_removed is not None and stored.key is not None and not stored.value:
            return stored
        try:
            message = self.decoder.decoded(stored.value)
        except msgspec.DecodeError as error:
            return Unreadable(stored.place, str(error))
        return None if message is None else Received(message, stored.place, stored.sender, number)

    def told(self, found: Received[M] | Unreadable | StoredMessage | None) -> Received[M] | None:
        """Return the message; else tell of what was found instead."""
        if isinstance(found, Received):
            return found
        if isinstance(found, Unreadable):
            self.on_unreadable(found)
        elif found is not None and found.key is not None and self.on_removed is not None:
            self.on_removed(found.key.decode("utf-8", "replace"))
        return None


async def _one_by_one(
    subscription: Subscription, messages: AsyncIterator[StoredMessage], lines: _Lines[M]
) -> AsyncGenerator[Received[M]]:
    try:
        async for stored in messages:
            if (found := lines.told(lines.read(stored))) is not None:
                yield found
    finally:
        await _end(subscription, messages)


async def _end(subscription: Subscription, messages: AsyncIterator[StoredMessage]) -> None:
    try:
        await _end_reading(messages)
    finally:
        await subscription.close()


async def _end_reading(messages: AsyncIterator[StoredMessage]) -> None:
    if isinstance(messages, AsyncGenerator):
        await messages.aclose()
