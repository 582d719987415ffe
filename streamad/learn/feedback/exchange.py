"""Write to and read from the topics or files that ``learning.feedback`` and ``learning.control`` name."""

from __future__ import annotations

import asyncio
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import msgspec

from streamad.errors import StreamadError
from streamad.messages import OutputRecord, Role
from streamad.plant import Plant
from streamad.plugins import connect_sink, connect_subscription, failure_of, load, split_url
from streamad.ports import EndingSubscription, Sink, StoredMessage, Subscription
from streamad.settings.places import place_key
from streamad.settings.plant_yaml import Settings
from streamad.system.clock import pause
from streamad.system.files import append_lines
from streamad.system.tasks import is_stop, wait_for_either
from streamad.telemetry.logs import get_logger

OnEvent: TypeAlias = Callable[[str, str], None]
"""Takes an event's kind (a stable identifier) and message."""
_RETRY_S = 10.0
_COUNT_S = 1.0
MAX_MESSAGE_BYTES = 1 << 20
"""Feedback and control messages are small, and others write them: more is not decoded."""
_BUSY = "end that one, or give feedback and control a file that no sink writes to"


def exchange_urls(settings: Settings) -> dict[Role, str]:
    """Return the URLs of ``feedback`` and ``control`` that the config has."""
    learning = settings.learning
    if learning is None:
        return {}
    urls: dict[Role, str | None] = {"feedback": learning.feedback, "control": learning.control}
    return {role: url for role, url in urls.items() if url is not None}


def exchange_sinks(plant: Plant) -> dict[Role, Sink]:
    """Return a sink to each place that is not a file; raises PluginError, ConfigError, OutputError."""
    return {
        role: _sink(plant, role) for role, url in exchange_urls(plant.settings).items() if split_url(url)[0] != "file"
    }


def _sink(plant: Plant, role: Role) -> Sink:
    url = exchange_urls(plant.settings)[role]
    return connect_sink(url, _options(plant.settings, url), plant.context, place_key(role))


def check_exchange(plant: Plant, role: Role) -> None:
    """Raise PluginError, ConfigError, SourceError or OutputError if the place of ``role`` cannot be used."""
    subscription_to(plant, role)
    if split_url(exchange_urls(plant.settings)[role])[0] != "file":
        _sink(plant, role)


def _options(settings: Settings, url: str, *, reads: bool = False) -> dict[str, Any]:
    """Return the options for the URL's scheme (``sinks.options``); for reading, those that a subscription knows."""
    scheme = split_url(url)[0]
    given = settings.sinks.options.get(scheme, {})
    if not reads:
        return given
    known = load("subscriptions", scheme).options_model.model_fields
    return {name: value for name, value in given.items() if name in known}


def subscription_to(plant: Plant, role: Role, **wanted: str) -> Subscription:
    """Return a subscription to the place of ``role`` with the options ``wanted``; those in the URL take precedence.

    A missing file is no error: there are no messages yet. Raises PluginError, ConfigError, SourceError.
    """
    url = exchange_urls(plant.settings)[role]
    given = _options(plant.settings, url, reads=True) | wanted
    if split_url(url)[0] == "file":
        given |= {"warn_missing": False, "max_record_bytes": MAX_MESSAGE_BYTES}
    return connect_subscription(url, given, plant.context, place_key(role))


async def send(plant: Plant, records: Sequence[OutputRecord]) -> None:
    """Write ``records``, all of one role, to its place; returns once they are durable.

    Lines are appended to a file one by one and whole, so other programs may append to it too. Raises OutputError,
    PluginError, ConfigError.
    """
    if not records:
        return
    role = records[0].role
    scheme, rest, _ = split_url(exchange_urls(plant.settings)[role])
    if scheme == "file":
        lines = b"".join(msgspec.json.encode(record.message) + b"\n" for record in records)
        await asyncio.to_thread(append_lines, plant.base_dir / rest, lines, busy=_BUSY)
        return
    sink = _sink(plant, role)
    try:
        await sink.write(records)
        await sink.flush()
    finally:
        await sink.close()


class Unread(NamedTuple):
    """What a reader left: how many messages (None: unknown), and why."""

    n_messages: int | None
    why: str

    @property
    def text(self) -> str:
        """How much feedback waits, for people."""
        return "feedback may wait" if self.n_messages is None else self._counted("of feedback ")

    @property
    def text_of_feedback(self) -> str:
        """How much waits, for people who read it under the heading feedback."""
        return "may wait" if self.n_messages is None else self._counted("")

    def _counted(self, of: str) -> str:
        return f"1 message {of}waits" if self.n_messages == 1 else f"{self.n_messages} messages {of}wait"


