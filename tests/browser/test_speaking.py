"""A browser's language and zone: the page speaks German, and says times in the plant's zone or in the browser's."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from playwright.sync_api import Browser, expect

from tests.support.web.browser import LIMIT_MS, Visitor
from tests.support.web.site import copied, served

expect.set_options(timeout=LIMIT_MS)
GERMAN = {"locale": "de-DE", "timezone_id": "America/New_York"}


def test_a_german_browser_reads_german_and_its_own_time(judged: Path, browser: Browser, tmp_path: Path) -> None:
    with served(copied(judged, tmp_path / "plant")) as link:  # a page leaves its view in the folder
        visitor = Visitor(browser, link, **GERMAN)
        expect(visitor.page.locator("html")).to_have_attribute("lang", "de")
        expect(visitor.page.locator("h1")).to_have_text("Aktuell")
        alerts = visitor.page.locator("table.alerts")
        expect(alerts.locator("th").first).to_have_text(re.compile(r"beendet \(GMT-[45]\)"))
        expect(alerts.locator("time").first).to_have_text(re.compile(r"^\d\d\.\d\d\.\d{4}, \d\d:\d\d:\d\d$"))
        said = alerts.locator("time").first
        iso = said.get_attribute("datetime")
        shown = visitor.page.evaluate(
            "(at) => new Date(at).toLocaleString('de-DE', {hour: '2-digit', timeZone: 'America/New_York'})", iso
        )
        assert shown[:2] == said.inner_text().partition(", ")[2][:2]
        expect(visitor.page.locator(".lanes tspan[data-form=date]").first).to_have_text(re.compile(r"^\d\d\.\d\d\."))
        visitor.assert_clean()


def test_a_plants_zone_is_that_of_all_times(judged: Path, browser: Browser, tmp_path: Path) -> None:
    folder = copied(judged, tmp_path / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config.setdefault("decode", {})["timezone"] = "Asia/Tokyo"
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    with served(folder) as link:
        visitor = Visitor(browser, link, **{**GERMAN, "locale": "en-GB"})
        expect(visitor.page.locator("html")).to_have_attribute("lang", "en")
        expect(visitor.page.locator("table.alerts th").first).to_have_text("ended (GMT+9)")
        at = visitor.page.locator("table.alerts time").first
        expect(at).to_have_text(re.compile(r"^\d\d/\d\d/\d{4}, \d\d:\d\d:\d\d$"))
        without = Visitor(browser, link, java_script_enabled=False)
        expect(without.page.locator("table.alerts time").first).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d .* JST$"))
        visitor.assert_clean()
