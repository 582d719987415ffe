"""Connections to the page: one that sends no whole request is closed, or some of them would keep everybody out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""How long a connection may take for a request's head, for its body, and be idle."""
_SAID_EVERY_S = 60.0


class Connection(H11Protocol):
    """Closes itself if no request has come whole within ``REQUEST_S``."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.loop.call_later(REQUEST_S, self.look, None)

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
