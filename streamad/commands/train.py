"""``streamad train``: trains a model on recordings of normal sequences."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from streamad.commands.shared.console import (
    Bar,
    ConfigOption,
    JsonOption,
    count,
    err,
    note,
    notice,
    out,
    print_json,
    run_async,
    wrapped,
)
from streamad.commands.shared.figures.certification import METHODS, line_below_certified
from streamad.commands.shared.figures.faults import found_faults, print_references
from streamad.commands.shared.figures.labels import (
    LabelColumnOption,
    LabelIdOption,
    LabelOptions,
    LabelsOption,
    NormalOption,
)
from streamad.commands.shared.figures.lengths import odd_lengths
from streamad.commands.shared.figures.losses import Losses, lost
from streamad.commands.shared.figures.warnings import print_expected
from streamad.commands.shared.offline import ray_address
from streamad.commands.shared.options import FromOption, SinceOption, UntilOption, input_url, open_input, span_now
from streamad.commands.shared.plants import load_whole_plant
from streamad.commands.shared.windows import Recordings, detection_of, print_detection, read_windows, without_model
from streamad.errors import (
    ArtifactError,
    DetectorError,
    ExecutorError,
    RegistryError,
    StreamadError,
    TrainingDataError,
    UsageError,
)
from streamad.judge.bank import settings_for
from streamad.judge.calibration import scores_of
from streamad.judge.evaluation import Evaluation
from streamad.language import percent
from streamad.learn.early.training import EarlyTraining
from streamad.learn.parts import detector_for, registry_of
from streamad.learn.registry.manifest import Manifest
from streamad.learn.registry.registry import Registry
from streamad.learn.trainer.proof import proved_in_new_process
from streamad.learn.training.fits import FitStep
from streamad.learn.training.from_recordings import calibrating_ids, promotion_doubt, train_model
from streamad.learn.training.presumed import separated
from streamad.messages import ModelRef
from streamad.offline.training import Training, trained_on_ray
from streamad.outputs.versions.service import loads_text
from streamad.plant import Plant
from streamad.ports import Detector
from streamad.safe_text import visible_name
from streamad.settings.plant_yaml import Settings
from streamad.types import FloatArray, WindowSet

_FEWEST_APART, _SHARE_APART = 3, 0.03
"""So many calibration sequences that stand apart, and such a share of them, are named."""
_MOST_NAMED = 5


def train(
    recordings: Annotated[
        str | None,
        typer.Argument(help="Recordings of normal sequences: path or URL. Default: model.recordings, else the source."),
    ] = None,
    *,
    config: ConfigOption = Path("plant.yaml"),
    from_url: FromOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    labels: LabelsOption = None,
    normal: NormalOption = None,
    label_id: LabelIdOption = None,
    label_column: LabelColumnOption = None,
    promote: Annotated[bool, typer.Option(help="Put the new version into service.")] = True,
    force: Annotated[
        bool, typer.Option("--force", help="Train even if more than 5 % of the samples are lost.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="With --on: models that train at once.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="ray[://HOST:PORT]",
            help="Train several models at once on Ray, each on one thread; the registry has the same path there.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on recordings of normal sequences and put it into service.

    With --labels it trains on the normal ones only, and then prints how many of the others the new version finds, by
    label. A part of the recordings is held out to calibrate the false-alarm rate; fewer than 150 sequences are scored
    out of fold instead. After Ctrl-C the same command resumes from there. With several models (models in the config)
    each is trained on the sequences of its own value.

    Example: streamad train 'normal/*.csv'
    """
    began_s = time.perf_counter()
    label_options = LabelOptions(labels, normal, label_id, label_column)
    plant = load_whole_plant(config)
    if jobs is not None and on is None:
        raise UsageError("--jobs goes with --on ray: models that train at once")
    if on is not None and plant.settings.models is None:
        raise UsageError("--on trains several models (models in the config), and this config has one: leave it out")
    address = None if on is None else ray_address(on)
    detector = detector_for(plant)
    url = input_url(recordings, from_url) or plant.settings.model.recordings
    source = open_input(plant, url, span_now(plant, since, until))
    known = label_options.read(source, plant.settings.decode, needs_normal=True)
    named = recordings or from_url or plant.settings.model.recordings or plant.settings.source.url
    data = run_async(read_windows(plant, source, named, labels=known))
    _warn(data)
    sets = data.window_sets()
    _check_count(sets, plant.settings)
    if n := without_model(data, sets):
        err.print(
            notice("labels", f": {count(n, 'anomalous sequence')} without a model: no normal sequence trains one")
        )
    losses = Losses.of(data.counters)
    if losses.are_many and not force:
        raise TrainingDataError(
            f"{losses.text} are lost, so sequences are cut wrongly or incomplete: see streamad check "
            "(decode.fields, sequences); --force trains on the rest"
        )
    if url is None:
        err.print(f"training on {plant.settings.source.url} (the source; model.recordings is not set)")
    training = _Training(plant, detector, data, began_s, promote=promote, as_json=as_json)
    if plant.settings.models is None:
        ((name, windows),) = sets.items()
        result = training.run(name, windows)
        if as_json:
            print_json(result)
        if promote and not result["promoted"] and not result["waits"]:
            raise DetectorError(training.refusal(result))
    else:
        training.run_all(sets, {} if on is None else training.on_ray(sets, address, jobs))


