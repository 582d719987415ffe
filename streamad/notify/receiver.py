"""One receiver: follows alerts and warnings with groups of its own, and sends it notices until all are done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streamad.errors import UsageError
from streamad.messages import Alert, Attribution, EarlyWarning, Role, Verdict
from streamad.notify.companions import Companions
from streamad.notify.notices import Item, Notice
from streamad.notify.picturing import Picturing
from streamad.notify.policy import Batch, Policy, id_of
from streamad.notify.sending import NotDelivered, ReceiverGone, Sender, deliver
from streamad.notify.undelivered import Undelivered
from streamad.notify.under_way import UnderWay
from streamad.outputs.reader import Decoder, Reader, Received, Unreadable
from streamad.outputs.reading import readable_urls, subscription_of
from streamad.plant import Plant
from streamad.ports import HoldingSubscription
from streamad.safe_text import described, one_line
from streamad.settings.outputs import ReceiverSettings
from streamad.settings.places import file_of
from streamad.system.tasks import look_at
from streamad.telemetry.logs import get_logger, get_status_logger
from streamad.types import from_us

ATTRIBUTION_WAIT_S = 10.0
"""So long after an alert was read its notice waits for the reasons."""
AGAIN_WAIT_S = 10.0
"""So long the notice that was under way in a killed process waits for its messages to be read again."""
_LONGEST_GROUP = 64


def group_of(plant: str, receiver: str, role: Role = "alerts") -> str:
    """Return the group that keeps the position of a receiver; at most 64 characters, as file names allow.

    That in the warnings has a further point: no receiver's name begins with one.
    """
    ours = receiver if role == "alerts" else f".{receiver}"
    name = f"streamad.{plant}.notify.{ours}"
    if len(name) <= _LONGEST_GROUP:
        return name
    short = blake2b(name.encode(), digest_size=6).hexdigest()
    return f"streamad.{plant[:16]}.notify.{ours[:16]}.{short}"


def roles_of(plant: Plant, settings: ReceiverSettings) -> tuple[Role, ...]:
    """Return the roles that a receiver follows: without a sink of their own warnings lie with the alerts."""
    own = plant.settings.sinks.warnings is not None
    roles: dict[Role, None] = {}
    for each in settings.on:
        roles["warnings" if each == "warnings" and own else "alerts"] = None
    return tuple(roles)


@dataclass(frozen=True, slots=True)
class Shared:
    """What the receivers of a plant share."""

    plant: Plant
    attributions: Companions
    picturing: Picturing
    undelivered: Undelivered


class Receiver:
    """Law: a group's position is that of the first alert that is neither delivered nor given up nor filtered out.

    So each alert is in a notice that the receiver took, at least once, or an event says that it was given up. The same
    holds for warnings.
    """

    def __init__(self, shared: Shared, settings: ReceiverSettings, sender: Sender) -> None:
        plant = shared.plant
        self._shared, self._plant, self._settings, self._sender = shared, plant, settings, sender
        self._policy = Policy(settings)
        self._has_news, self._has_room = asyncio.Event(), asyncio.Event()
        self._under_way = UnderWay(_kept_at(plant, settings)) if self._policy.joins else None
        self._sending = asyncio.Lock()
        self._has_skipped = False
        self._feeds = [self._feed(role) for role in roles_of(plant, settings)]
        self._work: asyncio.Task[None] | None = None

    def _feed(self, role: Role) -> Reader[Alert | Verdict | EarlyWarning]:
        wanted = {
            "group": group_of(self._plant.settings.name, self._settings.name, role),
            "start": self._settings.start,
        }
        subscription = subscription_of(self._plant, role, wanted, is_patient=True)
        if not isinstance(subscription, HoldingSubscription):
            raise UsageError(f"notices need {role} in a file or a topic of Kafka (sinks.{role})")
        # Verdicts are of what could not be judged. Two roles may share a place, and each message is one feed's.
        of_alerts = (
            (Alert, Verdict) if len(roles_of(self._plant, self._settings)) > 1 else (Alert, Verdict, EarlyWarning)
        )
        kinds: tuple[type[Alert | Verdict | EarlyWarning], ...] = of_alerts if role == "alerts" else (EarlyWarning,)
        return Reader(subscription, Decoder(kinds), on_unreadable=self._skip, ahead=True)

    async def run(self) -> None:
        """Send notices until ``stop``; it ends when the receiver wants no more. Raises SourceError."""
        self._work = asyncio.current_task()
        try:
            async with AsyncExitStack() as feeds:
                for feed in self._feeds:
                    await feeds.enter_async_context(feed)
                await self._read_and_send()
        finally:
            await self._sender.close()

    async def _read_and_send(self) -> None:
        tasks = [asyncio.create_task(self._read(number, feed)) for number, feed in enumerate(self._feeds)]
        tasks.append(asyncio.create_task(self._send_all()))
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
        """End ``run``, after the try that is under way and what is noted of it, or ``within_s``."""
        try:
            async with asyncio.timeout(within_s), self._sending:
                self._cancel()
        except TimeoutError:
            self._cancel()

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _read(self, number: int, feed: Reader[Alert | Verdict | EarlyWarning]) -> None:
        while batch := await feed.arrived():
            for one in batch:
                await self._take(one, number, feed)

    async def _take(
        self, one: Received[Alert | Verdict | EarlyWarning], number: int, feed: Reader[Alert | Verdict | EarlyWarning]
    ) -> None:
        """Take a message of the feed ``number``; the policy knows it by a number that says which one, too."""
        if isinstance(one.message, Verdict) or not self._policy.wants(one.message):
            feed.done([one.number])
            return
        under_way, ours = self._under_way, one.number * len(self._feeds) + number
        if under_way is not None and under_way.was_told(one.message):
            feed.done([one.number])
            return
        if under_way is not None and under_way.takes(one.message, ours, _now_s()):
            self._has_news.set()
            return
        self._policy.add(one.message, ours, _now_s())
        self._has_news.set()
        while self._policy.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    def _done(self, numbers: Sequence[int]) -> None:
        for number, feed in enumerate(self._feeds):
            feed.done(each // len(self._feeds) for each in numbers if each % len(self._feeds) == number)

    def _skip(self, unreadable: Unreadable) -> None:
        """Warn of the first line that no monitor writes."""
        if not self._has_skipped:
            place, why = unreadable
            get_logger().warning("skipped what is no alert", receiver=self._settings.name, place=place, why=why)
        self._has_skipped = True

    async def _send_all(self) -> None:
        await self._go_on()
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

    async def _go_on(self) -> None:
        """Send the notice that a killed process had under way, once all of it was read again, or what has come."""
        if (under_way := self._under_way) is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_WAIT_S):
                while not under_way.is_whole:
                    self._has_news.clear()
                    await self._has_news.wait()
        if (batch := under_way.end()).count:
            await self._tell(batch)

    async def _tell(self, batch: Batch) -> None:
        """Send the notice of ``batch``, kept as under way until it is done, or give it up. Raises ReceiverGone."""
        if self._under_way is not None:
            await self._under_way.begin(batch)
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
            attribution = await self._shared.attributions.of(id_of(arrival.message), Attribution, until_s)
            items.append(Item(arrival.message, attribution))
        picture = None
        if self._sender.takes_pictures and self._settings.picture:
            first = next((n for n, item in enumerate(items) if isinstance(item.message, Alert)), 0)
            picture = await self._shared.picturing.of(items[first], batch.first[first].at_s + ATTRIBUTION_WAIT_S)
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
            await deliver(lambda each: self._attempt(each, batch), notice, self._settings.tries, on_failure)
        except NotDelivered as error:
            tries = self._settings.tries
            await self._give_up(batch, f"given up after {tries} tries: {error}", tries=tries)
        else:
            if n_failed:  # who read that it is not delivered wants to read that it is
                get_status_logger().info("a notice is delivered now", receiver=name, notice=notice.id, failed=n_failed)

    async def _give_up(self, batch: Batch, why: str, *, tries: int) -> None:
        alerts = ", ".join(id_of(arrival.message) for arrival in batch.first)
        what = "the alerts and warnings" if batch.n_warnings else "the alerts"
        more = f" and {batch.count - len(batch.first)} more" if batch.count > len(batch.first) else ""
        async with self._sending:
            await self._say(
                "notice_undelivered",
                f"{why}; {what}: {alerts}{more}",
                stream=batch.first[0].message.stream if len(batch.streams) == 1 else None,
                figures={"alerts": batch.count, "tries": tries},
            )
            await self._note(batch)

    async def _attempt(self, notice: Notice, batch: Batch) -> None:
        async with self._sending:
            try:
                answer = await self._sender.send(notice)
            except (NotDelivered, ReceiverGone):
                raise
            except Exception as error:
                raise NotDelivered(f"{self._sender.place}: {one_line(described(error))}") from error
            await self._note(batch)
        get_logger().info("notice", receiver=self._settings.name, notice=notice.id, alerts=notice.count, answer=answer)

    async def _note(self, batch: Batch) -> None:
        """Note that ``batch`` was taken or given up, before a stop may end the work: else it would be told again."""
        if self._under_way is not None:
            await self._under_way.done(batch)
        self._done(batch.numbers)

    async def _say(self, kind: str, message: str, **more: Any) -> None:
        await self._shared.undelivered.emit(kind, f"receiver {self._settings.name}: {message}", **more)


def _kept_at(plant: Plant, settings: ReceiverSettings) -> Path:
    """Return where the notice under way is kept: beside the position, else, with Kafka, beside the config."""
    role = roles_of(plant, settings)[0]
    group = group_of(plant.settings.name, settings.name, role)
    followed = next((file_of(url, plant.base_dir) for url in readable_urls(plant, role)), None)
    if followed is None:
        return plant.base_dir / f".{group}.notice.position"
    return followed.with_name(f"{followed.name}.{group}.notice.position")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
