"""Connections to the page: one that sends no whole request is closed, or some of them would keep everybody out."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
"""How long a connection may take for a request's head, for its body, and be idle."""


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
