"""The texts that people read: each is in the catalogue, translated, and compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("babel", reason="needs babel")

from tests.support.scripts import script

catalogue = script("catalogue")


@pytest.mark.parametrize("language", catalogue.languages())
def test_every_text_is_translated_with_its_values(language: str) -> None:
    assert catalogue.faults(language) == [], "run python scripts/catalogue.py, and translate what it prints"


def test_extraction_finds_templates_and_code() -> None:
    found = {message.id for message in catalogue.texts()}
    assert {"To the content", "false alarm", "p-value"} <= found


TEXTS = 'gettext("A %(name)s here")\nngettext("%(num)s thing", "%(num)s things", n)\n'
PO = """
msgid "A %(name)s here"
msgstr "{0}"

msgid "%(num)s thing"
msgid_plural "%(num)s things"
msgstr[0] "{1}"
msgstr[1] "{2}"
"""
GOOD = ("Hier %(name)s", "%(num)s Ding", "%(num)s Dinge")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source with two texts, and the catalogue of a language."""
    source = tmp_path / "streamad" / "texts.py"
    (tmp_path / "streamad" / "language" / "locale" / "de" / "LC_MESSAGES").mkdir(parents=True)
    source.write_text(TEXTS)
    monkeypatch.setattr(catalogue, "ROOT", tmp_path)
    monkeypatch.setattr(catalogue, "LOCALE", tmp_path / "streamad" / "language" / "locale")
    return source


def put(strings: tuple[str, str, str], also: str = "") -> list[str]:
    """Write and compile translations; return the faults."""
    catalogue.po_of("de").write_text(catalogue.HEADER.format(catalogue.Catalog("de")) + PO.format(*strings) + also)
    with catalogue.mo_of("de").open("wb") as file:
        catalogue.write_mo(file, catalogue.read("de"))
    return catalogue.faults("de")


def test_a_whole_catalogue_has_no_fault(written: Path) -> None:
    assert put(GOOD) == []
    catalogue.renew("de")
    before = catalogue.po_of("de").read_bytes(), catalogue.mo_of("de").read_bytes()
    catalogue.renew("de")
    assert (catalogue.po_of("de").read_bytes(), catalogue.mo_of("de").read_bytes()) == before
    catalogue.mo_of("de").unlink()
    assert "is not what the .po compiles to" in catalogue.faults("de")[0]


@pytest.mark.parametrize(
    ("strings", "also", "fault"),
    [
        (("", *GOOD[1:]), "", "not translated: 'A %(name)s here'"),
        ((*GOOD[:2], ""), "", "not translated: ('%(num)s thing'"),
        (("Hier %(nam)s", *GOOD[1:]), "", "other values than"),
        (("Hier 5 % %(name)s", *GOOD[1:]), "", "other values than"),
        (("Hier", *GOOD[1:]), "", "other values than"),
        (GOOD, '\nmsgid "gone"\nmsgstr "weg"\n', "in no source any more: 'gone'"),
        (GOOD, '\n#, fuzzy\nmsgid "gone"\nmsgstr "weg"\n', "fuzzy: 'gone'"),
    ],
)
def test_each_fault_of_a_translation_is_found(
    written: Path, strings: tuple[str, str, str], also: str, fault: str
) -> None:
    assert any(fault in each for each in put(strings, also))


def test_new_texts_and_bare_signs_are_found(written: Path) -> None:
    put(GOOD)
    written.write_text(TEXTS + 'gettext("100 % new")\n')
    assert "not in the catalogue: '100 % new'" in catalogue.faults("de")
    catalogue.renew("de")
    assert {"has a % that is not doubled: '100 % new'", "not translated: '100 % new'"} <= {*catalogue.faults("de")}


def test_a_block_of_text_has_no_doubled_sign_which_a_page_would_show() -> None:
    blocks = re.compile(r"{%-?\s*trans\b.*?{%-?\s*endtrans", re.DOTALL)
    for path in sorted((catalogue.ROOT / "streamad").rglob("*.html")):
        assert not [each for each in blocks.findall(path.read_text(encoding="utf-8")) if "%%" in each], path.name