class _Made(NamedTuple):
    """A version that was trained elsewhere, or why there is none, and the version in service before."""

    version: str | StreamadError
    before: str | None


@dataclass(frozen=True, slots=True)
class _Training:
    """Trains one model after the other and prints the results; ``began_s``: when the command began, before reading."""

    plant: Plant
    detector: Detector
    data: Recordings
    began_s: float
    promote: bool
    as_json: bool

    def _early(self, settings: Settings) -> EarlyTraining | None:
        courses = self.data.courses_by_id()
        return None if courses is None else EarlyTraining(courses, settings)

    def on_ray(self, sets: dict[str, WindowSet], address: str | None, n: int | None) -> dict[str, _Made]:
        """Train all models on Ray, ``n`` at once, and return what came of each. Raises ExecutorError."""
        registry = registry_of(self.plant)
        before = {name: registry.current_or_none(name) for name in sets}
        early = self._early(self.plant.settings)
        trainings = [
            Training(self.plant, name, windows.distinct(), early, self.promote) for name, windows in sets.items()
        ]
        found: dict[str, _Made] = {}
        with Bar("training", quiet=self.as_json) as bar:
            bar.show(f"training: 0 of {count(len(sets), 'model')}", 0, len(sets))
            for name, version in trained_on_ray(trainings, address, n):
                found[name] = _Made(version, before[name])
                text = f"training: {len(found)} of {count(len(sets), 'model')}"
                bar.show(text, len(found), len(sets), line=f"{text}: {name}")
        return found

    def run(self, name: str, windows: WindowSet, label: str = "", made: _Made | None = None) -> dict[str, Any]:
        """Train a version of the model ``name``, unless it is ``made``, and return its data, for machines.

        Raises StreamadError.
        """
        plant = self.plant
        registry = registry_of(plant)
        before = registry.current_or_none(name) if made is None else made.before
        n_all, windows = len(windows), windows.distinct()
        if len(windows) < n_all:
            err.print(notice("left out", f" {n_all - len(windows)} of {n_all} sequences: copies of others"))
        if made is not None and isinstance(made.version, StreamadError):
            raise made.version
        with Bar(f"{label}training", quiet=self.as_json or made is not None, is_kept=True) as bar:
            shown = FitsShown(bar, label)
            try:
                version = (made and str(made.version)) or train_model(
                    windows,
                    self.detector,
                    settings=settings_for(plant.settings, name),
                    registry=registry,
                    clock=plant.clock,
                    prove=proved_in_new_process,
                    early=self._early(plant.settings),
                    progress=shown.add,
                    promote=self.promote,
                )
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt("the same command resumes from here") from stop
        manifest = registry.manifest(name, version)
        promoted = registry.current(name) == version
        terms = registry.calibration_terms(name, version)
        below_certified = line_below_certified(terms, manifest.metrics.method, plant.settings)
        calibrating = calibrating_ids(windows.ids, settings_for(plant.settings, name))
        apart = _standing_apart(terms, calibrating)
        if not self.as_json:
            in_all = "" if label else " in all"
            took = f"{bar.elapsed_s if label else time.perf_counter() - self.began_s:.0f} s{in_all}"
            loads = f"; {loads_text(plant)}" if plant.settings.learning is not None else ""
            _print_result(manifest, promoted, loads, took)
            if promoted and before is not None:
                _print_replaced(registry, manifest, before, named=plant.settings.models is not None)
            if below_certified is not None:
                out.print(note(below_certified))
            if apart:
                out.print(note(_doubt_about(apart, len(calibrating))))
        detection = self._detection(manifest, calibrating)  # real faults first, injected ones next
        if not self.as_json:
            # Recordings that may hold faults are looked at first: more of them, or a higher rate, are no remedy then.
            _print_found(manifest, plant.settings, says_remedy=below_certified is None and not apart)
            print_expected(manifest.early)
            if not label:
                _print_next(manifest, promoted=promoted)
        return {
            "model": name,
            "version": version,
            "promoted": promoted,
            "waits": manifest.waits_beside(before),
            "replaces": before if promoted else None,
            "metrics": manifest.metrics,
            "references": manifest.references,
            "early": None if manifest.early is None else manifest.early.expected,
            "standing_apart": apart,
            "detection": None if detection is None else asdict(detection),
        }

    def _detection(self, manifest: Manifest, calibrating: tuple[str, ...]) -> Evaluation | None:
        """Return, and print, how the new version judges the sequences whose labels mean anomalous.

        The version is published whatever they say: a failure here is only told.
        """
        ref = ModelRef(manifest.name, manifest.version)
        try:
            found = detection_of(self.plant, self.data, ref, calibrating)
        except (ArtifactError, DetectorError, RegistryError) as error:
            err.print(notice("labels", f": the anomalous sequences were not judged: {error}"))
            return None
        if found is not None and not self.as_json:
            print_detection(found, ref, manifest.metrics.method, self.plant.settings.alerts.false_alarm_rate)
        return found

    def run_all(self, sets: dict[str, WindowSet], made: Mapping[str, _Made]) -> None:
        """Train every model that is not ``made``, also after a failure of one. Raises DetectorError at the end."""
        results, wrong = [], []
        for number, (name, windows) in enumerate(sets.items(), start=1):
            try:
                result = self.run(name, windows, f"{name} ({number}/{len(sets)}): ", made.get(name))
                if self.promote and not result["promoted"] and not result["waits"]:
                    result["error"] = self.refusal(result)
            except (TrainingDataError, DetectorError, RegistryError, ExecutorError) as error:
                result = {"model": name, "error": str(error)}
            results.append(result)
            if "error" in result:
                wrong.append(name)
                err.print(notice(f"model {name}", f": {result['error']}"))
        if self.as_json:
            print_json({"models": results})
        else:
            took_s = time.perf_counter() - self.began_s
            out.print(f"{count(len(sets), 'model')} in {took_s:.0f} s in all")
        if wrong:
            raise DetectorError(
                f"{len(wrong)} of {len(sets)} models have no new version in service: {', '.join(wrong)}"
            )

    @staticmethod
    def refusal(result: dict[str, Any]) -> str:
        """Return why the version that ``run`` returned is not in service."""
        doubt = promotion_doubt(result["metrics"])
        return f"version {result['version']} was not put into service: {doubt or 'another one was promoted'}"


