"""Subscriptions for a user's own program: committed alerts and other messages, decoded and typed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from streamad.messages import (
    Alert,
    Attribution,
    DeadLetter,
    DecisionEntry,
    EarlyWarning,
    Event,
    Feedback,
    LateRecord,
    Message,
    Verdict,
    Window,
    message_types,
)
from streamad.outputs.reader import Decoder, Reader, Received, Unreadable
from streamad.plugins import ConnectorContext, connect_subscription
from streamad.ports import Subscription
from streamad.system.clock import SystemClock
from streamad.telemetry.logs import get_logger

Start = Literal["earliest", "latest"]
M_co = TypeVar("M_co", bound=Message, covariant=True)
A = TypeVar(
    "A", Alert, EarlyWarning, Attribution, Verdict, Window, DeadLetter, LateRecord, Event, Feedback, DecisionEntry
)
B = TypeVar(
    "B", Alert, EarlyWarning, Attribution, Verdict, Window, DeadLetter, LateRecord, Event, Feedback, DecisionEntry
)


class Messages(Generic[M_co]):
    """Committed messages, one after the other, endlessly: ``async for``, best inside ``async with``.

    A message is done when the next one is asked for, or when ``async with`` ends without an error; a group begins with
    the first message that is not done. After any other end (``break`` outside ``async with``, an error, a crash) the
    last message comes again: at least once. A time-out (``asyncio.timeout`` around ``anext``) loses no message.
    """

    def __init__(self, subscription: Subscription, of: tuple[type[M_co], ...]) -> None:
        if not of or not set(of) <= set(message_types().values()):
            raise ValueError(f"of: give one or more of {', '.join(kind.__name__ for kind in message_types().values())}")
        self._reader = Reader(subscription, Decoder(of, accept=None), on_unreadable=_say)
        self._next: asyncio.Future[Received[M_co]] | None = None

    def __aiter__(self) -> Messages[M_co]:
        return self

    async def __anext__(self) -> M_co:
        if self._next is None:
            self._next = asyncio.ensure_future(anext(aiter(self._reader)))
        await asyncio.wait({self._next})  # a time-out of the caller leaves it for the next call
        found, self._next = self._next, None
        return found.result().message

    async def __aenter__(self) -> Messages[M_co]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._next is None:
            await self._reader.__aexit__(kind, error, trace)
        else:  # what came after a time-out was never returned, so it is not done
            await self.aclose()

    async def aclose(self) -> None:
        """Store how far it was read and disconnect; safe to call twice."""
        await self._end_waiting()
        await self._reader.close()

    async def _end_waiting(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait({self._next})


class _Settings(TypedDict, total=False):
    group: str | None
    start: Start | None
    options: Mapping[str, Any] | None
    base_dir: Path | None


@overload
def subscribe(url: str, **settings: Unpack[_Settings]) -> Messages[Alert]: ...
@overload
def subscribe(url: str, *, of: type[A], **settings: Unpack[_Settings]) -> Messages[A]: ...
@overload
def subscribe(url: str, *, of: tuple[type[A], type[B]], **settings: Unpack[_Settings]) -> Messages[A | B]: ...
@overload
def subscribe(url: str, *, of: tuple[type[Message], ...], **settings: Unpack[_Settings]) -> Messages[Message]: ...
def subscribe(
    url: str,
    *,
    of: type[Any] | tuple[type[Any], ...] = Alert,
    group: str | None = None,
    start: Start | None = None,
    options: Mapping[str, Any] | None = None,
    base_dir: Path | None = None,
) -> Messages[Any]:
    """Return the messages of type ``of`` (one or several of ``streamad.messages``) that a sink writes to ``url``.

    ``url`` is the sink's: ``kafka://host:9092/alerts``, ``file:out/alerts.jsonl``. A new ``group`` begins with the
    earliest message, a known one after its last message; without a group reading begins with new messages. ``start``
    changes the beginning for the first time. ``options`` are the connector's (``security`` for Kafka); relative paths
    begin at ``base_dir`` (default: the working directory).

    Messages of other types are skipped; lines that are no messages, with a warning in the log. It connects when the
    first message is asked for, which may raise SourceError. Raises PluginError for an unknown scheme, ConfigError for
    wrong options, ValueError for a type that is no message.
    """
    given = dict(options or {})
    given |= {name: value for name, value in (("group", group), ("start", start)) if value is not None}
    context = ConnectorContext((), SystemClock(), base_dir or Path.cwd())
    wanted = of if isinstance(of, tuple) else (of,)
    return Messages(connect_subscription(url, given, context), wanted)


def _say(unreadable: Unreadable) -> None:
    place, why = unreadable
    get_logger().warning("skipped a line that is not a streamad message", place=place, why=why)
