"""The config's documentation and example name every key there is, with its default, and no other."""

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import TypeAdapter

from scripts.config_reference import LINKS, keys, page
from streamad.settings.places import sink_urls
from streamad.settings.plant_yaml import load_settings

ROOT = Path(__file__).parents[3]
DOC = (ROOT / "docs/guide/config.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples/plant.yaml"
ROW = re.compile(r"^- \[?`([a-z_.]+)`(?:\]\([^)]+\))? \((.+?)\): (.+)$", re.MULTILINE)
KEYS = dict(keys())
ROWS = {key: (default, meaning) for key, default, meaning in ROW.findall(DOC)}


def test_every_key_is_documented_once_and_no_other() -> None:
    assert sorted(key for key, _, _ in ROW.findall(DOC)) == sorted(KEYS)
    assert all(re.fullmatch(r"[A-Za-z`].+\.", meaning) for _, meaning in ROWS.values())
    assert set(LINKS) <= set(KEYS)


def test_the_page_says_what_the_settings_say() -> None:
    """Else: ``python scripts/config_reference.py``."""
    assert page(DOC) == DOC


@pytest.mark.parametrize("key", KEYS)
def test_the_documented_default_is_the_default(key: str) -> None:
    text, field = ROWS[key][0], KEYS[key]
    assert (text == "required") == field.is_required()
    if text == "required":
        return
    value: Any = yaml.safe_load(text.strip("`"))
    annotation: Any = field.annotation
    for item in field.metadata:
        annotation = Annotated[annotation, item]
    assert TypeAdapter(annotation).validate_python(value) == field.default


def test_the_example_is_valid() -> None:
    settings = load_settings(EXAMPLE)
    assert settings.source.url == "live/*.jsonl"
    assert len({*sink_urls(settings).values()}) == 8


@pytest.mark.parametrize("key", KEYS)
def test_the_example_shows_every_key_with_its_default_or_an_alternative(key: str) -> None:
    name = key.rsplit(".", 1)[-1]
    if key == "learning.feedback":
        assert DOC.count("The former name of the key `marks`") == 1  # read as before, and shown to nobody
        return
    assert re.search(rf"(^|[ {{#]){name}: \S", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE) or name in {
        "fields",
        "models",
        "learning",
    }


@pytest.mark.parametrize("section", ["fields", "gap", "length"])
def test_the_alternatives_in_the_example_are_valid(section: str, tmp_path: Path) -> None:
    """What stands there as a comment works once it is no comment any more."""
    text = EXAMPLE.read_text(encoding="utf-8")
    if section == "fields":
        text = re.sub(r"^  # (fields:|  \w+: )", r"  \1", text, flags=re.MULTILINE)
        text = re.sub(r"^    (channel|value): .*\n", "", text, flags=re.MULTILINE)
    else:
        text = text.replace("  end: [marker, change]", "  # end: [marker, change]")
        text = text.replace(f"  # end: [{section}]", f"  end: [{section}]")
        text = re.sub(rf"^  # {section}: ", f"  {section}: ", text, flags=re.MULTILINE)
    (tmp_path / "plant.yaml").write_text(text, encoding="utf-8")
    settings = load_settings(tmp_path / "plant.yaml")
    if section == "fields":
        assert settings.decode.fields is not None
        assert settings.decode.fields.sequence == "batch_id"
    else:
        assert settings.sequences.end == (section,)
