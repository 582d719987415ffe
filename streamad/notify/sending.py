"""What a way of sending notices is, and how often and when it is tried again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import stamina

from streamad.errors import StreamadError
from streamad.notify.notices import Notice

LONGEST_PAUSE_S = 600.0
LONGEST_RETRY_AFTER_S = 3_600.0
"""A receiver that asks for a longer pause (``Retry-After``) is tried again after this one."""


class NotDelivered(StreamadError):  # noqa: N818 - what an attempt came to; it is tried again
    """Raised when a receiver has not taken a notice; ``retry_after_s``: the pause that it asks for."""

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(text)


class ReceiverGone(StreamadError):  # noqa: N818 - a signal: it gets no further notice
    """Raised when a receiver answers that it wants no notices any more."""


class Sender(Protocol):
    """A way to one receiver.

    ``place`` names it for people, without secrets. ``takes_pictures``: a notice may have one.
    """

    place: str
    takes_pictures: bool

    async def send(self, notice: Notice) -> str:
        """Send ``notice`` once; return what came back. Raises NotDelivered, ReceiverGone."""

    async def close(self) -> None:
        """Release all resources; safe to call twice."""


async def deliver(
    send: Callable[[Notice], Awaitable[object]],
    notice: Notice,
    tries: int,
    on_failure: Callable[[int, NotDelivered], None],
) -> None:
    """Await ``send(notice)`` up to ``tries`` times. ``on_failure`` gets the number of each failed try and its error.

    The pauses double from 1 s to 10 min, and are at least what the receiver asks for, at most an hour. Raises
    NotDelivered after the last try, ReceiverGone at once.
    """
    number = 0
    async for attempt in stamina.retry_context(
        on=_pause, attempts=tries, timeout=None, wait_initial=1.0, wait_max=LONGEST_PAUSE_S, wait_jitter=1.0
    ):
        with attempt:
            number += 1
            try:
                await send(notice)
            except NotDelivered as error:
                on_failure(number, error)
                raise


def _pause(error: Exception) -> bool | float:
    if isinstance(error, NotDelivered) and error.retry_after_s is not None:
        return min(max(error.retry_after_s, 1.0), LONGEST_RETRY_AFTER_S)
    return isinstance(error, NotDelivered)
