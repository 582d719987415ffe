"""Two models on the same held-out sequences: false alarms, detection of injected faults, operators' marks.

Shapes: N sequences. The rules: docs/learning/promotion.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import msgspec
import numpy as np

from streamad.errors import TrainingDataError
from streamad.injected_faults import FAULT_KINDS, STRENGTHS, channel_scales, injected_windows
from streamad.judge.evaluation import clopper_pearson
from streamad.learn.promotion.operating import OperatingPoint
from streamad.learn.promotion.silenced import Silenced, silenced
from streamad.learn.promotion.warned import Watched
from streamad.learn.registry.artifact import LoadedModel
from streamad.learn.registry.manifest import References
from streamad.learn.registry.registry import Registry
from streamad.learn.store.inliers import InlierStore
from streamad.learn.store.records import StoredSequence
from streamad.learn.training.calibrating import hash_order
from streamad.learn.training.fits import score_windows
from streamad.learn.training.references import Beside, Part, Scored, Trial, references_of
from streamad.learn.training.selection import (
    HeldOut,
    Selection,
    judges_of,
    learned_since_us,
    read_stored,
    reviewed_marks,
    select,
    to_windows,
)
from streamad.ports import Detector
from streamad.settings.plant_yaml import Settings
from streamad.types import WindowSet

_FAULTY_WINDOWS = 20
"""Windows per kind and strength of fault at most: 720 in all, so that a comparison takes seconds."""
_N_STEPS = 3 + sum(len(kind.strengths) for kind in FAULT_KINDS)
Progress: TypeAlias = Callable[[int, int], None]


class ModelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one model in a comparison.

    ``n_presumed`` sequences were excluded as presumed anomalies, ``n_alerts`` of the others alerted: the
    ``false_alarm_rate`` and its 95 % ``interval``. ``detection`` is the mean over ``by_fault``, each the share of
    injected faults found; ``by_strength`` has the shares of weak, medium and strong ones. Of the sequences with marks,
    ``n_confirmed`` anomalies and ``n_raised`` former false alarms alerted. ``has_looks``: it looks at running
    sequences; of ``n_watched`` of those kept it would have warned of ``n_warned``.
    """

    version: str
    n_presumed: int
    n_alerts: int
    false_alarm_rate: float
    interval: tuple[float, float]
    detection: float
    by_fault: dict[str, float]
    by_strength: dict[str, dict[str, float]] = {}
    n_confirmed: int
    n_raised: int
    has_looks: bool = False
    n_watched: int = 0
    n_warned: int = 0

    @property
    def warned_share(self) -> float:
        """Return the share of the watched sequences that it would have warned of; 0 if there are none."""
        return self.n_warned / max(self.n_watched, 1)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two models at the configured ``false_alarm_rate``, or one if there is no champion.

    ``n_sequences`` of the comparison half and ``n_injected`` faulty windows. ``raised_threshold``: the champion alerts
    too often, so its detection was measured at the threshold that would bring its false alarms down. Beside them, from
    operators' marks and 0 in a comparison without them: ``n_confirmed`` anomalies, ``n_false_alarms`` of the comparison
    half, and the champion's alerts that the challenger would silence. ``references``, by "champion" and "challenger",
    are what simple detectors reach; they decide nothing.
    """

    false_alarm_rate: float
    n_sequences: int
    n_injected: int
    n_confirmed: int
    n_false_alarms: int
    challenger: ModelFigures
    champion: ModelFigures | None = None
    raised_threshold: bool = False
    references: dict[str, References] = {}
    silenced: Silenced | None = None

    def figures(self) -> dict[str, float]:
        """Return every figure under a dotted name, as manifests and events keep them."""
        found: dict[str, float] = {
            "configured.false_alarm_rate": self.false_alarm_rate,
            "comparison.sequences": self.n_sequences,
            "comparison.injected": self.n_injected,
            "comparison.confirmed": self.n_confirmed,
            "comparison.false_alarms": self.n_false_alarms,
        }
        for who, model in (("challenger", self.challenger), ("champion", self.champion)):
            if model is not None:
                found |= {f"{who}.{name}": value for name, value in _flat(model)}
        if self.champion is not None:
            found["champion.raised_threshold"] = float(self.raised_threshold)
        if self.silenced is not None:
            found |= {
                "silenced.of_alerts": self.silenced.n_raised,
                "silenced.alerts": len(self.silenced.alerts),
                "silenced.confirmed": self.silenced.count("confirmed"),
                "silenced.without_mark": self.silenced.n_without_mark,
            }
        return found


def _flat(model: ModelFigures) -> Iterator[tuple[str, float]]:
    yield "presumed_anomalies", model.n_presumed
    yield "alerts", model.n_alerts
    yield "false_alarm_rate", model.false_alarm_rate
    yield "false_alarm_rate_low", model.interval[0]
    yield "false_alarm_rate_high", model.interval[1]
    yield "detection", model.detection
    yield from ((f"detection.{kind}", share) for kind, share in model.by_fault.items())
    for kind, shares in model.by_strength.items():
        yield from ((f"detection.{kind}.{strength}", share) for strength, share in shares.items())
    yield "confirmed_found", model.n_confirmed
    yield "false_alarms_raised", model.n_raised
    if model.has_looks:
        yield "watched", model.n_watched
        yield "warned", model.n_warned


def compare(
    challenger: LoadedModel,
    champion: LoadedModel | None,
    half: HeldOut,
    marked: Selection | None = None,
    *,
    rate: float,
    seed: int,
    watched: Watched | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two verified models at the configured false-alarm ``rate``; deterministic per ``seed``.

    ``half`` is what is left of the comparison half, one sequence at least: neither model was trained on it. ``marked``
    (None: the comparison knows none) has the sequences with operators' marks and the stored alerts: they are shown
    beside the comparison and change no other figure. Others than those of the half may have trained a model.
    ``watched`` is what looks at the sequences of ``half`` see, if some are wanted.

    Each model's own presumed anomalies are excluded (see ``OperatingPoint.of``), but no reviewed false alarm that the
    champion has silenced: a challenger that raises it again is worse. If the champion has more false alarms
    than ``rate`` and than the challenger, its detection is measured at a threshold raised until it has not: otherwise a
    champion that alerts at everything would win. Raises DetectorError for scores that are not finite.
    """
    done = itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(next(done), _N_STEPS)

    windows = to_windows(half.sequences)
    called = ((), ()) if marked is None else (marked.confirmed, marked.called("false_alarm", half.sequences))
    confirmed, false_alarms = (to_windows(each) if each else None for each in called)
    if champion is not None:
        half = _reviewed(half, champion, windows, rate)
    own = [OperatingPoint.of(challenger, half, windows, rate)]
    step()
    if champion is not None:
        own.append(OperatingPoint.of(champion, half, windows, rate))
    matched = [own[0], *(theirs.at_most(max(theirs.n_allowed, own[0].n_false)) for theirs in own[1:])]
    step()
    faults = _Faults.found_by(matched, windows, seed, step)
    marked_windows = (confirmed, false_alarms)
    figures = [
        _with_warnings(
            _figures(own[i], matched[i], faults.by_fault[i], faults.by_strength[i], marked_windows), own[i], watched
        )
        for i in range(len(own))
    ]
    no_more = None
    if champion is not None and marked is not None:
        no_more = silenced(own[1], own[0], marked.alerts, marked.marks)
    step()
    return Comparison(
        false_alarm_rate=rate,
        n_sequences=len(windows),
        n_injected=faults.n,
        n_confirmed=0 if confirmed is None else len(confirmed),
        n_false_alarms=0 if false_alarms is None else len(false_alarms),
        challenger=figures[0],
        champion=None if champion is None else figures[1],
        raised_threshold=matched[-1] is not own[-1],
        silenced=no_more,
    )


