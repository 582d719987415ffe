"""Control messages announce a promotion; they only trigger the workers' poll of the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamad.errors import StreamadError
from streamad.learn.feedback.exchange import Follower, OnEvent, exchange_urls, send
from streamad.messages import ModelRef, OutputRecord, Promotion
from streamad.plant import Plant
from streamad.ports import StoredMessage
from streamad.types import from_us

_CLOSE_S = 1.0


async def announce(plant: Plant, model: ModelRef) -> bool:
    """Announce to running workers that ``model`` is in service; return False if there is no ``learning.control``.

    Call it after the promotion. Raises OutputError, ConfigError, PluginError; nothing is lost then: workers poll
    the registry every second.
    """
    if "control" not in exchange_urls(plant.settings):
        return False
    now = from_us(plant.clock.now_us())
    message = Promotion(model=model.name, version=model.version, created_at=now)
    await send(plant, [OutputRecord("control", model.name, message)])
    return True


class Announcer:
    """Announces promotions in tasks of the running event loop; a failure is emitted as an event and ends nothing."""

    def __init__(self, plant: Plant, on_event: OnEvent) -> None:
        self._plant = plant
        self._on_event = on_event
        self._tasks: set[asyncio.Task[None]] = set()

    def announce(self, model: ModelRef) -> None:
        """Begin to announce that ``model`` is in service; returns at once."""
        task = asyncio.create_task(self._announce(model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Return once all announcements are sent or have failed, after a second at most."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _announce(self, model: ModelRef) -> None:
        try:
            await announce(self._plant, model)
        except StreamadError as error:
            text = f"{model.name} {model.version} could not be announced, other workers find it by polling: {error}"
            self._on_event("control_unwritable", text)


class ControlReader(Follower):
    """Calls ``on_wake`` for every new message in ``learning.control``, whatever its content.

    A lost message costs one polling interval, a forged one costs one poll: no message can swap a model. A place that
    cannot be read is one event and is tried again.
    """

    def __init__(self, plant: Plant, on_wake: Callable[[], None], on_event: OnEvent) -> None:
        def on_trouble(why: str) -> None:
            on_event("control_unreadable", f"promotions are found by polling alone: {why}")

        super().__init__(plant, "control", on_trouble, start="latest")
        self._on_wake = on_wake

    async def take(self, message: StoredMessage) -> bool:
        """Call ``on_wake``."""
        self._on_wake()
        return True
