"""A receiver of webhooks on loopback that does to a notice whatever a test wants, and verifies each signature."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.support.waiting import LIMIT_S

SECRET = base64.b64encode(b"a secret that no log may hold").decode()
Conduct: TypeAlias = int | str | tuple[int, dict[str, str]]
"""A status, with headers or without; or "stall", "early" (200, then closes), "garbage", "endless"."""


class Hook:
    """What came: ``notices`` with a right signature and an answer of 2xx, ``tries`` all ids in their order.

    ``conduct`` gets the number of the try and its id, and says what happens to it.
    """

    def __init__(self, conduct: Callable[[int, str], Conduct] = lambda *_: 204, secret: str = SECRET) -> None:
        self.conduct = conduct
        self.verifier = Webhook(secret)
        self.tries: list[str] = []
        self.notices: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self.url = ""

    @property
    def alert_ids(self) -> list[str]:
        """The ids of the alerts and warnings in all notices that were taken, those of a digest among them."""
        found = []
        for data in (notice["data"] for notice in self.notices):
            told = [*data["alerts"], *data["warnings"]] if "count" in data else [data]
            found += [each["alert"]["alert_id"] if "alert" in each else each["warning"]["warning_id"] for each in told]
        return found

    def wait(self, is_enough: Callable[[Hook], bool], limit_s: float = LIMIT_S) -> None:
        """Return once ``is_enough``."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self), limit_s), (self.tries, self.notices)

    def took(self, name: str, headers: dict[str, str], body: bytes) -> Conduct:
        """Note a try; return what happens to it."""
        with self._changed:
            self.tries.append(name)
            self.headers.append(headers)
            try:
                notice = self.verifier.verify(body, headers)
            except WebhookVerificationError:
                conduct: Conduct = 401
            else:
                conduct = self.conduct(len(self.tries), name)
                if isinstance(conduct, int) and 200 <= conduct < 300:
                    self.notices.append(notice)
            self._changed.notify_all()
        return conduct


@contextmanager
def listening(hook: Hook) -> Iterator[Hook]:
    """Serve ``hook`` during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {key.lower(): value for key, value in self.headers.items()}
            act(self, hook, hook.took(headers["webhook-id"], headers, body))

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Say nothing of a client that was killed."""

    server = Server(("127.0.0.1", 0), Handler)
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    serving.start()
    try:
        yield hook
    finally:
        hook.closing.set()
        server.shutdown()
        server.server_close()
        serving.join()


def act(handler: BaseHTTPRequestHandler, hook: Hook, conduct: Conduct) -> None:
    """Answer a request as ``conduct`` says."""
    if conduct == "stall":
        hook.closing.wait(LIMIT_S)
        return
    if conduct == "garbage":
        handler.wfile.write(b"\x00\xff this is no HTTP \r\n\r\n")
        return
    status, headers = conduct if isinstance(conduct, tuple) else (conduct if isinstance(conduct, int) else 200, {})
    handler.send_response(status)
    for key, value in headers.items():
        handler.send_header(key, value)
    if conduct == "early":
        handler.send_header("content-length", "100")
        handler.end_headers()
        handler.wfile.write(b"ok")
        handler.close_connection = True
    elif conduct == "endless":
        handler.end_headers()
        while not hook.closing.is_set():
            handler.wfile.write(b"x" * 4_096)
    else:
        content = b"" if status == 204 else f"the answer {status}".encode()
        if status != 204:
            handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
