"""What an engineer does on the page Models: roll back and relearn, each with a typed confirmation."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from playwright.sync_api import Browser, expect

from streamad.commands.shared.plants import load_plant
from streamad.learn.parts import registry_of
from tests.support.learning.stored import learn
from tests.support.web.browser import LIMIT_MS, Visitor, overflow
from tests.support.web.site import copied, served

expect.set_options(timeout=LIMIT_MS)


def with_two_versions(judged: Path, folder: Path) -> Path:
    """Return a copy of the plant whose page may change models, with a second version, which is in service."""
    copied(judged, folder)
    config = yaml.safe_load((folder / "plant.yaml").read_text())
    (folder / "plant.yaml").write_text(yaml.safe_dump(config | {"web": {"port": 0, "allow": "models"}}))
    versions = folder / "registry" / "default" / "versions"
    shutil.copytree(versions / "0001", versions / "0002")
    manifest = json.loads((versions / "0001" / "manifest.json").read_text())
    (versions / "0002" / "manifest.json").write_text(json.dumps(manifest | {"version": "0002", "parent": "0001"}))
    registry_of(load_plant(folder / "plant.yaml")).promote("default", "0002", expected="0001")
    return folder


def test_an_engineer_rolls_back_and_relearns_by_typing_what_it_is_about(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = with_two_versions(judged, tmp_path / "plant")
    registry = registry_of(load_plant(folder / "plant.yaml"))
    with served(folder) as link:
        visitor = Visitor(browser, link)
        page = visitor.go("/models")
        expect(page.locator("main")).to_contain_text("0002 descends from 0001.")
        page.get_by_text("Roll back from 0002 to 0001").click()
        page.get_by_role("button", name="Roll back").click()
        expect(page.locator("main")).to_contain_text("Nothing was changed")
        expect(page.locator("main")).to_contain_text("type 0001")
        assert [each for each in visitor.troubles if "422" not in each] == []  # Chromium notes the refusal itself
        visitor.troubles.clear()
        page.get_by_role("link", name="Back").click()
        assert registry.current("default") == "0002"
        page.get_by_text("Roll back from 0002 to 0001").click()
        page.get_by_label("Type 0001 to return to it").fill("0001")
        page.get_by_role("button", name="Roll back").click()
        expect(page.locator(".said")).to_contain_text("Model default 0001 is now in service")
        expect(page.locator("tr", has_text="in service")).to_contain_text("0001")
        assert registry.current("default") == "0001"
        page.get_by_text("Relearn default after a change").click()
        page.get_by_label("When it was changed").fill("3d")
        page.get_by_label("Type default to relearn").fill("default")
        for width in (1200, 320):
            page.set_viewport_size({"width": width, "height": 900})
            assert overflow(page) <= 0, width
        page.get_by_role("button", name="Relearn").click()
        expect(page.locator(".said")).to_contain_text("The training of default is asked for")
        lines = (folder / "feedback.jsonl").read_text().splitlines()
        (request,) = (one for one in map(json.loads, lines) if one["type"] == "request")
        assert (request["action"], request["model"]) == ("relearn", "default")
        with ThreadPoolExecutor(1) as thread:  # the browser's own event loop runs in this one
            thread.submit(learn, folder / "plant.yaml").result()
        page.reload()
        expect(page.locator("main")).to_contain_text("Asked for: relearn from")
        visitor.assert_clean()
        visitor.context.close()


def test_what_was_typed_survives_a_renewal_of_the_page(browser: Browser, judged: Path, tmp_path: Path) -> None:
    folder = with_two_versions(judged, tmp_path / "plant")
    verdicts = folder / "out" / "verdicts.jsonl"
    lines = verdicts.read_text().splitlines(keepends=True)
    verdicts.write_text("".join(lines[:-1]))
    with served(folder) as link:
        visitor = Visitor(browser, link)
        expect(visitor.page.locator("a:has(> rect.bar)")).to_have_count(len(lines) - 1)
        page = visitor.go("/models")
        before = page.locator("#live").get_attribute("data-change")
        assert before is not None
        page.get_by_text("Relearn default after a change").click()
        page.get_by_label("When it was changed").fill("3d")
        page.get_by_label("Type default to relearn").focus()
        with verdicts.open("a") as file:
            file.write(lines[-1])
        expect(page.locator(f"#live[data-change='{before}']")).to_have_count(0)
        expect(page.get_by_label("When it was changed")).to_have_value("3d")
        expect(page.get_by_label("Type default to relearn")).to_be_focused()
        visitor.assert_clean()
        visitor.context.close()


def test_what_is_unfolded_stays_so_if_another_part_comes_before_it(
    browser: Browser, judged: Path, tmp_path: Path
) -> None:
    folder = with_two_versions(judged, tmp_path / "plant")
    verdicts = folder / "out" / "verdicts.jsonl"
    lines = verdicts.read_text().splitlines(keepends=True)
    verdicts.write_text("".join(lines[:-1]))
    with served(folder) as link:
        visitor = Visitor(browser, link)
        expect(visitor.page.locator("a:has(> rect.bar)")).to_have_count(len(lines) - 1)
        page = visitor.go("/models")
        page.get_by_text("Roll back from 0002 to 0001").click()
        versions = folder / "registry" / "default" / "versions"
        shutil.copytree(versions / "0001", tmp_path / "0003")
        manifest = json.loads((tmp_path / "0003" / "manifest.json").read_text())
        (tmp_path / "0003" / "manifest.json").write_text(json.dumps(manifest | {"version": "0003", "parent": "0002"}))
        (tmp_path / "0003").rename(versions / "0003")
        with verdicts.open("a") as file:
            file.write(lines[-1])
        expect(page.get_by_text("Put 0003 into service", exact=True)).to_be_visible()
        unfolded = page.locator("main details[open] > summary")
        expect(unfolded).to_have_count(1)
        expect(unfolded).to_have_text("Roll back from 0002 to 0001")
        visitor.assert_clean()
        visitor.context.close()
