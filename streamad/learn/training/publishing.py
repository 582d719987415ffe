"""From a fitted model to a version in the registry: export, calibrate, probe, describe, publish.

Shapes: N training and n calibration sequences, K transformations, C channels, L window length.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
import numpy as np

from streamad.errors import ArtifactError, DetectorError, TrainingDataError
from streamad.judge.attribution import reference_windows
from streamad.judge.calibration import Calibration, CalibrationMethod, certifiable_rate, scores_of
from streamad.judge.envelope import Envelope
from streamad.judge.scoring import TrainingIds
from streamad.language import percent
from streamad.learn.early.training import TrainedEarly
from streamad.learn.registry.arrays import (
    PROBE_TOLERANCE,
    PROBE_TOLERANCE_OTHER_DEVICES,
    largest_deviation,
    probe_deviation,
    probe_tolerance,
)
from streamad.learn.registry.artifact import PROBE_REMEDY, write_arrays
from streamad.learn.registry.backends import TORCHSCRIPT, RefusedBackend, exportable
from streamad.learn.registry.manifest import (
    DetectorRecord,
    EarlyRecord,
    LearningRecord,
    Manifest,
    Metrics,
    References,
    TrainingRecord,
    package_versions,
)
from streamad.learn.registry.registry import Registry
from streamad.learn.registry.staging import STAGED
from streamad.learn.store.records import WindowForm
from streamad.learn.training.fits import Fits
from streamad.learn.training.found import expected_of
from streamad.learn.training.probe import Probe, ProbeCandidates, share_alike
from streamad.messages import ModelRef
from streamad.ports import BackendDetector, BackendExport, Clock, FittedDetector, Scorer
from streamad.settings.plant_yaml import Settings
from streamad.telemetry.logs import get_status_logger
from streamad.types import FloatArray, WindowSet, from_us

_LEAST_ALIKE = 0.5  # of the windows, for a backend; ties, of which a long window has many, decide the others
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)

Prove: TypeAlias = Callable[[Settings, ModelRef, Path], tuple[RefusedBackend, ...]]
"""Loads the version in a folder as a worker does, and returns the backends that must not serve it.

Raises DetectorError if that cannot be found out.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Calibrated:
    """Held-out terms [n, K] of the sequences ``ids``, and their method; ``n_presumed`` sequences were left out.

    Out of fold, ``folds`` has the ids that each fold held out, ``fold_medians`` their median scores. ``references`` are
    what simple detectors reach on held-out sequences: for the manifest alone.
    """

    terms: FloatArray
    ids: tuple[str, ...]
    method: CalibrationMethod
    folds: tuple[tuple[str, ...], ...] = ()
    fold_medians: tuple[float, ...] = ()
    n_presumed: int = 0
    references: References | None = None


class LooksTraining(Protocol):
    """Trains looks at running sequences beside a model."""

    def train(
        self, training: Sequence[str], calibrating: Sequence[str], folds: Sequence[Sequence[str]]
    ) -> TrainedEarly | None:
        """Train on ``training``, calibrated as the model (see ``Calibrated``); None: there are none.

        Raises TrainingDataError.
        """


@dataclass(frozen=True, slots=True, eq=False)
class _Export:
    """Files of a backend, its scorer, and the deviations [N] of its terms of the probe's candidates."""

    backend: str
    files: tuple[str, ...]
    scorer: Scorer
    deviations: FloatArray


