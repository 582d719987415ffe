"""What belongs to an alert and is written apart from it: its attribution, and the window for its picture."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final, Literal, TypeVar

import msgspec

from streamad.errors import StreamadError
from streamad.messages import Attribution, Window
from streamad.outputs.reader import Decoder, Reader
from streamad.outputs.reading import place_of, subscription_of
from streamad.plant import Plant
from streamad.telemetry.logs import get_logger

Kept = Literal["attributions", "windows"]
_RETRY_S = 5.0
_MOST_BYTES: Final = {"attributions": 32 << 20, "windows": 64 << 20}
_KINDS: Final[dict[Kept, Decoder[Any]]] = {"attributions": Decoder((Attribution,)), "windows": Decoder((Window,))}
_OVERHEAD = 300
"""Bytes that a message takes in memory beside its content."""
_M = TypeVar("_M", Attribution, Window)


class Companions:
    """The latest messages of a role by id, in bounded memory; whoever waits for one is woken.

    They are read without a group: attributions from the earliest, windows from the next one on.
    """

    def __init__(self, plant: Plant, role: Kept) -> None:
        self._plant, self._role = plant, role
        self._found: OrderedDict[str, bytes] = OrderedDict()
        self._n_bytes = 0
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        self.is_kept = place_of(plant, role) is not None
        """Whether the plant writes them to a place that can be read."""

    async def run(self) -> None:
        """Read until it is cancelled; what cannot be read is one warning, and is tried again."""
        is_reported = False
        while self.is_kept:
            try:
                await self._read()
            except StreamadError as error:
                if not is_reported:
                    get_logger().warning("notices lack something", role=self._role, why=str(error))
                is_reported = True
            await asyncio.sleep(_RETRY_S)

    async def _read(self) -> None:
        start = "earliest" if self._role == "attributions" else "latest"
        subscription = subscription_of(self._plant, self._role, {"start": start}, is_patient=True)
        async with Reader(subscription, _KINDS[self._role]) as messages:
            async for one in messages:
                self._put(one.message)

    def _put(self, message: Attribution | Window) -> None:
        """Keep a message, packed; the oldest ones go."""
        name = message.alert_id if isinstance(message, Attribution) else message.verdict_id
        value = msgspec.json.encode(message)
        if (former := self._found.pop(name, None)) is not None:
            self._n_bytes -= len(former) + _OVERHEAD
        self._found[name] = value
        self._n_bytes += len(value) + _OVERHEAD
        while self._n_bytes > _MOST_BYTES[self._role]:
            _, gone = self._found.popitem(last=False)
            self._n_bytes -= len(gone) + _OVERHEAD
        for waiting in self._awaited.pop(name, ()):
            if not waiting.done():
                waiting.set_result(None)

    async def of(self, name: str, kind: type[_M], until_s: float) -> _M | None:
        """Return the message of ``kind`` about ``name``, waited for until ``until_s`` (time of the event loop)."""
        loop = asyncio.get_running_loop()
        if self.is_kept and name not in self._found and until_s > loop.time():
            came = loop.create_future()
            self._awaited.setdefault(name, []).append(came)
            try:
                await asyncio.wait([came], timeout=until_s - loop.time())
            finally:
                if left := [other for other in self._awaited.pop(name, ()) if other is not came]:
                    self._awaited[name] = left
        value = self._found.get(name)
        return None if value is None else msgspec.json.decode(value, type=kind)
