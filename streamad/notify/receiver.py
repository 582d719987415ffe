"""One receiver: follows the alerts with a group of its own, and sends it notices until all are done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from streamad.errors import UsageError
from streamad.messages import Alert, Attribution, Verdict
from streamad.notify.companions import Companions
from streamad.notify.notices import Item, Notice
from streamad.notify.picturing import Picturing
from streamad.notify.policy import Batch, Policy
from streamad.notify.sending import NotDelivered, ReceiverGone, Sender, deliver
from streamad.notify.undelivered import Undelivered
from streamad.outputs.reader import Decoder, Reader, Unreadable
from streamad.outputs.reading import subscription_of
from streamad.plant import Plant
from streamad.ports import HoldingSubscription
from streamad.safe_text import described, one_line
from streamad.settings.outputs import ReceiverSettings
from streamad.system.tasks import look_at
from streamad.telemetry.logs import get_logger, get_status_logger
from streamad.types import from_us

ATTRIBUTION_WAIT_S = 10.0
"""So long after an alert was read its notice waits for the reasons."""
_LONGEST_GROUP = 64


def group_of(plant: str, receiver: str) -> str:
    """Return the group that keeps the position of a receiver; at most 64 characters, as file names allow."""
    name = f"streamad.{plant}.notify.{receiver}"
    if len(name) <= _LONGEST_GROUP:
        return name
    short = blake2b(name.encode(), digest_size=6).hexdigest()
    return f"streamad.{plant[:16]}.notify.{receiver[:16]}.{short}"


@dataclass(frozen=True, slots=True)
class Shared:
    """What the receivers of a plant share."""

    plant: Plant
    attributions: Companions
    picturing: Picturing
    undelivered: Undelivered


class Receiver:
    """Law: the group's position is that of the first alert that is neither delivered nor given up nor filtered out.

    So each alert is in a notice that the receiver took, at least once, or an event says that it was given up.
    """

    def __init__(self, shared: Shared, settings: ReceiverSettings, sender: Sender) -> None:
        plant = shared.plant
        self._shared, self._plant, self._settings, self._sender = shared, plant, settings, sender
        self._policy = Policy(settings)
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()
        self._sending = asyncio.Lock()
        self._has_skipped = False
        wanted = {"group": group_of(plant.settings.name, settings.name), "start": settings.start}
        subscription = subscription_of(plant, "alerts", wanted, is_patient=True)
        if not isinstance(subscription, HoldingSubscription):
            raise UsageError("notices need alerts in a file or a topic of Kafka (sinks.alerts)")
        alerts = Decoder((Alert, Verdict))  # verdicts are of what could not be judged
        self._messages = Reader(subscription, alerts, on_unreadable=self._skip, ahead=True)
        self._work: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Send notices until ``stop``; it ends when the receiver wants no more. Raises SourceError."""
        self._work = asyncio.current_task()
        try:
            async with self._messages:
                await self._read_and_send()
        finally:
            await self._sender.close()

    async def _read_and_send(self) -> None:
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._send_all())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except ReceiverGone as gone:
            await self._say("receiver_gone", str(gone))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                look_at(task)

    async def stop(self, within_s: float) -> None:
        """End ``run``, after the try that is under way, or ``within_s``."""
        try:
            async with asyncio.timeout(within_s), self._sending:
                self._cancel()
        except TimeoutError:
            self._cancel()

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _read(self) -> None:
        while batch := await self._messages.arrived():
            for one in batch:
                if not isinstance(one.message, Alert) or not self._policy.wants(one.message):
                    self._messages.done([one.number])
                    continue
                self._policy.add(one.message, one.number, _now_s())
                self._has_news.set()
                while self._policy.is_full:
                    self._has_room.clear()
                    await self._has_room.wait()

    def _skip(self, unreadable: Unreadable) -> None:
        """Warn of the first line that no monitor writes."""
        if not self._has_skipped:
            place, why = unreadable
            get_logger().warning("skipped what is no alert", receiver=self._settings.name, place=place, why=why)
        self._has_skipped = True

    async def _send_all(self) -> None:
        while True:
            batch = self._policy.due(_now_s())
            self._has_room.set()
            if batch is None:
                self._has_news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._policy.next_s(_now_s())):
                        await self._has_news.wait()
                continue
            await self._tell(batch)
            self._messages.done(batch.numbers)

    async def _tell(self, batch: Batch) -> None:
        """Send the notice of ``batch``, or say that it could not be made. Raises ReceiverGone."""
        try:
            notice = await self._notice(batch)
        except Exception as error:  # noqa: BLE001 - one alert must not end the notices of all others
            await self._give_up(batch, f"the notice could not be made: {described(error)}", tries=0)
        else:
            await self._send(notice, batch)

    async def _notice(self, batch: Batch) -> Notice:
        """Return the notice of ``batch``, with the reasons that come in time, and a picture of its first alert."""
        items = []
        for arrival in batch.first:
            until_s = arrival.at_s + ATTRIBUTION_WAIT_S
            attribution = await self._shared.attributions.of(arrival.alert.alert_id, Attribution, until_s)
            items.append(Item(arrival.alert, attribution))
        picture = None
        if self._sender.takes_pictures and self._settings.picture:
            picture = await self._shared.picturing.of(items[0], batch.first[0].at_s + ATTRIBUTION_WAIT_S)
        settings = self._plant.settings
        return Notice.of(
            batch,
            items,
            plant=settings.name,
            receiver=self._settings.name,
            at=from_us(self._plant.clock.now_us()),
            link=settings.notify.link,
            picture=picture,
        )

    async def _send(self, notice: Notice, batch: Batch) -> None:
        """Send ``notice``, or give it up with an event. Raises ReceiverGone."""
        name, log, n_failed = self._settings.name, get_logger(), 0

        def on_failure(number: int, error: NotDelivered) -> None:
            nonlocal n_failed
            n_failed = number
            if number == 1:
                log.warning("a notice is not delivered yet", receiver=name, notice=notice.id, why=str(error))

        try:
            await deliver(self._attempt, notice, self._settings.tries, on_failure)
        except NotDelivered as error:
            tries = self._settings.tries
            await self._give_up(batch, f"given up after {tries} tries: {error}", tries=tries)
        else:
            if n_failed:  # who read that it is not delivered wants to read that it is
                get_status_logger().info("a notice is delivered now", receiver=name, notice=notice.id, failed=n_failed)

    async def _give_up(self, batch: Batch, why: str, *, tries: int) -> None:
        alerts = ", ".join(arrival.alert.alert_id for arrival in batch.first)
        more = f" and {batch.count - len(batch.first)} more" if batch.count > len(batch.first) else ""
        await self._say(
            "notice_undelivered",
            f"{why}; the alerts: {alerts}{more}",
            stream=batch.first[0].alert.stream if len(batch.streams) == 1 else None,
            figures={"alerts": batch.count, "tries": tries},
        )

    async def _attempt(self, notice: Notice) -> str:
        async with self._sending:
            try:
                answer = await self._sender.send(notice)
            except (NotDelivered, ReceiverGone):
                raise
            except Exception as error:
                raise NotDelivered(f"{self._sender.place}: {one_line(described(error))}") from error
        get_logger().info("notice", receiver=self._settings.name, notice=notice.id, alerts=notice.count, answer=answer)
        return answer

    async def _say(self, kind: str, message: str, **more: Any) -> None:
        await self._shared.undelivered.emit(kind, f"receiver {self._settings.name}: {message}", **more)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
