"""Warnings in a real browser: a running sequence by its p, its line, and the way from its warning to its verdict."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from streamad.messages import Looked, Message, ModelRef
from tests.browser.test_pages import WCAG
from tests.support.web.browser import LIMIT_MS, Visitor, overflow
from tests.support.web.messages import reasons_of, verdict, warning_of
from tests.support.web.site import copied, served
from tests.support.web.status import opened, status_of

expect.set_options(timeout=LIMIT_MS)

WARNING = warning_of(1)
MODEL = ModelRef("default", "0001")


def append(folder: Path, role: str, message: Message) -> None:
    with (folder / "out" / f"{role}.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(message) + b"\n")


@pytest.fixture
def folder(judged: Path, tmp_path: Path) -> Path:
    """A plant in which a sequence runs that was warned of, and others that were not."""
    folder = copied(judged, tmp_path / "plant")
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    config["sinks"] |= {"warnings": "out/warnings.jsonl", "status": "status"}
    (folder / "plant.yaml").write_text(yaml.safe_dump(config))
    append(folder, "warnings", WARNING)
    append(folder, "attributions", reasons_of(WARNING))
    ages = [0.1, 0.2, 0.3, 0.4, 0.5]
    looked = Looked(
        model=MODEL, age=0.54, p_value=0.01, limit=3.0, ages=ages, largest=[0.1, 0.1, 1.2, 2.5, 4.2],
        warning_id=WARNING.warning_id,
    )  # fmt: skip
    usual = msgspec.structs.replace(looked, p_value=0.4, largest=[0.1] * 5, warning_id=None)
    ours = opened(WARNING.stream, WARNING.sequence, 27, WARNING.start_time)
    others = [opened(f"mixer-{n}", f"C-{n}", start=WARNING.start_time) for n in range(3)]
    still_open = [*others[1:], msgspec.structs.replace(others[0], looked=usual)]
    now = datetime.now(UTC)
    status = status_of(
        open_=[*still_open, msgspec.structs.replace(ours, looked=looked)], models=[MODEL], started_at=now,
        created_at=now, interval_s=3_600.0,
    )  # fmt: skip
    (folder / "status").mkdir(exist_ok=True)
    (folder / "status" / "line-1.jsonl").write_bytes(msgspec.json.encode(status) + b"\n")
    return folder


@pytest.fixture
def link(folder: Path) -> Iterator[str]:
    with served(folder) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_warnings_and_running_sequences_keep_to_the_window_and_to_wcag(
    browser: Browser, link: str, scheme: Literal["light", "dark"]
) -> None:
    visitor = Visitor(browser, link, color_scheme=scheme, bypass_csp=True)
    expect(visitor.page.get_by_role("region", name="Needs attention")).to_contain_text("1 running sequence leaves")
    for path in ("/", "/warnings", f"/s/{WARNING.warning_id}", f"/running?name={WARNING.stream}"):
        page = visitor.go(path)
        expect(page.locator("main")).to_contain_text("temp_c 2 K above the band from 13 s to 27 s")
        found = Axe().run(page, options=WCAG).response["violations"]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found] == [], path
        for width in (1200, 400, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert overflow(page) <= 0, (path, width)
    visitor.context.close()


def test_running_sequences_are_in_the_order_of_their_p(browser: Browser, link: str) -> None:
    visitor = Visitor(browser, link)
    table = visitor.page.get_by_role("region", name="Running sequences that were looked at")
    expect(table.locator("tbody tr td:first-child")).to_have_text(["B-1", "C-0"])
    expect(table.locator("svg.looks")).to_have_count(2)
    expect(table.locator("path.course.odd")).to_have_count(1)
    visitor.page.get_by_text("2 open sequences").click()
    expect(visitor.page.get_by_role("link", name="C-2", exact=True)).to_be_visible()
    visitor.assert_clean()
    visitor.context.close()


def test_an_open_page_of_a_warning_becomes_that_of_its_verdict_where_it_is_judged(
    browser: Browser, folder: Path, link: str
) -> None:
    visitor = Visitor(browser, link)
    page = visitor.page
    page.get_by_role("region", name="Warnings of running sequences").get_by_role("link", name="B-1").click()
    expect(page.locator("main")).to_contain_text("It cannot be judged before its end")
    expect(page.get_by_role("button")).to_have_count(0)
    append(folder, "verdicts", verdict(1))
    expect(page.locator("main")).to_contain_text("Warned of while it ran, at 54 % of the usual length (27 s)")
    page.keyboard.press("f")
    expect(page.locator(".judging .state")).to_contain_text("false alarm")
    visitor.go("/")
    expect(page.get_by_role("region", name="Warnings of running sequences")).to_have_count(0)
    page.get_by_text("1 warning of sequences that are judged by now").click()
    row = page.get_by_role("region", name="Warnings of judged sequences").locator("tbody tr")
    expect(row).to_contain_text("normal")
    expect(row).to_contain_text("false alarm")
    visitor.assert_clean()
    visitor.context.close()