@dataclass(frozen=True, slots=True)
class Publisher:
    """Makes versions of ``model`` from the fits; ``parent`` is the champion at the start of the training.

    A version that ``prove`` refuses is not published: nobody could use it, and the fits are kept, so the training
    resumes from them with what the error says.
    """

    fits: Fits
    registry: Registry
    model: str
    parent: str | None
    clock: Clock
    prove: Prove
    learning: LearningRecord | None = None

    def publish(
        self,
        fitted: FittedDetector,
        training: WindowSet,
        calibrate: Callable[[Scorer], Calibrated],
        *,
        calibration_ids: Iterable[str] = (),
        names: Mapping[str, str] | None = None,
        early: LooksTraining | None = None,
    ) -> str:
        """Publish ``fitted``, calibrated by the scorer that its export loads as, and return the version's number.

        ``calibration_ids`` are of the sequences that calibrate and are not in ``training``; ``names`` are what people
        call the training sequences, by id, if that is not the id. ``early`` trains looks at running sequences on what
        trains and calibrates the model.

        Raises DetectorError if the scores of the export differ from the model's or are not finite, or if ``prove``
        refuses it; TrainingDataError if it could never alert, or by ``early``; OutputError.
        """
        with self.registry.new_version(self.model) as staged:
            fitted.export(staged.folder)
            scorer = self.fits.detector.load(staged.folder, device=self.fits.settings.model.device)
            calibration, training_terms = calibrate(scorer), fitted.training_scores()
            check_finite("the trained model", calibration.terms, training_terms)
            check_can_alert(calibration.terms, self.fits.settings.alerts.false_alarm_rate)
            called = training.ids if names is None else [names[each] for each in training.ids]
            reference = reference_windows(training.values, training.lengths, scores_of(training_terms), called)
            exported = self.fits.detector.load(staged.folder, device="cpu")
            candidates = ProbeCandidates.of(training, exported)
            exports = self._export_for_backends(fitted, staged.folder, candidates)
            probe = _checked(fitted, candidates.probe([each.deviations for each in exports]))
            backends = {each.backend: each.files for each in exports if _passes(each, staged.folder, probe)}
            write_arrays(
                staged.folder,
                calibration_terms=calibration.terms,
                probe=probe,
                reference=reference,
                training_ids=TrainingIds.of((*training.ids, *calibration_ids)),
                envelope=Envelope.of(training.values, training.lengths),
            )
            draft = self._manifest(fitted, calibration, training_terms, backends)
            looks = None if early is None else early.train(training.ids, calibration.ids, calibration.folds)
            if looks is not None:
                draft = msgspec.structs.replace(draft, early=self._early(looks, staged.folder, backends))
            staged.seal(draft)
            self.fits.show_proof()
            for refused in self.prove(self.fits.settings, ModelRef(self.model, STAGED), staged.folder):
                if refused.backend == TORCHSCRIPT:
                    raise DetectorError(self._refusal(refused.reason, largest_deviation(exported, *probe)))
                files = backends.pop(refused.backend)
                _leave_out(refused.backend, [staged.folder / name for name in files], refused.reason)
            return staged.publish(msgspec.structs.replace(draft, backends=backends))

    def _early(self, early: TrainedEarly, folder: Path, backends: dict[str, tuple[str, ...]]) -> EarlyRecord:
        """Write the looks of the version; those of ``backends`` that cannot serve them are left out of both."""
        settings = self.fits.settings
        assert settings.alerts.early is not None
        record = early.write(folder, settings, tuple(backends))
        for backend in set(backends) - set(record.backends):
            for name in backends.pop(backend):
                (folder / name).unlink()
        return msgspec.structs.replace(record, expected=expected_of(early, settings.alerts.early.false_alarm_rate))

    def _refusal(self, reason: str, deviation: float) -> str:
        """Return why the version is not published, and what to do; ``deviation`` is that of the probe in this process.

        If that is too large as well, scores depend on which windows are scored together: one thread would not help.
        """
        remedy = "name another model.detector, such as nearest or pca"
        is_alike_here = deviation <= probe_tolerance(self.fits.settings.model.device)
        if reason.endswith(PROBE_REMEDY) and is_alike_here and os.environ.get("OMP_NUM_THREADS") != "1":
            remedy = (
                "train with one thread (OMP_NUM_THREADS=1 streamad train; learning.threads: 1), which resumes; "
                f"if that is refused too, {remedy}"
            )
        for old in (PROBE_REMEDY, "train anew"):
            reason = reason.removesuffix(f": {old}")
        return (
            "the new version is not published, because a new process with one thread, such as `streamad run`, refuses "
            f"it: {reason}: {remedy}"
        )

    def _export_for_backends(self, fitted: FittedDetector, folder: Path, candidates: ProbeCandidates) -> list[_Export]:
        """Export for the backends of the config; one that fails is left out with a warning."""
        exports = []
        for backend in exportable(self.fits.settings.model.backend, self.fits.detector):
            there = set(folder.iterdir())
            try:
                exports.append(self._export_for(backend, fitted, folder, candidates))
            except (DetectorError, ArtifactError) as error:
                _leave_out(backend, set(folder.iterdir()) - there, str(error))
        return exports

    def _export_for(self, backend: str, fitted: FittedDetector, folder: Path, candidates: ProbeCandidates) -> _Export:
        detector = self.fits.detector
        if not isinstance(fitted, BackendExport) or not isinstance(detector, BackendDetector):
            raise DetectorError("detectors of this kind have no other backend")
        there = {path.name for path in folder.iterdir()}
        files = fitted.export_for(backend, folder)
        if set(files) != {path.name for path in folder.iterdir()} - there:
            raise DetectorError(f"the detector's export for it did not write just the files that it names ({files})")
        scorer = detector.load_by(backend, folder, device="cpu")
        deviations = candidates.deviations(scorer)
        if share_alike(deviations) < _LEAST_ALIKE:
            raise DetectorError(
                f"it scores otherwise than the model ({percent(1 - share_alike(deviations))} of {len(deviations)} "
                f"windows, median deviation {np.median(deviations):.2g})"
            )
        return _Export(backend, files, scorer, deviations)

    def _manifest(
        self,
        fitted: FittedDetector,
        calibration: Calibrated,
        training_terms: FloatArray,
        backends: dict[str, tuple[str, ...]],
    ) -> Manifest:
        settings = self.fits.settings
        return Manifest(
            detector=DetectorRecord(settings.model.detector, dict(settings.model.options)),
            channels=settings.channel_specs,
            window=WindowForm.of(settings.window),
            seed=settings.model.seed,
            training=TrainingRecord.of(fitted.summary),
            metrics=_metrics(calibration, training_terms),
            parent=self.parent,
            packages=package_versions(),
            created_at=from_us(self.clock.now_us()),
            learning=self.learning,
            references=calibration.references,
            backends=backends,
        )


