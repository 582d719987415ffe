"""One challenger of a retraining: made from a plan, compared with the champion, and promoted or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import msgspec

from streamad.decisions.recording import TRAINER
from streamad.errors import ArtifactError, OutputError, RegistryError
from streamad.judge.calibration import scores_of
from streamad.learn.early.stored import LearnedEarly, courses_of
from streamad.learn.promotion.comparison import Comparison, compare
from streamad.learn.promotion.rule import Ruling, rule, unopposed
from streamad.learn.promotion.silenced import still_raised
from streamad.learn.promotion.warned import Watched
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.registry.manifest import LearningRecord, PromotionDecision
from streamad.learn.registry.registry import OvertakenError, Registry
from streamad.learn.training.challenger import Challenger
from streamad.learn.training.checks import check_training_data
from streamad.learn.training.fits import FitProgress, Fits, FitStep, fingerprint, work_folder
from streamad.learn.training.from_recordings import promotion_doubt
from streamad.learn.training.presumed import separated
from streamad.learn.training.publishing import Prove, Publisher
from streamad.learn.training.selection import Plan, Selection
from streamad.ports import Clock, Detector, TrainingStep
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import from_us

_FEWEST_APART, _SHARE_APART = 5, 0.05
"""The outcome mentions so many calibration sequences that stand apart, and such a share of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What every challenger of a training shares."""

    detector: Detector
    settings: Settings
    model: str
    registry: Registry
    clock: Clock
    prove: Prove
    progress: FitProgress | None = None

    @property
    def learning(self) -> LearningSettings:
        """Return the section ``learning``."""
        assert self.settings.learning is not None
        return self.settings.learning

    def load(self, version: str) -> LoadedModel:
        """Return a verified version. Raises RegistryError, ArtifactError."""
        return self.registry.load(self.model, version, settings=self.settings, detector=self.detector)


@dataclass(slots=True, kw_only=True)
class Challenge:
    """The making of one challenger and the decision on it.

    ``parent`` is the version in service, ``champion`` the same one loaded, None if it is not compared. ``uses_marks``:
    operators' marks chose the plan, so the challenger waits for a person unless ``learning.feedback_trust`` is auto.
    """

    workshop: Workshop
    plan: Plan
    selection: Selection
    parent: str | None
    champion: LoadedModel | None
    is_relearning: bool = False
    uses_marks: bool = False
    notes: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    waits: bool = field(default=False, init=False)
    still_raised: tuple[str, ...] | None = field(default=None, init=False)
    without_looks: str = field(default="", init=False)
    """Why the challenger has no looks at running sequences, if some are wanted."""

    def run(self, record: LearningRecord) -> tuple[str, Ruling]:
        """Return the version and the decision on it, carried out and recorded in the manifests.

        A challenger that is not better and a lost race are decisions, too. Raises TrainingDataError,
        DetectorError, RegistryError, OutputError, and ArtifactError if the challenger cannot be loaded again.
        """
        shop = self.workshop
        making = Challenger.of(self.plan, shop.settings, shop.learning)
        check_training_data(making.training, shop.settings.channel_specs, shop.settings.window.length)
        record = msgspec.structs.replace(record, n_feedback=len(self.plan.protected), n_dropped=making.n_dropped)
        key = fingerprint(making.training, shop.settings, shop.model, *making.key)
        # Kept until the decision is made: a trainer that dies before finds its fits done when it resumes.
        with work_folder(shop.registry.training_folder(shop.model), key) as folder:
            fits = Fits(shop.detector, shop.settings, folder, making.n_fits, shop.progress)
            publisher = Publisher(fits, shop.registry, shop.model, self.parent, shop.clock, shop.prove, record)
            early = self._early()
            version = making.make(fits, publisher, early)
            if early is not None and early.why_none:
                self.without_looks = early.why_none
                self.notes.append(f"without warnings of running sequences: {early.why_none}")
            return version, self._decided(version, fits.n_fits)

    def _early(self) -> LearnedEarly | None:
        if self.workshop.settings.alerts.early is None:
            return None
        return LearnedEarly(courses_of((*self.plan.training, *self.plan.calibration.sequences)), self.workshop.settings)

    def _decided(self, version: str, n_fits: int) -> Ruling:
        ruling = self._ruling(version, n_fits)
        if ruling.promoted and self.workshop.registry.needs_approvals and not self.waits:
            ruling = self._left_to_people(version, ruling)
        if ruling.promoted and self.waits:
            ruling = Ruling(False, ruling.reason)
        if ruling.promoted:
            ruling = self._promoted(version, ruling)
        decision = PromotionDecision(
            promoted=ruling.promoted,
            reason="; ".join([ruling.reason, *self.notes]),
            decided_at=from_us(self.workshop.clock.now_us()),
            figures=self.figures,
            challenger=version,
            champion=self.parent,
            waits_for_review=self.waits,
            still_raised=self.still_raised,
        )
        try:
            self.workshop.registry.record_decision(self.workshop.model, version, decision, by=TRAINER)
        except (ArtifactError, OutputError, RegistryError) as error:  # the decision stands
            self.notes.append(f"the decision is not kept in the manifests ({error})")
        return ruling

    def _ruling(self, version: str, n_fits: int) -> Ruling:
        shop = self.workshop
        manifest = shop.registry.manifest(shop.model, version)
        metrics = manifest.metrics
        self.notes += manifest.training.remarks
        self.figures |= {
            "challenger.training": metrics.n_training,
            "challenger.calibration": metrics.n_calibration,
            "challenger.calibration_presumed_anomalies": metrics.n_presumed,
        }
        if doubt := promotion_doubt(metrics):
            return Ruling(False, f"not promoted: {doubt}")
        challenger = shop.load(version)
        self._note_what_stands_apart(challenger)
        if self.is_relearning and self.parent is not None:
            self.notes.append(f"look with `{self._command('compare', self.parent, version)}`")
        if not len(self.plan.comparison):
            if self.uses_marks:
                return Ruling(False, "not promoted: no sequences to compare on")
            return Ruling(True, f"{unopposed(self.parent)}: all held-out sequences calibrate")
        return self._compared(challenger, n_fits)

    def _compared(self, challenger: LoadedModel, n_fits: int) -> Ruling:
        shop = self.workshop
        marked = self.selection if self.uses_marks else None
        rate, seed = shop.settings.alerts.false_alarm_rate, shop.settings.model.seed
        progress = partial(self._show, n_fits)
        comparison = compare(
            challenger,
            self.champion,
            self.plan.comparison,
            marked,
            rate=rate,
            seed=seed,
            watched=Watched.of(self.plan.comparison.sequences, shop.settings),
            progress=progress,
        )
        self.figures |= comparison.figures()
        is_trusted = shop.learning.feedback_trust == "auto"
        early = shop.settings.alerts.early
        ruling = rule(
            comparison,
            shop.learning.promotion,
            self.parent,
            trusts_marks=self.uses_marks and is_trusted,
            warning_rate=0.0 if early is None else early.false_alarm_rate,
        )
        if self.uses_marks:
            self.still_raised = still_raised(challenger, self.selection.taken_as_normal, rate)
        if not self.uses_marks or not ruling.promoted or is_trusted:
            return ruling
        self.waits = True
        version = challenger.ref.version
        leave = self._command("decline", version)
        word = "approve" if shop.registry.needs_approvals else "promote"
        look, take = self._command("compare", self.parent or "", version), self._command(word, version)
        self.notes.append(f"look with `{look}`; if the silenced alerts were false, `{take}`, else `{leave}`")
        return Ruling(True, f"waits for review: {self._effect(comparison)}; {ruling.reason.removeprefix('promoted: ')}")

    def _left_to_people(self, version: str, ruling: Ruling) -> Ruling:
        """Let the version wait for the approvals of two people, whatever the promotion rule said for it."""
        take, leave = self._command("approve", version), self._command("decline", version)
        self.notes.append(f"two people put it into service with `{take}`, or one leaves it with `{leave}`")
        self.waits = True
        return Ruling(True, f"waits for two people: {ruling.reason.removeprefix('promoted').lstrip(':, ')}")

    def _effect(self, comparison: Comparison) -> str:
        """Return what marks have changed, as a person must see it."""
        n, found = len(self.plan.protected), comparison.silenced
        text = f"{n} sequence{'s' * (n != 1)} called false alarms train it"
        if found is None:
            return text
        of = f"{len(found.alerts)} of the {found.n_raised} stored alerts"
        alone = f"of them {found.count('confirmed')} confirmed anomalies and {found.n_without_mark} without any mark"
        n = len(self.still_raised or ())
        raised = f"it raises {n} called false alarms all the same, which stay alerts" if n else ""
        parts = (text, f"it would silence {of}", alone if found.alerts else "", raised)
        return ", ".join(part for part in parts if part)

    def _command(self, name: str, *versions: str) -> str:
        which = f" --model {self.workshop.model}" if self.workshop.settings.models is not None else ""
        return f"streamad models {name} {' '.join(versions)}{which}"

    def _note_what_stands_apart(self, challenger: LoadedModel) -> None:
        """Note that the threshold may rest on anomalies: only an operator can know whether they are."""
        scores = scores_of(challenger.calibration_terms)
        n_apart = separated(scores, len(scores) // 4)
        self.figures["challenger.calibration_standing_apart"] = n_apart
        if n_apart >= max(_FEWEST_APART, _SHARE_APART * len(scores)):
            self.notes.append(
                f"{n_apart} of {len(scores)} calibration sequences stand apart from the others: if they were faults, "
                "set learning.presumed_anomalies and learn anew (streamad models relearn); otherwise such faults are "
                "missed"
            )

    def _show(self, n_fits: int, done: int, total: int) -> None:
        if self.workshop.progress is not None:
            self.workshop.progress(FitStep("comparison", n_fits, n_fits, TrainingStep(done, total, 0.0)))

    def _promoted(self, version: str, ruling: Ruling) -> Ruling:
        shop = self.workshop
        try:
            shop.registry.promote(shop.model, version, expected=self.parent, by=TRAINER, reason=ruling.reason)
        except OvertakenError as error:
            return Ruling(False, f"not promoted: {error}")
        return ruling
