"""Every page in a real browser: it looks and behaves as it must, light and dark, wide and narrow."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from streamad.messages import Event, ModelRef
from tests.browser.test_models import with_two_versions
from tests.support.web.browser import LIMIT_MS, Visitor, overflow
from tests.support.web.site import HOSTILE, SHOWN, copied, served
from tests.support.web.status import opened, status_of

expect.set_options(timeout=LIMIT_MS)

PAGES = (
    "now",
    "alerts",
    "alert",
    "aligned",
    "normal",
    "streams",
    "stream",
    "compare",
    "begin",
    "calibration",
    "models",
    "decisions",
    "missing",
)
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
        "alerts": "/alerts",
        "begin": "/compare",
        "alert": f"/s/{hostile}",
        "aligned": f"/s/{hostile}?clock=aligned",
        "normal": f"/s/{normal['verdict_id']}",
        "streams": "/streams",
        "stream": f"/stream?name={quote(normal['stream'])}",
        "compare": f"/compare?id={hostile}&id={normal['verdict_id']}",
        "calibration": "/calibration",
        "models": "/models",
        "decisions": "/decisions",
        "missing": "/s/0",
    }


@pytest.fixture(scope="module")
def link(judged: Path, tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    """The link of a page that has read all outputs."""
    folder = copied(judged, tmp_path_factory.mktemp("site") / "plant")
    n_read = len((folder / "out" / "verdicts.jsonl").read_text().splitlines())
    with served(folder) as opened:
        reader = Visitor(browser, opened)
        expect(reader.page.locator("a:has(> rect.bar)")).to_have_count(n_read)
        expect(reader.page.get_by_text("reasons follow")).to_have_count(0)
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


def test_on_a_phone_pictures_are_whole_and_no_box_scrolls_sideways(
    browser: Browser, link: str, paths: dict[str, str]
) -> None:
    visitor = Visitor(browser, link, viewport={"width": 360, "height": 740})
    for name in ("aligned", "stream", "compare", "calibration", "now"):
        page = visitor.go(paths[name])
        boxes = page.locator(".chart, .lanes-box")
        assert boxes.count(), name
        assert boxes.evaluate_all("all => all.map((box) => box.scrollWidth - box.clientWidth)") == [0] * boxes.count()
        for text in page.locator("svg[role] text:visible").all():
            box = text.bounding_box()
            assert box is not None
            assert -1 <= box["x"] < box["x"] + box["width"] <= 361, (name, text.text_content())
    visitor.context.close()


def test_on_a_phone_no_time_of_an_axis_lies_over_another(browser: Browser, link: str, paths: dict[str, str]) -> None:
    phone: ViewportSize = {"width": 360, "height": 740}
    visitor = Visitor(browser, link, viewport=phone, locale="en-US", timezone_id="Europe/Berlin")
    for name in ("now", "stream"):
        axes = visitor.go(paths[name]).locator("svg[role]:has(text.time)")
        expect(axes.first).to_be_visible()
        for axis in axes.all():
            times = axis.locator("text.time:visible")
            boxes = times.evaluate_all("all => all.map((each) => each.getBoundingClientRect().toJSON())")
            assert boxes, name
            for row in {box["y"] for box in boxes}:
                inside = [box for box in boxes if box["y"] == row]
                assert all(one["right"] + 3 < two["left"] for one, two in pairwise(inside)), (name, inside)
    visitor.context.close()


def test_small_multiples_stand_abreast_where_there_is_room(browser: Browser, link: str, paths: dict[str, str]) -> None:
    visitor = Visitor(browser, link, viewport={"width": 1400, "height": 900})
    page = visitor.go(paths["aligned"])
    panels = page.locator(".multiples svg.panel")
    lefts = "all => new Set(all.map((each) => each.getBoundingClientRect().left)).size"
    assert panels.evaluate_all(lefts) == min(3, panels.count())
    page.set_viewport_size({"width": 400, "height": 900})
    assert panels.evaluate_all(lefts) == 1
    visitor.context.close()


def test_of_alerts_the_heights_leave_the_width_to_the_reasons(browser: Browser, link: str) -> None:
    visitor = Visitor(browser, link, viewport={"width": 1400, "height": 900})
    page = visitor.go("/alerts")
    times = page.locator("td[data-head='times the threshold']").first.bounding_box()
    assert times is not None
    assert times["width"] < 110
    visitor.context.close()


def test_on_a_phone_a_cell_stands_in_one_line_with_its_name(browser: Browser, link: str) -> None:
    visitor = Visitor(browser, link, viewport={"width": 360, "height": 740})
    cell = visitor.go("/alerts").locator("td[data-head=stream]").first
    height = cell.evaluate("(one) => parseFloat(getComputedStyle(one).lineHeight)")
    box = cell.bounding_box()
    assert box is not None
    assert box["height"] < 1.5 * height
    visitor.context.close()


def test_sign_and_word_of_a_decision_stand_in_one_line(browser: Browser, link: str, paths: dict[str, str]) -> None:
    visitor = Visitor(browser, link, viewport={"width": 660, "height": 900})
    lines = "all => all.map((each) => each.getClientRects().length)"
    assert set(visitor.go(paths["stream"]).locator("td .decision").evaluate_all(lines)) == {1}
    legend = visitor.go("/").locator(".legend .decision:not(.event)")
    for width in range(320, 400, 10):
        visitor.page.set_viewport_size({"width": width, "height": 900})
        assert set(legend.evaluate_all(lines)) == {1}, width
    visitor.context.close()


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


# --- a plant that runs, and whose page may change models ---


@pytest.fixture(scope="module")
def acting(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The link of a page whose Now has the section Running, and whose Models has forms."""
    folder = with_two_versions(judged, tmp_path_factory.mktemp("acting") / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config["sinks"] |= {"status": "status"}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    (folder / "status").mkdir()
    now = datetime.now(UTC)
    given = {"interval_s": 3_600.0, "started_at": now, "created_at": now}
    status = status_of(open_=[opened("line-9", "B-77", start=now)], models=[ModelRef("default", "0002")], **given)
    (folder / "status" / "line-1.jsonl").write_bytes(msgspec.json.encode(status) + b"\n")
    with served(folder) as link:
        yield link


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("path", "shown"), [("/", "1 open sequence"), ("/models", "Relearn default")])
def test_running_and_the_forms_of_models_have_no_violation_either(
    browser: Browser, acting: str, path: str, shown: str, scheme: Scheme
) -> None:
    visitor = Visitor(browser, acting, color_scheme=scheme, bypass_csp=True)
    page = visitor.go(path)
    expect(page.locator("main").get_by_text(shown)).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = Axe().run(page, options=WCAG).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == []
    for width in (1200, 320):
        page.set_viewport_size({"width": width, "height": 900})
        assert overflow(page) <= 0, width
    visitor.context.close()


