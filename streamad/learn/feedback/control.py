"""Control messages announce a promotion; they only trigger the workers' poll of the registry."""

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
    """Announces promotions in tasks of the running event loop; a failure is an event and no more."""

    def __init__(self, plant: Plant, on_event: OnEvent = log_event) -> None:
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
            text = f"other workers will see {model.name} {model.version} by themselves, they could not be told: {error}"
            self._on_event("control_unwritable", text)


class ControlReader:
    """Calls ``on_wake`` for every new message in ``learning.control``, whatever its content.

    A lost message costs one polling interval, a forged one costs one poll: no message can swap a model. A place that
    cannot be read is one event and is tried again.
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
        """Read until ``close``; returns at once without ``learning.control``."""
        if self._has_place:
            await self._follower.run()

    async def close(self) -> None:
        """Stop reading; safe to call twice."""
        await self._follower.close()

    async def _take(self, message: StoredMessage) -> None:
        self._on_wake()
