"""Control messages: that a version went into service. They only wake the workers' look into the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from streamad.errors import StreamadError
from streamad.learn.feedback.exchange import Follower, OnEvent, exchange_urls, log_event, send, subscription_to
from streamad.messages import ModelRef, OutputRecord, Promotion
from streamad.plant import Plant
from streamad.ports import StoredMessage
from streamad.types import from_us

_CLOSE_S = 1.0


async def announce(plant: Plant, model: ModelRef) -> bool:
    """Tell running workers that ``model`` is in service; returns False where the plant has no ``learning.control``.

    To be called after the registry has it. Raises OutputError, ConfigError, PluginError: nothing is lost then, for
    workers look into the registry every second anyway.
    """
    if "control" not in exchange_urls(plant.settings):
        return False
    now = from_us(plant.clock.now_us())
    message = Promotion(model=model.name, version=model.version, created_at=now)
    await send(plant, [OutputRecord("control", model.name, message)])
    return True


class Announcer:
    """Announces promotions beside other work; what goes wrong is an event and no more. Use inside an event loop."""

    def __init__(self, plant: Plant, on_event: OnEvent = log_event) -> None:
        self._plant = plant
        self._on_event = on_event
        self._tasks: set[asyncio.Task[None]] = set()

    def announce(self, model: ModelRef) -> None:
        """Begin to tell running workers that ``model`` is in service; returns at once."""
        task = asyncio.create_task(self._announce(model))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Return once all is told, or has failed, or has taken a second: others see it by themselves."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _announce(self, model: ModelRef) -> None:
        try:
            await announce(self._plant, model)
        except StreamadError as error:
            text = f"other workers will see {model.name} {model.version} by themselves, they could not be told: {error}"
            self._on_event("control_unwritable", text)


class ControlReader:
    """Calls ``on_wake`` for every message that comes to ``learning.control`` from now on, whatever it says.

    A lost message costs one interval of the registry's poll, a forged one a look into the registry: none can swap a
    model. A place that cannot be read is told once and tried again.
    """

    def __init__(
        self,
        plant: Plant,
        on_wake: Callable[[], None],
        on_event: OnEvent = log_event,
    ) -> None:
        self._has_place = "control" in exchange_urls(plant.settings)
        self._on_wake = on_wake
        self._follower = Follower(
            lambda: subscription_to(plant, "control", start="latest"),
            plant.clock,
            self._take,
            lambda why: on_event("control_unreadable", f"promotions are noticed by polling alone: {why}"),
        )

    async def run(self) -> None:
        """Read until ``close``; returns at once where the plant has no ``learning.control``."""
        if self._has_place:
            await self._follower.run()

    async def close(self) -> None:
        """Stop reading; safe to call twice."""
        await self._follower.close()

    async def _take(self, message: StoredMessage) -> None:
        self._on_wake()
