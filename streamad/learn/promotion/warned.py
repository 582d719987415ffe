"""False warnings of two models: at which sequences of the comparison half their looks would have warned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamad.judge.early.course import Course
from streamad.learn.early.fitting import LookFitting
from streamad.learn.early.stored import courses_of
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.store.records import StoredSequence
from streamad.settings.plant_yaml import Settings
from streamad.types import BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """The ``courses`` of the sequences that have one: ``has_course`` [N] says which of the comparison half do."""

    has_course: BoolArray
    courses: tuple[Course, ...]
    settings: Settings

    @classmethod
    def of(cls, sequences: Sequence[StoredSequence], settings: Settings) -> Watched | None:
        """Return what looks at ``sequences`` see; None if none are wanted (``alerts.early``)."""
        if settings.alerts.early is None:
            return None
        courses = courses_of(sequences)
        has_course = np.array([each.id in courses for each in sequences], dtype=np.bool_)
        return cls(has_course, tuple(courses.values()), settings)

    def warned(self, model: LoadedModel) -> BoolArray:
        """Return at which of the sequences [N] the looks of ``model`` warn before the end, or at it."""
        settings, found = self.settings, np.zeros(len(self.has_course), dtype=np.bool_)
        if model.early is None or settings.alerts.early is None or not self.courses:
            return found
        fitting = LookFitting(settings.window, settings.channel_specs, seed=settings.model.seed)
        largest = fitting.largest_z(model.early.looks, self.courses)
        rate = settings.alerts.early.false_alarm_rate
        found[self.has_course] = [model.early.p_value(each)[0] <= rate for each in largest.tolist()]
        return found
