"""From windows to a version in the registry: hold out, train, export, calibrate, publish, promote.

Shapes: N sequences, n of them for calibration, K transformations, C channels, L window length.
"""

from __future__ import annotations

__all__ = ["FitProgress", "FitStep", "promotion_doubt", "train_model"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamad.errors import DetectorError, TrainingDataError
from streamad.judge.attribution import reference_windows
from streamad.learn._fits import FitProgress, Fits, FitStep, fingerprint, work_folder
from streamad.learn._training_data import check_training_data
from streamad.learn.artifact import PROBE_TOLERANCE_OTHER_DEVICES, probe_deviation, write_arrays
from streamad.learn.manifest import (
    CalibrationMethod,
    DetectorRecord,
    Manifest,
    Metrics,
    PromotionDecision,
    TrainingRecord,
    WindowForm,
    package_versions,
)
from streamad.learn.registry import Registry
from streamad.learn.split import OUT_OF_FOLD_BELOW, calibration_count, folds_of, hash_order
from streamad.ports import Clock, Detector, FittedDetector, Scorer
from streamad.settings import Settings
from streamad.types import FloatArray, IntArray, WindowSet, from_us

_PROBE_WINDOWS = 4
_SCORE_BATCH = 256
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Calibration:
    """Held-out terms [n, K] and how they came about; ``fold_medians`` are scores."""

    terms: FloatArray
    method: CalibrationMethod
    fold_medians: tuple[float, ...] = ()


def train_model(
    data: WindowSet,
    detector: Detector,
    *,
    settings: Settings,
    registry: Registry,
    clock: Clock,
    progress: FitProgress | None = None,
    device: str | None = None,
    promote: bool = True,
) -> str:
    """Train a version of ``settings.model.name`` on ``data``, publish it, and put it into service; returns its number.

    From 150 sequences on, a share calibrates and never trains; below, calibration scores are out of fold and the model
    trains on all. The result does not depend on the order of ``data``. A version of which ``promotion_doubt`` says
    something stays out of service. Interrupted at any moment, there is no version,
    and a repeated call goes on where the fits were. ``device`` defaults to ``settings.model.device``.

    Raises TrainingDataError, DetectorError, OutputError, and RegistryError where another version was promoted
    meanwhile (this one then stays in the registry, out of service).
    """
    model, where = settings.model, device or settings.model.device
    parent = registry.current(model.name)
    check_training_data(data, settings.channel_specs, settings.window.length)
    ordered = data.take(hash_order(data.ids, model.seed))
    with work_folder(registry.training_folder(model.name), fingerprint(ordered, settings, where)) as folder:
        split = len(ordered) >= OUT_OF_FOLD_BELOW
        fits = Fits(detector, settings, where, folder, 1 if split else model.folds + 1, progress)
        run = _Run(fits, registry, parent, clock)
        version = run.split(ordered) if split else run.out_of_fold(ordered)
    if promote:
        doubt = promotion_doubt(registry.manifest(model.name, version).metrics)
        if doubt is None:
            registry.promote(model.name, version, expected=parent)
        reason, now = doubt or "promoted without comparison", from_us(clock.now_us())
        decision = PromotionDecision(promoted=doubt is None, reason=reason, decided_at=now)
        registry.record_decision(model.name, version, decision)
    return version


@dataclass(frozen=True, slots=True)
class _Run:
    fits: Fits
    registry: Registry
    parent: str | None
    clock: Clock

    def split(self, data: WindowSet) -> str:
        """Hold out the first sequences in hash order, train on the rest."""
        settings = self.fits.settings
        n = calibration_count(len(data), settings.model.calibration, settings.alerts.false_alarm_rate)
        if n == 0:
            raise TrainingDataError(f"model.calibration holds none of {len(data)} sequences out: raise it")
        held_out, training = data.take(np.arange(n)), data.take(np.arange(n, len(data)))
        return self._publish(training, lambda scorer: _Calibration(_score(scorer, held_out), "split"))

    def out_of_fold(self, data: WindowSet) -> str:
        """Score each sequence by a model that did not see it, then train on all."""
        n_folds = self.fits.n_fits - 1
        if len(data) < 2 * n_folds:
            raise TrainingDataError(
                f"{len(data)} training sequences, but {n_folds} folds need at least {2 * n_folds}: "
                "record more or lower model.folds"
            )
        folds = enumerate(folds_of(len(data), n_folds), start=1)
        terms = [self.fits.out_of_fold(data, held_out, fold) for fold, held_out in folds]
        medians = tuple(_median(part) for part in terms)
        return self._publish(data, lambda _: _Calibration(np.concatenate(terms), "out_of_fold", medians))

    def _publish(self, training: WindowSet, calibrate: Callable[[Scorer], _Calibration]) -> str:
        fitted = self.fits.final(training)
        with self.registry.new_version(self.fits.settings.model.name) as staged:
            fitted.export(staged.folder)
            scorer = self.fits.detector.load(staged.folder, device=self.fits.device)
            calibration, training_terms = calibrate(scorer), _score(scorer, training)
            _check_finite(calibration.terms, training_terms)
            reference = reference_windows(training.values, training.lengths, training_terms.sum(axis=1))
            write_arrays(
                staged.folder,
                calibration_terms=calibration.terms,
                probe=self._probe(fitted, training, staged.folder),
                reference=(reference.values, reference.lengths),
            )
            return staged.publish(self._manifest(fitted, calibration, training_terms))

    def _probe(
        self, fitted: FittedDetector, training: WindowSet, folder: Path
    ) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return windows, lengths and terms of the exported model on a CPU, which must be those of the trained one."""
        by_length = np.argsort(training.lengths, kind="stable")
        probe = training.take(np.unique(by_length[np.linspace(0, len(by_length) - 1, _PROBE_WINDOWS, dtype=np.int64)]))
        terms = self.fits.detector.load(folder, device="cpu").score(probe.values, probe.lengths)
        deviation = probe_deviation(fitted.score(probe.values, probe.lengths), terms)
        if not deviation <= PROBE_TOLERANCE_OTHER_DEVICES:
            raise DetectorError(f"the exported model scores otherwise than the trained one (deviation {deviation:.2g})")
        return probe.values, probe.lengths, terms

    def _manifest(self, fitted: FittedDetector, calibration: _Calibration, training_terms: FloatArray) -> Manifest:
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
        )


def promotion_doubt(metrics: Metrics) -> str | None:
    """Say why a model must not judge: its own training sequences score above every calibration score.

    Held-out scores lie at or above those of training sequences; below all of them, folds and final model have settled
    on other scales (too little training), and nearly every normal sequence would be an alert.
    """
    highest = metrics.score_quantiles["1"]
    if metrics.training_median <= highest:
        return None
    return (
        f"its own training sequences score {metrics.training_median:.3f} (median), above all calibration scores "
        f"(at most {highest:.3f}): most normal sequences would alert; train for more epochs or on more recordings"
    )


def _score(scorer: Scorer, data: WindowSet) -> FloatArray:
    starts = range(0, len(data), _SCORE_BATCH)
    batches = [
        (data.values[start : start + _SCORE_BATCH], data.lengths[start : start + _SCORE_BATCH]) for start in starts
    ]
    return np.concatenate([scorer.score(values, lengths) for values, lengths in batches])


def _check_finite(*terms: FloatArray) -> None:
    if not all(np.isfinite(part).all() for part in terms):
        raise DetectorError("the trained model gives scores that are not finite: change model.options or model.seed")


def _median(terms: FloatArray) -> float:
    return float(np.median(terms.sum(axis=1)))


def _metrics(calibration: _Calibration, training_terms: FloatArray) -> Metrics:
    scores = calibration.terms.sum(axis=1)
    return Metrics(
        n_training=len(training_terms),
        n_calibration=len(scores),
        method=calibration.method,
        score_quantiles={f"{q:g}": float(np.quantile(scores, q)) for q in _QUANTILES},
        training_median=_median(training_terms),
        fold_medians=list(calibration.fold_medians),
    )
