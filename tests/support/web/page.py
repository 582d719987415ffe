"""A plant with a page, for tests: its config, a view with messages, and a client."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from starlette.testclient import TestClient

from streamad.messages import Message
from streamad.plant import Plant
from streamad.settings.plant_yaml import load_settings
from streamad.system.clock import SystemClock
from streamad.web.access import Access, Level, Person, known_hosts
from streamad.web.app import application
from streamad.web.http.changes import Changes
from streamad.web.login.door import Door
from streamad.web.site import Site
from streamad.web.store.view import View
from streamad.web.workers import Workers

SECRET = "s" * 32
HOST = "127.0.0.1:8484"
SAME = {"origin": f"http://{HOST}"}


def plant_in(folder: Path, **more: Any) -> Plant:
    """Return a plant of one channel whose outputs are files in ``folder``."""
    content = {
        "name": "hall",
        "channels": [{"name": "temp_c", "unit": "K"}],
        "source": {"url": "live/*.jsonl"},
        "window": {"length": 3},
        "sinks": {
            role: f"file:{role}.jsonl"
            for role in ("alerts", "warnings", "attributions", "verdicts", "windows", "events")
        },
        "learning": {"store": "inliers", "feedback": "file:feedback.jsonl"},
        **more,
    }
    path = folder / "plant.yaml"
    path.write_text(yaml.safe_dump(content))
    return Plant(load_settings(path), folder, SystemClock(), path)


class PageUnderTest:
    """The application over a view with ``messages``, without a network; ``level`` is that of who has the link.

    Without a ``plant`` one of one channel is made, with the sections ``more``.
    """

    def __init__(
        self,
        folder: Path,
        messages: Iterable[Message] = (),
        *,
        level: Level = Level.OPERATOR,
        plant: Plant | None = None,
        secret: str = SECRET,
        door: Door | None = None,
        **more: Any,
    ) -> None:
        self.plant = plant_in(folder, **more) if plant is None else plant
        web = self.plant.settings.web
        self.view = View(folder / "view.sqlite3", keep_us=web.keep, max_bytes=web.max_bytes)
        self.secret = secret
        self.view.put(messages)
        self.troubles: dict[str, str] = {}
        self.workers = Workers(self.plant.clock)
        self.changes = Changes(self.view, web.max_browsers, self.workers)
        self.access = Access(
            secret=secret,
            hosts=known_hosts(web.host, 8484, web.hosts),
            local=Person("kim", level),
            machines={"m" * 24: Person("robot", Level.VIEWER)},
            proxy=web.auth.proxy,
            door=door,
        )
        site = Site(
            self.plant,
            self.view,
            self.workers,
            troubles=lambda: self.troubles,
            access=self.access,
            changes=self.changes,
        )
        self.application = application(site, _no_lifespan)

    def stranger(self, address: str = "127.0.0.1", **headers: str) -> TestClient:
        """Return a client without a cookie."""
        return TestClient(
            self.application,
            base_url=f"http://{HOST}",
            headers=headers,
            client=(address, 5000),
            follow_redirects=False,
        )

    def browser(self) -> TestClient:
        """Return a client that has opened the printed link."""
        client = self.stranger()
        assert client.get(f"/?token={self.secret}").status_code == 303
        return client


@asynccontextmanager
async def _no_lifespan(_: Any) -> Any:
    yield