class Follower(ABC):
    """Passes every message in the place of ``role`` to ``take``, endlessly; a failure is reported once, tried again.

    A message is done when ``take`` has returned; with a group, an unfinished one comes again (at least once).
    ``read_present`` ends it with the messages that are there. ``wanted`` are options of the subscription.
    """

    def __init__(self, plant: Plant, role: Role, on_trouble: Callable[[str], None], **wanted: str) -> None:
        self._plant = plant
        self._role = role
        self._on_trouble = on_trouble
        self._wanted = wanted
        self._is_reported = False
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._n_taken = 0
        self._failure: BaseException | None = None
        self._n_left: int | None = None
        self._is_through = False
        self.ending = asyncio.Event()
        """Set once it reads what is there for the last time: nothing is tried again."""

    async def run(self) -> None:
        """Read until ``close``; returns at once if the config names no place. An unreadable place never raises."""
        if self._is_closed or self._role not in exchange_urls(self._plant.settings):
            return
        self._task = asyncio.ensure_future(self._follow())
        try:
            await asyncio.wait({self._task})
        finally:
            await self.close()

    @abstractmethod
    async def take(self, message: StoredMessage) -> bool:
        """Handle one message; return False if it was malformed and skipped."""

    async def read_present(self, stop: asyncio.Event, patience_s: float) -> Unread | None:
        """Take what lies there now, then end; return what is left, None if nothing is.

        It gives up at a failure, when ``stop`` is set, or if no message was done for ``patience_s``; a malformed one is
        none.
        """
        task = self._task
        if task is None:
            return None if self._role not in exchange_urls(self._plant.settings) else Unread(None, "it is not read")
        self.ending.set()
        self._end_with_present()
        why = ""
        while not task.done() and not why:
            n_before = self._n_taken
            waiting = asyncio.ensure_future(self._plant.clock.sleep(patience_s))
            await wait_for_either(stop, task, waiting)
            if stop.is_set():
                why = "the run was stopped"
            elif waiting.done() and self._n_taken == n_before:
                why = f"no message was done for {patience_s:g} s"
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await self.close()
        if self._is_through:
            return None
        return Unread(self._n_left, why or _text(self._failure))

    async def close(self) -> None:
        """Stop and disconnect for good; safe to call twice, and before ``run``."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _follow(self) -> None:
        while True:
            try:
                await self._read()
            except BaseException as error:
                if is_stop(error):
                    raise
                if self._is_closed:  # connectors are foreign code, and reading must go on
                    return
                self._failure = error
                if not self.ending.is_set():
                    self._note(error)
            if self.ending.is_set():
                return
            await pause(_RETRY_S, self._plant.clock, self.ending)

    def _note(self, error: BaseException) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        if not isinstance(error, StreamadError):
            get_logger().error("reading failed", traceback="".join(traceback.format_exception(error)))
        self._on_trouble(_text(error))

    async def _read(self) -> None:
        subscription = self._subscription = subscription_to(self._plant, self._role, **self._wanted)
        if self.ending.is_set():
            self._end_with_present()
        messages = subscription.messages()
        try:
            async for message in messages:
                self._n_taken += await self.take(message)  # who writes what is none must not keep a run from its end
                self._is_reported = False
            self._is_through = self.ending.is_set()
        finally:
            self._subscription = None
            try:
                if isinstance(messages, AsyncGenerator):
                    await messages.aclose()
                if self.ending.is_set() and not self._is_through:
                    self._n_left = await _n_present(subscription)
            finally:
                await subscription.close()

    def _end_with_present(self) -> None:
        if isinstance(self._subscription, EndingSubscription):
            self._subscription.end_with_present()


async def _n_present(subscription: Subscription) -> int | None:
    """Return how many messages wait, None if that cannot be known in a second."""
    if isinstance(subscription, EndingSubscription):
        with suppress(TimeoutError, StreamadError):
            async with asyncio.timeout(_COUNT_S):
                return await subscription.n_present()
    return None


def _text(error: BaseException | None) -> str:
    return str(error) if error is None or isinstance(error, StreamadError) else failure_of(error)