# --- a range of time ---


def dragged(page: Page, picture: Locator, start: float, end: float) -> None:
    """Drag the mouse from one share of the width of a picture's plot to another."""
    picture.scroll_into_view_if_needed()
    left, top, width = picture.evaluate(
        """(each) => {
          const [box, style] = [each.getBoundingClientRect(), getComputedStyle(each)];
          const [before, after] = [parseFloat(style.paddingLeft), parseFloat(style.paddingRight)];
          return [box.left + before, box.top + 60, box.width - before - after];
        }"""
    )
    page.mouse.move(left + start * width, top)
    page.mouse.down()
    for step in (0.5, 1):
        page.mouse.move(left + (start + step * (end - start)) * width, top)
    page.mouse.up()


def test_a_range_is_chosen_by_mouse_and_keys_for_all_channels_and_escape_shows_the_whole(
    browser: Browser, link: str, paths: dict[str, str]
) -> None:
    visitor = Visitor(browser, link, viewport={"width": 1200, "height": 900})
    page = visitor.go(paths["aligned"])
    panels = page.locator("svg.panel")
    dragged(page, panels.nth(1), 0.2, 0.82)
    expect(page.get_by_role("link", name="whole")).to_be_visible()
    assert page.locator("#zoom-from").input_value()[:2] in {"19", "20"}
    for panel in panels.all():
        expect(panel.locator("text.tick", has_text="%")).to_have_text("80 %")
    panels.first.focus()
    for _ in range(10):
        page.keyboard.press("Shift+ArrowLeft")
    expect(panels.last.locator(".chosen")).to_have_attribute("x", re.compile(r"^30(\.0*\d*)?%$|^29\.9"))
    page.keyboard.press("Enter")
    expect(page.locator("#zoom-to")).to_have_value(re.compile("^5[01]"))
    panels.first.focus()
    page.keyboard.press("Escape")
    expect(panels.first.locator("text.tick", has_text="%")).to_have_text("100 %")
    page.go_back()
    expect(page.locator("#zoom-to")).to_have_value(re.compile("^5[01]"))
    visitor.assert_clean()
    visitor.context.close()


