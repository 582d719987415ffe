"""What needs attention now: which sequences, alerts and events the page Now shows, and the lines of its banner.

A message may have any time, by accident or on purpose: one after the page's own clock moves nothing, and is shown with
a remark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice

from cronsim import CronSim

from streamad.errors import StreamadError
from streamad.language import Words, catalogued, gettext, thousands
from streamad.types import to_us
from streamad.web.pages.span import SKEW_US, remarked, remarked_event, span_of
from streamad.web.pages.versions.models import overdue_text
from streamad.web.rendering import count, duration, kind_of
from streamad.web.site import Site
from streamad.web.store.alerts import ANY, UNJUDGED, Limit
from streamad.web.store.view import SeenEvent, SeenSequence
from streamad.web.store.warned import NEVER

LANES, INBOX = 1_200, 30
"""Most sequences in the lines of Now, and most alerts in its list."""
_EVENTS = 60
_FROM_FUTURE = 5
_COUNTED = 100
_SERIOUS = {
    "many_alerts", "plant_changed", "broker_silent", "schema_registry_silent", "feedback_unreadable", "too_many_streams"
}  # fmt: skip
_OVER = {
    "broker_back": "broker_silent", "schema_registry_back": "schema_registry_silent", "many_alerts_over": "many_alerts"
}  # fmt: skip
"""Events that end others."""
_RECENT_US = 86_400_000_000
_UNREAD = Words(
    {
        "status": catalogued("the status of the workers is not read"),
        "view": catalogued("the view is not written"),
        "workers": catalogued("not all workers are shown"),
    }
)
_SURGE = 40


class Attention:
    """What the page Now shows of the view; ``now_us`` is the page's own time, in us since 1970."""

    def __init__(self, site: Site) -> None:
        self._plant, self._view, self._troubles, self._workers = site.plant, site.view, site.troubles, site.workers
        self._registry = site.registry

    def latest(self, now_us: int) -> list[SeenSequence]:
        """Return the sequences that the lines show, the newest first.

        Of those that ended after ``now_us``, the page's own time, only those that lie near the others: one of the year
        2099 must not move the span, and a page whose own clock is behind must not be empty.
        """
        until_us = now_us + SKEW_US
        usual = self._view.latest(LANES, until_us=until_us)
        if (span := span_of(usual)) is None:
            return self._view.latest(LANES)
        near_us = span.last_us + (span.last_us - span.first_us)
        later = self._view.latest(LANES, since_us=until_us + 1, until_us=near_us) if near_us > until_us else []
        return [*later, *usual][:LANES]

    def inbox(self, now_us: int, limits: Sequence[Limit] | None = None) -> list[SeenSequence]:
        """Return alerts that nobody has judged, then judged ones; few from the future.

        The newest come first; with ``limits`` those that lie highest above them.
        """
        until_us = now_us + SKEW_US
        found: dict[str, SeenSequence] = {}  # by id: what waits for a person comes first
        for wanted in (UNJUDGED, ANY):
            for one in self._view.inbox(_FROM_FUTURE, since_us=until_us + 1, wanted=wanted):
                found.setdefault(one.id, one)
            for one in self._view.inbox(INBOX, until_us=until_us, wanted=wanted, limits=limits):
                found.setdefault(one.id, one)
        return [remarked(one, now_us) for one in list(found.values())[:INBOX]]

    def first(self, latest: Sequence[SeenSequence], now_us: int, limits: Sequence[Limit]) -> SeenSequence | None:
        """Return the alert to open first: the highest that nobody has judged, of the time shown if there is any."""
        begins = [one.end_us for one in latest if one.end_us is not None]
        for since_us in (min(begins), -NEVER) if begins else ():
            found = self._view.inbox(1, since_us=since_us, until_us=now_us + SKEW_US, wanted=UNJUDGED, limits=limits)
            if found:
                return found[0]
        return None

    def events(self, now_us: int, since_us: int) -> list[SeenEvent]:
        """Return events, few from the future, the newest first."""
        until_us = now_us + SKEW_US
        later = self._view.events(_FROM_FUTURE, since_us=until_us + 1)
        events = [*later, *self._view.events(_EVENTS, since_us=since_us, until_us=until_us)]
        return [remarked_event(one, now_us) for one in events]

    def banner(self, latest: Sequence[SeenSequence], now_us: int) -> list[tuple[str, str]]:
        """Return a line for each thing that is not as it should be: what it is, and a sentence."""
        lines = [
            (_UNREAD.get(role) or gettext("%(what)s are not read", what=role), why)
            for role, why in self._troubles().items()
        ]
        n_unscorable = sum(one.decision == "unscorable" for one in latest[:_SURGE])
        if n_unscorable * 4 >= _SURGE:
            why = gettext(
                "%(n)s of the last %(all)s sequences could not be judged: open one of them, it says why",
                n=n_unscorable, all=_SURGE,
            )  # fmt: skip
            lines.append((gettext("many are not judged"), why))
        if (letters := self._dead_letters()) is not None:
            lines.append(letters)
        if (left_out := self._workers.left_out) is not None:
            lines.append((_UNREAD["workers"], left_out))
        if self._view.set_aside is not None:
            lines.append(
                (
                    gettext("the view was begun anew"),
                    gettext(
                        "its file could not be used and is now %(path)s; the page has what the outputs keep",
                        path=self._view.set_aside,
                    ),
                )
            )
        lines += [*self._contradictions(), *self._overdue(latest)]
        return [*lines, *self._clocks(now_us), *self._serious(now_us)]

    def _overdue(self, latest: Sequence[SeenSequence]) -> list[tuple[str, str]]:
        """Return a line for each model that no training has renewed while its schedule came twice.

        Only while sequences are judged: where no monitor runs, none can train.
        """
        learning = self._plant.settings.learning
        if learning is None or learning.schedule is None:
            return []
        judged_us: dict[str, int] = {}
        for one in latest:
            if one.model is not None and one.created_us is not None:
                judged_us[one.model] = max(one.created_us, judged_us.get(one.model, 0))
        lines = []
        for name, at_us in sorted(judged_us.items()):
            with suppress(StreamadError):
                if not (versions := self._registry.versions(name)):
                    continue
                newest = self._registry.manifest(name, versions[-1])
                due = list(islice(CronSim(learning.schedule, newest.created_at), 2))
                if len(due) == 2 and to_us(newest.created_at) + 2 * to_us(due[1]) - 2 * to_us(due[0]) < at_us:
                    what = gettext("model %(name)s is older than its schedule", name=name)
                    lines.append((what, overdue_text(newest, learning.schedule)))
        return lines

    def _serious(self, now_us: int) -> list[tuple[str, str]]:
        """Return a line for each kind of serious event of the last day before the newest one that is not over."""
        newest = next(iter(self._view.events(1, until_us=now_us + SKEW_US)), None)
        since_us = now_us if newest is None else newest.created_us
        lines: dict[str, str] = {}
        seen: set[str] = set()
        for event in self.events(now_us, since_us - _RECENT_US):
            kind = _OVER.get(event.kind, event.kind)
            if kind in _SERIOUS and kind not in seen:
                seen.add(kind)
                if kind == event.kind:
                    lines[kind] = event.message
        return [(kind_of(kind), message) for kind, message in lines.items()]

    def _clocks(self, now_us: int) -> list[tuple[str, str]]:
        """Return a line if sequences or events are dated after the page's own time."""
        since_us = now_us + SKEW_US + 1
        found = self._view.latest(_COUNTED, since_us=since_us)
        events = self._view.events(_COUNTED, since_us=since_us)
        if not found and not events:
            return []
        times = [one.end_us or 0 for one in found] + [one.created_us for one in events]
        what = [_count(len(each), name) for each, name in ((found, "sequence"), (events, "event")) if each]
        where = gettext(", the newest of stream %(name)s", name=found[0].stream) if found else ""
        by = duration((max(times) - now_us) / 1e6)
        why = gettext(
            "%(what)s bear times after this page's own, by up to %(by)s%(where)s: look at the clock of who wrote them, "
            "and at that of the page's machine",
            what=gettext(" and ").join(what), by=by, where=where,
        )  # fmt: skip
        return [(gettext("a clock is ahead"), why)]

    def _dead_letters(self) -> tuple[str, str] | None:
        """Return the banner's line about records that could not be read lately."""
        recent = [one.status.dead_letters for one in self._workers.seen() if one.is_live and one.has_new_letters]
        if not recent:
            return None
        if self._plant.settings.sinks.dead_letters:
            why = gettext("%(n)s so far, more within the last hour: sinks.dead_letters holds them, with the reasons",
                          n=thousands(sum(recent)))  # fmt: skip
        else:
            why = gettext("%(n)s so far, more within the last hour: set sinks.dead_letters, with the reasons",
                          n=thousands(sum(recent)))  # fmt: skip
        return gettext("records are unreadable"), why

    def _contradictions(self) -> list[tuple[str, str]]:
        """Return a line if messages contradict each other."""
        found = self._view.contradicted(_COUNTED)
        if not found:
            return []
        n, first = _count(len(found), "sequence"), f"{found[0].stream} {found[0].sequence}"
        why = gettext(
            "other messages with the ids of %(n)s say otherwise than what was read first, which is shown (the newest: "
            "%(first)s). If you began the outputs anew, delete %(file)s; else look who may write to them",
            n=n, first=first, file=self._view.path.name,
        )  # fmt: skip
        return [(gettext("messages contradict each other"), why)]


def _count(n: int, name: str) -> str:
    return gettext("%(many)s or more", many=count(n, name)) if n == _COUNTED else count(n, name)
