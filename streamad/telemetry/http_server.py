"""A small HTTP server with few threads, in which no client keeps another one out."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

HEAD_S = 2.0
"""How long a connection may take for the head of its request."""
TOTAL_S = 30.0
_SILENT_S = 10.0
_MOST_REQUESTS = 16
_MOST_HEAD_BYTES = 1 << 16
_ROOM_S = 0.5


class _Head:
    """The lines of a request's head, ``_MOST_HEAD_BYTES`` in all: a hundred of that length each are many megabytes."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = _MOST_HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line. Raises LineTooLong."""
        line: bytes = self._file.readline(min(limit, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("head")
        return line


class Handler(WSGIRequestHandler):
    """Answers one connection; ``timeout``: how long its client may be silent, in seconds."""

    timeout = _SILENT_S
    wbufsize = -1  # the head of an answer is sent whole
    server: Server

    def parse_request(self) -> bool:
        """Read the head of the request; return whether it is one."""
        whole, self.rfile = self.rfile, cast("Any", _Head(self.rfile))
        try:
            is_request = super().parse_request()
        finally:
            self.rfile = whole
        self.server.note_head(self.connection)
        return is_request

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@dataclass(slots=True)
class _Asking:
    """A connection that is answered: since when, whether its request's head has come, and whether it was ended."""

    begun_at: float = field(default_factory=time.monotonic)
    has_head: bool = False
    is_ended: bool = False


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, sixteen at most.

    One more ends the oldest connection, of those without a whole head if there are some. A head that takes 2 seconds
    ends its connection, so does an answer that takes 30.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # the system lets one that finds the queue full wait for a second

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._room = threading.Semaphore(_MOST_REQUESTS)
        self._asking: dict[socket.socket, _Asking] = {}
        super().__init__(*args, **kwargs)

    def server_bind(self) -> None:
        """Bind without asking a name server for our name."""
        socket_ = self.socket
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket_.bind(self.server_address)
        self.server_address = socket_.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, in place of the oldest if there are too many."""
        if not self._room.acquire(blocking=False):
            self._end_oldest()
            if not self._room.acquire(timeout=_ROOM_S):  # its thread waits for something else than its client
                self.shutdown_request(request)
                return
        self._asking[request] = _Asking()
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            del self._asking[request]
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._asking[request]
            self._room.release()

    def note_head(self, request: socket.socket) -> None:
        """Note that the head of a request has come."""
        self._asking[request].has_head = True

    def service_actions(self) -> None:
        """End the connections that take too long; called twice a second."""
        now = time.monotonic()
        for request, asking in list(self._asking.items()):
            if now - asking.begun_at > (TOTAL_S if asking.has_head else HEAD_S):
                _end(request, asking)

    def _end_oldest(self) -> None:
        going = [(request, asking) for request, asking in list(self._asking.items()) if not asking.is_ended]
        if going:
            _end(*min(going, key=lambda each: (each[1].has_head, each[1].begun_at)))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no fault of ours."""


def _end(request: socket.socket, asking: _Asking) -> None:
    asking.is_ended = True
    with suppress(OSError):  # its thread has closed it
        request.shutdown(socket.SHUT_RDWR)


class Server6(Server):
    """One that listens at an IPv6 address."""

    address_family = socket.AF_INET6
