"""From windows to a version in the registry: hold out, train, export, calibrate, publish, promote.

Shapes: N sequences, n of them for calibration, K transformations, C channels, L window length.
"""

from __future__ import annotations

import numpy as np

from streamad.errors import TrainingDataError
from streamad.judge.calibration import OUT_OF_FOLD_BELOW, calibration_count
from streamad.learn.early.training import EarlyTraining
from streamad.learn.registry.manifest import UNCOMPARED, WAITS, LearningRecord, Metrics, PromotionDecision
from streamad.learn.registry.registry import Registry
from streamad.learn.training import calibrating
from streamad.learn.training.calibrating import folds_of, hash_order
from streamad.learn.training.checks import check_training_data
from streamad.learn.training.fits import FitProgress, Fits, fingerprint, score_windows, work_folder
from streamad.learn.training.publishing import Calibrated, Prove, Publisher
from streamad.learn.training.references import Part
from streamad.learn.training.selection import learned_since_us
from streamad.ports import Clock, Detector, Scorer
from streamad.settings.plant_yaml import Settings
from streamad.types import WindowSet, from_us


def train_model(
    data: WindowSet,
    detector: Detector,
    *,
    settings: Settings,
    registry: Registry,
    clock: Clock,
    prove: Prove,
    early: EarlyTraining | None = None,
    progress: FitProgress | None = None,
    promote: bool = True,
) -> str:
    """Train a version of ``settings.model.name`` on ``data``, publish it, and put it into service; returns its number.

    From 150 sequences on, a share calibrates and never trains; below, calibration scores are out of fold and the model
    trains on all. The result does not depend on the order of ``data``. A version with a ``promotion_doubt`` stays out
    of service; one that ``prove`` refuses is not published. An interrupted call leaves no version, and a repeated one
    resumes the fits. Where the registry needs approvals the version waits for them. ``early`` trains looks at running
    sequences on the same sequences (``alerts.early``). If the version in service was learned anew after a lasting
    change, this version's manifest records it too: later retrainings use nothing from before it.

    Raises TrainingDataError, DetectorError, OutputError, and RegistryError if another version was promoted meanwhile
    (this one then stays in the registry, out of service).
    """
    model = settings.model
    parent = registry.current(model.name)
    check_training_data(data, settings.channel_specs, settings.window.length)
    ordered = data.take(hash_order(data.ids, model.seed))
    with work_folder(registry.training_folder(model.name), fingerprint(ordered, settings)) as folder:
        split = len(ordered) >= OUT_OF_FOLD_BELOW
        fits = Fits(detector, settings, folder, 1 if split else model.folds + 1, progress)
        since_us = learned_since_us(registry, model.name, parent)
        learning = None if since_us is None else LearningRecord(reason="recordings", since_us=since_us)
        publisher = Publisher(fits, registry, model.name, parent, clock, prove, learning)
        version = (_split if split else _out_of_fold)(ordered, fits, publisher, early)
    if promote:
        doubt = promotion_doubt(registry.manifest(model.name, version).metrics)
        waits = doubt is None and registry.needs_approvals
        if doubt is None and not waits:
            registry.promote(model.name, version, expected=parent, reason=UNCOMPARED)
        decision = PromotionDecision(
            promoted=doubt is None and not waits,
            reason=doubt or (WAITS if waits else UNCOMPARED),
            decided_at=from_us(clock.now_us()),
            challenger=version if waits else "",
            champion=parent if waits else None,
            waits_for_review=waits,
        )
        registry.record_decision(model.name, version, decision)
    return version


def calibrating_ids(ids: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Return which of the sequences ``ids`` calibrate the version that ``train_model`` makes of them.

    Their order is that of the version's calibration terms [n, K].
    """
    model = settings.model
    ordered = hash_order(ids, model.seed)
    if len(ids) >= OUT_OF_FOLD_BELOW:
        order = ordered[: calibration_count(len(ids), model.calibration, settings.alerts.false_alarm_rate)]
    else:
        order = ordered[np.concatenate(folds_of(len(ids), model.folds))]
    return tuple(ids[index] for index in order)


def _split(data: WindowSet, fits: Fits, publisher: Publisher, early: EarlyTraining | None) -> str:
    """Hold out the first sequences in hash order, train on the rest."""
    settings = fits.settings
    n = calibration_count(len(data), settings.model.calibration, settings.alerts.false_alarm_rate)
    if n == 0:
        raise TrainingDataError(f"model.calibration holds none of {len(data)} sequences out: raise it")
    part = Part(training=data.take(np.arange(n, len(data))), held_out=data.take(np.arange(n)))

    def calibrate(scorer: Scorer) -> Calibrated:
        return calibrating.held_out(scorer, part, score_windows(scorer, part.held_out), settings)

    fitted = fits.final(part.training)
    return publisher.publish(fitted, part.training, calibrate, calibration_ids=part.held_out.ids, early=early)


def _out_of_fold(data: WindowSet, fits: Fits, publisher: Publisher, early: EarlyTraining | None) -> str:
    """Score each sequence by a model that did not see it, then train on all."""
    calibrated = calibrating.out_of_fold(fits, data, data.take(np.arange(0)), remedy="record more")
    return publisher.publish(fits.final(data), data, lambda _: calibrated, early=early)


def promotion_doubt(metrics: Metrics) -> str | None:
    """Return why a model must not judge: its own training sequences score above every calibration score.

    Held-out scores normally lie at or above those of training sequences. If all lie below, folds and final model have
    different scales (too little training), and nearly every normal sequence would alert.
    """
    highest = metrics.score_quantiles["1"]
    if metrics.training_median <= highest:
        return None
    return (
        f"its own training sequences score {metrics.training_median:.3f} (median), above all calibration scores "
        f"(at most {highest:.3f}): most normal sequences would alert; train for more epochs or on more recordings"
    )
