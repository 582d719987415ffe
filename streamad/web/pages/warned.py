"""Warnings of running sequences: the list of Now, the page of all, and that of one whose sequence is not judged yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from markupsafe import Markup

from streamad.errors import StreamadError
from streamad.language import gettext, ngettext, percent
from streamad.messages import Attribution
from streamad.pictures.facts import is_explained
from streamad.pictures.warned import (
    age_and_lead,
    age_of,
    lead_of,
    warned_finding,
    warned_headline,
    warned_line,
)
from streamad.types import from_us, to_us
from streamad.web.rendering import digits, rendered
from streamad.web.site import Site
from streamad.web.store.view import Place, SeenSequence, SeenWarning

_PAGE = 120
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning as pages show it: ``age`` and ``why`` in words, the sequence once it is judged, or whether it runs.

    ``lead`` is the time from the warning to the end of the sequence, "" as long as that is not known.
    """

    seen: SeenWarning
    age: str
    why: str
    judged: SeenSequence | None
    is_open: bool
    lead: str = ""


def warned(site: Site, found: Iterable[SeenWarning]) -> list[Warned]:
    """Return what pages show of warnings."""
    still_open = {(one.stream, one.sequence, to_us(one.start_time)) for one in site.workers.open()}
    rows = []
    for one in found:
        judged = None if one.verdict is None else site.view.sequence(one.verdict)
        why = warned_finding(one.message, reasons_of(site, one))
        if not why and judged is not None:  # raised at its end, it has the reasons of the alert
            why = judged.why or ""
        end_us = None if judged is None else judged.end_us
        lead = "" if end_us is None else lead_of(one.message, from_us(end_us))
        is_open = judged is None and (one.stream, one.sequence, one.start_us) in still_open
        rows.append(Warned(one, percent(one.age), why, judged, is_open, lead))
    return rows


def reasons_of(site: Site, one: SeenWarning) -> Attribution | None:
    """Return why a warning was raised, None if that was not read or is damaged."""
    with suppress(StreamadError):
        found = site.view.attribution(one.id)
        if found is not None and (found.stream, found.sequence) == (one.stream, one.sequence):
            return found
    return None


def banner_of(rows: Sequence[Warned]) -> list[tuple[str, str]]:
    """Return the banner's line about the sequences that run and were warned of; none if there is none."""
    running = [each for each in rows if each.is_open]
    if not running:
        return []
    named = [
        f"{each.seen.stream} {each.seen.sequence} " + gettext("at %(at)s", at=each.age) for each in running[:_NAMED]
    ]
    if (rest := len(running) - _NAMED) > 0:
        named.append(gettext("%(n)s more", n=rest))
    what = ngettext(
        "%(num)s running sequence leaves the normal course", "%(num)s running sequences leave the normal course",
        len(running),
    )  # fmt: skip
    return [(what, gettext("%(named)s (Warnings)", named=", ".join(named)))]


def first_running(rows: Sequence[Warned]) -> Warned | None:
    """Return the warned sequence that still runs and is the least usual, None if none runs."""
    return min((each for each in rows if each.is_open), key=lambda each: each.seen.p_value, default=None)


def warnings(site: Site, behind: Place | None) -> Markup:
    """Return the content of the page of all warnings, the newest first, a portion of it."""
    found = site.view.warnings(_PAGE + 1) if behind is None else site.view.warnings(_PAGE + 1, behind=behind.values)
    older = Place(found[_PAGE - 1].time_us, found[_PAGE - 1].id) if len(found) > _PAGE else None
    return rendered("warnings.html", rows=warned(site, found[:_PAGE]), behind=behind, older=older)


def warning(site: Site, one: SeenWarning) -> Markup:
    """Return the content of the page of a warning whose sequence has no verdict yet."""
    message, attribution = one.message, reasons_of(site, one)
    (row,) = warned(site, [one])
    return rendered(
        "warning.html",
        row=row,
        headline=warned_headline(message, attribution),
        line=warned_line(message),
        attribution=attribution,
        is_explained=is_explained(attribution),
        speakers=[],
    )


def said_of(site: Site, judged: SeenSequence) -> tuple[SeenWarning, str] | None:
    """Return the warning of a judged sequence and what it said, None if there was none."""
    if judged.start_us is None:
        return None
    one = site.view.warning_of(judged.stream, judged.sequence, judged.start_us)
    if one is None:
        return None
    why = warned_finding(one.message, reasons_of(site, one))
    age = age_of(one.message) if judged.end_us is None else age_and_lead(one.message, from_us(judged.end_us))
    said = gettext("at %(age)s, p %(p)s", age=age, p=digits(one.p_value, 2))
    return one, f"{said}: {why}" if why else said
