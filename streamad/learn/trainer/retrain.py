"""One retraining, from the inlier store to a decision: select, train, calibrate, compare, promote or not.

A second challenger uses operators' false alarms, if they would change the model: docs/learning/feedback.md.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, field

import msgspec
import numpy as np

from streamad.errors import ArtifactError, RegistryError, StreamadError, TrainingDataError
from streamad.language import percent
from streamad.learn.early.stored import why_too_few
from streamad.learn.promotion.review import is_waiting_with, was_declined
from streamad.learn.promotion.rule import Ruling
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.registry.manifest import LearningRecord, Manifest
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import TrainingRequest
from streamad.learn.trainer.challenge import Challenge, Workshop
from streamad.learn.trainer.results import SecondOutcome, TrainingOutcome
from streamad.learn.training.selection import (
    Plan,
    Selection,
    Stored,
    judges_of,
    learned_since_us,
    plan_calibration,
    read_stored,
    reviewed_marks,
    select,
)
from streamad.plugins import plugin_failure
from streamad.safe_text import text_of
from streamad.types import from_us


@dataclass(slots=True, kw_only=True)
class Retraining:
    """The training of a challenger on ``store``, its comparison with the champion, and its promotion.

    ``resumes``: an earlier process may have decided on the challenger.
    """

    store: InlierStore
    workshop: Workshop
    request: TrainingRequest
    resumes: bool = False
    parent: str | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    figures: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def _is_relearning(self) -> bool:
        return self.request.reason == "relearn"

    def run(self) -> TrainingOutcome:
        """Return the outcome; a challenger that is not better and a lost race are outcomes, too.

        The champion stays in service until the promotion, whenever this is interrupted, and a call with the same
        ``request`` resumes the fits. Raises TrainingDataError (too few sequences among others), DetectorError,
        StoreError, RegistryError, OutputError, and ArtifactError if the challenger cannot be loaded again.
        """
        self.parent = self.workshop.registry.current(self.workshop.model)
        champion = None if self.parent is None or self._is_relearning else self._champion(self.parent)
        since_us = self._since_us()
        if self._is_relearning:
            since = "the beginning" if since_us is None else from_us(since_us).isoformat(timespec="seconds")
            self.notes.append(f"learned anew from what ended since {since}")
        stored, selection = self._selection(since_us)
        outcome = decided_before(self.workshop.registry, self.workshop.model, self.request) if self.resumes else None
        if outcome is not None:
            self.figures = dict(outcome.figures)
        else:
            plan = self._plan(selection, has_champion=champion is not None)
            if champion is not None and (why := self._why_not(plan, champion)):
                return self._outcome(None, Ruling(False, f"not trained: {why}; the champion stays"), selection)
            outcome = self._trained(plan, selection, champion, since_us)
        if self.parent is None or self._is_relearning:  # nothing was judged that marks could be about
            return outcome
        return msgspec.structs.replace(outcome, second=self._second(stored, since_us))

    # --- champion and selection -------------------------------------------------------------------------------------

    def _champion(self, version: str) -> LoadedModel | None:
        """Return the champion, None if it cannot be loaded: then it must not keep a challenger out."""
        try:
            return self.workshop.load(version)
        except (ArtifactError, RegistryError) as error:
            self.notes.append(f"not compared, for the champion cannot be loaded ({error})")
            return None

    def _since_us(self) -> int | None:
        """Return the time of the last lasting change, None without one: as requested, or as the champion has it."""
        if self._is_relearning and self.request.since_us is not None:
            return self.request.since_us
        return learned_since_us(self.workshop.registry, self.workshop.model, self.parent)

    def _selection(self, since_us: int | None) -> tuple[Stored, Selection]:
        """Return the content of the store, and who trains if marks only keep sequences out of training."""
        # Only sequences of before the request, so that an interrupted training finds the same ones again.
        stored = read_stored(self.store, since_us=since_us, stored_before_us=self.request.requested_us + 1)
        selection = self._select(stored, since_us, self.parent)
        wanted = self.workshop.learning.min_training
        if selection.n_training < wanted:  # a clock that was set back stamps into the future
            stored = read_stored(self.store, since_us=since_us)
            selection = self._select(stored, since_us, self.parent)
        problems = self.store.problems
        self.notes += problems
        if selection.n_training < wanted:
            raise TrainingDataError(self._too_few(selection, since_us))
        return stored, selection

    def _select(
        self, stored: Stored, since_us: int | None, serves: str | None, *, uses_marks: bool = False
    ) -> Selection:
        """Return who trains beside ``serves``, the version in service, whose false alarms a person has reviewed."""
        return select(
            stored,
            settings=self.workshop.learning,
            rate=self.workshop.settings.alerts.false_alarm_rate,
            judges=self._judges(stored, since_us),
            reviewed=reviewed_marks(self.workshop.registry, self.workshop.model, serves),
            uses_marks=uses_marks,
        )

    def _judges(self, stored: Stored, since_us: int | None) -> frozenset[str]:
        """Return the versions whose decisions count: those trained since the last lasting change."""
        if self._is_relearning:
            return frozenset()
        if self.parent is None:
            everything = (*stored.accepted, *stored.reserve, *stored.aside)
            return frozenset(each.model_version for each in everything if each.model_version is not None)
        return judges_of(stored, self.workshop.registry, self.workshop.model, since_us)

    def _too_few(self, selection: Selection, since_us: int | None) -> str:
        since = "" if since_us is None else f" since {from_us(since_us).isoformat(timespec='seconds')}"
        return (
            f"model {self.workshop.model}: {selection.n_training} sequences in the inlier store{since} may train, "
            f"{self.workshop.learning.min_training} are needed (learning.min_training): wait until more are judged"
            + "".join(f"; {note}" for note in self.notes)
        )

    def _plan(self, selection: Selection, *, has_champion: bool) -> Plan:
        return plan_calibration(
            selection,
            settings=self.workshop.learning,
            share=self.workshop.settings.model.calibration,
            rate=self.workshop.settings.alerts.false_alarm_rate,
            seed=self.workshop.settings.model.seed,
            has_champion=has_champion,
        )

    def _why_not(self, plan: Plan, champion: LoadedModel) -> str | None:
        """Return why a challenger could not be decided on, before hours are spent on its training."""
        settings, share = self.workshop.learning, plan.calibration.alert_share
        if share > settings.drift.changed_share:
            return (
                f"{percent(share)} of the reserved sequences alerted, so the plant seems to have changed for good: "
                "learn it anew with `streamad models relearn --since TIME`"
            )
        fewest = min(len(plan.calibration), len(plan.comparison))
        if fewest < settings.promotion.min_comparison:
            return (
                f"{len(plan.calibration)} sequences to calibrate and {len(plan.comparison)} to compare on, "
                f"{settings.promotion.min_comparison} of each are needed (learning.promotion.min_comparison)"
            )
        if champion.early is not None:
            trains, calibrates = (
                [each.course is not None for each in part] for part in (plan.training, plan.calibration.sequences)
            )
            if why := why_too_few(trains, calibrates, settings):
                return f"{champion.ref.version} looks at running sequences, and {why}"
        return None

    # --- challengers ------------------------------------------------------------------------------------------------

    def _trained(
        self, plan: Plan, selection: Selection, champion: LoadedModel | None, since_us: int | None
    ) -> TrainingOutcome:
        challenge = Challenge(
            workshop=self.workshop,
            plan=plan,
            selection=selection,
            parent=self.parent,
            champion=champion,
            is_relearning=self._is_relearning,
            notes=self.notes,
            figures=self.figures,
        )
        version, ruling = challenge.run(self._record(selection, since_us))
        outcome = self._outcome(version, ruling, selection)
        return msgspec.structs.replace(outcome, waits=challenge.waits, without_looks=challenge.without_looks)

    def _record(self, selection: Selection, since_us: int | None) -> LearningRecord:
        return LearningRecord(
            reason=self.request.reason,
            requested_us=self.request.requested_us,
            since_us=since_us,
            feedback=selection.normal,
            n_excluded=len(selection.excluded),
            n_capped=selection.n_capped,
        )

    def _second(self, stored: Stored, since_us: int | None) -> SecondOutcome | None:
        """Train the challenger that uses operators' false alarms; None if they would not change the model.

        None too if a version with the same marks waits for review already, or a person has declined it. A failure is
        an outcome: the first challenger's stands, and marks must not make it a failed training.
        """
        try:
            return (self._second_before() if self.resumes else None) or self._made_second(stored, since_us)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a detector is foreign code
            if not isinstance(error, StreamadError):
                traceback.print_exc(file=sys.stderr)
            text = plugin_failure(error) or " ".join(text_of(error).split()) or type(error).__name__
            return SecondOutcome(version=None, promoted=False, waits=False, reason=f"it could not be trained: {text}")

    def _second_before(self) -> SecondOutcome | None:
        """Return the outcome of this request's second challenger if an interrupted process has decided on it."""
        found = _decided(self.workshop.registry, self.workshop.model, self.request, uses_marks=True)
        if found is None or (decision := found.decision) is None:
            return None
        return SecondOutcome(
            version=found.version,
            promoted=decision.promoted,
            waits=decision.waits_for_review,
            reason=decision.reason,
            figures=dict(decision.figures),
        )

    def _made_second(self, stored: Stored, since_us: int | None) -> SecondOutcome | None:
        serves = self.workshop.registry.current(self.workshop.model)
        if serves is None:
            return None
        selection = self._select(stored, since_us, serves, uses_marks=True)
        plan = self._plan(selection, has_champion=True)
        without = self._plan(self._select(stored, since_us, serves), has_champion=True)
        if not _differs(plan, without) or self._waits_already(serves, selection):
            return None
        champion = self.workshop.load(serves)
        if why := self._why_not(plan, champion):
            return SecondOutcome(version=None, promoted=False, waits=False, reason=f"not trained: {why}")
        challenge = Challenge(
            workshop=self.workshop,
            plan=plan,
            selection=selection,
            parent=serves,
            champion=champion,
            uses_marks=True,
        )
        version, ruling = challenge.run(msgspec.structs.replace(self._record(selection, since_us), uses_marks=True))
        return SecondOutcome(
            version=version,
            promoted=ruling.promoted,
            waits=challenge.waits,
            reason="; ".join([ruling.reason, *challenge.notes]),
            figures=challenge.figures,
            without_looks=challenge.without_looks,
        )

    def _waits_already(self, serves: str, selection: Selection) -> bool:
        if was_declined(self.workshop.registry, self.workshop.model, selection.normal):
            return True
        return is_waiting_with(self.workshop.registry, self.workshop.model, serves, selection.normal)

    def _outcome(self, version: str | None, ruling: Ruling, selection: Selection) -> TrainingOutcome:
        return TrainingOutcome(
            model=self.workshop.model,
            version=version,
            promoted=ruling.promoted,
            reason="; ".join([ruling.reason, *self.notes]),
            request=self.request,
            figures=self.figures,
            n_excluded=len(selection.excluded),
            n_capped=selection.n_capped,
        )


