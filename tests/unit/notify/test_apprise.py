"""Mail and chats by apprise, against a service on loopback: text, link, picture, and failures without secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from streamad.notify import by_apprise
from streamad.notify import receiver as receiver_module
from streamad.notify.by_apprise import AppriseSender
from streamad.notify.notices import Notice
from streamad.notify.sending import NotDelivered
from streamad.notify.service import Notifier
from tests.support.notify.plant import id_of, notified_plant, write
from tests.support.waiting import LIMIT_S
from tests.unit.notify.test_webhook import notice

PASSWORD = "geheim-4711"


class Service:
    """A service that takes apprise's JSON; ``status`` is what it answers, ``stalls`` until it is closed."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.came = threading.Event()
        self.closing = threading.Event()
        self.status = 200
        self.stalls = False
        self.url = ""


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            found.came.set()
            if found.stalls:
                found.closing.wait(LIMIT_S)
            self.send_response(found.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"json://shift:{PASSWORD}@127.0.0.1:{server.server_address[1]}/"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield found
    found.closing.set()
    server.shutdown()
    server.server_close()


async def sent(service: Service, what: Notice | None = None) -> str:
    sender = AppriseSender(service.url)
    try:
        return await sender.send(what or notice())
    finally:
        await sender.close()


async def test_the_text_has_what_happened_why_and_where_to_look(service: Service) -> None:
    assert await sent(service) == "accepted"
    (got,) = service.got
    assert got["title"] == "streamad hall: reactor-1 B-1: because of temp_c 100\u00a0%"
    for line in (
        "temp_c 100\u00a0%",
        "2026-03-01 06:00:10 to 06:01:00 UTC, 50 samples; ended by marker",
        f"id {id_of(1)}",
        f"Look and judge: https://page.example/s/{id_of(1)}",
    ):
        assert line in got["message"]
    assert got["attachments"] == []


async def test_a_failure_says_why_and_no_password(service: Service) -> None:
    service.status = 500
    with pytest.raises(NotDelivered, match="JSON by apprise: ") as error:
        await sent(service)
    assert PASSWORD not in str(error.value)


async def test_a_service_that_hangs_is_left_and_not_asked_twice_at_a_time(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_apprise, "_TOTAL_S", 0.3)
    service.stalls = True
    sender = AppriseSender(service.url)
    with pytest.raises(NotDelivered, match=r"has not ended within 0\.3 s"):
        await sender.send(notice())
    with pytest.raises(NotDelivered, match="the try before has not ended yet"):
        await sender.send(notice())
    service.closing.set()
    await sender.close()
    assert len(service.got) == 1


@pytest.mark.parametrize("picture", [True, False])
async def test_a_picture_of_the_alert_is_attached_if_its_window_is_kept(
    picture: bool, tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver_module, "ATTRIBUTION_WAIT_S", LIMIT_S)
    (tmp_path / "mail.secret").write_text(service.url)
    mail = {"name": "mail", "apprise": {"file": "mail.secret"}, "picture": picture, "start": "earliest"}
    notifier = Notifier(notified_plant(tmp_path, mail))
    running = asyncio.create_task(notifier.run())
    for kind in ("attribution", "alert"):
        write(tmp_path, kind, [1])
    async with asyncio.timeout(LIMIT_S):
        while not service.came.is_set():
            write(tmp_path, "window", [1])  # again and again: those before windows are read are passed over
            await asyncio.sleep(0.01)
    notifier.stop()
    await asyncio.wait([running])
    attached = service.got[0]["attachments"]
    if not picture:
        assert attached == []
        return
    assert attached[0]["mimetype"] == "image/png"
    assert base64.b64decode(attached[0]["base64"]).startswith(b"\x89PNG")