class FitsShown:
    """Shows the fits of one training on ``bar``; ``label`` names the model.

    A fit may end before its last possible epoch: those that follow are taken to be as long as the longest so far.
    """

    def __init__(self, bar: Bar, label: str = "") -> None:
        self._bar, self._label = bar, label
        self._longest = 0

    def add(self, step: FitStep) -> None:
        """Show fit, epoch and loss, and each fit's first and last epoch as a line; then the proof."""
        epoch = step.step
        if step.phase == "proof":
            text = f"{self._label}proof: a new process loads the version as streamad run does"
            self._bar.show(text, 1, 1, line=text)
            return
        is_last = epoch.is_last or epoch.epoch == epoch.n_epochs
        phase = "training" if step.phase == "final" else f"calibrating {step.fit}/{step.n_fits - 1}"
        where = f"epoch {epoch.epoch}, the last" if is_last else f"epoch {epoch.epoch} of at most {epoch.n_epochs}"
        validation = "" if epoch.validation_loss is None else f", validation {epoch.validation_loss:.4f}"
        text = f"{self._label}{phase}: {where}, loss {epoch.loss:.4f}{validation}"
        length = max(self._longest if is_last or self._longest else epoch.n_epochs, epoch.epoch)
        if is_last:
            self._longest = length
        done = step.fit * length if is_last else (step.fit - 1) * length + epoch.epoch
        self._bar.show(text, done, step.n_fits * length, line=text if is_last or epoch.epoch == 1 else "")


def _check_count(sets: dict[str, WindowSet], settings: Settings) -> None:
    """Raise TrainingDataError if the field has more values than ``max_models``."""
    own = [name for name in sets if name != settings.model.name]
    if settings.models is not None and len(own) > settings.models.max_models:
        raise TrainingDataError(
            f"{len(own)} values of {settings.models.field} in the recordings, models.max_models is "
            f"{settings.models.max_models}: raise it, or choose another field (models.field)"
        )


def _warn(data: Recordings) -> None:
    for sequence, why, _ in data.unscorable[:5]:
        err.print(notice("left out", f" {visible_name(sequence.stream)} {visible_name(sequence.sequence)}: {why}"))
    if len(data.unscorable) > 5:
        err.print(notice("left out", f" {len(data.unscorable) - 5} more"))
    if (n := data.n_unlabelled) and data.sequences:  # else the refusal says it
        n_all = n + len(data.sequences)
        advice = "; training uses sequences labelled normal only: label the others, too" if 2 * n > n_all else ""
        err.print(notice("left out", f" {n} of {count(n_all, 'sequence')}: without a label{advice}"))
    for loss in lost(data.counters.as_dict()):
        err.print(notice(loss.what, f": {loss.text}"))
    if odd := odd_lengths(data.sequences, data.places):
        err.print(notice("lengths", f": {'; '.join(odd)}"))


