"""The page Decisions: who decided what, when and why, and the last hash of each writer's chain."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from streamad.language import Words, catalogued, gettext, thousands
from streamad.outputs.reading import readable_urls
from streamad.types import from_us
from streamad.web.rendering import rendered, when
from streamad.web.site import Site
from streamad.web.store.questions import Place
from streamad.web.store.view import SeenDecision

_A_PAGE = 50
_SHORT = 12  # signs of a hash
KINDS: Final = Words(
    {
        "approve": catalogued("approved"),
        "config": catalogued("config"),
        "decline": catalogued("declined"),
        "doubtful": catalogued("effect not known"),
        "mark": catalogued("mark"),
        "model": catalogued("model in service"),
        "promote": catalogued("put into service"),
        "purge": catalogued("sequences deleted"),
        "refuse": catalogued("refused"),
        "relearn": catalogued("relearning asked for"),
        "retrain": catalogued("training asked for"),
        "rollback": catalogued("rolled back"),
        "undone": catalogued("had no effect"),
        "wait": catalogued("waits for people"),
    }
)
_IDENTITIES: Final = Words(
    {
        "authenticated": catalogued("name checked"),
        "claimed": catalogued("name as given"),
        "program": catalogued("program"),
    }
)


class Row(NamedTuple):
    """An entry of the log in cells."""

    at: Markup
    kind: str
    subject: str
    who: str
    reason: str
    details: tuple[tuple[str, str], ...]
    place: str
    hash: str


def decisions(site: Site, kind: str, behind: Place | None) -> Markup:
    """Return the content: entries of one kind ("": of all), the newest first, ``behind`` a place in the list."""
    counts = site.view.log_kinds()
    chosen = kind if kind in counts else None
    place = None if behind is None else (behind.end_us, behind.id or "")
    found = site.view.log(chosen, _A_PAGE + 1, place)
    shown, has_more = found[:_A_PAGE], len(found) > _A_PAGE
    of_kind = {"kind": chosen} if chosen else {}
    last = shown[-1] if has_more else None
    older = "" if last is None else f"/decisions?{urlencode({**of_kind, 'before': last.created_us, 'id': last.id})}"
    return rendered(
        "decisions.html",
        rows=[_row(each) for each in shown],
        kinds=_choices(counts, chosen),
        ends=site.view.log_heads(),
        older=older,
        is_kept=bool(readable_urls(site.plant, "decisions")),
    )


def _choices(counts: dict[str, int], chosen: str | None) -> list[tuple[str, str, bool]]:
    if not counts:
        return []
    every = gettext("all")
    of_all = (f"{every} ({thousands(sum(counts.values()))})", "/decisions", chosen is None)
    words = {kind: f"{KINDS.get(kind, kind)} ({thousands(n)})" for kind, n in counts.items()}
    return [of_all, *((words[kind], f"/decisions?{urlencode({'kind': kind})}", kind == chosen) for kind in counts)]


def _row(one: SeenDecision) -> Row:
    details = msgspec.json.decode(one.details, type=dict[str, str])
    known = _IDENTITIES.get(one.identity, one.identity)
    return Row(
        when(from_us(one.created_us)),
        KINDS.get(one.kind, one.kind),
        one.subject,
        f"{one.who} ({known})",
        one.reason,
        tuple(details.items()),
        f"{one.writer}, {one.number}",
        one.hash[:_SHORT],
    )