def _reviewed(half: HeldOut, champion: LoadedModel, windows: WindowSet, rate: float) -> HeldOut:
    """Return ``half``, in which only reviewed false alarms that ``champion`` has silenced count as normal.

    A person saw those silenced. The others must not count as false alarms of a champion that still raises them.
    """
    if not half.is_normal.any():
        return half
    point = OperatingPoint.of(champion, half, windows, rate)
    return replace(half, is_normal=half.is_normal & ~point.alerts(point.scores))


@dataclass(frozen=True, slots=True)
class _Faults:
    """The number of faulty windows, and per model the share of each kind that it found, also by strength."""

    n: int
    by_fault: list[dict[str, float]]
    by_strength: list[dict[str, dict[str, float]]]

    @classmethod
    def found_by(cls, models: list[OperatingPoint], windows: WindowSet, seed: int, step: Callable[[], None]) -> _Faults:
        left_out = np.logical_or.reduce([model.left_out for model in models])
        order = hash_order(windows.ids, seed)
        base = windows.take([i for i in order if not left_out[i]][:_FAULTY_WINDOWS])
        n_injected: dict[str, dict[str, int]] = {}
        n_found: list[dict[str, dict[str, int]]] = [{} for _ in models]
        for kind, strength, faulty in injected_windows(base, channel_scales(windows), seed=seed):
            step()
            if not len(faulty):
                continue
            name = STRENGTHS[kind.strengths.index(strength)]
            n_injected.setdefault(kind.name, {})[name] = len(faulty)
            for model, found in zip(models, n_found, strict=True):
                found.setdefault(kind.name, {})[name] = model.n_alerts_on(faulty)
        n_all = {kind: sum(counts.values()) for kind, counts in n_injected.items()}
        return cls(
            sum(n_all.values()),
            [{kind: sum(found[kind].values()) / n for kind, n in n_all.items()} for found in n_found],
            [
                {
                    kind: {name: found[kind][name] / n for name, n in counts.items()}
                    for kind, counts in n_injected.items()
                }
                for found in n_found
            ],
        )


