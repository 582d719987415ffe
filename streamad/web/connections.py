"""Connections to the page: those of strangers keep nobody out, whether they ask nothing or as many as they can."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""How long a connection may take for a request's head, for its body, and be idle."""
_SAID_EVERY_S = 60.0


class Connection(H11Protocol):
    """Closes itself if no request has come whole within ``REQUEST_S``.

    One more than the server takes ends one of a stranger: of somebody of whom no request was let in.
    """

    _is_known = False

    def connection_made(self, transport: Any) -> None:
        """Make room, and begin to wait for the first request."""
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency - 1:
            self._end_oldest()
        super().connection_made(transport)
        self.begun_s = self.loop.time()
        self.loop.call_later(REQUEST_S, self.look, None)

    def on_response_complete(self) -> None:
        """Note whether the guard has let the request in as somebody's."""
        self._is_known = self._is_known or "person" in self.cycle.scope
        super().on_response_complete()

    def is_stranger(self) -> bool:
        """Return whether none of its requests was let in as somebody's."""
        is_let_in = self.cycle is not None and "person" in self.cycle.scope
        return not (self._is_known or is_let_in or self.transport.is_closing())

    @property
    def address(self) -> str:
        """Return the address of its client."""
        return "" if self.client is None else self.client[0]

    def _end_oldest(self) -> None:
        """End the oldest connection of the address from which most strangers come."""
        strangers = [each for each in self.connections if isinstance(each, Connection) and each.is_stranger()]
        if not strangers:
            return
        counts = Counter(each.address for each in strangers)
        oldest = min(strangers, key=lambda each: (-counts[each.address], each.begun_s))
        self.connections.discard(oldest)
        oldest.transport.abort()  # a close would wait until the client has read its answer

    def look(self, seen: Any) -> None:
        """Close the connection if it has asked nothing since the request ``seen``: answered, or still not whole."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is seen and (cycle is None or cycle.response_complete or cycle.more_body):
            self.transport.close()
        else:
            self.loop.call_later(REQUEST_S, self.look, cycle)


class Seldom(logging.Filter):
    """Lets each warning of the server through once a minute: strangers can cause as many as they want."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said_s: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        now_s = self._clock()
        if record.levelno > logging.WARNING:
            return True
        if now_s - self._said_s.get(record.msg, -math.inf) < _SAID_EVERY_S:
            return False
        self._said_s[record.msg] = now_s
        return True
