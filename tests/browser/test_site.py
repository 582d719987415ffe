"""The documentation in a browser asks no host but its own, and its search finds a page. Builds it: 3 s of a core."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, expect

from scripts.site import build


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_no_other_host_is_asked_and_the_search_finds(site: Path, browser: Browser) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(site)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    asked: list[str] = []
    page = browser.new_page(viewport={"width": 400, "height": 800})
    try:
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{base}guide/config/", wait_until="networkidle")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("label[for=__search], [aria-label=Search], .md-search__button").first.click()
        page.keyboard.type("dead letters")
        expect(page.get_by_role("option").filter(has_text="dead letters").first).to_be_visible()
        assert [url for url in asked if not url.startswith((base, "data:", "blob:"))] == []
        assert f"{base}search.json" in asked
    finally:
        page.close()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documentation") / "site"
    assert build(folder) == []
    return folder
