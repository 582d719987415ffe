"""Reads the plant's outputs into the view: every role by a subscription of its own, at least once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import msgspec

from streamad.commands.shared.outputs import place_of, subscription_of
from streamad.errors import OutputError, StreamadError
from streamad.learn.feedback.exchange import exchange_urls, subscription_to
from streamad.messages import Alert, Attribution, Event, Feedback, Message, Role, Verdict, Window, message_type
from streamad.plant import Plant
from streamad.ports import Subscription
from streamad.system.untrusted_json import decode_json
from streamad.telemetry.logs import get_logger
from streamad.web.accepting import MOST_BYTES, MOST_BYTES_ELSE, accepted
from streamad.web.view import View

_RETRY_S = 5.0
_TRIM_S = 60.0
_KINDS: dict[Role, tuple[type[Message], ...]] = {
    "verdicts": (Verdict,),
    "alerts": (Alert, Verdict),
    "attributions": (Attribution,),
    "windows": (Window,),
    "events": (Event,),
    "feedback": (Feedback,),
}


class Reading:
    """Follows the outputs until it is cancelled; what cannot be read is a trouble on the page, and is tried again.

    ``on_change`` is called after each commit of the view. Law: a message is done only after its commit.
    """

    def __init__(self, plant: Plant, view: View, on_change: Callable[[], None]) -> None:
        self._plant, self._view, self._on_change = plant, view, on_change
        self._group = f"streamad.{plant.settings.name}.web.{view.view_id}"
        self.troubles: dict[str, str] = {}
        """Why a role is not read, by role; empty if all is well."""
        self.roles = tuple(role for role in _KINDS if self._is_kept(role))
        """The roles that the plant writes to a place that can be read."""
        self._n_skipped = 0

    def _is_kept(self, role: Role) -> bool:
        if role == "feedback":
            return "feedback" in exchange_urls(self._plant.settings)
        return place_of(self._plant, role) is not None

    async def run(self) -> None:
        """Read until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for role in self.roles:
                tasks.create_task(self._follow(role))
            tasks.create_task(self._trim())

    async def _follow(self, role: Role) -> None:
        while True:
            try:
                await self._read(role)
            except StreamadError as error:
                if role not in self.troubles:
                    get_logger().warning("the page does not read", role=role, why=str(error))
                self.troubles[role] = str(error)
                self._on_change()
            await asyncio.sleep(_RETRY_S)

    def _subscription(self, role: Role) -> Subscription:
        if role == "feedback":
            return subscription_to(self._plant, "feedback", group=self._group, start="earliest")
        wanted = {"group": self._group, "start": "earliest"}
        return subscription_of(self._plant, role, wanted)

    async def _read(self, role: Role) -> None:
        kinds = {message_type(kind): kind for kind in _KINDS[role]}
        subscription = self._subscription(role)
        received = subscription.messages()
        try:
            async for stored in received:
                message = None if stored.problem is not None else _decoded(stored.value, kinds, role)
                if message is not None:
                    message = accepted(message, self._latest_us())
                if message is None:
                    self._n_skipped += 1
                    continue
                await self._put(message)
                self.troubles.pop(role, None)
        finally:
            if isinstance(received, AsyncGenerator):
                await received.aclose()
            await subscription.close()

    def _latest_us(self) -> int:
        """Return the latest time that a mark may have, as for the monitor."""
        return self._plant.clock.now_us() + self._plant.settings.decode.max_clock_skew

    async def _put(self, message: Message) -> None:
        """Commit ``message`` to the view; a full disk is waited for."""
        while True:
            try:
                await asyncio.to_thread(self._view.put, [message])
            except OutputError as error:
                self.troubles["view"] = str(error)
                await asyncio.sleep(_RETRY_S)
                continue
            self.troubles.pop("view", None)
            self._on_change()
            return

    async def _trim(self) -> None:
        while True:
            try:
                if await asyncio.to_thread(self._view.trim):
                    continue  # a portion at a time
            except OutputError as error:
                self.troubles["view"] = str(error)
            await asyncio.sleep(_TRIM_S)


def _decoded(value: bytes, kinds: dict[str, type[Message]], role: Role) -> Message | None:
    """Return the message, None if it is too long, of another kind or none at all."""
    if len(value) > MOST_BYTES.get(role, MOST_BYTES_ELSE):
        return None
    try:
        head = decode_json(value, _Head)
        kind = kinds.get(head.type if head.type is not None else ("feedback" if role == "feedback" else ""))
        return None if kind is None else decode_json(value, kind)
    except msgspec.DecodeError:
        return None


class _Head(msgspec.Struct):
    type: str | None = None
