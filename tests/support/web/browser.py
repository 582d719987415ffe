"""Debian's Chromium driven by playwright, and what a page must never do in it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.waiting import LIMIT_S

LIMIT_MS = 1000 * LIMIT_S
_NOTE_VIOLATIONS = """
window.violations = [];
addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
"""


def chromium_or_skip() -> str:
    """Return the path of Chromium; where there is none, skip the test, but fail it in CI."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail("CI must test in a real browser: install chromium", pytrace=False)
    pytest.skip("needs Chromium: install chromium, or name it in CHROMIUM")


@contextmanager
def new_browser() -> Iterator[Browser]:
    """Run Chromium during the block; nothing is downloaded."""
    path = chromium_or_skip()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visitor:
    """A person with a browser of their own: opens pages, and notes what a page must never do."""

    def __init__(self, browser: Browser, link: str, **how: Any) -> None:
        self.origin = re.match(r"https?://[^/]+", link)[0]  # type: ignore[index]
        self.context: BrowserContext = browser.new_context(**{"reduced_motion": "reduce", **how})
        self.context.set_default_timeout(LIMIT_MS)
        self.context.add_init_script(_NOTE_VIOLATIONS)
        self.foreign: list[str] = []
        self.troubles: list[str] = []
        self.context.on("request", lambda request: self._note(request.url))
        self.context.on("console", lambda message: message.type == "error" and self.troubles.append(message.text))
        self.context.on("weberror", lambda error: self.troubles.append(str(error.error)))
        self.context.on("dialog", lambda dialog: (self.troubles.append(dialog.message), dialog.dismiss()))
        self.page: Page = self.open(link)

    def _note(self, url: str) -> None:
        if not url.startswith((self.origin, "data:", "about:", "blob:")):
            self.foreign.append(url)

    def open(self, link: str) -> Page:
        """Open a link in a tab of its own."""
        page = self.context.new_page()
        page.goto(link, wait_until="load")
        return page

    def go(self, path: str) -> Page:
        """Go to another page of the site."""
        self.page.goto(self.origin + path, wait_until="load")
        self.page.wait_for_selector("main")
        return self.page

    def assert_clean(self) -> None:
        """No request left the origin, nothing violated the policy, and the console has no error."""
        for page in self.context.pages:
            self.troubles += page.evaluate("window.violations")
        assert self.foreign == []
        assert self.troubles == []


def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
