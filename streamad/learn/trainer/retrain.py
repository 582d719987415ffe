"""One retraining, from the inlier store to a decision: select, train, calibrate, compare, promote or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from streamad.errors import ArtifactError, OutputError, RegistryError, TrainingDataError
from streamad.judge.calibration import scores_of
from streamad.learn.promotion.comparison import TestMaterial, compare
from streamad.learn.promotion.rule import Ruling, rule, unopposed
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.registry.manifest import LearningRecord, PromotionDecision
from streamad.learn.registry.registry import OvertakenError, Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.trainer.requests import TrainingOutcome, TrainingRequest
from streamad.learn.training.challenger import Challenger
from streamad.learn.training.checks import check_training_data
from streamad.learn.training.fits import FitProgress, Fits, FitStep, fingerprint, work_folder
from streamad.learn.training.from_recordings import promotion_doubt
from streamad.learn.training.presumed import separated
from streamad.learn.training.publishing import Publisher
from streamad.learn.training.selection import (
    Plan,
    Selection,
    Stored,
    judges_of,
    learned_since_us,
    plan_calibration,
    read_stored,
    select,
)
from streamad.ports import Clock, Detector, TrainingStep
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings
from streamad.types import from_us

_FEWEST_APART, _SHARE_APART = 5, 0.05
"""The outcome mentions so many calibration sequences that stand apart, and such a share of them."""


@dataclass(slots=True, kw_only=True)
class Retraining:
    """The training of a challenger for ``model`` on ``store``, its comparison with the champion, and its promotion.

    ``holds_lease`` is asked before the promotion.
    """

    store: InlierStore
    detector: Detector
    settings: Settings
    model: str
    registry: Registry
    clock: Clock
    request: TrainingRequest
    progress: FitProgress | None = None
    holds_lease: Callable[[], bool] = lambda: True
    parent: str | None = field(default=None, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    figures: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def _learning(self) -> LearningSettings:
        return self.settings.learning or LearningSettings()

    @property
    def _rate(self) -> float:
        return self.settings.alerts.false_alarm_rate

    @property
    def _is_relearning(self) -> bool:
        return self.request.reason == "relearn"

    def run(self) -> TrainingOutcome:
        """Return the outcome; a challenger that is not better, a lost lease and a lost race are outcomes, too.

        The champion stays in service until the promotion, whenever this is interrupted, and a call with the same
        ``request`` resumes the fits. Raises TrainingDataError (too few sequences among others), DetectorError,
        StoreError, RegistryError, OutputError, and ArtifactError if the challenger cannot be loaded again.
        """
        self.parent = self.registry.current(self.model)
        champion = None if self.parent is None or self._is_relearning else self._champion(self.parent)
        since_us = self._since_us()
        if self._is_relearning:
            since = "the beginning" if since_us is None else from_us(since_us).isoformat(timespec="seconds")
            self.notes.append(f"learned anew from what ended since {since}")
        selection = self._selection(since_us)
        plan = plan_calibration(
            selection,
            settings=self._learning,
            share=self.settings.model.calibration,
            rate=self._rate,
            seed=self.settings.model.seed,
            has_champion=champion is not None,
        )
        if champion is not None and (why := self._why_not(plan)):
            return self._outcome(None, Ruling(False, f"not trained: {why}; the champion stays"))
        return self._trained(plan, selection, champion, since_us)

    # --- champion and selection -------------------------------------------------------------------------------------

    def _load(self, version: str) -> LoadedModel:
        return self.registry.load(self.model, version, settings=self.settings, detector=self.detector)

    def _champion(self, version: str) -> LoadedModel | None:
        """Return the champion, None if it cannot be loaded: then it must not keep a challenger out."""
        try:
            return self._load(version)
        except (ArtifactError, RegistryError) as error:
            self.notes.append(f"not compared, for the champion cannot be loaded ({error})")
            return None

    def _since_us(self) -> int | None:
        """Return the time of the last lasting change, None without one: as requested, or as the champion has it."""
        if self._is_relearning and self.request.since_us is not None:
            return self.request.since_us
        try:
            return None if self.parent is None else learned_since_us(self.registry, self.model, self.parent)
        except (ArtifactError, RegistryError):
            return None

    def _selection(self, since_us: int | None) -> Selection:
        # Only sequences of before the request, so that an interrupted training finds the same ones again.
        stored = read_stored(self.store, since_us=since_us, stored_before_us=self.request.requested_us + 1)
        selection = self._select(stored, since_us)
        if selection.n_training < self._learning.min_training:  # a clock that was set back stamps into the future
            selection = self._select(read_stored(self.store, since_us=since_us), since_us)
        problems = self.store.problems
        self.figures["store.skipped_shards"] = len(problems)
        if problems:
            shards = "a shard" if len(problems) == 1 else f"{len(problems)} shards"
            self.notes.append(f"{shards} of the inlier store skipped ({problems[0]})")
        if selection.n_training < self._learning.min_training:
            raise TrainingDataError(self._too_few(selection, since_us))
        return selection

    def _select(self, stored: Stored, since_us: int | None) -> Selection:
        judges = self._judges(stored, since_us)
        return select(stored, settings=self._learning, rate=self._rate, judges=judges)

    def _judges(self, stored: Stored, since_us: int | None) -> frozenset[str]:
        """Return the versions whose decisions count: those trained since the last lasting change."""
        if self._is_relearning:
            return frozenset()
        if self.parent is None:
            everything = (*stored.accepted, *stored.reserve, *stored.aside)
            return frozenset(each.model_version for each in everything if each.model_version is not None)
        return judges_of(stored, self.registry, self.model, since_us)

    def _too_few(self, selection: Selection, since_us: int | None) -> str:
        since = "" if since_us is None else f" since {from_us(since_us).isoformat(timespec='seconds')}"
        return (
            f"model {self.model}: {selection.n_training} sequences in the inlier store{since} may train, "
            f"{self._learning.min_training} are needed (learning.min_training): let the monitor run until then"
            + "".join(f"; {note}" for note in self.notes)
        )

    def _why_not(self, plan: Plan) -> str | None:
        """Return why a challenger could not be decided on, before hours are spent on its training."""
        settings, share = self._learning, plan.calibration.alert_share
        if share > settings.drift.changed_share:
            return (
                f"{share:.0%} of the reserved sequences alerted, so the plant seems to have changed for good: "
                "learn it anew with `streamad models relearn --since TIME`"
            )
        fewest = min(len(plan.calibration), len(plan.comparison))
        if fewest < settings.promotion.min_comparison:
            return (
                f"{len(plan.calibration)} sequences to calibrate and {len(plan.comparison)} to compare on, "
                f"{settings.promotion.min_comparison} of each are needed (learning.promotion.min_comparison)"
            )
        return None

    # --- challenger and decision ------------------------------------------------------------------------------------

    def _trained(
        self, plan: Plan, selection: Selection, champion: LoadedModel | None, since_us: int | None
    ) -> TrainingOutcome:
        making = Challenger.of(plan, self.settings, self._learning)
        check_training_data(making.training, self.settings.channel_specs, self.settings.window.length)
        record = LearningRecord(
            reason=self.request.reason,
            since_us=since_us,
            n_feedback=len(plan.protected),
            n_dropped=making.n_dropped,
            n_skipped_shards=int(self.figures["store.skipped_shards"]),
        )
        key = fingerprint(making.training, self.settings, self.model, *making.key)
        # Kept until the decision is made: a trainer that dies before finds its fits done when it resumes.
        with work_folder(self.registry.training_folder(self.model), key) as folder:
            fits = Fits(self.detector, self.settings, folder, making.n_fits, self.progress)
            publisher = Publisher(fits, self.registry, self.model, self.parent, self.clock, record)
            version = making.make(fits, publisher)
            return self._outcome(version, self._decided(version, plan, selection, champion, fits.n_fits))

    def _decided(
        self, version: str, plan: Plan, selection: Selection, champion: LoadedModel | None, n_fits: int
    ) -> Ruling:
        """Return the decision on ``version``, carried out and recorded in the manifests."""
        ruling = self._ruling(version, plan, selection, champion, n_fits)
        if ruling.promoted:
            ruling = self._promoted(version, ruling)
        decision = PromotionDecision(
            promoted=ruling.promoted,
            reason="; ".join([ruling.reason, *self.notes]),
            decided_at=from_us(self.clock.now_us()),
            figures=self.figures,
            challenger=version,
            champion=self.parent,
        )
        try:
            self.registry.record_decision(self.model, version, decision)
        except (ArtifactError, OutputError, RegistryError) as error:  # the decision stands
            self.notes.append(f"the decision is not kept in the manifests ({error})")
        return ruling

    def _ruling(
        self, version: str, plan: Plan, selection: Selection, champion: LoadedModel | None, n_fits: int
    ) -> Ruling:
        manifest = self.registry.manifest(self.model, version)
        metrics = manifest.metrics
        self.notes += manifest.training.remarks
        self.figures |= {
            "challenger.training": metrics.n_training,
            "challenger.calibration": metrics.n_calibration,
            "challenger.calibration_presumed_anomalies": metrics.n_presumed,
        }
        if doubt := promotion_doubt(metrics):
            return Ruling(False, f"not promoted: {doubt}")
        challenger = self._load(version)
        self._note_what_stands_apart(challenger)
        if self._is_relearning and self.parent is not None:
            which = f" --model {self.model}" if self.settings.models is not None else ""
            self.notes.append(f"look with `streamad models compare {self.parent} {version}{which}`")
        if not len(plan.comparison):
            return Ruling(True, f"{unopposed(self.parent)}: all held-out sequences calibrate")
        comparison = compare(
            challenger,
            champion,
            TestMaterial.of(plan.comparison, selection),
            rate=self._rate,
            seed=self.settings.model.seed,
            progress=partial(self._compared, n_fits),
        )
        self.figures |= comparison.figures()
        return rule(comparison, self._learning.promotion, self.parent)

    def _note_what_stands_apart(self, challenger: LoadedModel) -> None:
        """Note that the threshold may rest on anomalies: only an operator can know whether they are."""
        scores = scores_of(challenger.calibration_terms)
        n_apart = separated(scores, len(scores) // 4)
        self.figures["challenger.calibration_standing_apart"] = n_apart
        if n_apart >= max(_FEWEST_APART, _SHARE_APART * len(scores)):
            self.notes.append(
                f"{n_apart} of {len(scores)} calibration sequences stand apart from the others: if they were faults, "
                "mark them (streamad feedback --confirmed, or learning.presumed_anomalies); otherwise such faults are "
                "missed"
            )

    def _compared(self, n_fits: int, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(FitStep("comparison", n_fits, n_fits, TrainingStep(done, total, 0.0)))

    def _promoted(self, version: str, ruling: Ruling) -> Ruling:
        if not self.holds_lease():
            return Ruling(False, "not promoted: the lease was lost meanwhile, so another training may be under way")
        try:
            self.registry.promote(self.model, version, expected=self.parent)
        except OvertakenError as error:
            return Ruling(False, f"not promoted: {error}")
        return ruling

    def _outcome(self, version: str | None, ruling: Ruling) -> TrainingOutcome:
        return TrainingOutcome(
            model=self.model,
            version=version,
            promoted=ruling.promoted,
            reason="; ".join([ruling.reason, *self.notes]),
            request=self.request,
            figures=self.figures,
        )
