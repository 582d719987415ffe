"""Serves /metrics, /livez and /readyz in a thread, which answers also if the event loop hangs, and says so."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from streamad.errors import OutputError
from streamad.safe_text import one_line, visible_name
from streamad.settings.metrics import split_address
from streamad.telemetry.logs import get_logger

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

TURN_LIMIT_S = 30.0
"""If the loop has not turned for so long, the worker is not alive."""
_TURN_S = 1.0
_COLLECT_S = 10.0
_REQUEST_S = 10.0
_TOTAL_S = 30.0
_MOST_REQUESTS = 16
_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


class MetricsServer:
    """Serves until ``close``; ``is_ready`` is asked in the server's thread.

    Law: a scrape changes nothing, runs between two turns of the loop, and cannot hold it for longer than the metrics
    take to collect. Raises OutputError if it cannot listen there.
    """

    def __init__(self, listen: str, collector: Collector, is_ready: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()  # it collects nothing before it is asked
        self._registry.register(collector)
        self._is_ready = is_ready
        self._loop = asyncio.get_running_loop()
        self._turned_at = time.monotonic()
        self._is_closing = False
        host, port = split_address(listen)
        try:
            self._server = make_server(host, port, self._answer, _Server6 if ":" in host else _Server, Handler)
        except (OSError, TypeError, UnicodeError) as error:  # some host names are refused by their letters
            said = getattr(error, "strerror", None) or one_line(str(error))
            why = f"metrics.listen: {visible_name(listen)} cannot be listened at ({said}): {_remedy(error)}"
            raise OutputError(why) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="streamad-metrics", daemon=True)
        self._turning = asyncio.create_task(self._turn())
        self._thread.start()
        get_logger().info("metrics are served", listen=f"{host}:{self.port}")

    @property
    def port(self) -> int:
        """Return the port that it listens at."""
        return int(self._server.server_address[1])

    async def close(self) -> None:
        """Stop serving; a request in work is let go."""
        self._is_closing = True
        self._turning.cancel()
        await asyncio.gather(self._turning, return_exceptions=True)
        await asyncio.to_thread(self._server.shutdown)
        self._server.server_close()

    async def _turn(self) -> None:
        while True:
            self._turned_at = time.monotonic()
            await asyncio.sleep(_TURN_S)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ.get("REQUEST_METHOD", "")
        if method not in ("GET", "HEAD"):
            start_response("405 Method Not Allowed", [*_TEXT, ("Allow", "GET, HEAD")])
            return [b"only GET is answered\n"]
        if path == "/metrics":
            return self._metrics(environ, start_response)
        if path == "/livez":
            silent_s = time.monotonic() - self._turned_at
            is_alive = silent_s <= TURN_LIMIT_S
            said = "alive" if is_alive else f"the event loop has not turned for {silent_s:.0f} s"
        elif path == "/readyz":
            is_alive = self._is_ready()
            said = "ready" if is_alive else "the source has not given anything to read yet"
        else:
            start_response("404 Not Found", list(_TEXT))
            return [b"there are /metrics, /livez and /readyz\n"]
        start_response("200 OK" if is_alive else "503 Service Unavailable", list(_TEXT))
        return [f"{said}\n".encode()]

    def _metrics(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        collected = self._collected(encode)
        future: Future[bytes] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(collected, self._loop)
            content = future.result(_COLLECT_S)
        except Exception as error:  # noqa: BLE001 - whatever it is, the answer must be no half one
            why = f"not within {_COLLECT_S:g} s" if isinstance(error, TimeoutError) else type(error).__name__
            if future is None:
                collected.close()
            else:
                future.cancel()
            if self._is_closing:
                why = "the worker is stopping"
            start_response("503 Service Unavailable", list(_TEXT))
            return [f"the metrics could not be collected: {why}\n".encode()]
        start_response("200 OK", [("Content-Type", content_type)])
        return [content]

    async def _collected(self, encode: Callable[[Any], bytes]) -> bytes:
        return encode(self._registry)


def _remedy(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return "another program, or another worker on this machine, has the port: take another one"
    if number == errno.EACCES:
        return "ports below 1024 are for the administrator: take another one, such as 9464"
    return "write an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of its addresses"


class Handler(WSGIRequestHandler):
    """Answers one connection; ``timeout``: how long its client may be silent, in seconds."""

    timeout = _REQUEST_S
    wbufsize = -1  # the head of an answer is sent whole

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, sixteen at most: further connections are closed at once.

    One that takes 30 seconds is ended, so that clients that send or read byte by byte keep nobody out.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._room = threading.Semaphore(_MOST_REQUESTS)
        self._begun_at: dict[socket.socket, float] = {}
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
        """Answer in a thread, if there is room for one more."""
        if self._room.acquire(blocking=False):
            self._begun_at[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._begun_at[request]
            self._room.release()

    def service_actions(self) -> None:
        """End the connections that take too long; called twice a second."""
        now = time.monotonic()
        for request, begun_at in list(self._begun_at.items()):
            if now - begun_at > _TOTAL_S:
                with suppress(OSError):  # its thread has closed it
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no fault of ours."""


class _Server6(_Server):
    address_family = socket.AF_INET6