def test_a_drag_over_the_scores_of_a_stream_chooses_its_time_and_a_click_opens_a_sequence(
    browser: Browser, link: str, paths: dict[str, str]
) -> None:
    visitor = Visitor(browser, link, viewport={"width": 1200, "height": 900})
    page = visitor.go(paths["stream"])
    scores = page.locator("svg.course-of-scores")
    n = scores.locator("a").count()
    dragged(page, scores, 0.5, 1)
    expect(page.get_by_role("link", name="whole")).to_be_visible()
    assert 0 < scores.locator("a").count() < n
    scores.locator("a").first.click()
    page.wait_for_url("**/s/*")
    visitor.assert_clean()
    visitor.context.close()


@pytest.mark.parametrize("name", ["aligned", "stream"])
def test_a_range_is_chosen_by_links_and_a_form_without_scripts(
    browser: Browser, link: str, paths: dict[str, str], name: str
) -> None:
    visitor = Visitor(browser, link, java_script_enabled=False)
    page = visitor.go(paths[name])
    page.get_by_role("link", name="closer").click()
    first = page.locator("#zoom-from").input_value()
    page.get_by_role("link", name="wider").click()
    page.locator("#zoom-from").fill(first)
    page.get_by_role("button", name="show").click()
    expect(page.locator("#zoom-from")).to_have_value(first)
    page.get_by_role("link", name="whole").click()
    expect(page.get_by_role("link", name="whole")).to_have_count(0)
    visitor.context.close()


# --- how much, how large ---


@pytest.mark.parametrize("name", PAGES)
def test_a_page_weighs_less_than_150_kb(visitor: Visitor, paths: dict[str, str], name: str) -> None:
    parts = [paths[name], "/static/streamad.css", "/static/streamad.js", "/static/curves.js", "/static/icon.svg"]
    bodies = [visitor.context.request.get(visitor.origin + part).body() for part in parts]
    assert all(bodies)
    assert sum(len(gzip.compress(body)) for body in bodies) < 150_000


@pytest.mark.parametrize("width", [320, 360, 700])
@pytest.mark.parametrize("name", ["now", "alert", "stream", "compare", "calibration"])
def test_texts_of_pictures_are_legible_on_a_phone(
    browser: Browser, link: str, paths: dict[str, str], name: str, width: int
) -> None:
    visitor = Visitor(browser, link, viewport={"width": width, "height": 700})
    page = visitor.go(paths[name])
    sizes = page.eval_on_selector_all(
        "main svg text", "all => all.map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a)"
    )
    assert len(sizes) > 3
    assert min(sizes) >= 10
    assert overflow(page) <= 0
    visitor.context.close()


# --- keys and what is read out ---


