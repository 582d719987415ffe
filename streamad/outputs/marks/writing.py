"""An operator's marks on sequences: finds the sequences in store or outputs, writes to the place of marks."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, takewhile

import msgspec

from streamad.decisions.recording import Actor, of_command
from streamad.errors import ConfigError, StoreError, UsageError
from streamad.learn.store.records import Mark, MarkKind, mark_of
from streamad.messages import Alert, EarlyWarning, Feedback, Role, Verdict
from streamad.outputs.marks.place import send_feedback
from streamad.outputs.marks.rules import feedback_problem
from streamad.outputs.reading import present
from streamad.outputs.stored import (
    StoreView,
    open_store,
    sequences_of,
    some_models,
    stored_models,
)
from streamad.plant import Plant
from streamad.settings.places import place_key
from streamad.settings.plant_yaml import located_problems
from streamad.types import from_us

_SHORTEST_PREFIX = 6
_WHOLE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark that was written to ``place``; ``found`` is its stored sequence, None if there is none.

    It counts once the learner has read it; ``learns`` is False if the plant has none. ``looked`` is False if there is
    no store here to look into; ``name``: stream and sequence, if they were looked up.
    ``overridden_by`` is a later mark, which counts instead. ``takes_back_nothing``: no mark was there to be withdrawn.
    """

    feedback: Feedback
    found: StoreView | None
    place: str
    learns: bool = True
    name: tuple[str, str] | None = None
    looked: bool = True
    overridden_by: Mark | None = None
    takes_back_nothing: bool = False


@dataclass(slots=True)
class _Outputs:
    """Stream and sequence of each id in the outputs; of each warning the id of its verdict, None before it."""

    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    warned: dict[str, str | None] = field(default_factory=dict)


