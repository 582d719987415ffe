"""Keeps the catalogue of the texts that people read: extracts them, and compiles their translations.

``python scripts/catalogue.py`` brings streamad.po of each language up to date and prints what is left to translate; run
it again after that. Places of texts are left out, so that moving a text changes nothing.
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "streamad" / "language" / "locale"
_METHODS = [("**.py", "python"), ("**/templates/**.html", "jinja2")]
_OPTIONS = {
    "**/templates/**.html": {
        "extensions": "jinja2.ext.i18n",
        "trimmed": "true",
        "newstyle_gettext": "true",
        "trim_blocks": "true",
        "lstrip_blocks": "true",
        "silent": "false",
    }
}
_KEYWORDS = {"gettext": None, "ngettext": (1, 2), "_": None, "catalogued": None, "catalogued_plural": (1, 2)}
_PLACE = re.compile(r"%\((\w+)\)s|%%")
HEADER = r"""# What people read of streamad, in another language: scripts/catalogue.py
msgid ""
msgstr ""
"Language: {0.locale}\n"
"Plural-Forms: {0.plural_forms}\n"
"Content-Type: text/plain; charset=utf-8\n"

"""


def texts() -> Catalog:
    """Return the texts of the sources."""
    found = Catalog(charset="utf-8")
    for _, _, text, _, context in extract_from_dir(str(ROOT / "streamad"), _METHODS, _OPTIONS, _KEYWORDS, ()):
        found.add(text, context=context)
    return found


def po_of(language: str) -> Path:
    """Return the file of a language's translations."""
    return LOCALE / language / "LC_MESSAGES" / "streamad.po"


def mo_of(language: str) -> Path:
    """Return the file that a language's translations are compiled to."""
    return po_of(language).with_suffix(".mo")


def languages() -> list[str]:
    """Return the languages that have translations."""
    return sorted(path.name for path in LOCALE.iterdir() if path.is_dir())


def read(language: str) -> Catalog:
    """Return a language's translations."""
    with po_of(language).open("rb") as file:
        return read_po(file, locale=language)


def written(catalog: Catalog) -> str:
    """Return the text of a catalogue's file."""
    file = io.BytesIO()
    write_po(file, catalog, width=120, no_location=True, omit_header=True, sort_output=True, ignore_obsolete=True)
    return HEADER.format(catalog) + file.getvalue().decode().strip() + "\n"


def _strings(catalog: Catalog) -> dict[object, object]:
    """Return the translations that there are, by their texts."""
    return {_each(one.id): _each(one.string) for one in catalog if one.id and one.string and any(one.string)}


def _compiled(language: str) -> dict[object, object]:
    if not mo_of(language).exists():
        return {}
    with mo_of(language).open("rb") as file:
        return _strings(read_mo(file))


def renewed(language: str) -> Catalog:
    """Return a language's translations of the texts that are there now; new texts have none."""
    old, new = read(language), texts()
    fresh = Catalog(locale=language, charset="utf-8")
    for message in new:
        if message.id:
            known = old.get(message.id)
            fresh.add(message.id, known.string if known is not None else None)
    return fresh


def _each(text: object) -> tuple[str, ...]:
    """Return the forms of a text: one, or that of one thing and those of more."""
    return (text,) if isinstance(text, str) else tuple(text)  # type: ignore[arg-type]


def _places(text: str) -> set[str]:
    """Return the names of the values that belong into ``text``; a sign that is none is one, too."""
    return ({*_PLACE.findall(text)} | ({"%"} if "%" in _PLACE.sub("", text) else set())) - {""}


def faults(language: str) -> list[str]:
    """Return what is wrong with a language's translations, a line for each fault."""
    kept, here = read(language), {message.id: message for message in texts() if message.id}
    there = {message.id: message for message in kept if message.id}
    found = [f"not in the catalogue: {each!r}" for each in here.keys() - there.keys()]
    found += [f"in no source any more: {each!r}" for each in there.keys() - here.keys()]
    for message in there.values():
        if message.fuzzy:
            found.append(f"fuzzy: {message.id!r}")
        if not all(_each(message.string)):
            found.append(f"not translated: {message.id!r}")
        wanted = [_places(each) for each in _each(message.id)]
        if any("%" in each for each in wanted):
            found.append(f"has a % that is not doubled: {message.id!r}")
        found += [
            f"has other values than {message.id!r}: {each!r}"
            for each in _each(message.string)
            if each and _places(each) not in wanted
        ]
    if _compiled(language) != _strings(kept):
        found.append(f"{mo_of(language).relative_to(ROOT)} is not what the .po compiles to")
    return sorted(found)


def renew(language: str) -> None:
    """Bring a language's files up to date."""
    catalog = renewed(language)
    po_of(language).write_text(written(catalog), encoding="utf-8")
    if _compiled(language) != _strings(catalog):  # else the file would differ in its date alone
        with mo_of(language).open("wb") as file:
            write_mo(file, catalog)


if __name__ == "__main__":
    for name in languages():
        renew(name)
    left = [f"{name}: {fault}" for name in languages() for fault in faults(name)]
    print("\n".join(left))
    sys.exit(1 if left else 0)
