"""The language of texts for people, and how it writes numbers, shares and times.

Texts stand in English where they are used; ``locale/`` has them in other languages (gettext). Who asks is a context: it
holds in the threads that a request starts with a copy of it. Without one all texts are English, and times are UTC.
"""

from __future__ import annotations

import gettext as catalogues
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

LANGUAGES: Final = ("en", "de")
DOMAIN: Final = "streamad"
FOLDER: Final = Path(__file__).parent / "locale"
NO_BREAK: Final = "\u00a0"
Form: TypeAlias = Literal["date", "clock", "clock_second", "minute", "second", "fine"]
"""What is written of a time; ``fine``: with milliseconds."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who reads a text: in which language, and in which zone of time; None: that of the browser."""

    language: str = "en"
    zone: ZoneInfo | None = None


_ASKING: ContextVar[Asking] = ContextVar("asking", default=Asking())  # noqa: B039 - frozen


def asking() -> Asking:
    """Return who reads the texts that are made now."""
    return _ASKING.get()


@contextmanager
def asked_by(reader: Asking) -> Iterator[None]:
    """Make texts for ``reader`` during the block."""
    token = _ASKING.set(reader)
    try:
        yield
    finally:
        _ASKING.reset(token)


def preferred(accepted: str) -> str:
    """Return which of ``LANGUAGES`` the header Accept-Language wants most (RFC 9110, 12.5.4); English without one."""
    found = {}
    for part in reversed(accepted.lower().split(",")):
        tag, *parameters = part.replace(" ", "").split(";")
        weight = next((each[2:] for each in parameters if each.startswith("q=")), "1")
        try:
            found[tag.partition("-")[0]] = float(weight)
        except ValueError:
            continue
    wanted = [each for each in reversed(found) if each in LANGUAGES and found[each] > 0]
    return max(wanted, key=lambda each: found[each], default=LANGUAGES[0])


@cache
def _catalogue(language: str) -> catalogues.NullTranslations:
    return catalogues.translation(DOMAIN, FOLDER, [language], fallback=True)


def translated(text: str) -> str:
    """Return ``text`` in the reader's language, with the places of its values; no line begins with %."""
    return _catalogue(asking().language).gettext(text).replace(" %%", f"{NO_BREAK}%%")


def translated_for(one: str, many: str, n: int) -> str:
    """Return ``one`` or ``many``, as the reader's language has it for ``n`` things, with the places of its values."""
    return _catalogue(asking().language).ngettext(one, many, n).replace(" %%", f"{NO_BREAK}%%")


def gettext(text: str, /, **values: object) -> str:
    """Return ``text`` in the reader's language with ``values`` in the places of ``%(name)s``; ``%%`` is one sign."""
    return translated(text) % values


def ngettext(one: str, many: str, n: int, /, **values: object) -> str:
    """Return ``one`` or ``many`` for ``n`` things, as ``gettext`` does; ``%(num)s`` is ``n``."""
    return translated_for(one, many, n) % {"num": n, **values}


def catalogued(text: str) -> str:
    """Return ``text`` itself: a mark for the catalogue, where a text stands before its reader is known."""
    return text


def catalogued_plural(one: str, many: str) -> tuple[str, str]:
    """Return both texts: a mark for the catalogue, as ``catalogued``."""
    return one, many


class Words(Mapping[str, str]):
    """Texts by their names, each in the language of who reads it."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def __getitem__(self, name: str) -> str:
        return gettext(self._texts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def numeral(text: str) -> str:
    """Return a number that is written with a decimal point as the reader's language writes it."""
    return text.replace(".", ",") if asking().language == "de" else text


def thousands(n: int) -> str:
    """Return a whole number with a mark between groups of three digits: 12,500."""
    return f"{n:,}".replace(",", ".") if asking().language == "de" else f"{n:,}"


def percent(share: float, digits: int | None = 0) -> str:
    """Return a share in per cent, on one line: 84 %, or 2.5 % with one of ``digits``; None: as many as it needs."""
    text = f"{100 * share:.3g}" if digits is None else f"{100 * share:.{digits}f}"
    return f"{numeral(text)}{NO_BREAK}%"


def percents(low: float, high: float, digits: int = 0) -> str:
    """Return a range of shares: 17 % to 25 %."""
    return gettext("%(low)s to %(high)s", low=percent(low, digits), high=percent(high, digits))


_FORMS: Final[dict[Form, str]] = {
    "date": "%Y-%m-%d",
    "clock": "%H:%M",
    "clock_second": "%H:%M:%S",
    "minute": "%Y-%m-%d %H:%M",
    "second": "%Y-%m-%d %H:%M:%S",
    "fine": "%Y-%m-%d %H:%M:%S",
}


def moment(at: datetime, form: Form = "second", *, is_zoned: bool = True) -> str:
    """Return a time, with the name of its zone if ``is_zoned``; in UTC where it is past the zone's calendar."""
    try:
        local = at.astimezone(asking().zone or UTC)
    except OverflowError:
        local = at.astimezone(UTC)
    fine = f".{local.microsecond // 1000:03d}" if form == "fine" else ""
    return f"{local:{_FORMS[form]}}{fine}" + f" {local:%Z}" * is_zoned
