"""Pictures of the page for docs/guide/web.md, made in a browser from a plant's outputs.

The folder holds the outputs of ``streamad simulate --out``, ``train`` and ``run`` with a section ``learning``. The page
is served by ``streamad web``; Chromium is that on PATH. Needs playwright (extra ``test``) and Pillow.
Run: ``python benchmarks/screenshots.py FOLDER [--out docs/figures]``.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

_COLOURS = 128


def save(page: Page, path: Path, *, height: int, below: str | None = None) -> None:
    """Write the upper ``height`` pixels of the page, or of what begins at ``below``, with few colours."""
    page.wait_for_load_state("networkidle")
    width = page.viewport_size["width"] if page.viewport_size else 1200
    top = 0 if below is None else page.evaluate(f"document.querySelector('{below}').getBoundingClientRect().top") - 16
    shot = page.screenshot(full_page=True, clip={"x": 0, "y": top, "width": width, "height": height})
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    """Serve the page and make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a plant with outputs")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    command = [sys.executable, "-m", "streamad", "web", "--port", "0"]
    with subprocess.Popen(command, cwd=options.folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            link = server.stdout.readline().removeprefix("open ").strip()
            take(link, options.out)
        finally:
            server.terminate()


def take(link: str, out: Path) -> None:
    """Make one picture of each page, one dark, one narrow."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="light").new_page()
        page.goto(link)
        page.wait_for_selector("svg.lanes")
        base = page.url.rstrip("/")
        paths = "all => all.map(one => one.getAttribute('href'))"
        links = page.eval_on_selector_all("[data-walk] a[href^='/s/']", paths)
        page.evaluate(
            "document.querySelectorAll('tbody').forEach(all => [...all.rows].slice(4).forEach(row => row.remove()))"
        )
        save(page, out / "web_now.png", height=1110)
        if (running := page.locator("a[href^='/running']")).count():  # while a run goes on, with display.open
            page.goto(base + str(running.first.get_attribute("href")))
            save(page, out / "web_running.png", height=800)
        page.goto(base + links[3])
        save(page, out / "web_sequence.png", height=1750)
        page.goto(f"{base}/compare?id={links[0][3:]}&id={links[1][3:]}&id={links[2][3:]}")
        if (golden := page.locator("a[href*='golden=']")).count():  # of a plant that keeps windows of normal ones
            golden.first.click()
            page.wait_for_selector("polygon.golden")
        save(page, out / "web_compare.png", height=700)
        page.goto(f"{base}/calibration")
        save(page, out / "web_calibration.png", height=560)
        page.goto(f"{base}/models")
        save(page, out / "web_models.png", height=620)
        page.goto(f"{base}/streams")
        save(page, out / "web_streams.png", height=320)
        page.click("td a")
        page.wait_for_selector("svg.course-of-scores")
        save(page, out / "web_stream.png", height=560)
        dark = browser.new_context(viewport={"width": 1100, "height": 800}, color_scheme="dark").new_page()
        dark.goto(link)
        dark.goto(base + links[3])
        save(dark, out / "web_dark.png", height=760, below=".multiples")
        narrow = browser.new_context(viewport={"width": 360, "height": 700}, device_scale_factor=2).new_page()
        narrow.goto(link)
        narrow.goto(base + links[3])
        save(narrow, out / "web_narrow.png", height=760, below=".multiples")
        browser.close()


if __name__ == "__main__":
    main()
