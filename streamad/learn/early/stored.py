"""Looks of versions that the learner makes: from the courses of stored sequences, if enough of these have one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streamad.errors import DetectorError, TrainingDataError
from streamad.judge.early.course import Course
from streamad.judge.early.packing import unpacked
from streamad.learn.early.training import EarlyTraining, TrainedEarly
from streamad.learn.store.records import StoredSequence
from streamad.settings.learning import LearningSettings
from streamad.settings.plant_yaml import Settings


def courses_of(sequences: Iterable[StoredSequence]) -> dict[str, Course]:
    """Return the courses of those ``sequences`` that have one, by id: those that ended since looks are wanted."""
    return {each.id: _course(each, each.course) for each in sequences if each.course is not None}


def _course(sequence: StoredSequence, content: bytes) -> Course:
    values = sequence.window.values
    return unpacked(content, values[:, : sequence.window.length], values.shape[1])


def why_too_few(training: Sequence[bool], calibrating: Sequence[bool], settings: LearningSettings) -> str | None:
    """Return why there are no looks, None if there can be some: which of the sequences have a course?

    Others take no part. As many as a model needs are enough, or all.
    """
    parts = (
        (training, settings.min_training, "train", "learning.min_training"),
        (calibrating, settings.promotion.min_comparison, "calibrate", "learning.promotion.min_comparison"),
    )
    for has_course, needed, what, setting in parts:
        if (n := sum(has_course)) < min(needed, len(has_course)):
            of = f"{n} of the {len(has_course)} sequences that {what} it"
            return f"{of} ended since alerts.early is set, {needed} are needed ({setting})"
    return None


@dataclass(slots=True, eq=False)
class LearnedEarly:
    """Trains looks on the ``courses`` of stored sequences; ``why_none``: why there are none."""

    courses: dict[str, Course]
    settings: Settings
    why_none: str = field(default="", init=False)

    def train(
        self, training: Sequence[str], calibrating: Sequence[str], folds: Sequence[Sequence[str]]
    ) -> TrainedEarly | None:
        """Train looks as ``EarlyTraining`` does; without enough courses, or if none can be fitted, there are none."""
        learning = self.settings.learning
        assert learning is not None
        has_course = [[name in self.courses for name in ids] for ids in (training, calibrating)]
        why = why_too_few(has_course[0], has_course[1], learning)
        if why is None:
            try:
                return EarlyTraining(self.courses, self.settings).train(training, calibrating, folds)
            except (TrainingDataError, DetectorError) as error:
                why = str(error)
        self.why_none = why
        return None