def _print_result(manifest: Manifest, promoted: bool, loads: str, took: str) -> None:
    metrics = manifest.metrics
    calibrated = f"calibrated on {metrics.n_calibration} {METHODS[metrics.method]}"
    if metrics.method == "out_of_fold":
        calibrated += ", which estimate the false-alarm rate and certify none"
    out.print(
        wrapped(
            f"model {manifest.name} {manifest.version}: trained on {metrics.n_training} sequences in "
            f"{manifest.training.duration_s:.0f} s ({took}), {calibrated}; "
            + (f"now in service{loads}" if promoted else "not in service")
        )
    )
    for remark in manifest.training.remarks:
        out.print(note(remark))
    if metrics.score_quantiles["0.75"] < metrics.training_median <= metrics.score_quantiles["1"]:
        out.print(
            note(
                "the model's own training sequences score above most calibration scores, so normal sequences may alert "
                "too often: train for more epochs or on more recordings"
            )
        )


def _standing_apart(terms: FloatArray, ids: Sequence[str]) -> tuple[str, ...]:
    """Return the calibration sequences that score far above the others, the highest first; () if they are few."""
    scores = scores_of(terms)
    n_apart = separated(scores, len(scores) // 4)
    if n_apart < max(_FEWEST_APART, _SHARE_APART * len(scores)):
        return ()
    return tuple(ids[place] for place in np.argsort(-scores, kind="stable")[:n_apart])


def _doubt_about(apart: Sequence[str], n: int) -> str:
    names = ", ".join(visible_name(name) for name in apart[:_MOST_NAMED])
    more = f" and {len(apart) - _MOST_NAMED} more" if len(apart) > _MOST_NAMED else ""
    return (
        f"{len(apart)} of {n} calibration sequences score far above the others: {names}{more}; if they are faults, "
        "leave them out of the recordings and train again, because such faults are missed otherwise"
    )


def _print_next(manifest: Manifest, *, promoted: bool) -> None:
    if promoted:
        out.print("next: streamad replay RECORDINGS --labels LABELS.csv, or streamad run")
    elif manifest.decision is not None and manifest.decision.waits_for_review:
        out.print(f"next: two people put it into service with streamad models approve {manifest.version}")
    else:
        out.print(f"next: streamad models promote {manifest.version} puts it into service")


def _print_found(manifest: Manifest, settings: Settings, *, says_remedy: bool) -> None:
    """Print which share of injected faults is found at the configured false-alarm rate, and by simple kinds beside."""
    found = found_faults(manifest.references, settings, says_more=says_remedy)
    if found is not None:
        line = found.line(below_certified=not says_remedy)
        out.print(note(line) if found.is_low else wrapped(line))
    if manifest.references is not None:
        print_references({"this model": manifest.references}, names_better=found is None or not found.is_low)


def _print_replaced(registry: Registry, manifest: Manifest, before: str, *, named: bool) -> None:
    """Print which version the one of ``manifest`` has replaced, with the figures of both, and how to undo it."""
    undo = f"streamad models rollback{f' --model {manifest.name}' if named else ''} undoes it"
    former = None
    try:
        former = registry.manifest(manifest.name, before)
        figures = _figures(former)
    except (ArtifactError, RegistryError):
        figures = "its manifest cannot be read"
    out.print(notice("replaces", f" {before} ({figures}; {manifest.version}: {_figures(manifest)}): {undo}"))
    if former is not None and _finds_fewer(former, manifest):
        out.print(note(f"{manifest.version} finds fewer injected faults than {before} found, for sure: {undo}"))


def _finds_fewer(former: Manifest, manifest: Manifest) -> bool:
    """Return whether the intervals of both shares of injected faults lie apart, at the same rate."""
    if former.references is None or manifest.references is None:
        return False
    then, now = former.references.found, manifest.references.found
    return then.rate == now.rate and now.interval[1] < then.interval[0]


def _figures(manifest: Manifest) -> str:
    """Return by what a version can be compared with another: its data, and what it finds of injected faults."""
    metrics, references = manifest.metrics, manifest.references
    parts = [f"{metrics.n_training} trained", f"{metrics.n_calibration} {METHODS[metrics.method]}"]
    if references is not None:
        found = references.found
        parts += [f"{percent(found.share)} of injected faults found at {found.rate:g}", f"AUC {references.auc:.3f}"]
    return ", ".join(parts)
