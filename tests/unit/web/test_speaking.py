"""The page in the language of who reads it, and its times in the plant's zone."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamad.web import rendering
from tests.support.web.messages import messages_of
from tests.support.web.page import PageUnderTest

GERMAN = {"accept-language": "de-DE,de;q=0.9,en;q=0.8"}


def page_in(folder: Path, headers: dict[str, str], path: str = "/", **more: object) -> str:
    return PageUnderTest(folder, messages_of(1), **more).browser().get(path, headers=headers).text


def test_the_language_is_the_browsers_unless_the_plant_has_one(tmp_path: Path) -> None:
    client = PageUnderTest(tmp_path, messages_of(1)).browser()
    for _ in range(2):  # the content of Now is shared, but not between languages
        german, english = client.get("/", headers=GERMAN).text, client.get("/").text
        assert '<html lang="de">' in german
        assert "<h1>Aktuell</h1>" in german
        assert "</svg> Alarm</span>" in german
        assert '<html lang="en">' in english
        assert "<h1>Now</h1>" in english
    assert '<html lang="de">' in client.get("/nowhere", headers=GERMAN).text
    fixed = page_in(tmp_path, {}, web={"language": "de"})
    assert "<h1>Aktuell</h1>" in fixed


@pytest.mark.parametrize("path", ["/alerts", "/warnings", "/streams", "/stream?name=reactor-1", "/compare",
                                  "/calibration", "/models", "/running?name=reactor-1", f"/s/{1:032x}"])  # fmt: skip
def test_every_page_has_a_german_heading_and_no_place_of_a_value(path: str, tmp_path: Path) -> None:
    text = page_in(tmp_path, GERMAN, path)
    assert "Zum Inhalt" in text
    assert not re.search(r"%\(\w+\)s|%%", text)


def test_times_are_in_the_plants_zone_and_say_it(tmp_path: Path) -> None:
    text = page_in(tmp_path, {}, "/alerts", decode={"timezone": "Europe/Berlin"})
    assert 'data-zone="Europe/Berlin"' in text
    assert re.search(
        r'<time datetime="2026-03-01T06:0\d:\d\d\+00:00" data-form="second">2026-03-01 07:0\d:\d\d CET<', text
    )
    assert "07:0" not in page_in(tmp_path, {}, "/alerts"), "without a zone UTC, until the browser has written its own"


def test_what_an_attribution_says_is_made_anew_for_who_reads_it(tmp_path: Path) -> None:
    page = PageUnderTest(tmp_path, messages_of(1)).browser()
    german, english = (page.get("/alerts", headers=each).text for each in (GERMAN, {}))
    assert "because of temp_c" in english
    assert "wegen temp_c" in german
    assert "because of" not in german


def test_a_value_in_a_translated_text_is_shown_as_any_other() -> None:
    name = "<b>\u202eb\x1b kafka://user:pa55@host:9092/t"
    one = SimpleNamespace(is_judged=True, judgement="confirmed", judged_by=name, assignee=name, note=None, comment=None)
    template = rendering._TEMPLATES.from_string(  # noqa: SLF001  no page has only this
        '{% from "parts.html" import state_of %}{{ state_of(one) }}'
    )
    text = template.render(one=one)
    assert text.count("by &lt;b&gt;\\u202eb\\x1b kafka://***@host:9092/t") == 1
    assert text.count("assigned to &lt;b&gt;\\u202eb\\x1b kafka://***@host:9092/t") == 1


def test_no_call_of_a_translation_is_hidden_in_an_f_string() -> None:
    """The extraction does not see it there (Python 3.11)."""
    for path in sorted(Path(str(files("streamad"))).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
                names = [each.func.id for each in calls if isinstance(each.func, ast.Name)]
                constant = [each for each in calls if each.args and isinstance(each.args[0], ast.Constant)]
                hidden = {"gettext", "ngettext"} & set(names) and any(
                    isinstance(each.func, ast.Name) and each.func.id in {"gettext", "ngettext"} for each in constant
                )
                assert not hidden, f"{path}:{node.lineno}"


def test_every_counted_noun_has_its_forms() -> None:
    pattern = re.compile(r"""counted\("([a-z ]+)"\)|(?<![.\w])count\([^"'\n*]*, ["']([a-z ]+)["']\)""")
    for path in sorted(Path(str(files("streamad.web"))).rglob("*.*")):
        if path.suffix in {".py", ".html"}:
            for found in pattern.finditer(path.read_text()):
                assert rendering.count(2, found[1] or found[2]).startswith("2 "), path


def test_templates_translate_literals_only_and_when_they_are_filled() -> None:
    """What is imported from a template is kept: a text outside of macros would stay in its first reader's language."""
    folder = files("streamad.web") / "templates"
    imported = set()
    for one in folder.iterdir():
        imported |= set(re.findall(r'\{% from "([\w.]+)" import', one.read_text()))
    for one in folder.iterdir():
        text = one.read_text()
        assert not re.search(r"(?<![\w.])_\((?!\s*\")", text), one.name
        if one.name in imported:
            outside = re.sub(r"\{% macro .*?\{%-? endmacro %\}", "", text, flags=re.DOTALL)
            assert "_(" not in outside, one.name
