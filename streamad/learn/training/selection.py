"""Which stored sequences train, calibrate, compare and test; no decision may bias the calibration. Pure.

The rules: docs/learning/promotion.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamad.errors import ArtifactError, RegistryError, TrainingDataError
from streamad.judge.calibration import OUT_OF_FOLD_BELOW, CalibrationMethod, calibration_count
from streamad.judge.gate import reserve_half
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import Mark, MarkKind, StoredSequence
from streamad.learn.training.calibrating import hash_order
from streamad.learn.training.exclusions import exclusions, most_excluded
from streamad.learn.training.presumed import Scores, most_presumed, presumed_anomalies
from streamad.messages import Share
from streamad.settings.learning import LearningSettings
from streamad.types import BoolArray, WindowSet

_FALSE_ALARMS_WANTED = 2  # that the threshold rests on; one (49 sequences at a rate of 0.02) only just certifies it


class Stored(NamedTuple):
    """The content of a store: its three shares, the operators' marks by id, and what it keeps for its mark alone.

    The shares are what a store without marks would hold; a store holds each id once, in one of them.
    """

    accepted: Sequence[StoredSequence]
    reserve: Sequence[StoredSequence]
    aside: Sequence[StoredSequence]
    marks: Mapping[str, Mark]
    only_marked: Sequence[StoredSequence] = ()


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Sequences that the final fit does not see, with the decisions about each.

    ``is_judged``: a version whose decisions count has judged it; ``is_alert``: with a p-value at or below the
    configured rate; ``is_normal``: a false alarm by a mark that counts, so it is no alert and never left out.
    """

    sequences: tuple[StoredSequence, ...]
    is_judged: BoolArray
    is_alert: BoolArray
    is_normal: BoolArray

    def __len__(self) -> int:
        return len(self.sequences)

    def __add__(self, other: HeldOut) -> HeldOut:
        return HeldOut(
            (*self.sequences, *other.sequences),
            np.concatenate([self.is_judged, other.is_judged]),
            np.concatenate([self.is_alert, other.is_alert]),
            np.concatenate([self.is_normal, other.is_normal]),
        )

    def __getitem__(self, part: slice) -> HeldOut:
        return HeldOut(self.sequences[part], self.is_judged[part], self.is_alert[part], self.is_normal[part])

    def where(self, mask: BoolArray) -> HeldOut:
        """Return the sequences at which ``mask`` is true."""
        kept = tuple(each for each, is_kept in zip(self.sequences, mask, strict=True) if is_kept)
        return HeldOut(kept, self.is_judged[mask], self.is_alert[mask], self.is_normal[mask])

    @property
    def alert_share(self) -> float:
        """Return the share of alerts among the judged; 0 if none was judged."""
        n_judged = int(self.is_judged.sum())
        return int(self.is_alert.sum()) / n_judged if n_judged else 0.0

    def most_presumed(self, rate: float) -> int:
        """Return how many of the judged may be presumed anomalies at most."""
        return most_presumed(int(self.is_alert.sum()), int(self.is_judged.sum()), rate)

    def presumed(self, scores: Scores, rate: float, unjudged_share: float) -> BoolArray:
        """Return which are presumed anomalies by their ``scores`` [N] (see ``presumed_anomalies``)."""
        left_out, free = np.zeros(len(self), dtype=np.bool_), ~self.is_normal
        left_out[free] = presumed_anomalies(
            scores[free],
            n_alerts=int(self.is_alert.sum()),
            n_judged=int(self.is_judged.sum()),
            rate=rate,
            n_unjudged=int((~self.is_judged & free).sum()),
            unjudged_share=unjudged_share,
        )
        return left_out


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The sequences of a retraining.

    ``judged`` (accepted by a version whose decisions count) and ``feedback`` (false alarms by marks that count) train.
    No decision that counts has selected among ``uncut``, so it may train or calibrate. Marks keep the ids ``excluded``
    out of both; ``n_capped`` more would have been, beyond the bound. ``normal`` are the ids of all false alarms that
    count, in order: of ``feedback`` and of the whole reserve. ``confirmed`` anomalies and the ``alerts`` of
    versions whose decisions count are shown to people, with the marks in ``marks``; they decide nothing.
    """

    judged: tuple[StoredSequence, ...]
    uncut: tuple[StoredSequence, ...]
    feedback: tuple[StoredSequence, ...]
    calibration: HeldOut
    comparison: HeldOut
    excluded: frozenset[str]
    n_capped: int
    normal: tuple[str, ...]
    confirmed: tuple[StoredSequence, ...]
    alerts: tuple[StoredSequence, ...]
    marks: Mapping[str, Mark]

    @property
    def n_training(self) -> int:
        """Return how many sequences may train."""
        return len(self.judged) + len(self.uncut) + len(self.feedback)

    def comparable(self, at_least: int) -> HeldOut:
        """Return the comparison half, the judged alone if these are ``at_least`` so many: others may have calibrated.

        The first model borrows calibration sequences from the comparison half of its time.
        """
        judged = self.comparison.where(self.comparison.is_judged)
        return judged if len(judged) >= at_least else self.comparison

    @property
    def taken_as_normal(self) -> tuple[StoredSequence, ...]:
        """Return the sequences with the ids ``normal``."""
        ids = frozenset(self.normal)
        held = (*self.feedback, *self.calibration.sequences, *self.comparison.sequences)
        return tuple(each for each in held if each.id in ids)

    def called(self, judgement: MarkKind, sequences: Iterable[StoredSequence]) -> tuple[StoredSequence, ...]:
        """Return those of ``sequences`` whose latest mark is ``judgement``."""
        return tuple(each for each in sequences if _judgement(self.marks, each) == judgement)


def select(
    stored: Stored,
    *,
    settings: LearningSettings,
    rate: float,
    judges: frozenset[str],
    reviewed: frozenset[str] = frozenset(),
    uses_marks: bool = False,
) -> Selection:
    """Assign the stored sequences to their parts; only decisions of the versions in ``judges`` count.

    Accepted sequences train, as do those that no version in ``judges`` has judged, whatever the decision: before the
    first model and after a lasting change. False alarms that were not accepted train if a person has reviewed them
    (``reviewed``: those of the version in service): the latest of them, at most ``settings.feedback_share`` of what
    trains. Without ``uses_marks``, marks only keep sequences out of training. With it, false alarms are those of the
    marks, and the reviewed ones on which there is no mark any more.
    """

    def is_judged(each: StoredSequence) -> bool:
        return each.decision != "learning" and each.model_version in judges

    def is_reviewed(each: StoredSequence) -> bool:
        return each.id in reviewed

    def is_normal(each: StoredSequence) -> bool:
        judgement = _judgement(stored.marks, each) if uses_marks else None
        return is_reviewed(each) if judgement is None else judgement == "false_alarm"

    def trainable(alarms: Sequence[StoredSequence]) -> tuple[StoredSequence, ...]:
        return _latest(alarms, _at_most(len(judged) + len(uncut), settings.feedback_share))

    judged = [each for each in stored.accepted if is_judged(each)]
    uncut = [each for each in (*stored.accepted, *stored.aside) if not is_judged(each)]
    known = [each for each in stored.aside if is_judged(each) and is_reviewed(each)]
    n_others = len(judged) + len(uncut)
    most = most_excluded(
        n_others + len(trainable(known)), n_others, share=settings.feedback_share, fewest=settings.min_training
    )
    kept_out = exclusions((*judged, *uncut, *known), stored.marks, most=most)
    alarms = [each for each in stored.aside if is_judged(each) and is_normal(each)]
    judged, uncut, alarms = ([each for each in part if each.id not in kept_out.ids] for part in (judged, uncut, alarms))

    def half(name: str, is_normal: Callable[[StoredSequence], bool]) -> HeldOut:
        ours = tuple(each for each in stored.reserve if reserve_half(each.stream, each.sequence) == name)
        return _held_out(ours, rate, is_judged, is_normal)

    feedback = trainable(alarms)
    everything = {each.id: each for each in (*stored.only_marked, *stored.accepted, *stored.reserve, *stored.aside)}
    return Selection(
        judged=tuple(judged),
        uncut=tuple(uncut),
        feedback=feedback,
        calibration=half("calibration", is_normal),
        comparison=half("comparison", is_reviewed),  # marks never decide a comparison
        excluded=kept_out.ids,
        n_capped=kept_out.n_capped,
        normal=tuple(sorted(each.id for each in (*feedback, *(one for one in stored.reserve if is_normal(one))))),
        confirmed=tuple(each for each in everything.values() if _judgement(stored.marks, each) == "confirmed"),
        alerts=tuple(each for each in everything.values() if is_judged(each) and each.decision == "anomalous"),
        marks=stored.marks,
    )


def _judgement(marks: Mapping[str, Mark], sequence: StoredSequence) -> MarkKind | None:
    mark = marks.get(sequence.id)
    return None if mark is None else mark.judgement


def _at_most(n_others: int, share: float) -> int | None:
    """Return how many make up ``share`` of all together with ``n_others``; None: as many as there are."""
    return math.floor(n_others * share / (1.0 - share) + 1e-9) if share < 1.0 else None


def _latest(sequences: Sequence[StoredSequence], n: int | None) -> tuple[StoredSequence, ...]:
    ordered = sorted(sequences, key=lambda each: (-each.time_us, each.id))
    return tuple(ordered[:n])


def _held_out(
    sequences: tuple[StoredSequence, ...],
    rate: float,
    is_judged: Callable[[StoredSequence], bool],
    is_normal: Callable[[StoredSequence], bool],
) -> HeldOut:
    judged, normal, low = (np.zeros(len(sequences), dtype=np.bool_) for _ in range(3))
    for i, each in enumerate(sequences):
        judged[i], normal[i] = is_judged(each), is_normal(each)
        low[i] = each.p_value <= rate if each.p_value is not None else each.decision == "anomalous"
    return HeldOut(sequences, judged, judged & low & ~normal, normal)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Which sequences train, which calibrate, and which are left for the comparison.

    ``protected`` ids of ``training`` are never dropped; ``n_unjudged`` of it were judged by no version. With the method
    ``out_of_fold`` the training sequences calibrate as well, scored by fits that did not see them.
    """

    training: tuple[StoredSequence, ...]
    protected: frozenset[str]
    n_unjudged: int
    calibration: HeldOut
    comparison: HeldOut
    method: CalibrationMethod