def decided_before(registry: Registry, model: str, request: TrainingRequest) -> TrainingOutcome | None:
    """Return the outcome of ``request`` if an interrupted process has decided on its first challenger already.

    The decision is recorded after the promotion. So a version that is in service without one was promoted just before
    the end of its process. Raises RegistryError.
    """
    found = _decided(registry, model, request, uses_marks=False)
    if found is None or found.learning is None:
        return None
    decision = found.decision
    return TrainingOutcome(
        model=model,
        version=found.version,
        promoted=decision is None or decision.promoted,
        waits=decision is not None and decision.waits_for_review,
        reason="promoted before its process died" if decision is None else decision.reason,
        request=request,
        figures={} if decision is None else dict(decision.figures),
        n_excluded=found.learning.n_excluded,
        n_capped=found.learning.n_capped,
    )


def _decided(registry: Registry, model: str, request: TrainingRequest, *, uses_marks: bool) -> Manifest | None:
    """Return the manifest of the challenger of ``request`` on which an interrupted process has decided."""
    serves = registry.current_or_none(model)
    for version in reversed(registry.versions(model)):
        try:
            manifest = registry.manifest(model, version)
        except (ArtifactError, RegistryError):
            continue
        record = manifest.learning
        if record is None or record.requested_us != request.requested_us:
            return None
        if record.uses_marks == uses_marks and (manifest.decision is not None or version == serves):
            return manifest
    return None


def _differs(plan: Plan, other: Plan) -> bool:
    """Return whether ``plan`` trains on others than ``other``, or counts other alerts as normal in its calibration."""
    ours, theirs = plan.calibration, other.calibration
    if {each.id for each in plan.training} != {each.id for each in other.training}:
        return True
    return not np.array_equal(ours.is_alert, theirs.is_alert)
