"""The documentation as a site: every page has its place, its links are turned, and what is wrong on it is found."""

from __future__ import annotations

from pathlib import Path

from scripts.site import build, place, stage, unnamed, wrong_links

PAGE = """<html><head><link rel="canonical" href="https://plant.example/">
<link rel="stylesheet" href="https://a.example/x.css">
<script src="//b.example/x.js"></script></head><body><h1 id="top">A</h1><a href="https://c.example/">c</a>
<a href="#top">up</a> <a href="#gone">1</a> <a href="other/">2</a> <a href="other/#there">3</a>
<a href="other/#no">4</a>
<img src="away.png"> <img src="https://d.example/x.png"></body></html>"""


def test_the_navigation_names_every_page_and_no_other() -> None:
    assert unnamed() == []


def test_links_lead_to_where_the_pages_lie(tmp_path: Path) -> None:
    stage(tmp_path)
    config, front = (tmp_path / "guide/config.md").read_text("utf-8"), (tmp_path / "index.md").read_text("utf-8")
    assert "](../examples/plant.yaml)" in config
    assert (tmp_path / "examples/plant.yaml").exists()
    assert "](guide/config.md)" in front
    assert "](../" not in (tmp_path / "overview.md").read_text("utf-8")
    assert "](overview.md#install)" in front
    assert place(Path(__file__).resolve().parents[3] / "deploy/README.md") == "deploy/README.md"


def test_what_leads_nowhere_and_what_asks_another_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "other/index.html").write_text('<h2 id="there">B</h2>')
    (tmp_path / "a.css").write_text("a { background: url(https://e.example/x.png) } b { background: url(x.png) }")
    assert wrong_links(tmp_path) == [
        *sorted(
            f"index.html fetches {url}"
            for url in ("https://a.example/x.css", "//b.example/x.js", "https://d.example/x.png")
        ),
        "index.html leads to #gone, which is not there",
        "index.html leads to away.png, which is not there",
        "index.html leads to other/#no, which is not there",
        "a.css fetches https://e.example/x.png",
    ]


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    assert build(tmp_path) == [f"{tmp_path} is there, and no site: name another folder"]
    assert build(tmp_path / "notes") == [f"{tmp_path / 'notes'} is there, and no site: name another folder"]
    assert (tmp_path / "notes").read_text() == "mine"