def plan_calibration(
    selection: Selection,
    *,
    settings: LearningSettings,
    share: float,
    rate: float,
    seed: int,
    has_champion: bool,
) -> Plan:
    """Plan the calibration: the calibration half, and if that is too small sequences that no decision has selected.

    It needs sequences for two false alarms (99 for a rate of 0.02), at most ``share`` of all, and as many more as may
    be left out as presumed anomalies. Missing ones come from the comparison half if there is no champion to compare
    with, then from ``selection.uncut`` in the order of a hash. Without a champion and below 150 sequences in all,
    calibration is out of fold, as in ``train_model``. Raises TrainingDataError if ``share`` leaves none.
    """
    pool, comparison = selection.calibration, selection.comparison
    if has_champion:
        comparison = selection.comparable(settings.promotion.min_comparison)
    n_all = selection.n_training + len(pool) + len(comparison)
    wanted = _wanted(n_all, share, rate, settings.presumed_anomalies) + pool.most_presumed(rate)
    if not has_champion and len(pool) < wanted:
        n_lent = wanted - len(pool)
        pool, comparison = pool + comparison[:n_lent], comparison[n_lent:]
    missing = max(0, wanted - len(pool))
    to_spare = selection.n_training - settings.min_training
    fixed = (*selection.judged, *selection.feedback)
    protected = frozenset(each.id for each in selection.feedback)
    if missing and not has_champion and (n_all < OUT_OF_FOLD_BELOW or missing > to_spare):
        training = (*fixed, *selection.uncut)
        return Plan(training, protected, len(selection.uncut), pool, comparison, "out_of_fold")
    order = hash_order(tuple(each.id for each in selection.uncut), seed)
    n_taken = max(0, min(missing, to_spare, len(order)))
    taken = tuple(selection.uncut[i] for i in order[:n_taken])
    left = tuple(selection.uncut[i] for i in order[n_taken:])
    pool += _held_out(taken, rate, lambda _: False, lambda _: False)
    if not has_champion and not len(pool):  # with a champion, the comparison reports it
        raise TrainingDataError(f"model.calibration holds none of {n_all} sequences out: raise it")
    return Plan((*fixed, *left), protected, len(left), pool, comparison, "split" if taken else "reserve")


