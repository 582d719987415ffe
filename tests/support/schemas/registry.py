"""A Schema Registry on loopback, with the faults that a real one has."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

from streamad.testing import ManualClock

Fault = Literal[
    "refused", "silent", "cut", "500", "501", "401", "403", "404", "429", "302", "html", "other", "deep", "deep 404",
    "endless", "gzip",
]  # fmt: skip
_DEEP = b'{"x": ' + b"[" * 100_000
_ANSWERS: dict[Fault | None, tuple[int, bytes]] = {
    "html": (200, b"<html>a proxy's page</html>"),
    "other": (200, b'{"schema": 7}'),
    "gzip": (200, b"\x1f\x8b\x08\x00"),
    "deep": (200, _DEEP),
    "deep 404": (404, _DEEP),
    "404": (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
}
LONGEST_ANSWER_BYTES = 9_000_000


class StubRegistry:
    """Schemas by path, as the registry's answers; ``faults`` are done to the next requests, ``fault`` to all others.

    ``not_offered`` are paths that it answers as any server does for what it has not.
    ``asked`` holds the paths of all requests, ``logins`` their Authorization headers.
    """

    def __init__(self) -> None:
        self.not_offered: set[str] = set()
        self.answers: dict[str, Any] = {"/schemas/types": ["AVRO", "JSON", "PROTOBUF"]}
        self.faults: deque[Fault | None] = deque()
        self.fault: Fault | None = None
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.url = ""
        self.end = threading.Event()

    def add(self, schema: int | str, text: str = "{}", kind: str = "JSON", references: Any = None) -> None:
        """Register a schema under an id or a GUID."""
        answer = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        if references:
            answer["references"] = references
        self.answers[f"/schemas/{'ids' if isinstance(schema, int) else 'guids'}/{schema}"] = answer


class HurriedClock(ManualClock):
    """Sleeps take no time, but pass."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    stub: StubRegistry

    def handle_error(self, *_: Any) -> None:
        """Say nothing: clients leave in the middle of an answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        stub = self.server.stub
        stub.asked.append(self.path)
        stub.logins.append(self.headers.get("authorization"))
        fault = stub.faults.popleft() if stub.faults else stub.fault
        fault = fault or ("404" if self.path in stub.not_offered else None)
        if fault == "silent":
            stub.end.wait()
        elif fault == "cut":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{")
        elif fault == "refused":
            self.close_connection = True
        elif fault == "endless":
            self._head(200, "application/json", None)
            while not stub.end.is_set():
                self.wfile.write(b"[" * 65_536)
        elif fault in _ANSWERS:
            self._answer(*_ANSWERS[fault])
        elif fault == "302":
            self.send_response(302)
            self.send_header("Location", "http://elsewhere.example/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif fault is not None:
            self._answer(int(fault), b'{"error_code": 1, "message": "secret"}')
        else:
            self._found(stub.answers.get(self.path, stub.answers.get(urlsplit(self.path).path)))

    def _found(self, answer: Any) -> None:
        if answer is None:
            code = 40403 if "/schemas/" in self.path else 40401
            self._answer(404, json.dumps({"error_code": code, "message": "not found"}).encode())
        else:
            self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, content: bytes, kind: str = "application/vnd.schemaregistry.v1+json") -> None:
        self._head(status, kind, len(content))
        self.wfile.write(content)

    def _head(self, status: int, kind: str, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()


@contextmanager
def stub_registry() -> Iterator[StubRegistry]:
    """Yield a registry that answers at ``url`` until the end of the block."""
    stub = StubRegistry()
    server = _Server(("127.0.0.1", 0), _Handler)
    server.stub = stub
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.end.set()
        server.shutdown()
        server.server_close()
        thread.join()
