"""What templates do with values: all are escaped, and none is missing."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from streamad.web.rendering import escaped, rendered, shown

TEMPLATES = {one.name: one.read_text() for one in (files("streamad.web") / "templates").iterdir()}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0, 0),
        ("a\u202eb\x1b[31m", r"a\u202eb\x1b[31m"),
        ("two\nlines", r"two\nlines"),
        ("kafka://user:pa55@host:9092/t", "kafka://***@host:9092/t"),
        (Markup("<b>\n</b>"), Markup("<b>\n</b>")),
    ],
)
def test_a_value_is_shown_without_controls_and_secrets(value: object, text: object) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\"'><img src=x>", "&lt;", "{{ 1 + 1 }}"])
def test_a_name_is_text_in_content_in_attributes_and_in_pictures(name: str) -> None:
    page = rendered("sentence.html", title=name, sentence=name, back=name)
    shown_once = str(escaped(name))
    assert page.count(shown_once) == 3
    assert f'href="{shown_once}"' in page
    assert not re.search(r"<(script|img)", page)


def test_a_template_without_one_of_its_values_fails() -> None:
    with pytest.raises(UndefinedError, match="back"):
        rendered("sentence.html", title="a", sentence="b")


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_leaves_a_value_unescaped_or_an_attribute_unquoted(name: str) -> None:
    text = TEMPLATES[name]
    is_file = name in {"report.html", "acceptance.html"}
    assert ("<style" in text) == is_file, "of the pages a policy forbids it; a report is one file"
    assert not re.search(r"\|\s*(safe|e|escape|forceescape|tojson|urlize|xmlattr)\b", text), "they pass by `shown`"
    assert not re.search(r"autoescape|\sstyle=|\son\w+=|<[^>{]*\s[\w-]+=\{\{", text)
    assert all("src=" in one for one in re.findall(r"<script[^>]*>", text))
    assert max(map(len, text.splitlines())) <= 120