def _passes(export: _Export, folder: Path, probe: Probe) -> bool:
    """Return whether the export scores the probe as a worker demands it; otherwise it is left out with a warning."""
    deviation = largest_deviation(export.scorer, *probe)
    if deviation <= PROBE_TOLERANCE:
        return True
    why = f"it scores otherwise than the model (deviation {deviation:.2g} of the probe)"
    _leave_out(export.backend, [folder / name for name in export.files], why)
    return False


def _leave_out(backend: str, files: Iterable[Path], why: str) -> None:
    for path in files:
        path.unlink()
    get_status_logger().warning("no export", backend=backend, reason=why)


def _checked(fitted: FittedDetector, probe: Probe) -> Probe:
    """Return ``probe``; raises DetectorError unless its terms are those of the trained model."""
    values, lengths, terms = probe
    deviation = probe_deviation(fitted.score(values, lengths), terms)
    if not deviation <= PROBE_TOLERANCE_OTHER_DEVICES:
        raise DetectorError(f"the exported model scores otherwise than the trained one (deviation {deviation:.2g})")
    return probe


def check_finite(model: str, *terms: FloatArray) -> None:
    """Raise DetectorError if a term of ``model`` is NaN or infinite."""
    if not all(np.isfinite(part).all() for part in terms):
        raise DetectorError(f"{model} gives scores that are not finite: change model.options or model.seed")


def check_can_alert(terms: FloatArray, rate: float) -> None:
    """Raise TrainingDataError if calibration terms [n, K] leave no score a p-value of ``rate`` or less.

    Below the certifiable rate a tail is extrapolated, and scores that are all equal have none.
    """
    n = len(terms)
    if rate < certifiable_rate(n) and Calibration.from_terms(terms, rate).tail == "empirical":
        raise TrainingDataError(
            f"the {n} calibration scores do not differ, so no sequence could alert at a false-alarm rate of {rate:g}: "
            "train on sequences that differ, name another model.detector, or set alerts.false_alarm_rate to "
            f"{certifiable_rate(n):.2g} or more"
        )


def _metrics(calibration: Calibrated, training_terms: FloatArray) -> Metrics:
    scores = scores_of(calibration.terms)
    return Metrics(
        n_training=len(training_terms),
        n_calibration=len(scores),
        method=calibration.method,
        score_quantiles={f"{q:g}": float(np.quantile(scores, q)) for q in _QUANTILES},
        training_median=float(np.median(scores_of(training_terms))),
        fold_medians=list(calibration.fold_medians),
        n_presumed=calibration.n_presumed,
    )