def _figures(
    own: OperatingPoint,
    matched: OperatingPoint,
    by_fault: dict[str, float],
    by_strength: dict[str, dict[str, float]],
    marked_windows: tuple[WindowSet | None, WindowSet | None],
) -> ModelFigures:
    """Return the figures of a model: false alarms at its ``own`` threshold, detection at the ``matched`` one.

    ``marked_windows``: confirmed anomalies, and former false alarms.
    """
    confirmed, false_alarms = marked_windows
    return ModelFigures(
        version=own.model.ref.version,
        n_presumed=int(own.left_out.sum()),
        n_alerts=own.n_false,
        false_alarm_rate=own.n_false / own.n_kept,
        interval=clopper_pearson(own.n_false, own.n_kept),
        detection=sum(by_fault.values()) / len(by_fault) if by_fault else 0.0,
        by_fault=by_fault,
        by_strength=by_strength,
        n_confirmed=matched.n_alerts_on(confirmed),
        n_raised=own.n_alerts_on(false_alarms),
    )


def _with_warnings(figures: ModelFigures, own: OperatingPoint, watched: Watched | None) -> ModelFigures:
    """Return ``figures`` with the warnings that looks of the model would have raised, of what it keeps."""
    if watched is None or own.model.early is None:
        return figures
    kept = watched.has_course & ~own.left_out
    n_warned = int((watched.warned(own.model) & kept).sum())
    return msgspec.structs.replace(figures, has_looks=True, n_watched=int(kept.sum()), n_warned=n_warned)


def compare_versions(
    registry: Registry,
    store: InlierStore,
    champion: str,
    challenger: str,
    *,
    settings: Settings,
    model: str,
    detector: Detector,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two versions of ``model`` on the sequences in ``store``, whichever version is in service.

    Raises TrainingDataError for an empty comparison half, RegistryError, ArtifactError, StoreError, DetectorError.
    """
    versions = (champion, challenger)
    theirs, ours = (registry.load(model, version, settings=settings, detector=detector) for version in versions)
    since = max(learned_since_us(registry, model, version) or 0 for version in versions) or None
    stored = read_stored(store, since_us=since)
    learning, rate = settings.learning, settings.alerts.false_alarm_rate
    assert learning is not None
    reviewed = reviewed_marks(registry, model, registry.current(model))
    judges = judges_of(stored, registry, model, since)
    selection = select(stored, settings=learning, rate=rate, judges=judges, reviewed=reviewed)
    half = selection.comparable(learning.promotion.min_comparison)
    if not len(half):
        raise TrainingDataError(
            "the inlier store holds no sequences to compare on: wait until more are judged, or raise learning.reserve"
        )
    found = compare(
        ours,
        theirs,
        half,
        selection,
        rate=rate,
        seed=settings.model.seed,
        watched=Watched.of(half.sequences, settings),
        progress=progress,
    )
    accepted = select(stored._replace(aside=()), settings=learning, rate=rate, judges=judges)
    training = (*accepted.judged, *accepted.uncut)
    return msgspec.structs.replace(found, references=_references((theirs, ours), half, training, settings))


def _references(
    models: tuple[LoadedModel, LoadedModel],
    half: HeldOut,
    training: tuple[StoredSequence, ...],
    settings: Settings,
) -> dict[str, References]:
    """Return the figures of simple detectors beside champion and challenger, on what neither presumes anomalous.

    They are fitted on ``training``.
    """
    windows, rate = to_windows(half.sequences), settings.alerts.false_alarm_rate
    left_out = np.logical_or.reduce([OperatingPoint.of(each, half, windows, rate).left_out for each in models])
    seed = settings.model.seed
    normal = windows.take([i for i in hash_order(windows.ids, seed) if not left_out[i]])
    trial = Trial.of(normal, seed) if settings.model.references and training else None
    if trial is None:
        return {}
    part = Part(to_windows(training), normal)
    others = Beside.of(settings, part).terms_of(settings.model.references, trial)
    found: dict[str, References] = {}
    for who, each in zip(("champion", "challenger"), models, strict=True):
        beside = {kind: terms for kind, terms in others.items() if kind != each.manifest.detector.kind}
        scored = Scored(score_windows(each.scorer, trial.windows), each.calibration_terms)
        figures = references_of(trial, scored, beside, rate)
        found |= {} if figures is None else {who: figures}
    return found
