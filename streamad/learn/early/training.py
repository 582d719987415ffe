"""The early part of a training: looks fitted and calibrated on the sequences that the model is, and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamad.errors import ArtifactError, DetectorError, TrainingDataError
from streamad.judge.early.course import Course, look_at
from streamad.judge.early.model import Look, Scales
from streamad.learn.early.expecting import Faulty, faulty
from streamad.learn.early.fitting import KIND, OPTIONS, LookFitting, ages_of, usual_length
from streamad.learn.registry.early import folder_of, write_maxima, write_probe
from streamad.learn.registry.manifest import DetectorRecord, EarlyRecord
from streamad.ports import BackendExport, FittedDetector
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_status_logger
from streamad.types import FloatArray

_PROBES = 4


@dataclass(frozen=True, slots=True, eq=False)
class TrainedEarly:
    """The ``looks``, each calibration sequence's largest z [n] of all looks, and the courses that the looks know.

    ``longest`` are the points of the longest sequence of both. ``faulty``: what the looks see of faults injected into
    sequences that they do not know.
    """

    looks: tuple[Look, ...]
    maxima: Scales
    known: tuple[Course, ...]
    longest: int
    faulty: Faulty | None = None

    def write(self, folder: Path, settings: Settings, backends: Sequence[str]) -> EarlyRecord:
        """Write looks and maxima into the ``folder`` of a version and return their record.

        They are exported for ``backends``, those of the model; one that fails is left out with a warning. Raises
        OutputError.
        """
        for number, look in enumerate(self.looks):
            of_look = folder_of(folder, number)
            of_look.mkdir(parents=True)
            _fitted(look).export(of_look)
            write_probe(of_look, look, _probe(look, self.known, settings))
        write_maxima(folder, self.maxima)
        exported = {backend: self._export_for(backend, folder) for backend in backends}
        return EarlyRecord(
            detector=DetectorRecord(KIND, dict(OPTIONS)),
            looks=tuple(look.form for look in self.looks),
            usual=usual_length(self.known),
            longest=self.longest,
            backends={backend: files for backend, files in exported.items() if files},
        )

    def _export_for(self, backend: str, folder: Path) -> tuple[str, ...]:
        """Return the files of each look for ``backend``; () if the export failed, which leaves none."""
        places = [folder_of(folder, number) for number in range(len(self.looks))]
        there = {path for place in places for path in place.iterdir()}
        files: tuple[str, ...] = ()
        try:
            for look, place in zip(self.looks, places, strict=True):
                fitted = _fitted(look)
                if not isinstance(fitted, BackendExport):
                    raise DetectorError("detectors of their kind have no other backend")
                files = fitted.export_for(backend, place)
        except (DetectorError, ArtifactError) as error:
            for path in {path for place in places for path in place.iterdir()} - there:
                path.unlink()
            get_status_logger().warning("no export", backend=backend, reason=f"looks at running sequences: {error}")
            return ()
        return files


@dataclass(frozen=True, slots=True, eq=False)
class EarlyTraining:
    """Trains looks on the ``courses`` of a plant's sequences, by id, beside the training of the model."""

    courses: Mapping[str, Course]
    settings: Settings

    def train(
        self, training: Sequence[str], calibrating: Sequence[str], folds: Sequence[Sequence[str]] = ()
    ) -> TrainedEarly:
        """Train on the sequences ``training``; each of ``calibrating`` is calibrated by looks that did not see it.

        Those of one of the ``folds`` are looked at by looks of the same ages, trained without it; without folds, all by
        the looks themselves. A sequence without a course takes no part. Raises TrainingDataError.
        """
        known, fitting = self._of(training), self._fitting
        looks = _looks(fitting, known, self.settings)
        longest = _longest([*known, *self._of(calibrating)])
        ages_of_looks = [look.form.n_points for look in looks]
        if not folds:
            held_out = self._of(calibrating)
            odd = faulty(fitting, looks, held_out, self.settings, ages_of_looks)
            return TrainedEarly(looks, fitting.largest_z(looks, held_out), tuple(known), longest, odd)
        ages, calibrates, maxima, odd = _ages(known, self.settings), frozenset(calibrating), [], None
        for number, fold in enumerate(folds):
            unknown = frozenset(fold)
            others = self._of([name for name in training if name not in unknown])
            # Of all wanted ages, so that the weights are the model's; a look that it lacks does not count.
            found = [look for look in fitting.fit(others, ages) if look.form.n_points in ages_of_looks]
            held_out = self._of([name for name in fold if name in calibrates])
            maxima.append(fitting.largest_z(found, held_out))
            if number == 0:
                odd = faulty(fitting, found, held_out, self.settings, ages_of_looks)
        return TrainedEarly(looks, np.concatenate(maxima), tuple(known), longest, odd)

    def _of(self, ids: Sequence[str]) -> list[Course]:
        return [self.courses[name] for name in ids if name in self.courses]

    @property
    def _fitting(self) -> LookFitting:
        model = self.settings.model
        return LookFitting(self.settings.window, self.settings.channel_specs, seed=model.seed, device=model.device)


def _fitted(look: Look) -> FittedDetector:
    assert isinstance(look.scorer, FittedDetector)
    return look.scorer


def _longest(courses: Sequence[Course]) -> int:
    return max(map(len, courses))


def _ages(courses: Sequence[Course], settings: Settings) -> tuple[int, ...]:
    assert settings.alerts.early is not None
    return ages_of(usual_length(courses), settings.alerts.early.looks, settings.window)


def _looks(fitting: LookFitting, courses: Sequence[Course], settings: Settings) -> tuple[Look, ...]:
    looks = fitting.fit(courses, _ages(courses, settings))
    if not looks:
        raise TrainingDataError(
            "no look at running sequences can be fitted: too few training sequences reach alerts.early.looks within "
            "window.length; record more, or leave alerts.early out"
        )
    return looks


def _probe(look: Look, courses: Sequence[Course], settings: Settings) -> FloatArray:
    """Return windows [P, C, n] by which a worker checks that the look scores as here."""
    seen = (look_at(course, look.form.n_points, settings.window, settings.channel_specs) for course in courses)
    return np.stack([window.values for window in seen if window is not None][:_PROBES])
