"""What people do on the page: judge a sequence, and change which version of a model is in service."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Literal, NamedTuple, cast

from streamad.errors import StreamadError, UsageError
from streamad.language import gettext
from streamad.learn.parts import registry_of
from streamad.learn.store.records import MarkKind
from streamad.outputs.marks.writing import MarkWriter
from streamad.outputs.stored import one_model
from streamad.outputs.versions.approving import Seen, approve
from streamad.outputs.versions.service import decline, put_into_service, roll_back
from streamad.outputs.versions.training import ask_to_relearn
from streamad.plant import Plant
from streamad.telemetry.logs import get_status_logger
from streamad.web.access import Person
from streamad.web.store.view import View

_UNJUDGED: Final = {"claim", "assign"}
_JUDGEMENTS: Final = {"false_alarm", "confirmed", "veto", "withdrawn", *_UNJUDGED}


class Acted(NamedTuple):
    """What was done about a model: a code that the page has a sentence for, and the model's name."""

    code: Literal["in_service", "approved", "declined", "asked"]
    model: str


class Acting:
    """Does what forms ask for, in the name of the person who sent them."""

    def __init__(self, plant: Plant, view: View) -> None:
        self._plant, self._view = plant, view
        self._registry = registry_of(plant)

    def mark(self, person: Person, name: str, form: Mapping[str, str]) -> None:
        """Write a mark to the place of feedback, and show it at once. Raises StreamadError: nothing was written.

        ``claim`` and ``assign`` judge nothing: they say who looks after a sequence that nobody has judged yet.
        """
        judgement = form.get("judgement", "")
        if judgement not in _JUDGEMENTS:
            raise UsageError(gettext("choose one of the buttons"))
        one = self._view.sequence(name)
        if one is None:
            if self._view.warning(name) is not None:
                raise UsageError(gettext("a running sequence cannot be judged before its end: it has no verdict yet"))
            raise UsageError(gettext("no verdict with this id was read"))
        note, assignee, comment = (form.get(key, "").strip() for key in ("reason", "assignee", "comment"))
        marking = MarkWriter(self._plant, None, are_verdicts=True, actor=person.actor)
        if judgement in _UNJUDGED:
            if one.is_judged or marking.is_marked(name):  # its message may be gone from the place of marks
                raise UsageError(
                    gettext(
                        "%(name)s has judged it meanwhile: judge it anew, or leave it",
                        name=one.judged_by or gettext("somebody"),
                    )
                )
            assignee = person.name if judgement == "claim" else assignee
            judgement = "withdrawn"
        feedback = marking.message(name, cast("MarkKind", judgement), note, assignee=assignee, comment=comment)
        (marked,) = marking.write([feedback])
        with suppress(StreamadError):  # else it is shown once it is read
            self._view.put([marked.feedback])

    def act(self, person: Person, form: Mapping[str, str]) -> Acted:
        """Do what a form of the page Models asks for, as the commands do, and log who did it.

        The name of what changes must have been typed. Raises StreamadError: nothing was changed.
        """
        if self._plant.settings.web.allow != "models":
            raise UsageError(gettext("web.allow is not models"))
        what = form.get("act", "")
        name = one_model(self._plant, form.get("model", ""))
        code = self._acted(person, name, what, form)
        names = ("version", "to", "since")
        given = {key: value for key in names if (value := form.get(key, "").strip())}
        get_status_logger().info("acted on a model from the page", by=person.name, act=what, model=name, **given)
        return Acted(code, name)

    def _acted(
        self, person: Person, name: str, what: str, form: Mapping[str, str]
    ) -> Literal["in_service", "approved", "declined", "asked"]:
        plant = self._plant
        version, to = (self._registry.named(name, form.get(key, "")) for key in ("version", "to"))
        reason = form.get("reason", "").strip()
        if what == "decline":
            decline(plant, name, version, by=person.actor, reason=reason)
            return "declined"
        confirmed = {"promote": version, "approve": version, "rollback": to, "relearn": name}.get(what)
        if not confirmed:
            raise UsageError(gettext("choose one of the buttons"))
        if form.get("typed", "").strip() != confirmed:
            raise UsageError(gettext("type %(name)s to confirm", name=confirmed))
        before = form.get("before") or None  # what the person saw in service
        if what == "approve":
            seen = Seen(form.get("digest", ""), before)
            done = approve(plant, name, version, by=person.actor, why=reason, seen=seen)
            return "approved" if done.served is None else "in_service"
        if what == "relearn":
            ask_to_relearn(plant, name, form.get("since", "").strip(), by=person.actor)
            return "asked"
        if what == "rollback":
            roll_back(plant, name, version, to, by=person.actor, reason=reason)
            return "in_service"
        put_into_service(plant, name, version, before, repairs=True, by=person.actor, reason=reason)
        return "in_service"