def _wanted(n_all: int, share: float, rate: float, presumed: float) -> int:
    most = min(math.ceil(_FALSE_ALARMS_WANTED / rate) - 1, int(n_all * share))
    return math.ceil(calibration_count(most, 1.0, rate) / (1.0 - presumed) - 1e-9)


def to_windows(sequences: Sequence[StoredSequence]) -> WindowSet:
    """Return the windows of ``sequences``, one at least, under the ids of their verdicts."""
    values = np.stack([each.window.values for each in sequences])
    lengths = np.array([each.window.length for each in sequences], dtype=np.int64)
    return WindowSet(values, lengths, tuple(each.id for each in sequences))


def read_stored(store: InlierStore, *, since_us: int | None, stored_before_us: int | None = None) -> Stored:
    """Return the sequences that ended since ``since_us``, stored before ``stored_before_us``. Raises StoreError."""
    only_marked: list[StoredSequence] = []

    def natural(share: Share) -> list[StoredSequence]:
        found = store.read(share, since_us=since_us, stored_before_us=stored_before_us)
        only_marked.extend(each for each in found if each.only_marked)
        return [each for each in found if not each.only_marked]

    accepted, reserve, aside = natural("accepted"), natural("reserve"), natural("aside")
    return Stored(accepted, reserve, aside, store.marks(), only_marked)