class MarkWriter:
    """Looks sequences up in the store of ``model`` (None: of all models) and writes marks on them to their place.

    It looks a sequence that is not in the store up in alerts and verdicts, if they are there. The id of a warning
    stands for that of its sequence's verdict, unless ``are_verdicts``: then whole ids are not looked up. ``actor``: who
    marks; by default a command does, for ``by`` or the user. Raises
    ConfigError if the place of marks is also another's.
    """

    def __init__(
        self,
        plant: Plant,
        model: str | None,
        *,
        by: str | None = None,
        are_verdicts: bool = False,
        actor: Actor | None = None,
    ) -> None:
        self._plant = plant
        self._looks_up_whole = plant.settings.alerts.early is not None and not are_verdicts
        if problems := [each for each in plant.places.problems() if each.path == place_key("feedback")]:
            raise ConfigError(located_problems(problems, plant.config), source=str(plant.config))
        self._models = some_models(plant, model)
        self._model = None if model is None else self._models[0]
        self._actor = actor or of_command(by)
        self.by = self._actor.who
        self.now_us = plant.clock.now_us()
        self._stored: list[StoreView] = []
        self._marks: dict[str, Mark] = {}
        self._looked = False
        self._look()
        self._ids = {one.sequence.id for one in self._stored}
        self._sorted_ids = sorted(self._ids)
        self._in_outputs: _Outputs | None = None

    def _look(self) -> None:
        with suppress(StoreError):  # an operator who may write feedback need not have access to the store
            models = stored_models(self._plant, self._model)
            for model in models:
                store = open_store(self._plant, model)
                self._stored += sequences_of(model, store)
                self._note(store.marks())
            self._looked = bool(models)

    def _note(self, marks: Mapping[str, Mark]) -> None:
        """Add ``marks``; the latest mark of each sequence counts, in whichever model's store it is."""
        for id_, mark in marks.items():
            if id_ not in self._marks or self._marks[id_].at_us < mark.at_us:
                self._marks[id_] = mark

    def id_of(self, stream: str, sequence: str) -> str:
        """Return the id of a known sequence. Raises UsageError if none or several have this name."""
        wanted = (stream, sequence)
        found = [one.sequence.id for one in self._stored if (one.sequence.stream, one.sequence.sequence) == wanted]
        found = found or [id_ for id_, name in self._outputs().names.items() if name == wanted]
        if not found:
            raise UsageError(f"no known sequence {sequence!r} of stream {stream!r}: give its alert's id")
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} sequences of {stream!r} have the name {sequence!r}, give the id of one: "
                f"{', '.join(found)}"
            )
        return found[0]

    def _outputs(self) -> _Outputs:
        """Return what the outputs say, which are read once. Raises SourceError, UsageError."""
        if self._in_outputs is None:
            self._in_outputs = asyncio.run(_read_outputs(self._plant))
        return self._in_outputs

    def model_of(self, model: str | None) -> str | None:
        """Return the full name of ``model``, None: of the model given for all marks. Raises UsageError."""
        return self._model if model is None else some_models(self._plant, model)[0]

    def whole_id(self, alert_id: str) -> str:
        """Return the only known id that begins with ``alert_id``, or a whole id as it is. Raises UsageError.

        A stored id is whole whatever its form, also if another one begins with it. Upper case hex digits are accepted.
        """
        for spelled in (alert_id, alert_id.lower()):
            if spelled in self._ids:
                return spelled
            if _WHOLE.fullmatch(spelled):
                return self._judged(spelled) if self._looks_up_whole else spelled
        if len(alert_id) < _SHORTEST_PREFIX:
            raise UsageError(f"{alert_id} is too short: give at least six characters of an id, or the whole id")
        found = self._beginning_with(alert_id) or self._beginning_with(alert_id.lower())
        if not found:
            raise UsageError(f"no known id begins with {alert_id}: give the whole id, 32 hex digits")
        if len(found) > 1:
            raise UsageError(f"{len(found)} ids begin with {alert_id}: give more of its characters")
        return found[0] if found[0] in self._ids else self._judged(found[0])

    def _judged(self, name: str) -> str:
        """Return ``name``, or the id of the sequence whose warning it names. Raises UsageError before its verdict."""
        judged = self._outputs().warned.get(name, name)
        if judged is None:
            raise UsageError(f"{name} is of a warning whose sequence has no verdict yet: mark it once it is judged")
        return judged

    def _beginning_with(self, prefix: str) -> list[str]:
        """Return the stored ids that begin with ``prefix``; if there is none, those in the outputs."""
        first = bisect_left(self._sorted_ids, prefix)
        stored = list(takewhile(lambda id_: id_.startswith(prefix), islice(self._sorted_ids, first, None)))
        if stored:
            return stored
        outputs = self._outputs()
        return [id_ for id_ in (*outputs.names, *outputs.warned) if id_.startswith(prefix)]

    def message(
        self, alert_id: str, judgement: MarkKind, note: str, *, assignee: str = "", comment: str = ""
    ) -> Feedback:
        """Return the feedback message of a mark made now. Raises UsageError if it is invalid."""
        feedback = Feedback(
            alert_id=alert_id.strip(),
            judgement=judgement,
            note=note,
            by=self.by,
            assignee=assignee,
            comment=comment,
            model=self._model,
            created_at=from_us(self.now_us),
        )
        if (problem := feedback_problem(feedback, self.now_us)) is not None:
            raise UsageError(problem)
        return msgspec.structs.replace(feedback, alert_id=self.whole_id(feedback.alert_id))

    def write(self, feedback: Sequence[Feedback]) -> list[Marked]:
        """Write each mark, with the model whose store holds its sequence. Raises OutputError.

        After an error the marks before it are written.
        """
        feedback = self._addressed(feedback)
        asyncio.run(send_feedback(self._plant, feedback, self._actor))
        place, learns = self._plant.settings.marks.partition("?")[0], self._plant.settings.learning is not None
        names = {} if self._in_outputs is None else self._in_outputs.names
        by_id = {one.sequence.id: one for one in self._stored}
        marked = self._marked_ids() | {one.alert_id for one in feedback if one.judgement != "withdrawn"}
        return [
            Marked(
                one,
                by_id.get(one.alert_id),
                place,
                learns,
                names.get(one.alert_id),
                looked=self._looked,
                overridden_by=self._later(mark_of(one)),
                takes_back_nothing=self._looked and one.judgement == "withdrawn" and one.alert_id not in marked,
            )
            for one in feedback
        ]

    def is_marked(self, alert_id: str) -> bool:
        """Return whether a store that can be read here holds a mark of ``alert_id`` that counts."""
        return alert_id in self._marked_ids()

    def _marked_ids(self) -> set[str]:
        """Return the ids that had a mark when the stores were read."""
        return {id_ for id_, mark in self._marks.items() if mark.judgement != "withdrawn"}

    def _later(self, mark: Mark) -> Mark | None:
        """Return a stored mark later than ``mark``, None if ``mark`` is the latest."""
        stored = self._marks.get(mark.id)
        return stored if stored is not None and stored.at_us > mark.at_us else None

    def _addressed(self, feedback: Sequence[Feedback]) -> list[Feedback]:
        """Return ``feedback`` with the model of each sequence that exactly one model's store holds."""
        holders: dict[str, set[str]] = {}
        for stored in self._stored:
            holders.setdefault(stored.sequence.id, set()).add(stored.model)
        of = {alert_id: models.pop() for alert_id, models in holders.items() if len(models) == 1}
        return [msgspec.structs.replace(one, model=one.model or of.get(one.alert_id)) for one in feedback]


async def _read_outputs(plant: Plant) -> _Outputs:
    places: tuple[Role, ...] = ("alerts", "warnings", "verdicts")  # without sinks of their own the others lie in alerts
    kinds: tuple[type[Alert | Verdict | EarlyWarning], ...] = (Alert, Verdict, EarlyWarning)
    found, judged, warned = _Outputs(), dict[tuple[str, str, datetime], str](), dict[str, tuple[str, str, datetime]]()
    for role in places:
        async for message in present(plant, role, kinds):
            key = message.stream, message.sequence, message.start_time
            if isinstance(message, EarlyWarning):
                warned[message.warning_id] = key
                continue
            id_ = message.alert_id if isinstance(message, Alert) else message.verdict_id
            found.names[id_] = message.stream, message.sequence
            judged[key] = id_
    found.warned = {id_: judged.get(key) for id_, key in warned.items()}
    return found
