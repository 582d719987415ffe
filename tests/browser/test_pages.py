"""Every page in a real browser: it looks and behaves as it must, light and dark, wide and narrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.support.web.browser import Visitor, overflow
from tests.support.web.site import HOSTILE, SHOWN, copied, served

PAGES = ("now", "alert", "aligned", "normal", "streams", "stream", "compare", "calibration", "models", "missing")
WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}
Scheme = Literal["light", "dark"]


@pytest.fixture(scope="module")
def paths(judged: Path) -> dict[str, str]:
    """The path of each page; the alert is the one whose sequence has a hostile name."""
    verdicts = [json.loads(line) for line in (judged / "out" / "verdicts.jsonl").read_text().splitlines()]
    alerts = [one["verdict_id"] for one in verdicts if one["decision"] == "anomalous"]
    normal = next(one for one in verdicts if one["decision"] == "normal")
    assert len(alerts) >= 3
    hostile = next(one["verdict_id"] for one in verdicts if one["sequence"] == HOSTILE)
    return {
        "now": "/",
        "alert": f"/s/{hostile}",
        "aligned": f"/s/{hostile}?clock=aligned",
        "normal": f"/s/{normal['verdict_id']}",
        "streams": "/streams",
        "stream": f"/stream?name={quote(normal['stream'])}",
        "compare": f"/compare?id={hostile}&id={normal['verdict_id']}",
        "calibration": "/calibration",
        "models": "/models",
        "missing": "/s/0",
    }


@pytest.fixture(scope="module")
def link(judged: Path, tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    """The link of a page that has read all outputs."""
    folder = copied(judged, tmp_path_factory.mktemp("site") / "plant")
    n_read = len((folder / "out" / "verdicts.jsonl").read_text().splitlines())
    with served(folder) as opened:
        reader = Visitor(browser, opened)
        expect(reader.page.locator("a:has(> rect.bar)")).to_have_count(n_read, timeout=60_000)
        expect(reader.page.get_by_text("reasons follow")).to_have_count(0, timeout=60_000)
        reader.context.close()
        yield opened


@pytest.fixture(scope="module", params=["light", "dark"])
def visitor(request: pytest.FixtureRequest, browser: Browser, link: str) -> Iterator[Visitor]:
    """A person with a light or a dark browser."""
    made = Visitor(browser, link, color_scheme=request.param, viewport={"width": 1200, "height": 900})
    yield made
    made.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_stays_within_its_origin_its_policy_and_its_width(
    visitor: Visitor, paths: dict[str, str], name: str
) -> None:
    visitor.troubles.clear()
    page = visitor.go(paths[name])
    if name == "missing":  # Chromium notes the 404 itself
        assert [each for each in visitor.troubles if "404" not in each] == []
        visitor.troubles.clear()
    for width in (1200, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert overflow(page) <= 0, width
    visitor.assert_clean()


@pytest.fixture(scope="module", params=["light", "dark"])
def examined(request: pytest.FixtureRequest, browser: Browser, link: str) -> Iterator[Visitor]:
    """A person whose browser lets axe-core in, which the page's policy would refuse."""
    made = Visitor(browser, link, color_scheme=request.param, bypass_csp=True)
    yield made
    made.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_violation_of_wcag_a_and_aa(examined: Visitor, paths: dict[str, str], name: str) -> None:
    page = examined.go(paths[name])
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = Axe().run(page, options=WCAG).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_follow_the_browser_s_scheme(browser: Browser, link: str, scheme: Scheme) -> None:
    visitor = Visitor(browser, link, color_scheme=scheme)
    red, *_ = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red > 127) == (scheme == "light")
    visitor.context.close()


@pytest.mark.parametrize("name", ["now", "alert", "stream", "compare"])
def test_a_hostile_name_is_text(browser: Browser, link: str, paths: dict[str, str], name: str) -> None:
    visitor = Visitor(browser, link)
    page = visitor.go(paths[name] if name != "stream" else _stream_of_hostile(visitor, paths))
    expect(page.locator("main").get_by_text(SHOWN).first).to_be_attached()
    assert page.locator("main img").count() == 0
    assert page.locator("main script").count() == 0
    visitor.assert_clean()
    visitor.context.close()


def _stream_of_hostile(visitor: Visitor, paths: dict[str, str]) -> str:
    return str(visitor.go(paths["alert"]).locator(".path a").get_attribute("href"))


@pytest.mark.parametrize("has_scripts", [True, False])
def test_phases_are_aligned_by_a_link_also_without_scripts(
    browser: Browser, link: str, paths: dict[str, str], has_scripts: bool
) -> None:
    visitor = Visitor(browser, link, java_script_enabled=has_scripts)
    page = visitor.go(paths["alert"] + "?clock=own")
    band = page.locator("polygon.band").first
    own = band.get_attribute("points")
    page.get_by_role("link", name="phases aligned").click()
    expect(page.get_by_role("link", name="phases aligned")).to_have_attribute("aria-current", "true")
    expect(page.locator("svg.panel").first).to_contain_text("100 %")
    assert page.url.endswith("?clock=aligned")
    assert band.get_attribute("points") != own
    page.get_by_role("link", name="each on its clock").click()
    expect(page.get_by_role("link", name="each on its clock")).to_have_attribute("aria-current", "true")
    assert band.get_attribute("points") == own
    visitor.context.close()


def test_without_the_token_a_browser_gets_one_sentence(browser: Browser, link: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    answer = page.goto(link.partition("?")[0])
    assert answer is not None
    assert answer.status == 403
    assert "open the link that `streamad web` printed" in page.locator("main").inner_text()
    context.close()
