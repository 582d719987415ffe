"""Runs the receivers of a plant side by side, until a signal ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeVar

import stamina.instrumentation

from streamad.errors import ConfigError, PluginError, Problem, UsageError
from streamad.notify.companions import Companions
from streamad.notify.notices import Notice
from streamad.notify.picturing import Picturing
from streamad.notify.receiver import Receiver, Shared, roles_of
from streamad.notify.sending import NotDelivered, ReceiverGone, Sender
from streamad.notify.undelivered import Undelivered
from streamad.notify.webhook import WebhookSender
from streamad.outputs.reading import place_of
from streamad.plant import Plant
from streamad.settings.fields import secret_of
from streamad.settings.outputs import ReceiverSettings
from streamad.system.tasks import look_at
from streamad.types import from_us

STOP_S = 10.0
"""How long a stop waits for what is being sent."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a test notice to one receiver."""

    receiver: str
    place: str
    delivered: bool
    answer: str


def sender_of(plant: Plant, number: int) -> Sender:
    """Return the way to receiver ``number`` of the config. Raises ConfigError with its key, PluginError."""
    settings = plant.settings.notify.receivers[number]
    key = f"notify.receivers.{number}"
    if settings.url is not None:
        assert settings.secret is not None
        secret = secret_of(settings.secret, plant.base_dir, f"{key}.secret")
        ca_file = None if settings.ca_file is None else plant.base_dir / settings.ca_file
        url = settings.url
        return _at(key, lambda: WebhookSender(url, secret, ca_file))
    assert settings.apprise is not None
    address = secret_of(settings.apprise, plant.base_dir, f"{key}.apprise")
    if find_spec("apprise") is None:
        raise PluginError(
            f"receiver {settings.name} needs apprise, which is not installed: pip install 'streamad-monitor[notify]'"
        )
    from streamad.notify.by_apprise import AppriseSender  # noqa: PLC0415 - an extra

    return _at(key, lambda: AppriseSender(address))


def _at(key: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ConfigError as error:
        problems = [Problem(f"{key}.{problem.path}", problem.message) for problem in error.problems]
        raise ConfigError(problems) from None


def check_receivers(plant: Plant) -> None:
    """Raise UsageError if there is nobody to tell, or nothing to tell of."""
    if not plant.settings.notify.receivers:
        raise UsageError("the config names no receivers: add notify.receivers, a name and a url or apprise for each")
    if (problem := unread(plant)) is not None:
        raise UsageError(problem)


def unread(plant: Plant) -> str | None:
    """Return why what the receivers want cannot be read, None if it can."""
    for role in {role: None for each in plant.settings.notify.receivers for role in roles_of(plant, each)}:
        if place_of(plant, role) is None:
            return f"notices need {role} in a file or a topic: set sinks.{role}, such as out/{role}.jsonl"
    return None


class Notifier:
    """Tells the receivers of a plant. Raises ConfigError, PluginError, UsageError, SourceError."""

    def __init__(self, plant: Plant) -> None:
        check_receivers(plant)
        stamina.instrumentation.set_on_retry_hooks(())  # the receivers say by themselves what is tried again
        self._plant = plant
        self._receivers = plant.settings.notify.receivers
        self._senders = [sender_of(plant, number) for number in range(len(self._receivers))]
        self._stop = asyncio.Event()

    @property
    def places(self) -> list[tuple[ReceiverSettings, str]]:
        """Return each receiver with its place for people, without secrets."""
        return [(each, sender.place) for each, sender in zip(self._receivers, self._senders, strict=True)]

    def stop(self) -> None:
        """End ``run`` soon; safe to call from a signal handler of the event loop."""
        self._stop.set()

    async def run(self) -> None:
        """Send notices until ``stop``. Raises SourceError, and UsageError when no receiver is left."""
        plant = self._plant
        attributions, windows = Companions(plant, "attributions"), Companions(plant, "windows")
        shared = Shared(plant, attributions, Picturing(plant, windows), Undelivered(plant))
        pairs = list(zip(self._receivers, self._senders, strict=True))
        receivers = [Receiver(shared, settings, sender) for settings, sender in pairs]
        readers = [asyncio.create_task(attributions.run())]
        if shared.picturing.is_possible and any(sender.takes_pictures and each.picture for each, sender in pairs):
            readers.append(asyncio.create_task(windows.run()))
        running = {asyncio.create_task(receiver.run()): receiver for receiver in receivers}
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await self._until_end({*running}, stopping)
        finally:
            await asyncio.gather(*(running[task].stop(STOP_S) for task in running if not task.done()))
            for task in (*readers, stopping):
                task.cancel()
            await asyncio.wait([*running, *readers, stopping])
            for task in running:
                look_at(task)
            shared.picturing.close()

    async def _until_end(self, running: set[asyncio.Task[None]], stopping: asyncio.Task[Any]) -> None:
        left = set(running)
        while not stopping.done():
            done, _ = await asyncio.wait({*left, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & left:
                left.remove(task)
                task.result()  # raises what ended it
            if not left:
                raise UsageError("no receiver wants notices any more: take them out of notify.receivers, or renew them")

    async def test(self) -> list[Answer]:
        """Send one test notice to each receiver, once; return what came back."""
        pairs = zip(self._receivers, self._senders, strict=True)
        return list(await asyncio.gather(*(self._tested(each, sender) for each, sender in pairs)))

    async def _tested(self, receiver: ReceiverSettings, sender: Sender) -> Answer:
        settings = self._plant.settings
        notice = Notice.test(settings.name, receiver.name, from_us(self._plant.clock.now_us()), settings.notify.link)
        try:
            return Answer(receiver.name, sender.place, True, await sender.send(notice))
        except (NotDelivered, ReceiverGone) as error:
            return Answer(receiver.name, sender.place, False, str(error))
        finally:
            await sender.close()
