"""Builds the documentation as a site: ``python scripts/site.py [FOLDER]`` (default: build/site).

The pages of docs/ lie at its top, those of the other folders beside them, with the files that a page links to. A broken
link or anchor, a page that docs/zensical.toml does not name, and a request of a page to another host are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "docs" / "zensical.toml"
NAMED = {"docs/README.md": "index.md", "README.md": "overview.md"}
"""Pages with another name on the site."""

_CODE = re.compile(r"^( *)(?:```|~~~).*?^\1(?:```|~~~)\s*?$|``.*?``|`[^`]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^()\s#:]+)(?=[#)])")
_CODES = re.compile(r"\x1b\[[\d;]*m")
_FETCHED_BY_CSS = re.compile(r"""(?:@import\s|url\()\s*["']?((?:https?:)?//[^"'\s)]+)""")
_LEADS = {"a": "href", "img": "src", "link": "href", "script": "src"}
_FETCHES = {"img", "link", "script", "iframe", "source", "video", "audio", "embed", "object"}
_NO_REQUEST = {"canonical", "license", "next", "prev"}


def pages() -> list[Path]:
    """Return every page of the site, as it lies in the repository."""
    beside = (path for folder in ("docs", "deploy") for path in (ROOT / folder).rglob("*.md"))
    return sorted([*ROOT.glob("*.md"), *beside])


def place(path: Path) -> str:
    """Return where a file of the repository lies on the site."""
    name = path.relative_to(ROOT).as_posix()
    return NAMED.get(name, name.removeprefix("docs/"))


def stage(folder: Path) -> None:
    """Lay every page and every file that one links to under ``folder``, and turn the links to where they lie."""
    for page in pages():
        target = folder / place(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_turned(page, folder), encoding="utf-8")


def _turned(page: Path, folder: Path) -> str:
    text, at, parts = page.read_text("utf-8"), 0, []
    here = Path(place(page)).parent

    def turn(found: re.Match[str]) -> str:
        linked = (page.parent / found[1]).resolve()
        if not linked.is_relative_to(ROOT) or not linked.exists():
            return found[0]  # the build names it
        if linked.is_dir():
            linked = _only(linked)
        if linked.suffix != ".md":
            copy = folder / place(linked)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(linked, copy)
        return Path(os.path.relpath(place(linked), here)).as_posix()

    for code in _CODE.finditer(text):
        parts += [_LINK.sub(turn, text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, _LINK.sub(turn, text[at:])])


def _only(folder: Path) -> Path:
    """Return the file that stands for a linked folder: its README, else its first."""
    readme = folder / "README.md"
    return readme if readme.exists() else min(path for path in folder.iterdir() if path.is_file())


def unnamed() -> list[str]:
    """Return the pages that the navigation does not name once, and the names without a page."""

    def named(nav: object) -> Iterator[str]:
        if isinstance(nav, str):
            yield nav
        for inner in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
            yield from named(inner)

    there = {place(page) for page in pages()}
    names = Counter(named(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    return sorted(name for name in {*names, *there} if names[name] != 1 or name not in there)


class _Page(HTMLParser):
    """The anchors of a page, where its links lead, and what a browser fetches with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.links, self.fetched = {""}, set[str](), set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag has."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        url = given.get(_LEADS.get(tag, "src"))
        if url is not None:
            self.links.add(url)
            if tag in _FETCHES and given.get("rel") not in _NO_REQUEST:
                self.fetched.add(url)


def wrong_links(site: Path) -> list[str]:
    """Return the links of built pages that lead nowhere on the site, and what they would fetch from other hosts."""
    parsed = {path: _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    found = []
    for path, page in parsed.items():
        found += [f"{path.relative_to(site)} fetches {url}" for url in sorted(page.fetched) if urlsplit(url).netloc]
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            there = parsed.get(target)
            if not target.exists() or (there is not None and unquote(parts.fragment) not in there.anchors):
                found.append(f"{path.relative_to(site)} leads to {link}, which is not there")
    for path in sorted(site.rglob("*.css")):
        found += [f"{path.relative_to(site)} fetches {url}" for url in _FETCHED_BY_CSS.findall(path.read_text("utf-8"))]
    return found


def build(out: Path) -> list[str]:
    """Build the site into ``out``, which is replaced if it is empty or a site; return what is wrong."""
    if out.exists() and not (out / "sitemap.xml").is_file() and (not out.is_dir() or any(out.iterdir())):
        return [f"{out} is there, and no site: name another folder"]
    if wrong := unnamed():
        return [f"{name}: not once in docs/zensical.toml, or no page" for name in wrong]
    with tempfile.TemporaryDirectory() as kept:
        work = Path(kept)
        stage(work / "pages")
        shutil.copyfile(CONFIG, work / "zensical.toml")
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            return [_CODES.sub("", f"{done.stdout}{done.stderr}").partition("Traceback")[0]]
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "site", out)
    return wrong_links(out)


if __name__ == "__main__":
    if any(each.startswith("-") for each in sys.argv[1:]):  # else a folder of that name
        sys.exit(__doc__)
    place_of_site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "site").resolve()
    problems = build(place_of_site)
    sys.stdout.write(
        "\n".join(problems or [f"{len(list(place_of_site.rglob('*.html')))} pages in {place_of_site}"]) + "\n"
    )
    sys.exit(bool(problems))