def learned_since_us(registry: Registry, model: str, version: str | None) -> int | None:
    """Return the last lasting change that ``version`` knows; None without one, or if its manifest cannot be read."""
    try:
        record = None if version is None else registry.manifest(model, version).learning
    except (ArtifactError, RegistryError):
        return None
    return None if record is None else record.since_us


def reviewed_marks(registry: Registry, model: str, version: str | None) -> frozenset[str]:
    """Return the false alarms that ``version`` takes as normal; empty without it or if its manifest cannot be read.

    The person who put the version into service has reviewed them, so later versions take them as normal, too: but only
    those that it no longer raises, since nobody was shown the others.
    """
    try:
        manifest = None if version is None else registry.manifest(model, version)
    except (ArtifactError, RegistryError):
        return frozenset()
    if manifest is None or manifest.learning is None:
        return frozenset()
    if not manifest.learning.uses_marks:
        return frozenset(manifest.learning.feedback)
    if manifest.decision is None or manifest.decision.still_raised is None:
        return frozenset()
    return frozenset(manifest.learning.feedback) - frozenset(manifest.decision.still_raised)


def judges_of(stored: Stored, registry: Registry, model: str, since_us: int | None) -> frozenset[str]:
    """Return the versions named in ``stored`` that were trained since the lasting change at ``since_us``.

    A version whose manifest is missing or damaged counts if there was no lasting change.
    """
    named = {each.model_version for share in (stored.accepted, stored.reserve, stored.aside) for each in share}
    return frozenset(
        version for version in named if version is not None and learned_since_us(registry, model, version) == since_us
    )
