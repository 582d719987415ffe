"""A small S3 on loopback that misbehaves on request: pages of lists, If-Match and Range; it checks no signature."""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
_TIME_S = 1_780_000_000


class StubS3:
    """Its ``objects`` by key, whatever the bucket; ``refusal`` is the status and code that answers every request.

    ``before_get`` is called with a key before it is read, and may change ``objects``; ``cut_at`` ends each body of a
    GET after so many bytes; ``before_rest`` is waited for after half of one. ``requests`` are the methods and paths.
    """

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = dict(objects or {})
        self.refusal: tuple[int, str] | None = None
        self.before_get: Callable[[str], None] | None = None
        self.cut_at: int | None = None
        self.before_rest: threading.Event | None = None
        self.is_half_sent = threading.Event()
        self.gives_etags = True
        self.lists_quotes = True  # Azure's lists have ETags without quotes
        self.requests: list[tuple[str, str]] = []
        self.queries: list[str] = []
        self._sorted: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables with which obstore finds it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "verysecret",
            "AWS_REGION": "us-east-1",
        }

    @contextmanager
    def serving(self) -> Iterator[StubS3]:
        self._thread.start()
        try:
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def listing(self, prefix: str, after: str) -> str:
        if len(self._sorted) != len(self.objects) or not after:
            self._sorted = sorted(self.objects)
        begin = bisect_left(self._sorted, prefix) if not after else bisect_right(self._sorted, after)
        keys = [key for key in self._sorted[begin : begin + PAGE + 1] if key.startswith(prefix)]
        page, is_cut = keys[:PAGE], len(keys) > PAGE
        quotes = "" if self.lists_quotes else '"'
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-05-28T20:26:40.000Z</LastModified>"
            f"<ETag>{etag(self.objects[key]).strip(quotes)}</ETag><Size>{len(self.objects[key])}</Size></Contents>"
            for key in page
        )
        more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name>'
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{rows}{more}</ListBucketResult>"
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_PUT(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.refuse(*(stub.refusal or (405, "MethodNotAllowed")))

            def do_DELETE(self) -> None:
                self.do_PUT()

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                stub.requests.append((self.command, unquote(url.path)))
                stub.queries.append(url.query)
                if stub.refusal is not None:
                    self.refuse(*stub.refusal)
                    return
                query = parse_qs(url.query)
                key = unquote(url.path).lstrip("/").partition("/")[2]
                if "list-type" in query:
                    after = (query.get("continuation-token") or query.get("start-after") or [""])[0]
                    self.answer(200, stub.listing(query.get("prefix", [""])[0], after).encode(), {})
                    return
                if self.command == "GET" and stub.before_get is not None:
                    stub.before_get(key)
                self.give(key)

            def give(self, key: str) -> None:
                if key not in stub.objects:
                    self.refuse(404, "NoSuchKey")
                    return
                body, status = stub.objects[key], 200
                headers = {"Last-Modified": formatdate(_TIME_S, usegmt=True)}
                if stub.gives_etags:
                    headers["ETag"] = etag(body)
                    if self.headers.get("If-Match", etag(body)) != etag(body):
                        self.refuse(412, "PreconditionFailed")
                        return
                if (span := self.headers.get("Range")) is not None:
                    first = int(span.removeprefix("bytes=").partition("-")[0])
                    headers["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
                    body, status = body[first:], 206
                self.answer(status, body, headers, cut_at=stub.cut_at)

            def refuse(self, status: int, code: str) -> None:
                text = f"<Error><Code>{code}</Code><StringToSign>AKIDEXAMPLE/verysecret</StringToSign></Error>"
                self.answer(status, text.encode(), {})

            def answer(self, status: int, body: bytes, headers: dict[str, str], cut_at: int | None = None) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "HEAD":
                    return
                if stub.before_rest is not None and cut_at is None and len(body) > PAGE and status == 200:
                    self.wfile.write(body[: len(body) // 2])
                    stub.is_half_sent.set()
                    stub.before_rest.wait()
                    body = body[len(body) // 2 :]
                self.wfile.write(body[:cut_at])
                if cut_at is not None and len(body) > cut_at:
                    self.close_connection = True

        return Handler


def etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