def test_j_goes_to_the_same_alert_from_a_list_and_from_the_page_of_an_alert(browser: Browser, link: str) -> None:
    visitor = Visitor(browser, link)
    page = visitor.go("/alerts")
    newest, older = page.locator("[data-walk] a[href^='/s/']").evaluate_all(
        "all => all.slice(0, 2).map((each) => each.getAttribute('href'))"
    )
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(visitor.origin + newest)
    page.keyboard.press("j")
    page.wait_for_url(visitor.origin + older)
    page.keyboard.press("k")
    page.wait_for_url(visitor.origin + newest)
    visitor.context.close()


def test_keys_of_one_letter_can_be_switched_off_for_good(browser: Browser, link: str, paths: dict[str, str]) -> None:
    visitor = Visitor(browser, link)
    page = visitor.page
    alerts = page.locator("[data-walk] a[href^='/s/']")
    page.keyboard.press("j")
    expect(alerts.first).to_be_focused()
    page.keyboard.press("j")
    expect(alerts.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(alerts.first).to_be_focused()
    page.get_by_label("keys of one letter").uncheck()
    page.keyboard.press("j")
    expect(page.get_by_label("keys of one letter")).to_be_focused()
    visitor.go(paths["alert"])
    expect(page.locator("kbd").first).to_be_hidden()
    address = page.url
    page.keyboard.press("c")
    page.keyboard.press("k")
    expect(page.get_by_role("region", name="Judgement")).to_contain_text("none yet")
    assert page.url == address
    page.get_by_label("keys of one letter").check()
    expect(page.locator("kbd").first).to_be_visible()
    visitor.assert_clean()
    visitor.context.close()


def test_an_alert_that_this_browser_has_opened_is_seen(browser: Browser, link: str) -> None:
    visitor, other = Visitor(browser, link), Visitor(browser, link)
    row = visitor.page.locator("[data-walk] tbody tr").first
    expect(row.locator(".state")).to_have_text("new")
    row.locator("a[href^='/s/']").click()
    expect(visitor.page.get_by_role("region", name="Judgement")).to_be_visible()
    visitor.go("/alerts?state=new")
    expect(visitor.page.locator("[data-walk] tbody tr").first.locator(".state")).to_have_text("seen")
    expect(other.go("/").locator("[data-walk] tbody tr").first.locator(".state")).to_have_text("new")
    for each in (visitor, other):
        each.assert_clean()
        each.context.close()


def test_a_link_leads_over_the_lines_to_the_alerts(browser: Browser, link: str) -> None:
    visitor = Visitor(browser, link)
    page = visitor.page
    skip = page.get_by_role("link", name="Skip the streams")
    skip.focus()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.lanes-box')") is None
    assert page.evaluate("Boolean(document.activeElement.closest('[data-walk]'))")
    visitor.context.close()


def test_of_the_banner_only_what_is_new_is_read_out(browser: Browser, judged: Path, tmp_path: Path) -> None:
    folder = copied(judged, tmp_path / "plant")
    events = folder / "out" / "events.jsonl"

    def happens(kind: str, message: str) -> None:
        one = Event(kind=kind, message=message, created_at=datetime.now(UTC))
        with events.open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")

    happens("plant_changed", "first")
    with served(folder) as opened_link:
        visitor = Visitor(browser, opened_link)
        page = visitor.page
        banner, news = page.get_by_role("region", name="Needs attention"), page.locator("#news")
        expect(banner).to_contain_text("first")
        page.reload()
        expect(banner).to_contain_text("first")
        happens("plant_changed", "second")
        expect(banner).to_contain_text("second")
        expect(news).to_have_text("")
        happens("too_many_streams", "third")
        expect(banner).to_contain_text("third")
        expect(news).to_have_text("⚠ too many streams")
        assert page.locator("main [role=alert]").count() == 0
        name = json.loads((folder / "out" / "alerts.jsonl").read_text().splitlines()[0])["alert_id"]
        visitor.go(f"/s/{name}?said=sent")
        expect(page.locator(".said[role=status]")).to_have_count(1)
        happens("store_back", "fourth")
        expect(page.locator(".said[role]")).to_have_count(0)  # of a renewed page an old answer is not read out again
        expect(page.locator(".said")).to_have_count(1)
        visitor.assert_clean()
        visitor.context.close()
