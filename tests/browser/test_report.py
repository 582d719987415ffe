"""Report and page on paper: what is folded in the report is printed, what is pressed is not."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.support.runtime.cli import streamad
from tests.support.web.browser import LIMIT_MS, Visitor, overflow
from tests.support.web.site import copied, served

expect.set_options(timeout=LIMIT_MS)
SHEET = {"width": 718, "height": 1047}  # A4 within margins of 1 cm


def test_its_tables_are_printed_whole_though_they_are_folded(judged: Path, tmp_path: Path, browser: Browser) -> None:
    out = tmp_path / "report.html"
    done = streamad("report", "--out", out, cwd=judged)
    assert done.code == 0, done.err
    context = browser.new_context(viewport=SHEET)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(out.as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
    rows, experts = page.locator("details.listed td"), page.locator(".alert details")
    expect(rows.first).to_be_hidden()
    expect(experts.first).to_be_visible()
    page.emulate_media(media="print")
    expect(rows.first).to_be_visible()
    expect(experts.first).to_be_hidden()
    assert overflow(page) == 0
    edges = page.eval_on_selector_all("td", "(cells) => cells.map((cell) => cell.getBoundingClientRect().right)")
    assert max(edges) <= SHEET["width"]
    context.close()


def test_a_printed_page_has_no_buttons(judged: Path, tmp_path: Path, browser: Browser) -> None:
    with served(copied(judged, tmp_path / "plant")) as link:
        visitor = Visitor(browser, link)
        page = visitor.go("/alerts")
        page.locator("main a[href^='/s/']").first.click()
        controls = page.locator("button, .zoom input:visible")
        expect(page.locator(".zoom button")).to_be_visible()
        page.emulate_media(media="print")
        expect(controls.filter(visible=True)).to_have_count(0)
        expect(page.locator(".chart svg").first).to_be_visible()
        assert overflow(page) == 0
        visitor.context.close()
