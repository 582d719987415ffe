"""The learner's reader of marks and requests: endless, patient with a failing store, and complete at the end."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

import msgspec

from streamad.errors import StreamadError
from streamad.messages import Feedback, Request
from streamad.outputs.marks.rules import BY_CHARACTERS, foreign_problem
from streamad.outputs.reader import Decoder, Reader, Received, Unreadable
from streamad.outputs.reading import accepted_by, subscription_of
from streamad.plant import Plant
from streamad.plugins import failure_of
from streamad.ports import EndingSubscription, Subscription
from streamad.system.clock import pause
from streamad.system.tasks import is_stop, wait_for_either
from streamad.telemetry.logs import get_logger

OnFeedback: TypeAlias = Callable[[Feedback | Request, str | None], Awaitable[None]]
"""Takes a message, and the sender's authenticated name."""
OnEvent: TypeAlias = Callable[[str, str], object]
"""Takes an event's kind (a stable identifier) and message."""
_REPORT_EVERY_US = 60_000_000
_RETRY_S = 10.0


class Unread(NamedTuple):
    """The messages that a reader did not take: their number (None: unknown), and why."""

    n_messages: int | None
    why: str

    @property
    def text(self) -> str:
        """How much feedback waits, for people."""
        if self.n_messages is None:
            return "feedback may wait"
        return "1 message of feedback waits" if self.n_messages == 1 else f"{self.n_messages} messages of feedback wait"


class FeedbackReader:
    """Reads the place of feedback and passes each message to ``on_feedback``, at least once, in order.

    ``on_feedback`` also gets the sender's authenticated name, None if there is none (then ``by`` is a claim).
    A message is done when ``on_feedback`` has returned; a StreamadError makes it try again, so that an outage of the
    store loses nothing. A malformed message is reported as an event (at most one a minute) and skipped. A place that
    cannot be read is reported once and tried again. ``read_present`` ends it with the messages that are there.
    """

    def __init__(self, plant: Plant, on_feedback: OnFeedback, on_event: OnEvent) -> None:
        # Above 15 attributes: a single loop; how far it is and what it has reported decide together whether it goes on.
        self._plant = plant
        self._clock = plant.clock
        self._on_feedback = on_feedback
        self._on_event = on_event
        self._is_reported = False
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._n_taken = 0
        self._failure: BaseException | None = None
        self._n_left: int | None = None
        self._is_through = False
        self._ending = asyncio.Event()  # set once it reads what is there for the last time: nothing is tried again
        self._reported_us: int | None = None
        self._n_unreported = 0
        self._decoder = Decoder[Feedback | Request]((Feedback, Request), accept=self._accepted, only=True)

    async def run(self) -> None:
        """Read until ``close``. An unreadable place never raises."""
        if (task := self._begun()) is None:
            return
        try:
            await asyncio.wait({task})
        finally:
            await self.close()

    def _begun(self) -> asyncio.Task[None] | None:
        """Return the task that reads, None if it was closed."""
        if self._task is None and not self._is_closed:
            self._task = asyncio.create_task(self._follow())
        return self._task

    async def take(self, received: Received[Feedback | Request]) -> None:
        """Pass a message on."""
        await self._deliver(received.message, received.sender and received.sender[:BY_CHARACTERS])

    async def read_present(self, stop: asyncio.Event, patience_s: float) -> Unread | None:
        """Take what lies there now, then end; return what is left, None if nothing is.

        It gives up at a failure, when ``stop`` is set, or if no message was done for ``patience_s``; a malformed one is
        none.
        """
        task = self._begun()  # the end may come before ``run`` had its first turn
        if task is None:
            return Unread(None, "it is not read")
        self._ending.set()
        self._end_with_present()
        why = ""
        while not task.done() and not why:
            n_before = self._n_taken
            waiting = asyncio.ensure_future(self._clock.sleep(patience_s))
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
        """Read endlessly; a failure is reported once and tried again, until it reads for the last time."""
        while True:
            try:
                await self._read()
            except BaseException as error:
                if is_stop(error):
                    raise
                if self._is_closed:  # connectors are foreign code, and reading must go on
                    return
                self._failure = error
                if not self._ending.is_set():
                    self._report(error)
            if self._ending.is_set():
                return
            await pause(_RETRY_S, self._clock, self._ending)

    def _report(self, error: BaseException) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        if not isinstance(error, StreamadError):
            get_logger().error("reading failed", traceback="".join(traceback.format_exception(error)))
        self._on_event("feedback_unreadable", f"feedback is not read: {_text(error)}")

    async def _read(self) -> None:
        subscription = self._subscription = self._subscribed()
        if self._ending.is_set():
            self._end_with_present()
        async with Reader(subscription, self._decoder, on_unreadable=self.skip) as messages:
            try:
                async for received in messages:
                    await self.take(received)
                    self._n_taken += 1  # who writes what is none must not keep a run from its end
                    self._is_reported = False
                self._is_through = self._ending.is_set()
            finally:
                self._subscription = None
                if self._ending.is_set() and not self._is_through:
                    self._n_left = await messages.n_left()

    def _subscribed(self) -> Subscription:
        wanted = {"group": self._plant.context.feedback_group}
        learning = self._plant.settings.learning
        if learning is not None and learning.feedback_principal is not None:
            wanted["principal_header"] = learning.feedback_principal
        return subscription_of(self._plant, "feedback", wanted)

    def _end_with_present(self) -> None:
        if isinstance(self._subscription, EndingSubscription):
            self._subscription.end_with_present()

    async def _deliver(self, feedback: Feedback | Request, sender: str | None) -> None:
        is_reported = False
        while True:
            try:
                return await self._on_feedback(feedback, sender)
            except StreamadError as error:
                if not is_reported:
                    what = f"feedback on {feedback.alert_id}" if isinstance(feedback, Feedback) else feedback.action
                    self._on_event("feedback_waits", f"{what} cannot be kept yet: {error}")
                is_reported = True
                if self._ending.is_set():
                    raise
                await pause(_RETRY_S, self._clock, self._ending)

    def _accepted(self, message: Feedback | Request) -> Feedback | Request:
        if (problem := foreign_problem(message, self._plant.settings)) is not None:
            raise msgspec.ValidationError(problem)
        return accepted_by(self._plant)(message)

    def skip(self, unreadable: Unreadable) -> None:
        """Report a line that is no mark or request, at most one a minute."""
        self._n_unreported += 1
        now_us = self._clock.monotonic_us()
        if self._reported_us is None or now_us - self._reported_us >= _REPORT_EVERY_US:
            more = f" (and {self._n_unreported - 1} before it)" if self._n_unreported > 1 else ""
            self._reported_us, self._n_unreported = now_us, 0
            text = f"{unreadable.place}: no feedback message, skipped{more}: {unreadable.why[:300]}"
            self._on_event("feedback_malformed", text)


def _text(error: BaseException | None) -> str:
    return str(error) if error is None or isinstance(error, StreamadError) else failure_of(error)
