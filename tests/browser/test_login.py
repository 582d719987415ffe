"""A person logs in and out in a real browser, also without scripts, and an open page notices that its session ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.support.web.browser import LIMIT_MS, Visitor, overflow
from tests.support.web.logins import PASSWORD, write_users
from tests.support.web.site import copied, served

expect.set_options(timeout=LIMIT_MS)

WCAG = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"], "resultTypes": ["violations"]}


@pytest.fixture(scope="module")
def plant(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant whose operator kim logs in with a password."""
    folder = copied(judged, tmp_path_factory.mktemp("login") / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config["web"] = {"port": 0, "auth": {"users": "users.json"}}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    write_users(folder, kim="operator")
    return folder


@pytest.fixture(scope="module")
def link(plant: Path) -> Iterator[str]:
    """The printed link."""
    with served(plant) as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_form_is_legible_and_narrow_and_has_no_violation(
    browser: Browser, link: str, scheme: Literal["light", "dark"]
) -> None:
    visitor = Visitor(browser, link, color_scheme=scheme, bypass_csp=True)
    page = visitor.page
    page.get_by_label("Name").fill("kim")
    page.get_by_label("Password").fill("a guess that is wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    expect(page.get_by_label("Name")).to_have_value("kim")
    expect(page.get_by_label("Password")).to_be_focused()
    found = Axe().run(page, options=WCAG).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []
    for width in (1200, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert overflow(page) <= 0, width
    visitor.context.close()


@pytest.mark.parametrize("has_scripts", [True, False])
def test_a_person_comes_to_what_was_asked_for_and_leaves_for_good(
    browser: Browser, plant: Path, link: str, has_scripts: bool
) -> None:
    name = json.loads((plant / "out" / "alerts.jsonl").read_text().splitlines()[0])["alert_id"]
    visitor = Visitor(browser, f"{link}s/{name}", java_script_enabled=has_scripts)
    page = visitor.page
    assert urlsplit(page.url).path == "/login"
    page.get_by_label("Name").fill("kim")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{link}s/{name}")
    expect(page.locator(".person")).to_have_text("kim (operator)")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{link}login")
    page.go_back()
    expect(page.get_by_label("Password")).to_be_visible()
    assert page.locator("main svg").count() == 0
    if has_scripts:
        visitor.assert_clean()
    visitor.context.close()


def test_an_open_page_asks_for_the_password_once_its_user_is_removed(browser: Browser, plant: Path, link: str) -> None:
    visitor = Visitor(browser, f"{link}alerts")
    page = visitor.page
    page.get_by_label("Name").fill("kim")
    page.get_by_label("Password").fill(PASSWORD)
    with page.expect_response(lambda answer: "/changes" in answer.url):
        page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{link}alerts")
    write_users(plant, lee="viewer")
    verdicts = plant / "out" / "verdicts.jsonl"
    another = verdicts.read_text().splitlines()[0].replace('"verdict_id":"', '"verdict_id":"f')
    with verdicts.open("a") as file:  # whatever is new wakes the open pages
        file.write(f"{another}\n")
    page.wait_for_url(f"{link}login?next=/alerts")
    write_users(plant, kim="operator")
    visitor.context.close()
